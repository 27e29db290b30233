import { useMutation, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { Link, useLocation } from 'wouter';
import { problemSentence } from '../api/problem';
import { useCatalog } from '../api/queries';
import type { Credential, CredentialTest } from '../api/types';
import { useSession } from '../session';
import { Dialog } from '../ui/dialog';
import { Field } from '../ui/field';
import { ago, day, words } from '../ui/format';
import { Icon, Spinner } from '../ui/icon';
import { Logo } from '../ui/logo';
import { Menu } from '../ui/menu';
import { useToast } from '../ui/toast';
import { MCP, pageOf, plainName, reconnectPageOf } from './place';

const TYPE_WORDS: Record<string, string> = {
  oauth2: 'Sign-in (OAuth)',
  api_key: 'API key',
  bearer_token: 'Token',
  modulex_key: 'Managed key',
  custom: 'Custom',
};

/** Deleting a credential stops what uses it, so its name has to be typed. */
export function DeleteDialog({
  credential,
  onClose,
  onDeleted,
}: {
  credential: Credential;
  onClose: () => void;
  onDeleted?: () => void;
}) {
  const { api } = useSession();
  const client = useQueryClient();
  const toast = useToast();
  const [typed, setTyped] = useState('');
  const remove = useMutation({
    mutationFn: () => api.call('DELETE', `/credentials/${credential.credential_id}`),
    onSuccess: async () => {
      await client.invalidateQueries({ queryKey: ['credentials'] });
      await client.invalidateQueries({ queryKey: ['llms'] });
      toast('Connection deleted.');
      onClose();
      onDeleted?.();
    },
  });
  const fits = typed.trim() === credential.display_name;
  return (
    <Dialog title="Delete this connection?" onClose={onClose}>
      <form
        className="stack"
        onSubmit={(event: FormEvent) => {
          event.preventDefault();
          if (fits) remove.mutate();
        }}
      >
        <p>
          The stored secret is erased. The assistant can no longer act through it. Type <strong>{credential.display_name}</strong> to
          confirm.
        </p>
        <Field label="Name of the connection" autoComplete="off" value={typed} onChange={(event) => setTyped(event.target.value)} />
        {remove.error && (
          <p className="field-problem" role="alert">
            {problemSentence(remove.error)}
          </p>
        )}
        <div className="dialog-actions">
          <button type="button" className="button" onClick={onClose}>
            Keep it
          </button>
          <button type="submit" className="button danger" disabled={!fits || remove.isPending}>
            Delete
          </button>
        </div>
      </form>
    </Dialog>
  );
}

export function RenameDialog({ credential, onClose }: { credential: Credential; onClose: () => void }) {
  const { api } = useSession();
  const client = useQueryClient();
  const [name, setName] = useState(credential.display_name);
  const save = useMutation({
    mutationFn: () => api.call('PUT', `/credentials/${credential.credential_id}`, { body: { display_name: name.trim() } }),
    onSuccess: async () => {
      await client.invalidateQueries({ queryKey: ['credentials'] });
      onClose();
    },
  });
  return (
    <Dialog title="Rename this connection" onClose={onClose}>
      <form
        className="stack"
        onSubmit={(event: FormEvent) => {
          event.preventDefault();
          if (name.trim()) save.mutate();
        }}
      >
        <Field
          label="Name"
          maxLength={255}
          value={name}
          problem={save.error ? problemSentence(save.error) : null}
          onChange={(event) => setName(event.target.value)}
        />
        <div className="dialog-actions">
          <button type="submit" className="button primary" disabled={!name.trim() || save.isPending}>
            Save
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** What people call the integration; the catalog is usually at hand already. */
function useDisplayName(name: string): string {
  const found = useCatalog().data?.find((item) => item.name === name)?.display_name;
  return name === MCP ? 'MCP server' : (found ?? words(plainName(name)));
}

function CredentialRow({ credential, showIntegration }: { credential: Credential; showIntegration: boolean }) {
  const { api } = useSession();
  const integration = useDisplayName(credential.integration_name);
  const client = useQueryClient();
  const toast = useToast();
  const [, navigate] = useLocation();
  const [dialog, setDialog] = useState<'rename' | 'delete' | null>(null);
  const changed = (): Promise<void> => client.invalidateQueries({ queryKey: ['credentials'] });
  const test = useMutation({
    mutationFn: () => api.post<CredentialTest>(`/credentials/${credential.credential_id}/test`),
    onSuccess: (result) => {
      toast(result.is_valid ? 'The connection works.' : result.message || 'The connection does not work. Reconnect it.');
      void changed();
    },
    onError: (problem) => toast(problemSentence(problem)),
  });
  const makeDefault = useMutation({
    mutationFn: () => api.post(`/credentials/${credential.credential_id}/set-default`),
    onSuccess: () => {
      toast('It is the default now.');
      void changed();
    },
    onError: (problem) => toast(problemSentence(problem)),
  });
  const broken = credential.is_valid === false;
  const ofServer = credential.integration_name === MCP;
  return (
    <li>
      {showIntegration && <Logo name={credential.integration_name} />}
      <div className="row-main">
        <span className="row-title">
          {credential.display_name}
          {credential.is_default && !ofServer && <span className="badge ok">Default</span>}
          {broken && <span className="badge warn">Needs reconnect</span>}
        </span>
        <span className="row-detail">
          {showIntegration && (
            <>
              <Link href={pageOf(credential)}>{integration}</Link>
              {' · '}
            </>
          )}
          {TYPE_WORDS[credential.auth_type] ?? credential.auth_type} · last used {ago(credential.last_used_at)}
          {credential.expires_at && ` · until ${day(credential.expires_at)}`}
        </span>
      </div>
      <span className="row-tools">
        {broken && showIntegration && (
          <button type="button" className="button small" onClick={() => navigate(ofServer ? pageOf(credential) : reconnectPageOf(credential))}>
            Reconnect
          </button>
        )}
        {ofServer ? (
          <Link href={pageOf(credential)} className="button small">
            Tools<span className="visually-hidden"> of {credential.display_name}</span>
          </Link>
        ) : (
          <button type="button" className="button small" disabled={test.isPending} onClick={() => test.mutate()}>
            {test.isPending && <Spinner />} Test
          </button>
        )}
        <Menu
          label={`More for ${credential.display_name}`}
          triggerClass="button quiet icon-only small"
          trigger={<Icon name="more" size={16} />}
          groups={[
            {
              key: 'all',
              items: [
                ...(credential.is_default || ofServer
                  ? []
                  : [{ key: 'default', label: 'Make default', icon: 'star' as const, onSelect: () => makeDefault.mutate() }]),
                { key: 'rename', label: 'Rename', icon: 'edit', onSelect: () => setDialog('rename') },
                ...(ofServer
                  ? []
                  : [
                      {
                        key: 'reconnect',
                        label: 'Reconnect',
                        icon: 'retry' as const,
                        onSelect: () => navigate(reconnectPageOf(credential)),
                      },
                    ]),
                { key: 'delete', label: 'Delete', icon: 'trash', danger: true, onSelect: () => setDialog('delete') },
              ],
            },
          ]}
        />
      </span>
      {dialog === 'rename' && <RenameDialog credential={credential} onClose={() => setDialog(null)} />}
      {dialog === 'delete' && <DeleteDialog credential={credential} onClose={() => setDialog(null)} />}
    </li>
  );
}

/** Stored credentials and what can be done with them. */
export function CredentialRows({
  credentials,
  showIntegration = true,
}: {
  credentials: readonly Credential[];
  showIntegration?: boolean;
}) {
  return (
    <ul className="rows">
      {credentials.map((credential) => (
        <CredentialRow key={credential.credential_id} credential={credential} showIntegration={showIntegration} />
      ))}
    </ul>
  );
}

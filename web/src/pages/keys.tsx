import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { problemSentence } from '../api/problem';
import type { ApiKey } from '../api/types';
import { useSession } from '../session';
import { BackLink } from '../shell/back-link';
import { Page } from '../shell/page';
import { CopyButton } from '../ui/copy';
import { ConfirmDialog, Dialog } from '../ui/dialog';
import { Field, Select } from '../ui/field';
import { ago, day } from '../ui/format';
import { Icon } from '../ui/icon';
import { Empty, Failed, Skeleton } from '../ui/states';
import { useToast } from '../ui/toast';

const DAY_MS = 86_400_000;
const LIVES = [
  { value: '', label: 'Never' },
  { value: '30', label: 'In 30 days' },
  { value: '90', label: 'In 90 days' },
  { value: '365', label: 'In a year' },
];

function expiry(days: string): string | null {
  return days ? new Date(Date.now() + Number(days) * DAY_MS).toISOString() : null;
}

function NewKey({ onClose }: { onClose: () => void }) {
  const { api, organization } = useSession();
  const client = useQueryClient();
  const [name, setName] = useState('');
  const [days, setDays] = useState('90');
  const [locked, setLocked] = useState(true);
  const create = useMutation({
    mutationFn: () =>
      api.post<ApiKey>('/api-keys', {
        name: name.trim(),
        expires_at: expiry(days),
        organization_id: locked ? organization.id : null,
      }),
    onSuccess: () => client.invalidateQueries({ queryKey: ['api-keys'] }),
  });
  const made = create.data?.key;
  if (made) {
    return (
      <Dialog title="Copy the key now" onClose={onClose}>
        <div className="stack">
          <p>It is shown this once. Who has it can do what you can do.</p>
          <div className="secret-once">
            <code>{made}</code>
            <CopyButton text={made} label="Copy key" showLabel />
          </div>
          <div className="dialog-actions">
            <button type="button" className="button primary" onClick={onClose}>
              I have it
            </button>
          </div>
        </div>
      </Dialog>
    );
  }
  return (
    <Dialog title="New API key" onClose={onClose}>
      <form
        className="stack"
        onSubmit={(event: FormEvent) => {
          event.preventDefault();
          if (name.trim()) create.mutate();
        }}
      >
        <Field
          label="Name"
          hint="Where it will be used, for example “nightly report”."
          maxLength={255}
          required
          value={name}
          onChange={(event) => setName(event.target.value)}
        />
        <Select label="It ends" value={days} options={LIVES} onChange={setDays} />
        <label className="check">
          <input type="checkbox" checked={locked} onChange={(event) => setLocked(event.target.checked)} /> Only for {organization.name}
        </label>
        {create.error && (
          <p className="notice danger" role="alert">
            {problemSentence(create.error)}
          </p>
        )}
        <div className="dialog-actions">
          <button type="submit" className="button primary" disabled={!name.trim() || create.isPending}>
            Create key
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function stateOf(key: ApiKey): { word: string; tone: string } {
  if (key.revoked_at) return { word: 'Revoked', tone: '' };
  if (key.is_expired) return { word: 'Expired', tone: 'warn' };
  return key.is_active ? { word: 'Active', tone: 'ok' } : { word: 'Off', tone: '' };
}

function KeyRow({ apiKey, onRevoke }: { apiKey: ApiKey; onRevoke: () => void }) {
  const state = stateOf(apiKey);
  return (
    <li>
      <div className="row-main">
        <span className="row-title">
          {apiKey.name} <span className={`badge ${state.tone}`}>{state.word}</span>
        </span>
        <span className="row-detail">
          <code>{apiKey.masked_key}</code> · made {day(apiKey.created_at)} · last used {ago(apiKey.last_used_at)}
          {apiKey.expires_at && !apiKey.is_expired && ` · until ${day(apiKey.expires_at)}`}
        </span>
      </div>
      {!apiKey.revoked_at && (
        <button type="button" className="button small" onClick={onRevoke}>
          Revoke<span className="visually-hidden"> {apiKey.name}</span>
        </button>
      )}
    </li>
  );
}

/** The person's API keys. */
export default function KeysPage() {
  const { api } = useSession();
  const client = useQueryClient();
  const toast = useToast();
  const [creating, setCreating] = useState(false);
  const [revoking, setRevoking] = useState<ApiKey | null>(null);
  const keys = useQuery({
    queryKey: ['api-keys'],
    queryFn: ({ signal }) => api.get<{ keys: ApiKey[] }>('/api-keys', { include_revoked: true }, signal),
  });
  const revoke = useMutation({
    mutationFn: (key: ApiKey) => api.call('DELETE', `/api-keys/${key.id}`),
    onSuccess: async () => {
      await client.invalidateQueries({ queryKey: ['api-keys'] });
      setRevoking(null);
      toast('Key revoked. It stops working at once.');
    },
  });
  return (
    <Page
      title="API keys"
      actions={
        <button type="button" className="button small" onClick={() => setCreating(true)}>
          <Icon name="plus" size={16} /> New key
        </button>
      }
    >
      <div className="scroller">
        <div className="content narrow">
          <BackLink href="/settings">Settings</BackLink>
          <p className="lead">A key lets a script or an SDK act as you. Keep it secret, and revoke what you no longer use.</p>
          {keys.isPending && <Skeleton />}
          {keys.error && <Failed problem={keys.error} onRetry={() => void keys.refetch()} />}
          {keys.data?.keys.length === 0 && <Empty icon="key" title="No keys yet" />}
          {keys.data && keys.data.keys.length > 0 && (
            <section className="panel" aria-label="Your keys">
              <ul className="rows">
                {keys.data.keys.map((key) => (
                  <KeyRow key={key.id} apiKey={key} onRevoke={() => setRevoking(key)} />
                ))}
              </ul>
            </section>
          )}
        </div>
      </div>
      {creating && <NewKey onClose={() => setCreating(false)} />}
      {revoking && (
        <ConfirmDialog
          title="Revoke this key?"
          verb="Revoke"
          busy={revoke.isPending}
          problem={revoke.error ? problemSentence(revoke.error) : null}
          onConfirm={() => revoke.mutate(revoking)}
          onClose={() => setRevoking(null)}
        >
          <p>
            Whatever uses “{revoking.name}” stops working at once. This cannot be undone.
          </p>
        </ConfirmDialog>
      )}
    </Page>
  );
}

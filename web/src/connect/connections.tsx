import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { useSearchParams } from 'wouter';
import { problemSentence } from '../api/problem';
import { useCredentials } from '../api/queries';
import type { AuthOption, Credential } from '../api/types';
import { useSession } from '../session';
import { Icon } from '../ui/icon';
import { Failed, Skeleton } from '../ui/states';
import { useToast } from '../ui/toast';
import { ConnectForm, type Pooled } from './connect-form';
import { CredentialRows } from './credential-rows';

/** Erases the credential that a new one has taken the place of. */
function useErase(): (credential: Credential) => Promise<void> {
  const { api } = useSession();
  const toast = useToast();
  return async (credential) => {
    try {
      await api.call('DELETE', `/credentials/${credential.credential_id}`);
    } catch (problem) {
      toast(`The old connection is still there: ${problemSentence(problem)}`);
    }
  };
}

/** An integration's connections, and the way to another one. */
export function Connections({
  integrationName,
  displayName,
  options,
  pooled,
}: Pooled & { integrationName: string; displayName: string; options: readonly AuthOption[] }) {
  const credentials = useCredentials();
  const client = useQueryClient();
  const toast = useToast();
  const erase = useErase();
  const [query, setQuery] = useSearchParams();
  const [adding, setAdding] = useState(false);
  const held = credentials.data?.filter((credential) => credential.integration_name === integrationName) ?? [];
  const replaced = held.find((credential) => credential.credential_id === query.get('reconnect')) ?? null;
  const open = adding || replaced !== null || (credentials.isSuccess && held.length === 0);
  const leave = (): void => {
    setAdding(false);
    setQuery(
      (now) => {
        now.delete('reconnect');
        return now;
      },
      { replace: true },
    );
  };
  const connected = async (): Promise<void> => {
    if (replaced) await erase(replaced);
    leave();
    toast(replaced ? `${replaced.display_name} is connected anew.` : `${displayName} is connected.`);
    await client.invalidateQueries({ queryKey: ['credentials'] });
    await client.invalidateQueries({ queryKey: ['llms'] });
  };
  return (
    <section className="panel" aria-labelledby="connections">
      <h2 id="connections">{held.length === 0 ? `Connect ${displayName}` : 'Connections'}</h2>
      {credentials.isPending && <Skeleton lines={2} />}
      {credentials.error && <Failed problem={credentials.error} onRetry={() => void credentials.refetch()} />}
      {held.length > 0 && <CredentialRows credentials={held} showIntegration={false} />}
      {open && held.length > 0 && (
        <div className="connect-head">
          <h3>{replaced ? `Reconnect ${replaced.display_name}` : 'Connect another account'}</h3>
          {replaced && <p className="muted small-text">What you enter now takes its place, and its name. The old secret is then erased.</p>}
        </div>
      )}
      {open && options.length > 0 && (
        <ConnectForm
          key={replaced?.credential_id}
          storedAs={replaced ? { display_name: replaced.display_name, make_default: replaced.is_default } : undefined}
          integrationName={integrationName}
          pooled={pooled}
          displayName={displayName}
          options={options}
          binding={null}
          busy={false}
          onConnected={() => void connected()}
        />
      )}
      {open && options.length === 0 && <p className="muted">It needs no connection.</p>}
      {open && held.length > 0 && (
        <div>
          <button type="button" className="button quiet small" onClick={leave}>
            {replaced ? 'Leave it as it is' : 'Cancel'}
          </button>
        </div>
      )}
      {!open && held.length > 0 && (
        <div>
          <button type="button" className="button small" onClick={() => setAdding(true)}>
            <Icon name="plus" size={16} /> Connect another account
          </button>
        </div>
      )}
    </section>
  );
}

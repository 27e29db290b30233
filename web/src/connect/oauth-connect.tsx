import { type FormEvent, useEffect, useRef, useState } from 'react';
import { problemSentence } from '../api/problem';
import type { AuthOption, Credential } from '../api/types';
import { useSession } from '../session';
import { Field, SecretField } from '../ui/field';
import { Icon, Spinner } from '../ui/icon';
import type { ConnectProps, Pooled } from './connect-form';
import { FieldInputs } from './field-inputs';
import { fieldsOf, filled, OAUTH } from './fields';
import { openPopup, seemsClosed, webAddress } from './popup';

/** How often the store is asked whether the sign-in came through. */
const POLL_MS = 2_000;
/** After the window closed, the sign-in may still be finishing for this long. */
const GRACE_MS = 3_000;
const CALLBACK = '/credentials/oauth2/callback';

type Stage = 'idle' | 'starting' | 'waiting' | 'closed';

/** What the page says on which a sign-in ends. */
interface Ended {
  request_id: string | null;
  status: 'connected' | 'failed';
}

interface CredentialList {
  credentials: Credential[];
}

/** Connecting by signing in at the provider, in a window of its own. */
export function OAuthConnect({
  option,
  pooled,
  integrationName,
  displayName,
  binding,
  busy,
  storedAs,
  given,
  onConnected,
  onFailed,
  onMaybeDone,
}: ConnectProps & Pooled & { option: AuthOption }) {
  const { api, organization } = useSession();
  const [ownApp, setOwnApp] = useState<boolean | null>(null);
  const [client, setClient] = useState({ id: '', secret: '' });
  const [values, setValues] = useState<Record<string, string>>({});
  const [stage, setStage] = useState<Stage>('idle');
  const [problem, setProblem] = useState<string | null>(null);
  const [address, setAddress] = useState<string | null>(null);
  const [blocked, setBlocked] = useState(false);
  const popup = useRef<Window | null>(null);
  const known = useRef<Set<string>>(new Set());
  const callbacks = useRef({ onConnected, onMaybeDone });
  callbacks.current = { onConnected, onMaybeDone };
  const useOwn = ownApp ?? pooled === false;

  // The server resumes the chat by itself once the sign-in is through; outside a chat the new
  // credential shows in the list.
  const bound = binding !== null;
  const requestId = binding?.requestId ?? null;
  useEffect(() => {
    if (stage !== 'waiting' && stage !== 'closed') return;
    let closedAt: number | null = null;
    const look = async (): Promise<void> => {
      if (bound) callbacks.current.onMaybeDone?.();
      else {
        const list = await api.get<CredentialList>('/credentials', { integration_name: integrationName });
        const fresh = list.credentials.find((credential) => !known.current.has(credential.credential_id));
        if (fresh) {
          setStage('idle');
          callbacks.current.onConnected(fresh.credential_id, OAUTH);
          return;
        }
      }
      closedAt = seemsClosed(popup.current) ? (closedAt ?? Date.now()) : null;
      if (closedAt !== null && Date.now() - closedAt >= GRACE_MS) setStage('closed');
    };
    const tick = (): void => void look().catch(() => undefined);
    const timer = setInterval(tick, POLL_MS);
    const channel = new BroadcastChannel('parley:oauth');
    channel.addEventListener('message', (event: MessageEvent<Ended>) => {
      if (event.data.status === 'failed' && event.data.request_id === requestId) {
        setProblem(`${displayName} did not let you in, or the sign-in was given up. Try again.`);
        setStage('idle');
      } else tick();
    });
    addEventListener('focus', tick);
    return () => {
      clearInterval(timer);
      channel.close();
      removeEventListener('focus', tick);
    };
  }, [stage, api, bound, requestId, integrationName, displayName]);

  const start = async (): Promise<void> => {
    setStage('starting');
    setProblem(null);
    try {
      if (!bound) {
        const list = await api.get<CredentialList>('/credentials', { integration_name: integrationName });
        known.current = new Set(list.credentials.map((credential) => credential.credential_id));
        api.mustSpeakFor(organization.id);
      }
      const { authorization_url } = await api.post<{ authorization_url: string }>('/credentials/oauth2/initiate', {
        integration_name: integrationName,
        redirect_uri: `${location.origin}${CALLBACK}`,
        use_modulex_oauth: !useOwn,
        ...(useOwn ? { custom_oauth_config: { client_id: client.id.trim(), client_secret: client.secret } } : {}),
        env_var_values: { ...filled(values), ...given },
        ...storedAs,
        ...(binding
          ? {
              composer_chat_id: binding.chatId,
              composer_request_id: binding.requestId,
              composer_llm_config: await binding.model(),
            }
          : {}),
      });
      const url = webAddress(authorization_url);
      if (url === null) throw new Error('not a web address');
      setAddress(url);
      setBlocked(popup.current === null);
      if (popup.current && !popup.current.closed) popup.current.location.replace(url);
      setStage('waiting');
    } catch (refusal) {
      popup.current?.close();
      const message = problemSentence(refusal);
      setProblem(message);
      setStage('idle');
      onFailed?.({ auth_type: OAUTH, error_code: 'oauth_provider_error', error_message: message });
    }
  };

  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (busy || stage === 'starting') return;
    popup.current = openPopup();
    void start();
  };

  if (stage === 'waiting') {
    return (
      <div className="stack" role="status">
        {blocked ? (
          <p className="row">
            <Icon name="alert" /> Your browser kept the sign-in window from opening. Open it here.
          </p>
        ) : (
          <p className="row">
            <Spinner /> Waiting for you to sign in at {displayName}…
          </p>
        )}
        <p className="row">
          {address && (
            <a
              className={blocked ? 'button primary' : 'button'}
              href={address}
              target="parley-connect"
              rel="opener"
              onClick={() => setBlocked(false)}
            >
              {blocked ? `Sign in at ${displayName}` : 'Open the sign-in window again'}
            </a>
          )}
          <button type="button" className="button quiet" onClick={() => setStage('idle')}>
            Start over
          </button>
        </p>
      </div>
    );
  }
  return (
    <form onSubmit={submit} className="stack" autoComplete="off">
      {stage === 'closed' && (
        <p className="notice" role="status">
          The sign-in window is closed and nothing was connected yet. Try again, or skip.
        </p>
      )}
      <FieldInputs fields={fieldsOf(option)} values={values} onChange={setValues} />
      {pooled !== false && (
        <label className="check">
          <input type="checkbox" checked={useOwn} onChange={(event) => setOwnApp(event.target.checked)} /> Use an OAuth app of our own
        </label>
      )}
      {useOwn && (
        <>
          <p className="field-hint">
            Register an app at {displayName} with this callback address: <code className="breakable">{location.origin + CALLBACK}</code>
          </p>
          <Field
            label="Client ID"
            required
            autoComplete="off"
            value={client.id}
            onChange={(event) => setClient({ ...client, id: event.target.value })}
          />
          <SecretField
            label="Client secret"
            required
            value={client.secret}
            onChange={(event) => setClient({ ...client, secret: event.target.value })}
          />
        </>
      )}
      {problem && (
        <p className="notice danger" role="alert">
          {problem}
        </p>
      )}
      <div>
        <button type="submit" className="button primary" disabled={stage === 'starting' || busy}>
          {stage === 'starting' && <Spinner />}
          {stage === 'closed' ? 'Try again' : `Sign in at ${displayName}`}
        </button>
      </div>
    </form>
  );
}

import { type FormEvent, useEffect, useState } from 'react';
import { type Api, hasStatus } from '../api/client';
import { problemSentence } from '../api/problem';
import { Field, SecretField } from '../ui/field';
import { Mark, Spinner } from '../ui/icon';
import { Tabs } from '../ui/tabs';

const WAYS = [
  { key: 'password', label: 'Password' },
  { key: 'key', label: 'API key' },
] as const;

/** Whether the address holds the one-time token of a link. */
export function hasLink(hash: string): boolean {
  return /^#(sign-in|invitation)=/.test(hash);
}

/** The one-time token of a link, `#sign-in=TOKEN` or `#invitation=TOKEN`; it is taken out of the address at once. */
function takeToken(kind: 'sign-in' | 'invitation'): string | null {
  const [, found, token] = /^#(sign-in|invitation)=(.+)$/.exec(location.hash) ?? [];
  if (found !== kind || token === undefined) return null;
  history.replaceState(null, '', location.pathname + location.search);
  return token;
}

/** Opens a session, and says why not. */
function useOpening(api: Api, onSignedIn: () => Promise<void>) {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const open = async (body: Record<string, string>): Promise<void> => {
    setBusy(true);
    setProblem(null);
    try {
      await api.call('POST', '/auth/session', { body, quiet: true });
      await onSignedIn();
    } catch (refusal) {
      setProblem(refusalSentence(refusal, 'sign_in_token' in body));
      setBusy(false);
    }
  };
  return { busy, problem, setProblem, open };
}

function Problem({ text }: { text: string | null }) {
  if (!text) return null;
  return (
    <p className="notice danger" role="alert">
      {text}
    </p>
  );
}

function Submit({ busy, verb }: { busy: boolean; verb: string }) {
  return (
    <button type="submit" className="button primary wide" disabled={busy}>
      {busy && <Spinner />}
      {busy ? 'One moment…' : verb}
    </button>
  );
}

/** What an invited person without an account fills in. */
function JoinForm({ api, token, onSignedIn }: { api: Api; token: string; onSignedIn: () => Promise<void> }) {
  const [username, setUsername] = useState('');
  const [password, setPassword] = useState('');
  const { busy, problem, open } = useOpening(api, onSignedIn);
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    void open({ invitation_token: token, username: username.trim(), ...(password ? { password } : {}) });
  };
  return (
    <main className="sign-in">
      <div className="sign-in-card">
        <Mark size={44} />
        <h1>Join your team on Parley</h1>
        <p className="muted">Choose how you are called here, and a password to come back with.</p>
        <form onSubmit={submit} className="stack join">
          <Field label="Your name" required maxLength={100} value={username} onChange={(event) => setUsername(event.target.value)} />
          <SecretField
            label="Password"
            minLength={10}
            required
            hint="At least 10 characters."
            value={password}
            onChange={(event) => setPassword(event.target.value)}
          />
          <Problem text={problem} />
          <Submit busy={busy} verb="Join" />
        </form>
      </div>
    </main>
  );
}

export function SignInPage({ api, onSignedIn }: { api: Api; onSignedIn: () => Promise<void> }) {
  const [invitation] = useState(() => takeToken('invitation'));
  const [token, setToken] = useState(() => takeToken('sign-in'));
  const [way, setWay] = useState<string>('password');
  const [email, setEmail] = useState('');
  const [secret, setSecret] = useState('');
  const { busy, problem, setProblem, open } = useOpening(api, onSignedIn);

  useEffect(() => {
    if (token === null) return;
    setToken(null);
    void open({ sign_in_token: token });
  });

  const submit = (event: FormEvent): void => {
    event.preventDefault();
    void open(way === 'key' ? { api_key: secret.trim() } : { email: email.trim(), password: secret });
  };

  if (invitation !== null) return <JoinForm api={api} token={invitation} onSignedIn={onSignedIn} />;
  return (
    <main className="sign-in">
      <div className="sign-in-card">
        <Mark size={44} />
        <h1>Sign in to Parley</h1>
        <p className="muted">The assistant that acts on your team’s own tools.</p>
        <Tabs
          label="Ways to sign in"
          tabs={WAYS}
          current={way}
          onChange={(next) => {
            setWay(next);
            setSecret('');
            setProblem(null);
          }}
        >
          <form onSubmit={submit} className="stack">
            {way === 'password' && (
              <Field
                label="E-mail"
                type="email"
                autoComplete="username"
                required
                value={email}
                onChange={(event) => setEmail(event.target.value)}
              />
            )}
            <SecretField
              key={way}
              label={way === 'key' ? 'API key' : 'Password'}
              autoComplete={way === 'key' ? 'off' : 'current-password'}
              required
              placeholder={way === 'key' ? 'mx_live_…' : undefined}
              value={secret}
              onChange={(event) => setSecret(event.target.value)}
            />
            <Problem text={problem} />
            <Submit busy={busy} verb="Sign in" />
          </form>
        </Tabs>
        <p className="muted small-text">
          First time here? The server printed a sign-in link when it started. Open it in this browser.
        </p>
      </div>
    </main>
  );
}

function refusalSentence(refusal: unknown, byLink: boolean): string {
  if (!hasStatus(refusal, 401)) return problemSentence(refusal);
  return byLink
    ? 'This sign-in link was used already or has expired. Sign in with your API key or password.'
    : 'That did not match. Check it and try again.';
}

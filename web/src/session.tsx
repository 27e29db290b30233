import { useQuery, useQueryClient } from '@tanstack/react-query';
import { createContext, type ReactNode, useCallback, useContext, useEffect, useMemo, useState } from 'react';
import type { Api } from './api/client';
import { hasStatus } from './api/client';
import type { Organization, User } from './api/types';
import { hasLink, SignInPage } from './pages/sign-in';
import { Failed } from './ui/states';
import { Spinner } from './ui/icon';

/** Who is signed in, and for which organization the pages speak. */
export interface Session {
  api: Api;
  user: User;
  organizations: Organization[];
  organization: Organization;
  chooseOrganization: (id: string) => void;
  signOut: () => Promise<void>;
}

const SessionContext = createContext<Session | null>(null);
const REMEMBERED = 'parley.organization';

export function useSession(): Session {
  const session = useContext(SessionContext);
  if (!session) throw new Error('useSession is for pages inside SessionGate');
  return session;
}

function remembered(): string | null {
  try {
    return localStorage.getItem(REMEMBERED);
  } catch {
    return null;
  }
}

function remember(id: string): void {
  try {
    localStorage.setItem(REMEMBERED, id);
  } catch {
    // Without storage the default organization opens next time.
  }
}

function chosenOf(organizations: Organization[], wanted: string | null): Organization | null {
  return (
    organizations.find((candidate) => candidate.id === wanted) ??
    organizations.find((candidate) => candidate.is_default) ??
    organizations[0] ??
    null
  );
}

/** Shows the pages to who is signed in, and the sign-in page to everyone else. */
export function SessionGate({ api, children }: { api: Api; children: ReactNode }) {
  const client = useQueryClient();
  const [wanted, setWanted] = useState(remembered);
  // A link in the address means to sign in with it, whoever is signed in now.
  const [signedOut, setSignedOut] = useState(() => hasLink(location.hash));
  const identity = useQuery({
    queryKey: ['identity'],
    queryFn: async () => {
      const user = await api.get<User>('/auth/me');
      const { organizations } = await api.get<{ organizations: Organization[] }>('/auth/me/organizations');
      return { user, organizations };
    },
    staleTime: 60_000,
  });

  useEffect(() => {
    api.onSignedOut = () => setSignedOut(true);
  }, [api]);

  const signedIn = useCallback(async () => {
    client.clear();
    setSignedOut(false);
    await client.refetchQueries({ queryKey: ['identity'] });
    await identity.refetch();
  }, [client, identity.refetch]);

  const organization = identity.data ? chosenOf(identity.data.organizations, wanted) : null;
  api.organizationId = organization?.id ?? null;

  const session = useMemo<Session | null>(() => {
    if (!identity.data || !organization) return null;
    return {
      api,
      user: identity.data.user,
      organizations: identity.data.organizations,
      organization,
      chooseOrganization: (id) => {
        remember(id);
        // At once, and not with the next drawing: what waits for a read that is given up here goes on before it.
        api.organizationId = id;
        // What was read for one organization must not be shown for another.
        client.removeQueries({ predicate: ({ queryKey }) => queryKey[0] !== 'identity' });
        setWanted(id);
      },
      signOut: async () => {
        await api.call('DELETE', '/auth/session').catch(() => undefined);
        client.clear();
        setSignedOut(true);
      },
    };
  }, [api, client, identity.data, organization]);

  if (signedOut || hasStatus(identity.error, 401)) return <SignInPage api={api} onSignedIn={signedIn} />;
  if (identity.error) {
    return (
      <main className="alone">
        <h1 className="visually-hidden">Parley</h1>
        <Failed problem={identity.error} onRetry={() => void identity.refetch()} />
      </main>
    );
  }
  if (!identity.data) {
    return (
      <main className="alone" aria-busy="true">
        <h1 className="visually-hidden">Parley</h1>
        <Spinner label="Loading" />
      </main>
    );
  }
  if (!session) return <NoOrganization onSignOut={() => setSignedOut(true)} api={api} />;
  // A change of organization is a change of everything below.
  return (
    <SessionContext.Provider value={session} key={session.organization.id}>
      {children}
    </SessionContext.Provider>
  );
}

function NoOrganization({ api, onSignOut }: { api: Api; onSignOut: () => void }) {
  return (
    <main className="alone">
      <h1>No organization yet</h1>
      <p>You are signed in, but you belong to no organization. Ask an owner to invite you, then load this page again.</p>
      <button
        type="button"
        className="button"
        onClick={() => void api.call('DELETE', '/auth/session').catch(() => undefined).then(onSignOut)}
      >
        Sign out
      </button>
    </main>
  );
}

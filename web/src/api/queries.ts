import { queryOptions, useQuery } from '@tanstack/react-query';
import { useSession } from '../session';
import { type Api, hasStatus } from './client';
import type { Credential, CredentialGroups, Integration, IntegrationPage, KnowledgeBase, OrganizationSettings } from './types';

/** The reads that more than one page shares. */

const CATALOG_STALE_MS = 600_000;

/** Every integration of the catalog, without its actions. */
export function useCatalog() {
  const { api } = useSession();
  return useQuery({
    queryKey: ['catalog'],
    staleTime: CATALOG_STALE_MS,
    queryFn: async ({ signal }) => {
      const query = { include_details: false, paginate: false };
      return (await api.get<IntegrationPage>('/integrations/browse', query, signal)).integrations;
    },
  });
}

const SECTIONS: Record<string, string> = {
  tool: 'tools',
  llm_provider: 'llm-providers',
  knowledge_provider: 'knowledge-providers',
};

/** One integration with its actions and ways to connect. */
export function useIntegration(name: string | null, type = 'tool') {
  const { api } = useSession();
  return useQuery({
    queryKey: ['integration', type, name],
    enabled: name !== null,
    staleTime: CATALOG_STALE_MS,
    queryFn: ({ signal }) =>
      api.get<Integration>(`/integrations/${SECTIONS[type] ?? 'tools'}/${encodeURIComponent(name ?? '')}`, {}, signal),
  });
}

/** The organization's credentials, newest first. */
export function useCredentials() {
  const { api } = useSession();
  return useQuery({
    queryKey: ['credentials'],
    queryFn: async ({ signal }) => {
      const groups = await api.get<CredentialGroups>('/credentials', { limit: 500 }, signal);
      const all: Credential[] = Object.values(groups.integrations).flatMap((group) => group.credentials);
      return all.sort((a, b) => b.created_at.localeCompare(a.created_at));
    },
  });
}

/** What the organization has chosen. Not given up when the page that began it goes: a message may be waiting for it. */
export const settingsQuery = (api: Api) =>
  queryOptions({
    queryKey: ['organization-settings'],
    queryFn: () => api.get<OrganizationSettings>('/organizations/settings'),
  });

/** The knowledge bases; null where this server has no such routes. */
export function useKnowledgeBases() {
  const { api } = useSession();
  return useQuery({
    queryKey: ['knowledge-bases'],
    staleTime: 30_000,
    retry: false,
    queryFn: async ({ signal }) => {
      try {
        const answer = await api.get<unknown>('/knowledge-bases', {}, signal);
        return Array.isArray(answer) ? (answer as KnowledgeBase[]) : null;
      } catch (problem) {
        if (hasStatus(problem, 404)) return null;
        throw problem;
      }
    },
  });
}

export function isConnected(credentials: readonly Credential[] | undefined, name: string): 'connected' | 'broken' | 'none' {
  const own = credentials?.filter((credential) => credential.integration_name === name) ?? [];
  if (own.length === 0) return 'none';
  return own.some((credential) => credential.is_valid !== false) ? 'connected' : 'broken';
}

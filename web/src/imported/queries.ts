import { queryOptions } from '@tanstack/react-query';
import type { Api } from '../api/client';
import type { ImportedApi, ImportedApiSummary } from '../api/types';

const PATH = '/integrations/openapi';

/** What every read of imported APIs is filed under. */
export const IMPORTED = ['imported-apis'];

export function pathOf(name: string): string {
  return `${PATH}/${encodeURIComponent(name)}`;
}

/** The organization's imported APIs, without their actions. */
export const importedApisQuery = (api: Api) =>
  queryOptions({
    queryKey: [...IMPORTED, 'all'],
    queryFn: async ({ signal }) => (await api.get<{ integrations: ImportedApiSummary[] }>(PATH, {}, signal)).integrations,
  });

/** One imported API with its actions. */
export const importedApiQuery = (api: Api, name: string) =>
  queryOptions({
    queryKey: [...IMPORTED, 'one', name],
    queryFn: ({ signal }) => api.get<ImportedApi>(pathOf(name), {}, signal),
  });

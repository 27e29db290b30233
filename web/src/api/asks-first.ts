import type { IntegrationAction } from './types';

/** The documented patterns: an action whose name holds one always asks first (contract §6). */
const PATTERNS = [
  'delete_', '_delete', 'drop_', 'truncate', 'purge', 'destroy', 'wipe',
  'execute_query', 'execute_statement', 'execute_raw_query', 'raw_query',
];

/** Why the action asks before it runs; null where it runs at once. The server's own word comes first. */
export function asksFirst(action: IntegrationAction): string | null {
  if (action.asks_first !== undefined) return action.asks_first;
  const pattern = PATTERNS.find((candidate) => action.name.includes(candidate));
  return pattern ? 'It destroys data, or can run any query.' : null;
}

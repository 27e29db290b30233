import type { Json, JsonObject } from '../api/types';
import { several, words } from '../ui/format';
import { isObject } from './events';
import type { Part, Reply, ToolPart } from './reply';

/** How a tool call reads to a person. */

export type ToolState = 'running' | 'waiting' | 'done' | 'failed' | 'needs' | 'limit' | 'declined' | 'stopped';

export const STATE_WORDS: Record<ToolState, string> = {
  running: 'Running',
  waiting: 'Waiting for you',
  done: 'Done',
  failed: 'Failed',
  needs: 'Needs connection',
  limit: 'Credit limit',
  declined: 'Declined by you',
  stopped: 'Stopped',
};

const DISCOVERY = new Set(['get_available_integrations', 'get_integration_details', 'get_organization_credentials']);
const ASKING = new Set([
  'request_credential',
  'ask_user_choice',
  'ask_user_multi_choice',
  'ask_user_yes_no',
  'ask_user_free_text',
]);

export const isDiscovery = (part: Part): part is ToolPart => part.kind === 'tool' && DISCOVERY.has(part.tool);

/** Asking tools show as their question card only, unless they failed before they could ask. */
export function isAsking(part: ToolPart): boolean {
  return ASKING.has(part.tool) && stateOf(part, false) !== 'failed';
}

const BY_STATUS: ReadonlyMap<Json | undefined, ToolState> = new Map([
  ['ok', 'done'],
  ['error', 'failed'],
  ['needs_credential', 'needs'],
  ['credit_limit', 'limit'],
  ['cancelled', 'declined'],
]);

export function stateOf(part: ToolPart, waiting: boolean): ToolState {
  if (part.output === undefined) return part.abandoned ? 'stopped' : waiting ? 'waiting' : 'running';
  if (!isObject(part.output)) return 'done';
  const { status, success, error } = part.output;
  const known = BY_STATUS.get(status);
  if (known) return known;
  return error !== undefined && (success === false || Object.keys(part.output).length === 1) ? 'failed' : 'done';
}

function text(value: Json | undefined): string {
  return typeof value === 'string' ? value : '';
}

/** Whose tool it is, and what it does: `github` and `List repositories`. */
export function titleOf(part: ToolPart): { who: string; what: string } {
  const { input, tool } = part;
  switch (tool) {
    case 'execute_integration_tool':
      return {
        who: text(input.integration_name) || text(input.integration),
        what: words(text(input.tool_name) || text(input.action) || 'action'),
      };
    case 'search_knowledge':
      return { who: 'knowledge', what: `Search “${text(input.query)}”` };
    case 'get_available_integrations':
      return { who: 'catalog', what: input.query ? `Look for “${text(input.query)}”` : 'Browse integrations' };
    case 'get_integration_details':
      return { who: text(input.integration_name) || 'catalog', what: 'Read what it can do' };
    case 'get_organization_credentials':
      return { who: text(input.integration_name) || 'organization', what: 'Check connections' };
    default:
      return { who: 'assistant', what: words(tool) };
  }
}

const SHORT = 80;

function clipped(value: string): string {
  const line = value.replaceAll(/\s+/g, ' ').trim();
  return line.length > SHORT ? `${line.slice(0, SHORT)}…` : line;
}

function summaryOfObject(value: JsonObject): string {
  const lists = Object.entries(value).filter((entry): entry is [string, Json[]] => Array.isArray(entry[1]));
  const [only] = lists;
  if (lists.length === 1 && only) return `${only[1].length} ${only[0].replaceAll('_', ' ')}`;
  for (const key of ['message', 'title', 'name', 'full_name', 'html_url', 'url', 'id']) {
    const found = value[key];
    if (typeof found === 'string' && found) return clipped(found);
    if (typeof found === 'number') return `${key} ${found}`;
  }
  return '';
}

/** What came of it, in a few words: "5 repositories", "Declined", the first words of an error. */
export function summaryOf(part: ToolPart): string {
  const { output } = part;
  if (output === undefined || output === null) return '';
  if (typeof output === 'string') return clipped(output);
  if (Array.isArray(output)) return several(output.length, 'item');
  if (!isObject(output)) return String(output);
  if (output.error !== undefined) return clipped(typeof output.error === 'string' ? output.error : JSON.stringify(output.error));
  if (typeof output.total_matches === 'number') return several(output.total_matches, 'passage');
  const { result } = output;
  if (typeof result === 'string') return clipped(result);
  if (Array.isArray(result)) return several(result.length, 'item');
  if (isObject(result)) return summaryOfObject(result);
  if (output.message !== undefined) return clipped(text(output.message));
  if (output.status !== undefined) return clipped(text(output.reason));
  return summaryOfObject(output);
}

export interface Source {
  name: string;
  /** The page, where the document has pages. */
  page: number | null;
  /** What the passage stands under, from the highest heading down. */
  headings: string[];
  passage: string;
  score: number | null;
}

/** The passages that knowledge searches of the reply came back with. */
export function sourcesOf(reply: Reply): Source[] {
  const found: Source[] = [];
  for (const part of reply.parts) {
    if (part.kind !== 'tool' || part.tool !== 'search_knowledge' || !isObject(part.output)) continue;
    const { matches } = part.output;
    if (!Array.isArray(matches)) continue;
    for (const match of matches) {
      if (!isObject(match)) continue;
      const where = isObject(match.metadata) ? match.metadata : {};
      found.push({
        name: text(match.document_filename) || 'Document',
        page: typeof where.page === 'number' ? where.page : null,
        headings: Array.isArray(where.headings) ? where.headings.map(text).filter(Boolean) : [],
        passage: text(match.content),
        score: typeof match.score === 'number' ? match.score : null,
      });
    }
  }
  return found;
}

/** JSON for reading: two-space indents, strings that hold lines kept whole. */
export function pretty(value: Json | undefined): string {
  return typeof value === 'string' ? value : JSON.stringify(value ?? null, null, 2);
}

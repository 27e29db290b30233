import type { Json, JsonObject, Question, Usage } from '../api/types';

/** One event of a run, decoded (contract §4.2). Times are milliseconds since 1970. */
export type RunEvent =
  | { type: 'metadata'; runId: string; at: number | null }
  | { type: 'text'; chunk: string }
  | { type: 'tool_call'; id: string; tool: string; input: JsonObject; at: number | null }
  | {
      type: 'tool_result';
      id: string;
      tool: string;
      output: Json;
      at: number | null;
      durationMs: number | null;
      tainted: boolean;
    }
  | { type: 'guidance'; message: string }
  | { type: 'question'; question: Question }
  | { type: 'interrupted' }
  | { type: 'run_resumed'; runId: string }
  | { type: 'done'; response: string; usage: Usage | null; failed: boolean }
  | { type: 'error'; message: string }
  | { type: 'cancelled'; reason: string };

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function moment(value: unknown): number | null {
  const parsed = typeof value === 'string' ? Date.parse(value) : Number.NaN;
  return Number.isNaN(parsed) ? null : parsed;
}

function usage(value: unknown): Usage | null {
  if (!isObject(value)) return null;
  const number = (name: string): number => (typeof value[name] === 'number' ? (value[name] as number) : 0);
  const optional = (name: string): number | undefined =>
    typeof value[name] === 'number' ? (value[name] as number) : undefined;
  return {
    input_tokens: number('input_tokens'),
    output_tokens: number('output_tokens'),
    total_tokens: number('total_tokens'),
    llm_calls: number('llm_calls'),
    cached_tokens: optional('cached_tokens'),
    credits_micro: optional('credits_micro'),
  };
}

type Decode = (data: JsonObject) => RunEvent | null;

const DECODERS: Record<string, Decode> = {
  metadata: (data) => ({ type: 'metadata', runId: text(data.run_id), at: moment(data.timestamp) }),
  response_chunk: (data) => ({ type: 'text', chunk: text(data.chunk) }),
  tool_call: (data) => ({
    type: 'tool_call',
    id: text(data.tool_call_id),
    tool: text(data.tool),
    input: isObject(data.input) ? data.input : {},
    at: moment(data.timestamp),
  }),
  tool_result: (data) => ({
    type: 'tool_result',
    id: text(data.tool_call_id),
    tool: text(data.tool),
    output: data.output ?? null,
    at: moment(data.timestamp),
    durationMs: typeof data.duration_ms === 'number' ? data.duration_ms : null,
    tainted: data.tainted === true,
  }),
  guidance: (data) => ({ type: 'guidance', message: text(data.message) }),
  user_input_request: (data) =>
    text(data.request_id) ? { type: 'question', question: data as unknown as Question } : null,
  interrupted: () => ({ type: 'interrupted' }),
  run_resumed: (data) => ({ type: 'run_resumed', runId: text(data.new_run_id) }),
  done: (data) => ({
    type: 'done',
    response: text(data.response),
    usage: usage(data.usage),
    failed: data.error === true,
  }),
  error: (data) => ({ type: 'error', message: text(data.message) || 'The turn failed.' }),
  cancelled: (data) => ({ type: 'cancelled', reason: text(data.reason) }),
};

/** The event in a frame's JSON; null for heartbeats, unknown types and anything malformed. */
export function decodeEvent(json: string): RunEvent | null {
  let frame: unknown;
  try {
    frame = JSON.parse(json);
  } catch {
    return null;
  }
  if (!isObject(frame)) return null;
  const type = text(frame.type);
  const decode = Object.hasOwn(DECODERS, type) ? DECODERS[type] : undefined;
  if (!decode) return null;
  const event = decode(isObject(frame.data) ? frame.data : {});
  // Some writers put `error` of a failed `done` beside `data`.
  if (event?.type === 'done' && frame.error === true) return { ...event, failed: true };
  return event;
}

import type { Answer, Json, JsonObject, Question, Usage } from '../api/types';
import { isObject, type RunEvent } from './events';

/** What the assistant has said and done in one turn, as the thread shows it. All values are immutable. */

export interface TextPart {
  kind: 'text';
  text: string;
}

export interface ToolPart {
  kind: 'tool';
  id: string;
  tool: string;
  input: JsonObject;
  /** undefined until the result came. */
  output: Json | undefined;
  startedAt: number | null;
  durationMs: number | null;
  tainted: boolean;
  /** The turn was stopped while it ran. */
  abandoned: boolean;
}

export interface GuidancePart {
  kind: 'guidance';
  message: string;
}

export interface QuestionPart {
  kind: 'question';
  question: Question;
  state: 'open' | 'answered' | 'cancelled';
  /** null where the answer was given elsewhere and is not known yet. */
  answer: Answer | null;
  /** The tool call that asked. */
  callId: string | null;
}

export type Part = TextPart | ToolPart | GuidancePart | QuestionPart;

export type ReplyStatus = 'running' | 'awaiting' | 'completed' | 'failed' | 'cancelled';

export interface Reply {
  parts: readonly Part[];
  status: ReplyStatus;
  error: string | null;
  usage: Usage | null;
  startedAt: number | null;
  endedAt: number | null;
}

export const EMPTY_REPLY: Reply = {
  parts: [],
  status: 'running',
  error: null,
  usage: null,
  startedAt: null,
  endedAt: null,
};

/** How much a reply holds; a replay replaces what is shown once it holds as much. */
export function weight(reply: Reply): number {
  let sum = 0;
  for (const part of reply.parts) {
    if (part.kind === 'text') sum += part.text.length;
    else if (part.kind === 'tool') sum += part.output === undefined ? 1 : 2;
    else sum += 1;
  }
  return sum;
}

/** The whole text of a reply, for copying and announcing. */
export function replyText(reply: Reply): string {
  return reply.parts
    .filter((part) => part.kind === 'text')
    .map((part) => part.text.trim())
    .filter(Boolean)
    .join('\n\n');
}

/** The question that waits for an answer, if one does. */
export function openQuestion(reply: Reply | null): QuestionPart | null {
  const last = reply?.parts.findLast((part) => part.kind === 'question');
  return last?.kind === 'question' && last.state === 'open' ? last : null;
}

function replaced(parts: readonly Part[], index: number, part: Part): readonly Part[] {
  const copy = parts.slice();
  copy[index] = part;
  return copy;
}

function withText(reply: Reply, chunk: string): Reply {
  if (chunk === '') return reply;
  const last = reply.parts.at(-1);
  const parts =
    last?.kind === 'text'
      ? replaced(reply.parts, reply.parts.length - 1, { kind: 'text', text: last.text + chunk })
      : [...reply.parts, { kind: 'text', text: chunk } satisfies TextPart];
  return { ...reply, parts, status: 'running' };
}

function withCall(reply: Reply, event: RunEvent & { type: 'tool_call' }): Reply {
  if (reply.parts.some((part) => part.kind === 'tool' && part.id === event.id)) return reply;
  const part: ToolPart = {
    kind: 'tool',
    id: event.id,
    tool: event.tool,
    input: event.input,
    output: undefined,
    startedAt: event.at,
    durationMs: null,
    tainted: false,
    abandoned: false,
  };
  return { ...reply, parts: [...reply.parts, part], status: 'running' };
}

function answerIn(question: Question, output: Json): Answer | null {
  if (!isObject(output)) return null;
  // A yes at the turn's cap lets the call run, so whatever it returned is not the answer.
  if (isTurnCap(question)) return { kind: 'yes_no', answer: output.status !== 'cancelled' };
  if (typeof output.kind === 'string') return output as unknown as Answer;
  if (question.kind === 'yes_no' && isApproval(question)) return { kind: 'yes_no', answer: output.status !== 'cancelled' };
  return null;
}

/** Whether a yes/no question is the approval of an action. */
export function isApproval(question: Question): boolean {
  return question.kind === 'yes_no' && isObject(question.context) && question.context.type === 'approval';
}

/** Whether a yes/no question is about the turn's cap: its call has not begun. */
export function isTurnCap(question: Question): boolean {
  return question.kind === 'yes_no' && isObject(question.context) && question.context.type === 'turn_cap';
}

/** The parts once a call asks again: a cap it waited at before was lifted. */
function withCapLifted(parts: readonly Part[], callId: string | null): readonly Part[] {
  return parts.map((part) =>
    part.kind === 'question' && part.callId === callId && isTurnCap(part.question)
      ? { ...part, state: 'answered', answer: { kind: 'yes_no', answer: true } }
      : part,
  );
}

function withResult(reply: Reply, event: RunEvent & { type: 'tool_result' }): Reply {
  const index = reply.parts.findIndex((part) => part.kind === 'tool' && part.id === event.id);
  const part = reply.parts[index];
  if (part?.kind !== 'tool' || part.output !== undefined) return reply;
  const measured = event.at !== null && part.startedAt !== null ? event.at - part.startedAt : null;
  let parts = replaced(reply.parts, index, {
    ...part,
    output: event.output,
    durationMs: event.durationMs ?? measured,
    tainted: event.tainted,
  });
  const asked = parts.findLastIndex((other) => other.kind === 'question' && other.callId === event.id);
  const question = parts[asked];
  if (question?.kind === 'question') {
    const answer = question.answer ?? answerIn(question.question, event.output);
    parts = replaced(parts, asked, { ...question, state: 'answered', answer });
  }
  return { ...reply, parts, status: 'running' };
}

/** Adds the question, or leaves the reply as it is where it is there already. */
export function withQuestion(reply: Reply, question: Question): Reply {
  const known = reply.parts.some(
    (part) => part.kind === 'question' && part.question.request_id === question.request_id,
  );
  if (known) return { ...reply, status: openQuestion(reply) ? 'awaiting' : reply.status };
  const call = reply.parts.findLast((part) => part.kind === 'tool' && part.output === undefined);
  const callId = call?.kind === 'tool' ? call.id : null;
  const part: QuestionPart = { kind: 'question', question, state: 'open', answer: null, callId };
  return { ...reply, parts: [...withCapLifted(reply.parts, callId), part], status: 'awaiting' };
}

/** Marks the open question answered. */
export function withAnswer(reply: Reply, requestId: string | null, answer: Answer | null): Reply {
  const index = reply.parts.findLastIndex(
    (part) => part.kind === 'question' && (requestId === null || part.question.request_id === requestId),
  );
  const part = reply.parts[index];
  if (part?.kind !== 'question' || part.state === 'cancelled') return reply;
  const parts = replaced(reply.parts, index, { ...part, state: 'answered', answer: answer ?? part.answer });
  return { ...reply, parts, status: reply.status === 'awaiting' ? 'running' : reply.status };
}

/** Takes an answer back, after the server would not have it. */
export function withoutAnswer(reply: Reply, requestId: string): Reply {
  const index = reply.parts.findLastIndex(
    (part) => part.kind === 'question' && part.question.request_id === requestId,
  );
  const part = reply.parts[index];
  if (part?.kind !== 'question') return reply;
  return {
    ...reply,
    parts: replaced(reply.parts, index, { ...part, state: 'open', answer: null }),
    status: 'awaiting',
  };
}

/** Ends a reply: tools still running are given up, an open question is closed. */
export function ended(reply: Reply, status: 'completed' | 'failed' | 'cancelled', error: string | null): Reply {
  const parts = reply.parts.map((part): Part => {
    if (part.kind === 'tool' && part.output === undefined) return { ...part, abandoned: true };
    if (part.kind === 'question' && part.state === 'open') return { ...part, state: 'cancelled' };
    return part;
  });
  return { ...reply, parts, status, error: error ?? reply.error, endedAt: reply.endedAt ?? Date.now() };
}

function finished(reply: Reply, event: RunEvent & { type: 'done' }): Reply {
  const last = reply.parts.at(-1);
  // The wire's `response` may hold only the last segment, so it counts only where none was streamed.
  const lacks = !event.failed && event.response !== '' && last?.kind !== 'text';
  const spoken = lacks ? withText(reply, event.response) : reply;
  const usage = event.usage ?? reply.usage;
  const failure = event.failed ? (reply.error ?? 'The turn failed.') : null;
  return { ...ended(spoken, event.failed ? 'failed' : 'completed', failure), usage };
}

/** The reply after one more event. Pure; an event seen before changes nothing that matters. */
export function fold(reply: Reply, event: RunEvent): Reply {
  switch (event.type) {
    case 'metadata':
      return { ...reply, startedAt: reply.startedAt ?? event.at, status: 'running' };
    case 'text':
      return withText(reply, event.chunk);
    case 'tool_call':
      return withCall(reply, event);
    case 'tool_result':
      return withResult(reply, event);
    case 'guidance':
      return { ...reply, parts: [...reply.parts, { kind: 'guidance', message: event.message }] };
    case 'question':
      return withQuestion(reply, event.question);
    case 'interrupted':
      return { ...reply, status: openQuestion(reply) ? 'awaiting' : reply.status };
    case 'run_resumed':
      return withAnswer(reply, null, null);
    case 'done':
      return finished(reply, event);
    case 'error':
      return { ...reply, error: event.message, status: 'failed' };
    case 'cancelled':
      return ended(reply, 'cancelled', null);
  }
}

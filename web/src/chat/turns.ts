import type { ChatMessage } from '../api/types';
import { EMPTY_REPLY, type Reply, type ReplyStatus } from './reply';

/** One message of the person and what came of it. */
export interface Turn {
  /** Stable for React, from the first sight of the turn on. */
  key: string;
  text: string;
  userState: 'sending' | 'sent' | 'unsent';
  /** Why it was not sent. */
  problem: string | null;
  at: string | null;
  /** The turn's first run. */
  runId: string | null;
  reply: Reply | null;
  /** Whether `reply` holds the whole record, tools included, and not only the stored text. */
  whole: boolean;
}

const STATUSES = new Set(['running', 'completed', 'failed', 'cancelled']);

function statusOf(message: ChatMessage): ReplyStatus {
  const status = message.running_status ?? 'completed';
  if (status === 'interrupted') return 'awaiting';
  return STATUSES.has(status) ? (status as ReplyStatus) : 'completed';
}

function withStored(reply: Reply | null, message: ChatMessage): Reply {
  const before = reply ?? EMPTY_REPLY;
  const parts = message.content ? [...before.parts, { kind: 'text' as const, text: message.content }] : before.parts;
  return { ...before, parts, status: statusOf(message) };
}

/** The stored messages as turns, oldest first. */
export function turnsOf(messages: readonly ChatMessage[]): Turn[] {
  const turns: Turn[] = [];
  for (const message of messages) {
    if (message.role === 'human') {
      turns.push({
        key: message.id,
        text: message.content,
        userState: 'sent',
        problem: null,
        at: message.created_at,
        runId: message.run_id,
        reply: null,
        whole: false,
      });
      continue;
    }
    const turn = turns.at(-1);
    if (message.role !== 'ai' || !turn) continue;
    turn.reply = withStored(turn.reply, message);
    turn.runId ??= message.run_id;
  }
  return turns;
}

/**
 * What the server stored, with what this page already knows laid over it: keys stay, so that React
 * keeps its elements, and fuller replies stay. Turns of ours that never reached the server come last.
 */
export function mergeTurns(stored: readonly Turn[], known: readonly Turn[]): Turn[] {
  const byRun = new Map(known.filter((turn) => turn.runId !== null).map((turn) => [turn.runId, turn]));
  const merged = stored.map((turn) => {
    const old = turn.runId === null ? undefined : byRun.get(turn.runId);
    if (!old) return turn;
    return { ...turn, key: old.key, reply: old.reply ?? turn.reply, whole: old.whole };
  });
  return [...merged, ...known.filter((turn) => turn.userState !== 'sent' && turn.runId === null)];
}

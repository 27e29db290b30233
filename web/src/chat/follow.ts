import type { Api } from '../api/client';
import { ApiProblem } from '../api/problem';
import type { RunEvent } from './events';
import { listen } from './listen';
import { EMPTY_REPLY, fold, type Reply, weight } from './reply';

/** How long the server may take to close a stream whose run is over. */
const CLOSING_MS = 2_000;
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 8_000;

export interface Following {
  api: Api;
  chatId: string;
  /** The run to begin with; the runs that resume it follow by themselves. */
  runId: string;
  /** What the turn held before that run's first event. */
  base: Reply;
  /** What the screen shows now; a replay replaces it only once it holds as much. */
  shown: Reply;
  signal: AbortSignal;
  onReply: (reply: Reply, runId: string) => void;
  onLink: (link: 'open' | 'reconnecting') => void;
}

/** `paused`: a question is open and no stream tells of its answer. `lost`: the server knows no such run. */
export type FollowEnd = 'ended' | 'paused' | 'lost';

/** Waits with growing, jittered pauses; coming back online or into view cuts the pause short. */
async function pause(attempt: number, signal: AbortSignal): Promise<void> {
  const longest = Math.min(FIRST_WAIT_MS * 2 ** attempt, LONGEST_WAIT_MS);
  const wait = longest * (0.7 + 0.3 * Math.random());
  await new Promise<void>((resolve, reject) => {
    const over = (): void => {
      clearTimeout(timer);
      globalThis.removeEventListener?.('online', over);
      signal.removeEventListener('abort', over);
      if (signal.aborted) reject(signal.reason);
      else resolve();
    };
    const timer = setTimeout(over, wait);
    globalThis.addEventListener?.('online', over);
    signal.addEventListener('abort', over);
  });
}

function isOver(reply: Reply): boolean {
  return reply.status === 'completed' || reply.status === 'failed' || reply.status === 'cancelled';
}

/** One run's events, folded into what is shown, across as many connections as it takes. */
class RunReading {
  nextRunId: string | null = null;
  private shadow: Reply | null;
  /** Where to go on after a lost connection; null reads the run again from its first event. */
  private cursor: string | null = null;
  private resuming = false;
  private waited = false;

  constructor(
    private readonly following: Following,
    private readonly runId: string,
    private readonly base: Reply,
    public shown: Reply,
  ) {
    // What is shown may come from this very run: then its replay is held back until it has caught up.
    this.shadow = shown === base ? null : base;
  }

  async connection(): Promise<void> {
    const { following } = this;
    const inner = new AbortController();
    let closing: ReturnType<typeof setTimeout> | undefined;
    try {
      const both = AbortSignal.any([following.signal, inner.signal]);
      await listen(following.api, following.chatId, this.runId, this.cursor, both, ({ event, cursor }) => {
        following.onLink('open');
        this.hear(event, cursor);
        if (this.nextRunId !== null) inner.abort();
        else if (['done', 'cancelled', 'error'].includes(event.type)) {
          closing ??= setTimeout(() => inner.abort(), CLOSING_MS);
        }
      });
    } catch (problem) {
      if (!inner.signal.aborted || following.signal.aborted) throw problem;
    } finally {
      clearTimeout(closing);
    }
    // A replay that ends for good is the truth, even where it holds less than the screen did.
    if (this.shadow && this.nextRunId === null) this.show(this.shadow);
  }

  /** All that the run's events amount to, shown or still held back. */
  get folded(): Reply {
    return this.shadow ?? this.shown;
  }

  /** Before another connection: go on where the reader was, or read all of it again unseen. */
  rewind(): void {
    if (this.shadow !== null) this.cursor = null;
    if (this.cursor === null) this.shadow = this.base;
    this.resuming = this.cursor !== null;
  }

  /**
   * A replay of a paused run ends at its question. Reading on from there is a live stream again, which
   * tells of an answer given elsewhere; false where that was tried, or the server takes no cursor.
   */
  waitOn(): boolean {
    if (this.waited || this.cursor === null) return false;
    this.waited = true;
    this.resuming = true;
    return true;
  }

  private hear(event: RunEvent, cursor: string | null): void {
    // A server that takes no cursor begins with the first event all the same.
    if (this.resuming && event.type === 'metadata') this.shadow = this.base;
    this.resuming = false;
    this.cursor = cursor;
    if (event.type === 'run_resumed' && event.runId) this.nextRunId = event.runId;
    if (this.shadow === null) {
      this.show(fold(this.shown, event));
      return;
    }
    this.shadow = fold(this.shadow, event);
    if (weight(this.shadow) >= weight(this.shown)) this.show(this.shadow);
  }

  private show(reply: Reply): void {
    this.shadow = null;
    this.shown = reply;
    this.following.onReply(reply, this.runId);
  }
}

/** Follows a turn through all its runs. Throws ApiProblem 401 and the abort reason; retries everything else. */
export async function follow(following: Following): Promise<FollowEnd> {
  let { runId, base, shown } = following;
  for (;;) {
    const reading = new RunReading(following, runId, base, shown);
    const end = await readToEnd(reading, following);
    if (end !== 'resumed') return end;
    base = reading.folded;
    shown = reading.shown;
    runId = reading.nextRunId ?? runId;
  }
}

async function readToEnd(reading: RunReading, following: Following): Promise<FollowEnd | 'resumed'> {
  for (let attempt = 0; ; attempt += 1) {
    const before = reading.shown;
    try {
      await reading.connection();
      if (reading.nextRunId !== null) return 'resumed';
      if (isOver(reading.shown)) return 'ended';
      if (reading.shown.status === 'awaiting') {
        if (!reading.waitOn()) return 'paused';
        continue;
      }
    } catch (problem) {
      if (following.signal.aborted) throw problem;
      if (problem instanceof ApiProblem && problem.status === 404) return 'lost';
      if (problem instanceof ApiProblem && problem.status < 429) throw problem;
      if (reading.nextRunId !== null) return 'resumed';
      if (isOver(reading.shown)) return 'ended';
    }
    if (reading.shown !== before) attempt = 0;
    following.onLink('reconnecting');
    await pause(attempt, following.signal);
    reading.rewind();
  }
}

/** How long the record of a finished turn may take. */
const RECORD_MS = 8_000;

/**
 * The stored record of a finished turn, through all its runs; null where the server no longer has it.
 *
 * Throws NetworkProblem, ApiProblem and, after a while, a TimeoutError.
 */
export async function replay(api: Api, chatId: string, runId: string, signal: AbortSignal): Promise<Reply | null> {
  const bounded = AbortSignal.any([signal, AbortSignal.timeout(RECORD_MS)]);
  let reply = EMPTY_REPLY;
  let next: string | null = runId;
  let cursor: string | null = null;
  let base = reply;
  while (next !== null) {
    const current: string = next;
    const from: string | null = cursor;
    if (from === null) base = reply;
    next = null;
    cursor = null;
    try {
      await listen(api, chatId, current, from, bounded, ({ event, cursor: at }) => {
        if (event.type === 'run_resumed') next = event.runId;
        // A run that paused closes its replay at the question; what came of it is told after that.
        if (event.type === 'interrupted' && from === null) [next, cursor] = [current, at];
        else cursor = null;
        // A server that takes no cursor begins again.
        if (from !== null && event.type === 'metadata') reply = base;
        reply = fold(reply, event);
      });
    } catch (problem) {
      if (problem instanceof ApiProblem && problem.status === 404) return null;
      throw problem;
    }
    if (next === current && cursor === null) return reply;
  }
  return reply;
}

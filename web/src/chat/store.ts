import { type Api, freshKey, hasStatus } from '../api/client';
import { ApiProblem, NetworkProblem, OrganizationChanged, problemSentence } from '../api/problem';
import type { Answer, ChatDetail, ChatStatus, LlmChoice, RunStarted } from '../api/types';
import { follow, replay } from './follow';
import {
  EMPTY_REPLY,
  ended,
  openQuestion,
  type QuestionPart,
  type Reply,
  withAnswer,
  withoutAnswer,
  withQuestion,
} from './reply';
import { mergeTurns, type Turn, turnsOf } from './turns';

/** A closed replay of a paused run hears nothing more, so its status is asked for this often. */
const PAUSED_POLL_MS = 4_000;
/** How long a page load waits for the last turn's record before it shows the stored text alone. */
const FIRST_RECORD_MS = 1_500;

export interface Notice {
  problem: ApiProblem;
  /** When it was raised, for the countdown of `retryAfterSeconds`. */
  at: number;
}

export interface ChatState {
  chatId: string | null;
  title: string;
  phase: 'new' | 'loading' | 'ready' | 'missing' | 'failed';
  /** Why loading failed. */
  problem: string | null;
  turns: readonly Turn[];
  link: 'idle' | 'open' | 'reconnecting';
  /** A refusal of the last send, answer or stop. */
  notice: Notice | null;
  stopping: boolean;
  /** The question whose answer is on its way. */
  answering: string | null;
}

export interface ChatHooks {
  /** Runs `notify` soon; in a browser, once per animation frame. */
  schedule: (notify: () => void) => void;
  /** The first message of a new chat was accepted, with the model it asked for. */
  onCreated: (chatId: string, llm: LlmChoice | null) => void;
  /** The list of chats is out of date. */
  onListChanged: () => void;
  /** Tells the other tabs that this chat changed. */
  onChanged: (chatId: string) => void;
}

interface Live {
  turnKey: string;
  runId: string;
  stop: AbortController;
}

/** The model to ask for, which may not be known yet. Rejects with OrganizationChanged alone. */
export type ModelSource = () => Promise<LlmChoice | null>;

/** What makes a message the same request when it is sent again. */
interface Request {
  key: string;
  llm: LlmChoice | null;
}

export type SendOutcome = 'sent' | 'unsent' | 'refused';

/** One open chat: what it holds, and the one connection that keeps it up to date. */
export class ChatStore {
  private state: ChatState;
  private readonly listeners = new Set<() => void>();
  private notifying = false;
  private live: Live | null = null;
  private poll: ReturnType<typeof setTimeout> | undefined;
  private readonly gone = new AbortController();
  private readonly restoring = new Set<string>();
  /** The newest run this page knows of: another one means that something happened elsewhere. */
  private newestRun: string | null = null;
  private readonly requests = new Map<string, Request>();

  constructor(
    private readonly api: Api,
    private readonly hooks: ChatHooks,
    chatId: string | null,
  ) {
    this.state = {
      chatId,
      title: '',
      phase: chatId === null ? 'new' : 'loading',
      problem: null,
      turns: [],
      link: 'idle',
      notice: null,
      stopping: false,
      answering: null,
    };
  }

  // ── what React reads ─────────────────────────────────────────────────────────────────────────

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  readonly snapshot = (): ChatState => this.state;

  private set(change: Partial<ChatState>): void {
    this.state = { ...this.state, ...change };
    if (this.notifying) return;
    this.notifying = true;
    this.hooks.schedule(() => {
      this.notifying = false;
      for (const listener of this.listeners) listener();
    });
  }

  private setTurn(key: string, change: Partial<Turn>): void {
    this.set({ turns: this.state.turns.map((turn) => (turn.key === key ? { ...turn, ...change } : turn)) });
  }

  private turn(key: string): Turn | undefined {
    return this.state.turns.find((turn) => turn.key === key);
  }

  /** Whether a run is going on or waiting for an answer. */
  private get active(): Turn | undefined {
    return this.state.turns.findLast(
      (turn) => turn.reply?.status === 'running' || turn.reply?.status === 'awaiting',
    );
  }

  // ── loading and staying up to date ───────────────────────────────────────────────────────────

  /** Reads the chat from the server and attaches to its run, if it has one. Safe to call at any time. */
  async load(): Promise<void> {
    const { chatId } = this.state;
    if (chatId === null || this.gone.signal.aborted) return;
    try {
      const detail = await this.api.get<ChatDetail>(`/assistant/chat/${chatId}`, {}, this.gone.signal);
      await this.adopt(detail);
    } catch (problem) {
      if (this.gone.signal.aborted) return;
      if (hasStatus(problem, 404)) this.set({ phase: 'missing' });
      else if (this.state.phase === 'loading') this.set({ phase: 'failed', problem: problemSentence(problem) });
    }
  }

  private async adopt(detail: ChatDetail): Promise<void> {
    const turns = mergeTurns(turnsOf(detail.messages), this.state.turns);
    const last = turns.at(-1);
    this.set({ title: detail.title, turns });
    if (detail.running_id === null) this.settle(turns);
    else if (last) this.attach(last, detail);
    const first = this.state.phase === 'loading' && last;
    if (first && detail.running_id === null) await soon(this.restore(last.key));
    else if (first) await soon(this.firstReply(last.key));
    this.set({ phase: 'ready' });
  }

  /** The server runs nothing: whatever this page still shows as running has ended without it. */
  private settle(turns: readonly Turn[]): void {
    this.live?.stop.abort();
    this.live = null;
    clearTimeout(this.poll);
    const stale = turns.filter((turn) => turn.reply?.status === 'running' || turn.reply?.status === 'awaiting');
    this.set({ link: 'idle', stopping: false });
    for (const turn of stale) {
      this.setTurn(turn.key, { whole: false });
      void this.restore(turn.key).then(() => {
        const reply = this.turn(turn.key)?.reply;
        if (reply && (reply.status === 'running' || reply.status === 'awaiting')) {
          this.setTurn(turn.key, { reply: ended(reply, 'cancelled', null) });
        }
      });
    }
  }

  private attach(turn: Turn, detail: ChatDetail): void {
    const running = detail.running_id;
    if (running === null || (this.live?.runId === running && this.live.turnKey === turn.key)) return;
    const pending = detail.pending_user_input_request;
    const shown = turn.reply ?? EMPTY_REPLY;
    this.setTurn(turn.key, { reply: pending ? withQuestion(shown, pending) : { ...shown, status: 'running' } });
    this.start(turn.key, turn.runId ?? running, EMPTY_REPLY);
  }

  private firstReply(key: string): Promise<void> {
    return new Promise((resolve) => {
      const before = this.turn(key)?.reply;
      const stop = this.subscribe(() => {
        if (this.turn(key)?.reply === before) return;
        stop();
        resolve();
      });
    });
  }

  /** Fetches the record of a finished turn, tools and all, once. */
  async restore(key: string): Promise<void> {
    const turn = this.turn(key);
    const { chatId } = this.state;
    if (!turn?.runId || chatId === null || turn.whole || this.restoring.has(key)) return;
    this.restoring.add(key);
    try {
      const reply = await replay(this.api, chatId, turn.runId, this.gone.signal);
      const whole = reply !== null && reply.parts.length > 0;
      this.setTurn(key, whole ? { reply, whole } : { whole: true });
    } catch {
      // The stored text stays on screen; the record is tried again when the turn is next looked at.
    } finally {
      this.restoring.delete(key);
    }
  }

  /** Asks whether the chat moved on without this page, and follows. Called on focus and from other tabs. */
  async refresh(): Promise<void> {
    const { chatId } = this.state;
    if (chatId === null || this.state.phase !== 'ready') return;
    try {
      const status = await this.api.get<ChatStatus>(`/assistant/chat/${chatId}/status`, {}, this.gone.signal);
      const current = this.live?.runId ?? null;
      const waiting = this.active?.reply?.status === 'awaiting' && status.awaiting_input;
      const newest = status.run_status?.run_id ?? this.newestRun;
      const moved = newest !== this.newestRun;
      this.newestRun = newest;
      const idle = waiting || (!this.active && status.running_id === null && !moved);
      const unchanged = current === null ? idle : current === status.running_id;
      if (!unchanged) await this.load();
      else if (waiting && current === null) this.pollPaused();
    } catch (problem) {
      if (hasStatus(problem, 404)) this.set({ phase: 'missing' });
      else if (this.active && !this.live) this.pollPaused();
    }
  }

  private pollPaused(): void {
    clearTimeout(this.poll);
    if (!this.gone.signal.aborted) this.poll = setTimeout(() => void this.refresh(), PAUSED_POLL_MS);
  }

  /** Closes the connection, for a page nobody has looked at for a while. `refresh` opens it again. */
  rest(): void {
    this.live?.stop.abort();
    this.live = null;
    clearTimeout(this.poll);
    this.set({ link: 'idle' });
  }

  /** Ends everything this store does. */
  dispose(): void {
    this.gone.abort();
    this.live?.stop.abort();
    clearTimeout(this.poll);
  }

  // ── following a run ──────────────────────────────────────────────────────────────────────────

  private start(turnKey: string, runId: string, base: Reply): void {
    this.live?.stop.abort();
    const live: Live = { turnKey, runId, stop: new AbortController() };
    this.live = live;
    clearTimeout(this.poll);
    void this.run(live, base);
  }

  private async run(live: Live, base: Reply): Promise<void> {
    const chatId = this.state.chatId ?? '';
    const shown = this.turn(live.turnKey)?.reply ?? base;
    try {
      const end = await follow({
        api: this.api,
        chatId,
        runId: live.runId,
        base,
        shown,
        signal: live.stop.signal,
        onLink: (link) => {
          if (this.state.link !== link) this.set({ link });
        },
        onReply: (reply, runId) => {
          live.runId = runId;
          this.newestRun = runId;
          const asks = reply.status === 'awaiting' && this.turn(live.turnKey)?.reply?.status !== 'awaiting';
          this.setTurn(live.turnKey, { reply });
          if (asks) this.hooks.onListChanged();
        },
      });
      this.followed(live, end);
    } catch (problem) {
      if (live.stop.signal.aborted) return;
      this.live = null;
      this.set({ link: 'idle', notice: noticeOf(problem) });
    }
  }

  private followed(live: Live, end: 'ended' | 'paused' | 'lost'): void {
    if (this.live !== live) return;
    this.live = null;
    this.set({ link: 'idle', stopping: false });
    if (end === 'paused') this.pollPaused();
    else if (end === 'ended') {
      this.setTurn(live.turnKey, { whole: true });
      this.hooks.onListChanged();
    } else void this.load();
  }

  // ── what people do ───────────────────────────────────────────────────────────────────────────

  /**
   * Sends a message: the bubble shows at once, and the request goes out once the model is known.
   * A refusal takes the bubble back; a lost connection leaves it, unsent.
   */
  async send(text: string, model: ModelSource): Promise<SendOutcome> {
    const key = `sent-${freshKey()}`;
    const turn: Turn = {
      key,
      text,
      userState: 'sending',
      problem: null,
      at: new Date().toISOString(),
      runId: null,
      reply: null,
      whole: false,
    };
    this.set({ turns: [...this.state.turns, turn], notice: null });
    let llm: LlmChoice | null;
    try {
      llm = await model();
    } catch (problem) {
      return this.refused(key, problem);
    }
    return this.deliver(key, { key: freshKey(), llm });
  }

  /** Sends an unsent message again, as the same request: it cannot be done twice. */
  async resend(key: string): Promise<SendOutcome> {
    const request = this.requests.get(key);
    if (!request) return 'refused';
    this.setTurn(key, { userState: 'sending', problem: null });
    return this.deliver(key, request);
  }

  /** Takes an unsent message off the thread. */
  discard(key: string): void {
    this.set({ turns: this.state.turns.filter((turn) => turn.key !== key) });
  }

  private async deliver(key: string, request: Request): Promise<SendOutcome> {
    const turn = this.turn(key);
    if (!turn) return 'refused';
    this.requests.set(key, request);
    const { chatId } = this.state;
    const { llm } = request;
    const body = { message: turn.text, ...(chatId === null ? {} : { chat_id: chatId }), ...(llm ? { llm } : {}) };
    try {
      const started = await this.api.post<RunStarted>('/assistant/chat', body, {
        'Idempotency-Key': request.key,
      });
      this.accepted(key, started, chatId === null, llm);
      return 'sent';
    } catch (problem) {
      return this.refused(key, problem);
    }
  }

  private accepted(key: string, started: RunStarted, created: boolean, llm: LlmChoice | null): void {
    this.requests.delete(key);
    if (this.gone.signal.aborted) {
      // Nobody looks at this chat any more: it is in the list, and its address is not for the page now shown.
      this.hooks.onListChanged();
      return;
    }
    this.set({ chatId: started.chat_id, phase: 'ready' });
    this.setTurn(key, { userState: 'sent', runId: started.run_id, reply: EMPTY_REPLY });
    this.start(key, started.run_id, EMPTY_REPLY);
    if (created) this.hooks.onCreated(started.chat_id, llm);
    this.hooks.onListChanged();
    this.hooks.onChanged(started.chat_id);
  }

  private refused(key: string, problem: unknown): SendOutcome {
    // Nobody looks at this chat any more: an unsent bubble would be lost, so the text goes back to the composer's draft.
    if (this.gone.signal.aborted) return 'refused';
    if (problem instanceof ApiProblem || problem instanceof OrganizationChanged) {
      this.discard(key);
      this.set({ notice: noticeOf(problem) });
      if (hasStatus(problem, 409)) void this.load();
      return 'refused';
    }
    this.setTurn(key, { userState: 'unsent', problem: problemSentence(problem) });
    return 'unsent';
  }

  /** Answers the open question. Throws nothing: a refusal becomes the notice, and the card opens again. */
  async answer(question: QuestionPart, answer: Answer, model: ModelSource): Promise<boolean> {
    const turn = this.state.turns.findLast((candidate) => openQuestion(candidate.reply) !== null);
    const { chatId } = this.state;
    const requestId = question.question.request_id;
    if (!turn?.reply || chatId === null || this.state.answering !== null) return false;
    this.set({ answering: requestId, notice: null });
    try {
      const body = { request_id: requestId, response: answer, llm: await model() };
      const started = await this.api.post<RunStarted>(`/assistant/chat/${chatId}/resume`, body);
      this.resumed(turn.key, requestId, answer, started.run_id);
      this.hooks.onChanged(chatId);
      return true;
    } catch (problem) {
      this.notResumed(turn.key, requestId, problem);
      return false;
    } finally {
      this.set({ answering: null });
    }
  }

  private resumed(key: string, requestId: string, answer: Answer, runId: string): void {
    const reply = withAnswer(this.turn(key)?.reply ?? EMPTY_REPLY, requestId, answer);
    this.setTurn(key, { reply });
    if (this.live?.runId !== runId) this.start(key, runId, reply);
  }

  private notResumed(key: string, requestId: string, problem: unknown): void {
    const reply = this.turn(key)?.reply;
    if (hasStatus(problem, 410) || hasStatus(problem, 409)) {
      this.set({ notice: noticeOf(problem) });
      void this.load();
      return;
    }
    if (reply) this.setTurn(key, { reply: withoutAnswer(reply, requestId) });
    this.set({ notice: noticeOf(problem) });
  }

  /** Stops the run, or gives up the open question. */
  async stop(): Promise<void> {
    const { chatId } = this.state;
    if (chatId === null || this.state.stopping) return;
    this.set({ stopping: true, notice: null });
    try {
      await this.api.post(`/assistant/chat/${chatId}/cancel`);
      if (!this.live) await this.load();
    } catch (problem) {
      // 400: nothing was running any more; what became of it is in the chat.
      if (hasStatus(problem, 400)) await this.load();
      else this.set({ notice: noticeOf(problem) });
    } finally {
      this.set({ stopping: false });
      this.hooks.onListChanged();
      this.hooks.onChanged(chatId);
    }
  }

  clearNotice(): void {
    this.set({ notice: null });
  }

  setTitle(title: string): void {
    this.set({ title });
  }
}

function noticeOf(problem: unknown): Notice | null {
  if (problem instanceof ApiProblem) return { problem, at: Date.now() };
  if (problem instanceof NetworkProblem) return { problem: new ApiProblem(0, problem.message), at: Date.now() };
  return { problem: new ApiProblem(0, problemSentence(problem)), at: Date.now() };
}

/** Waits for the work, but not for long. */
async function soon(work: Promise<void>): Promise<void> {
  await Promise.race([work, new Promise<void>((resolve) => setTimeout(resolve, FIRST_RECORD_MS))]);
}

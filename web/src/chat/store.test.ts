import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Api } from '../api/client';
import { OrganizationChanged } from '../api/problem';
import { openQuestion, replyText } from './reply';
import { type ChatHooks, ChatStore } from './store';

/** A scripted server behind `fetch`: answers by method and path, streams by run. */
type Scripted = (signal: AbortSignal) => Response;

class Server {
  readonly calls: { method: string; path: string; body: unknown }[] = [];
  readonly answers = new Map<string, Scripted[]>();

  on(method: string, path: string, ...answers: Scripted[]): this {
    this.answers.set(`${method} ${path}`, answers);
    return this;
  }

  readonly fetch = async (input: RequestInfo | URL, init?: RequestInit): Promise<Response> => {
    const path = String(input);
    const method = init?.method ?? 'GET';
    this.calls.push({ method, path, body: init?.body ? JSON.parse(String(init.body)) : null });
    const queue = this.answers.get(`${method} ${path}`) ?? this.answers.get(`${method} ${path.split('?')[0]}`);
    const answer = queue && (queue.length > 1 ? queue.shift() : queue[0]);
    if (!answer) throw new TypeError(`nothing scripted for ${method} ${path}`);
    return answer(init?.signal ?? new AbortController().signal);
  };

  count(method: string, path: string): number {
    return this.calls.filter((call) => call.method === method && call.path.split('?')[0] === path).length;
  }
}

const json = (body: unknown, status = 200) => () => new Response(JSON.stringify(body), { status });
const refused = (status: number, detail: string) => json({ detail }, status);

/** A stream of frames; `cut` ends it as a lost connection does. */
const stream = (frames: readonly object[], { cut = false, numbered = true } = {}) => () => {
  const lines = frames.map((frame, index) => `${numbered ? `id: ${index + 1}\n` : ''}data: ${JSON.stringify(frame)}\n\n`);
  let sent = false;
  return new Response(
    new ReadableStream({
      pull(controller) {
        if (sent) {
          if (cut) controller.error(new TypeError('network lost'));
          else controller.close();
          return;
        }
        sent = true;
        controller.enqueue(new TextEncoder().encode(lines.join('')));
      },
    }),
    { headers: { 'Content-Type': 'text/event-stream' } },
  );
};

/** A stream that stays open, without another byte, until its reader leaves. */
const unending = (...frames: readonly object[]): Scripted => (signal) =>
  new Response(
    new ReadableStream({
      start(controller) {
        const lines = frames.map((frame, index) => `id: ${index + 1}\ndata: ${JSON.stringify(frame)}\n\n`);
        controller.enqueue(new TextEncoder().encode(lines.join('')));
        signal.addEventListener('abort', () => controller.error(signal.reason));
      },
    }),
  );

const event = (type: string, data: object = {}): object => ({ type, data });
const chunk = (text: string): object => event('response_chunk', { chunk: text });
const QUESTION = { kind: 'yes_no', request_id: 'q1', message: 'Go on?', required: true };
const STARTED = { status: 'running', chat_id: 'chat', run_id: 'r1', thread_id: 'chat', stream_url: '' };
const LISTEN = '/assistant/chat/chat/listen';

let server: Server;
let hooks: ChatHooks;

beforeEach(() => {
  server = new Server();
  vi.stubGlobal('fetch', server.fetch);
  hooks = { schedule: (notify) => notify(), onCreated: vi.fn(), onListChanged: vi.fn(), onChanged: vi.fn() };
});

afterEach(() => {
  vi.unstubAllGlobals();
});

const noModel = (): Promise<null> => Promise.resolve(null);
/** The model of a page that was left for another organization while it waited. */
const elsewhere = (): Promise<null> => Promise.reject(new OrganizationChanged());
const OURS = { integration_name: 'openai', provider_id: 'openai', model_id: 'gpt-4o' };

/** A promise that is settled from outside. */
class Later<T> {
  resolve: (value: T) => void = () => {};
  readonly promise = new Promise<T>((resolve) => {
    this.resolve = resolve;
  });
}

const newChat = (): ChatStore => new ChatStore(new Api(), hooks, null);

async function until(holds: () => boolean): Promise<void> {
  await vi.waitFor(() => expect(holds()).toBe(true), { timeout: 4_000 });
}

const lastReply = (store: ChatStore) => store.snapshot().turns.at(-1)?.reply ?? null;
const lastText = (store: ChatStore): string => {
  const reply = lastReply(store);
  return reply ? replyText(reply) : '';
};

test('the bubble shows before the server answered, and the reply follows', async () => {
  server.on('POST', '/assistant/chat', json(STARTED));
  server.on('GET', `${LISTEN}/r1`, stream([event('metadata'), chunk('Hello'), event('done', { response: 'Hello' })]));
  const store = newChat();
  const sending = store.send('Hi', noModel);
  expect(store.snapshot().turns[0]).toMatchObject({ text: 'Hi', userState: 'sending' });
  expect(await sending).toBe('sent');
  await until(() => lastReply(store)?.status === 'completed');
  expect(lastText(store)).toBe('Hello');
  expect(hooks.onCreated).toHaveBeenCalledWith('chat', null);
});

test('the bubble shows at once, and the request waits until the model is known', async () => {
  server.on('POST', '/assistant/chat', json(STARTED));
  server.on('GET', `${LISTEN}/r1`, stream([event('metadata'), chunk('Hello'), event('done')]));
  const known = new Later<typeof OURS>();
  const store = newChat();
  const sending = store.send('Hi', () => known.promise);
  await new Promise((resolve) => setTimeout(resolve));
  expect(store.snapshot().turns[0]).toMatchObject({ text: 'Hi', userState: 'sending' });
  expect(server.calls).toEqual([]);
  known.resolve(OURS);
  expect(await sending).toBe('sent');
  expect(server.calls[0]).toMatchObject({ method: 'POST', body: { message: 'Hi', llm: OURS } });
  expect(hooks.onCreated).toHaveBeenCalledWith('chat', OURS);
});

test('a message does not follow its writer into another organization', async () => {
  const store = newChat();
  expect(await store.send('Between us', elsewhere)).toBe('refused');
  expect(store.snapshot().turns).toEqual([]);
  expect(server.calls).toEqual([]);
});

test('an answer does not follow its writer into another organization', async () => {
  const message = { id: 'm1', role: 'human', content: 'Hi', run_id: 'r1', running_status: null, created_at: '' };
  const paused = { id: 'chat', title: 'T', running_id: 'r1', pending_user_input_request: QUESTION, messages: [message] };
  server.on('GET', '/assistant/chat/chat', json(paused));
  server.on('GET', `${LISTEN}/r1`, stream([event('metadata'), event('user_input_request', QUESTION), event('interrupted')]));
  server.on('POST', '/assistant/chat/chat/resume', json(STARTED));
  const store = new ChatStore(new Api(), hooks, 'chat');
  await store.load();
  await until(() => openQuestion(lastReply(store)) !== null);
  const question = openQuestion(lastReply(store));
  if (!question) throw new Error('no question');
  expect(await store.answer(question, { kind: 'yes_no', answer: true }, elsewhere)).toBe(false);
  expect(server.count('POST', '/assistant/chat/chat/resume')).toBe(0);
  expect(store.snapshot().answering).toBeNull();
  expect(openQuestion(lastReply(store))).not.toBeNull();
});

test('a message whose page has been left is sent, and opens no page', async () => {
  server.on('POST', '/assistant/chat', json(STARTED));
  const known = new Later<null>();
  const store = newChat();
  const sending = store.send('Hi', () => known.promise);
  store.dispose();
  known.resolve(null);
  expect(await sending).toBe('sent');
  expect(server.calls.map((call) => call.path)).toEqual(['/assistant/chat']);
  expect(hooks.onListChanged).toHaveBeenCalled();
  expect(hooks.onCreated).not.toHaveBeenCalled();
});

test('a message that finds no connection once its page has been left comes back, to be the draft again', async () => {
  const known = new Later<null>();
  const store = newChat();
  const sending = store.send('Hi', () => known.promise);
  store.dispose();
  known.resolve(null);
  expect(await sending).toBe('refused');
  expect(server.count('POST', '/assistant/chat')).toBe(1);
});

test('a numbered stream that is cut goes on after the last frame, with nothing doubled', async () => {
  server.on('POST', '/assistant/chat', json(STARTED));
  server.on('GET', `${LISTEN}/r1`, stream([event('metadata'), chunk('One, ')], { cut: true }));
  server.on('GET', `${LISTEN}/r1?after=2`, stream([chunk('two.'), event('done')]));
  const store = newChat();
  await store.send('Count', noModel);
  await until(() => lastReply(store)?.status === 'completed');
  expect(lastText(store)).toBe('One, two.');
});

test('a server that takes no cursor is read again from the start, with nothing doubled', async () => {
  server.on('POST', '/assistant/chat', json(STARTED));
  const whole = [event('metadata'), chunk('One, '), chunk('two.'), event('done')];
  server.on('GET', `${LISTEN}/r1`, stream(whole.slice(0, 2), { cut: true }), stream(whole));
  const store = newChat();
  await store.send('Count', noModel);
  await until(() => lastReply(store)?.status === 'completed');
  expect(lastText(store)).toBe('One, two.');
});

test('an unnumbered stream that is cut is replayed unseen: the text never shrinks and never doubles', async () => {
  server.on('POST', '/assistant/chat', json(STARTED));
  server.on(
    'GET',
    `${LISTEN}/r1`,
    stream([event('metadata'), chunk('One, '), chunk('two, ')], { cut: true, numbered: false }),
    stream([event('metadata'), chunk('One, '), chunk('two, '), chunk('three.'), event('done')], { numbered: false }),
  );
  const store = newChat();
  const lengths: number[] = [];
  store.subscribe(() => lengths.push(lastText(store).length));
  await store.send('Count', noModel);
  await until(() => lastReply(store)?.status === 'completed');
  expect(lastText(store)).toBe('One, two, three.');
  expect(lengths).toEqual([...lengths].sort((a, b) => a - b));
});

test('a denied send takes the bubble back and keeps the denial as the notice', async () => {
  server.on('POST', '/assistant/chat', json({ code: 'credit_plan_exhausted', layer: 'credit', key: null }, 402));
  const store = newChat();
  expect(await store.send('Hi', noModel)).toBe('refused');
  expect(store.snapshot().turns).toEqual([]);
  expect(store.snapshot().notice?.problem.denial?.layer).toBe('credit');
});

test('a send without a connection stays, unsent, and is sent again as the same request', async () => {
  const store = newChat();
  expect(await store.send('Hi', async () => OURS)).toBe('unsent');
  const turn = store.snapshot().turns[0];
  expect(turn).toMatchObject({ userState: 'unsent', text: 'Hi' });
  server.on('POST', '/assistant/chat', json(STARTED));
  server.on('GET', `${LISTEN}/r1`, stream([event('done', { response: 'Here' })]));
  expect(await store.resend(turn?.key ?? '')).toBe('sent');
  await until(() => lastText(store) === 'Here');
});

test('an answer starts the new run, and the question shows the answer', async () => {
  server.on('POST', '/assistant/chat', json(STARTED));
  server.on('GET', `${LISTEN}/r1`, stream([event('metadata'), event('user_input_request', QUESTION), event('interrupted')]));
  server.on('POST', '/assistant/chat/chat/resume', json({ ...STARTED, status: 'resuming', run_id: 'r2' }));
  server.on('GET', `${LISTEN}/r2`, stream([event('metadata'), chunk('On we go.'), event('done')]));
  const store = newChat();
  await store.send('Hi', noModel);
  await until(() => openQuestion(lastReply(store)) !== null);
  const question = openQuestion(lastReply(store));
  if (!question) throw new Error('no question');
  expect(await store.answer(question, { kind: 'yes_no', answer: true }, noModel)).toBe(true);
  await until(() => lastReply(store)?.status === 'completed');
  expect(lastReply(store)?.parts[0]).toMatchObject({ state: 'answered', answer: { answer: true } });
  expect(lastText(store)).toBe('On we go.');
});

test('a stale answer becomes a notice, and the chat is read anew', async () => {
  server.on('POST', '/assistant/chat', json(STARTED));
  server.on('GET', `${LISTEN}/r1`, stream([event('metadata'), event('user_input_request', QUESTION), event('interrupted')]));
  server.on('POST', '/assistant/chat/chat/resume', refused(410, 'This question was answered already.'));
  server.on('GET', '/assistant/chat/chat', json({ id: 'chat', title: 'T', running_id: null, messages: [] }));
  const store = newChat();
  await store.send('Hi', noModel);
  await until(() => openQuestion(lastReply(store)) !== null);
  const question = openQuestion(lastReply(store));
  if (!question) throw new Error('no question');
  expect(await store.answer(question, { kind: 'yes_no', answer: true }, noModel)).toBe(false);
  expect(store.snapshot().notice?.problem.status).toBe(410);
  await until(() => server.count('GET', '/assistant/chat/chat') === 1);
});

test('a page load during the second run of a turn shows both runs once', async () => {
  const human = { id: 'm1', role: 'human', content: 'Hi', run_id: 'r1', running_status: null, created_at: '' };
  server.on('GET', '/assistant/chat/chat', json({ id: 'chat', title: 'T', running_id: 'r2', messages: [human] }));
  server.on(
    'GET',
    `${LISTEN}/r1`,
    stream([event('metadata'), chunk('First. '), event('user_input_request', QUESTION), event('interrupted'), event('run_resumed', { new_run_id: 'r2' })]),
  );
  server.on('GET', `${LISTEN}/r2`, stream([event('metadata'), chunk('Second.'), event('done')]));
  const store = new ChatStore(new Api(), hooks, 'chat');
  await store.load();
  await until(() => lastReply(store)?.status === 'completed');
  expect(lastText(store)).toBe('First.\n\nSecond.');
  expect(store.snapshot().phase).toBe('ready');
});

test('a page load shows an open question even where the record of the run is gone', async () => {
  const human = { id: 'm1', role: 'human', content: 'Hi', run_id: 'r1', running_status: null, created_at: '' };
  const detail = { id: 'chat', title: 'T', running_id: 'r1', pending_user_input_request: QUESTION, messages: [human] };
  server.on('GET', '/assistant/chat/chat', json(detail));
  server.on('GET', `${LISTEN}/r1`, stream([event('metadata'), event('user_input_request', QUESTION), event('interrupted')]));
  const store = new ChatStore(new Api(), hooks, 'chat');
  await store.load();
  await until(() => openQuestion(lastReply(store))?.question.request_id === 'q1');
  store.dispose();
});

test('another tab finishing the paused turn is noticed on refresh', async () => {
  const human = { id: 'm1', role: 'human', content: 'Hi', run_id: 'r1', running_status: null, created_at: '' };
  const ai = { id: 'm2', role: 'ai', content: 'Done.', run_id: 'r2', running_status: 'completed', created_at: '' };
  const paused = { id: 'chat', title: 'T', running_id: 'r1', pending_user_input_request: QUESTION, messages: [human] };
  server.on('GET', '/assistant/chat/chat', json(paused), json({ ...paused, running_id: null, pending_user_input_request: null, messages: [human, ai] }));
  const asked = [event('metadata'), event('user_input_request', QUESTION), event('interrupted')];
  server.on('GET', `${LISTEN}/r1`, stream(asked, { numbered: false }), stream([...asked, event('run_resumed', { new_run_id: 'r2' })]));
  server.on('GET', `${LISTEN}/r2`, stream([event('metadata'), chunk('Done.'), event('done')]));
  server.on('GET', '/assistant/chat/chat/status', json({ is_running: false, awaiting_input: false, running_id: null }));
  const store = new ChatStore(new Api(), hooks, 'chat');
  await store.load();
  await until(() => store.snapshot().link === 'idle' && openQuestion(lastReply(store)) !== null);
  await store.refresh();
  await until(() => lastReply(store)?.status === 'completed');
  expect(lastText(store)).toBe('Done.');
});

test('an answer given elsewhere is heard by reading on after the question', async () => {
  server.on('POST', '/assistant/chat', json(STARTED));
  server.on('GET', `${LISTEN}/r1`, stream([event('metadata'), event('user_input_request', QUESTION), event('interrupted')]));
  server.on('GET', `${LISTEN}/r1?after=3`, stream([event('run_resumed', { new_run_id: 'r2' })]));
  server.on('GET', `${LISTEN}/r2`, stream([event('metadata'), chunk('Heard.'), event('done')]));
  const store = newChat();
  await store.send('Hi', noModel);
  await until(() => lastReply(store)?.status === 'completed');
  expect(lastText(store)).toBe('Heard.');
});

test('a finished turn that paused is restored with its question and both runs', async () => {
  const human = { id: 'm1', role: 'human', content: 'Hi', run_id: 'r1', running_status: null, created_at: '' };
  const ai = { id: 'm2', role: 'ai', content: 'Second.', run_id: 'r2', running_status: 'completed', created_at: '' };
  server.on('GET', '/assistant/chat/chat', json({ id: 'chat', title: 'T', running_id: null, messages: [human, ai] }));
  server.on('GET', `${LISTEN}/r1`, stream([event('metadata'), chunk('First.'), event('user_input_request', QUESTION), event('interrupted')]));
  server.on('GET', `${LISTEN}/r1?after=4`, stream([event('run_resumed', { new_run_id: 'r2' })]));
  server.on('GET', `${LISTEN}/r2`, stream([event('metadata'), chunk('Second.'), event('done')]));
  const store = new ChatStore(new Api(), hooks, 'chat');
  await store.load();
  await until(() => lastText(store) === 'First.\n\nSecond.');
  expect(lastReply(store)?.parts[1]).toMatchObject({ kind: 'question', state: 'answered' });
});

test('an unknown chat is missing, not an error', async () => {
  server.on('GET', '/assistant/chat/chat', refused(404, 'Not found'));
  const store = new ChatStore(new Api(), hooks, 'chat');
  await store.load();
  expect(store.snapshot().phase).toBe('missing');
});

test('a page that nobody looks at gives its connection up, and goes on where it was once it is looked at', async () => {
  const human = { id: 'm1', role: 'human', content: 'Hi', run_id: 'r1', running_status: null, created_at: '' };
  const detail = { id: 'chat', title: 'T', running_id: 'r1', pending_user_input_request: null, messages: [human] };
  server.on('POST', '/assistant/chat', json(STARTED));
  server.on('GET', '/assistant/chat/chat', json(detail));
  server.on('GET', '/assistant/chat/chat/status', json({ is_running: true, awaiting_input: false, running_id: 'r1' }));
  server.on('GET', `${LISTEN}/r1`, unending(chunk('Half')), stream([event('metadata'), chunk('Half and whole.'), event('done')]));
  const store = newChat();
  await store.send('Hi', noModel);
  await until(() => lastText(store) === 'Half');
  store.rest();
  expect(store.snapshot().link).toBe('idle');
  expect(server.count('GET', `${LISTEN}/r1`)).toBe(1);
  await store.refresh();
  await until(() => lastReply(store)?.status === 'completed');
  expect(lastText(store)).toBe('Half and whole.');
});

test('a connection that is silent for longer than heartbeats are apart is opened again', async () => {
  vi.useFakeTimers();
  try {
    server.on('POST', '/assistant/chat', json(STARTED));
    server.on('GET', `${LISTEN}/r1`, unending(), stream([event('metadata'), chunk('Here.'), event('done')]));
    const store = newChat();
    await store.send('Hi', noModel);
    await vi.advanceTimersByTimeAsync(39_000);
    expect(server.count('GET', `${LISTEN}/r1`)).toBe(1);
    await vi.advanceTimersByTimeAsync(3_000);
    expect(lastText(store)).toBe('Here.');
  } finally {
    vi.useRealTimers();
  }
});

// A stand-in for the API, to work on the pages without a server: `node dev/server.mjs`, then `npm run dev`.
// It answers from memory, and forgets all when it ends. What it says depends on words in the message:
// tools, choose, several, yesno, text, connect, approve, fail, denied, quota, rate, long.
import { createServer } from 'node:http';
import { readFileSync } from 'node:fs';
import { extname, join, normalize } from 'node:path';
import { randomUUID } from 'node:crypto';

const PORT = Number(process.env.PORT ?? 8000);
const STATIC = new URL('../../src/parley/http/static', import.meta.url).pathname;
const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' };
const ORGANIZATIONS = [
  { id: 'o1', name: 'Acme Works', slug: 'acme', role: 'owner', is_default: true },
  { id: 'o2', name: 'Side Project', slug: 'side', role: 'admin', is_default: false },
];
const now = () => new Date().toISOString();
const chats = new Map();
const runs = new Map();
const credentials = [
  { credential_id: 'k1', integration_name: 'github', integration_type: 'tool', display_name: 'ada at GitHub', auth_type: 'oauth2', is_default: true, is_valid: true, created_at: now(), last_used_at: now() },
  { credential_id: 'k2', integration_name: 'slack', integration_type: 'tool', display_name: 'Slack bot', auth_type: 'bearer_token', is_default: true, is_valid: false, created_at: now(), last_used_at: null },
];
const parameters = {
  owner: { type: 'string', required: true, description: 'Repository owner' },
  repo: { type: 'string', required: true, description: 'Repository name' },
};
const integrations = ['github:GitHub:Repositories, issues and pull requests:developer_tools', 'slack:Slack:Send and read messages:communication', 'notion:Notion:Pages and databases:productivity', 'stripe:Stripe:Payments and customers:payments', 'linear:Linear:Issues and projects:productivity', 'tavily:Tavily:Search the web:search', 'jira:Jira:Issues, boards and sprints of Jira Cloud, with a description that is long enough to be cut after two lines on a card:project_management']
  .map((line) => line.split(':'))
  .map(([name, display_name, description, category]) => ({
    name, display_name, description, categories: [category], integration_type: 'tool', app_url: `https://${name}.example`, status: 'active',
    actions: ['list_repositories', 'create_issue', 'delete_repository', 'get_user', 'list_issues', 'close_issue', 'add_label', 'merge_pull_request', 'search_code'].map((action) => ({ name: action, display_name: '', description: `What ${action.replaceAll('_', ' ')} does, in a sentence.`, parameters })),
    auth_schemas: [
      { auth_type: 'oauth2', display_name: 'Sign in', setup_environment_variables: [], supports_modulex_oauth: false },
      { auth_type: 'api_key', display_name: 'API key', test_supported: true, setup_instructions: ['Open the settings.', 'Make a key.'], setup_environment_variables: [{ name: 'API_KEY', display_name: 'API key', description: 'Your key', required: true, sensitive: true, sample_format: 'abc_…' }] },
    ],
  }));
const models = ['demo:Demo', 'fast-1:Fast One'].map((line) => line.split(':')).map(([id, display_name]) => ({ id, display_name, integration_name: 'demo', integration_display_name: 'Demo', max_output_tokens: 8192 }));

const chunks = (text) => text.match(/[\s\S]{1,6}/g).map((chunk) => ['response_chunk', { chunk }]);
const call = (id, tool, input, output) => [
  ['tool_call', { tool, input, tool_call_id: id, timestamp: now() }],
  ['tool_result', { tool, tool_call_id: id, output, timestamp: now(), duration_ms: 640 }],
];
const done = (response) => ['done', { response, usage: { input_tokens: 1204, output_tokens: 336, total_tokens: 1540, llm_calls: 3, cached_tokens: 800, credits_micro: 1_240_000 } }];
const LONG = readFileSync(new URL('./sample.md', import.meta.url), 'utf8');
const ask = (kind, extra) => ['user_input_request', { kind, request_id: randomUUID(), required: true, allow_free_text: false, context: null, ...extra }];
const OPTIONS = [
  { value: 'a', label: 'hello-world', description: 'The one from last week', badge: 'Recent' },
  { value: 'b', label: 'spoon-knife', description: 'Rarely used' },
  { value: 'c', label: 'octo-app' },
];
const QUESTIONS = {
  choose: ask('single_choice', { message: 'Which **repository** do you mean?', options: OPTIONS, allow_free_text: true }),
  several: ask('multi_choice', { message: 'Which labels should it get?', options: OPTIONS, min_selections: 1, max_selections: 2, required: false }),
  yesno: ask('yes_no', { message: 'Shall I go on with the import?', yes_label: 'Go on', no_label: 'Not now' }),
  text: ask('free_text', { message: 'What should the issue say?', multiline: true, min_length: 5, max_length: 200, placeholder: 'Steps to see the bug', required: false, timeout_hint_seconds: 300 }),
  connect: ask('credential_request', { message: 'Connect **Notion** so that the assistant can go on.', required: false, integration_name: 'notion', integration_display_name: 'Notion', auth_options: [
    { auth_type: 'oauth2', display_name: 'Sign in', fields: [], oauth_initiate_endpoint: '/credentials/oauth2/initiate' },
    { auth_type: 'api_key', display_name: 'API key', test_supported: true, setup_instructions: ['1. Open the settings.', 'Make an integration and copy its key.'], fields: [{ name: 'NOTION_KEY', display_name: 'Integration key', description: 'Begins with secret_', required: true, sensitive: true, sample_format: 'secret_…', about_url: 'https://notion.example/keys' }] },
  ] }),
  approve: ask('yes_no', { message: 'The assistant wants to delete a repository.', context: { type: 'approval', integration_name: 'github', integration_display_name: 'GitHub', action_name: 'delete_repository', account: 'ada at GitHub', reason: 'Deleting is always asked for.', effect: 'destructive', irreversible: true, parameters: { owner: 'octocat', repo: 'hello-world', token: '••••••••', note: 'A long value. '.repeat(30) } } }),
};

function script(message) {
  const word = Object.keys(QUESTIONS).find((each) => message.includes(each));
  if (word === 'approve') return [...chunks('I will need your approval.'), call('c9', 'execute_integration_tool', { integration_name: 'github', tool_name: 'delete_repository', parameters: { owner: 'octocat' } }, null)[0], QUESTIONS.approve];
  if (word) return [...chunks('Let me ask you first.'), ['tool_call', { tool: `ask_${word}`, input: {}, tool_call_id: 'c9', timestamp: now() }].map((each) => each), QUESTIONS[word]].map((each) => (each[1].tool ? [each[0], { ...each[1], tool: word === 'connect' ? 'request_credential' : 'ask_user_choice' }] : each));
  if (message.includes('fail')) return [...call('c1', 'execute_integration_tool', { integration_name: 'github', tool_name: 'create_issue', parameters: { title: 'Bug' } }, { status: 'error', error: 'GitHub answered 422: the title is taken.' }), ['guidance', { message: 'Three tools failed in a row. Tell the user what does not work.', consecutive_failures: 3 }], ['error', { message: 'The model did not answer. Try again in a moment.' }], ['done', { error: true }]];
  if (message.includes('tools')) return [...call('c1', 'get_available_integrations', { query: 'git' }, { tools: [] }), ...call('c2', 'get_integration_details', { integration_name: 'github' }, { actions: [] }), ...chunks('Let me look at your repositories.'), ...call('c3', 'execute_integration_tool', { integration_name: 'github', tool_name: 'list_repositories', parameters: { visibility: 'all' } }, { status: 'ok', result: { repositories: [{ name: 'hello-world' }, { name: 'spoon-knife' }] } }), ...call('c4', 'execute_integration_tool', { integration_name: 'notion', tool_name: 'search', parameters: {} }, { status: 'needs_credential', message: 'Notion is not connected.' }), ...call('c5', 'search_knowledge', { query: 'release notes' }, { status: 'ok', total_matches: 1, matches: [{ document_filename: 'releases.md', content: 'Version 2 came out in May.', score: 0.82 }] }), ...chunks('You have **two** repositories:\n\n- hello-world\n- spoon-knife\n'), done('')];
  return [...chunks(message.includes('long') ? LONG.repeat(6) : LONG), done('')];
}

async function play(run) {
  for (const event of run.script) {
    await new Promise((resolve) => setTimeout(resolve, event[0] === 'response_chunk' ? 5 : 220));
    if (run.over) return;
    publish(run, event);
  }
}

function publish(run, [type, data]) {
  const frame = { type, data };
  run.events.push(frame);
  for (const send of run.listeners) send(frame, run.events.length);
  const chat = chats.get(run.chat);
  if (type === 'user_input_request') {
    chat.pending_user_input_request = data;
    run.paused = true;
    run.events.push({ type: 'interrupted', data: {} });
  }
  if (['done', 'cancelled', 'run_resumed'].includes(type)) {
    run.over = true;
    if (type !== 'run_resumed') {
      chat.running_id = null;
      chat.pending_user_input_request = null;
      const content = run.events.filter((each) => each.type === 'response_chunk').map((each) => each.data.chunk).join('');
      chat.messages.push({ id: randomUUID(), role: 'ai', content, run_id: run.id, running_status: type === 'cancelled' ? 'cancelled' : 'completed', created_at: now() });
    }
    for (const send of run.listeners) send(null);
  }
}

function start(chat, events) {
  const run = { id: randomUUID(), chat: chat.id, events: [], listeners: new Set(), script: events, over: false };
  runs.set(run.id, run);
  chat.running_id = run.id;
  chat.updated_at = now();
  publish(run, ['metadata', { run_id: run.id, timestamp: now() }]);
  void play(run);
  return run;
}

const started = (run, status) => ({ status, chat_id: run.chat, run_id: run.id, thread_id: run.chat, stream_url: '' });
const usageDay = (_, index) => ({ date: new Date(Date.now() - index * 86_400_000).toISOString().slice(0, 10), credits: Math.round(20 + 15 * Math.sin(index / 3)), input_tokens: 9000 + 4000 * Math.cos(index / 2), output_tokens: 3000 + 900 * Math.sin(index), cached_tokens: 4200, llm_calls: 12, tool_calls: 14, failed_calls: index % 5, integrations: { github: 8, slack: 4, notion: 2 } });

const routes = {
  'GET /auth/me': () => ({ id: 'u1', email: 'ada@example.com', username: 'Ada' }),
  'GET /auth/me/organizations': () => ({ organizations: ORGANIZATIONS }),
  'POST /auth/session': () => ({}),
  'GET /organizations/llms': () => ({ active_llms: models, inactive_llms: [] }),
  'GET /organizations/settings': () => ({ composer_llm: { integration_name: 'demo', provider_id: 'demo', model_id: 'demo' }, fallback_llm: null, llm_model_visibility: {}, approval_policy: null, operator_approval_policy: 'catalog', chat_retention_days: null }),
  'GET /integrations/browse': (query) => ({ integrations: integrations.filter((each) => !query.get('search') || JSON.stringify(each).includes(query.get('search'))).map(({ actions, ...brief }) => ({ ...brief, action_count: actions.length })), has_more: false }),
  'GET /credentials': (query) => (query.get('integration_name') ? { credentials: credentials.filter((each) => each.integration_name === query.get('integration_name')) } : { integrations: Object.groupBy ? Object.fromEntries(Object.entries(Object.groupBy(credentials, (each) => each.integration_name)).map(([name, list]) => [name, { credentials: list }])) : Object.fromEntries(credentials.map((each) => [each.integration_name, { credentials: credentials.filter((other) => other.integration_name === each.integration_name) }])) }),
  'POST /credentials/test-temporary': (_, body) => ({ is_valid: !JSON.stringify(body).includes('wrong'), message: 'the key was not accepted' }),
  'POST /credentials': (_, body) => { const made = { credential_id: randomUUID(), display_name: body.integration_name, is_default: true, is_valid: true, created_at: now(), ...body, auth_data: undefined }; credentials.push(made); return made; },
  'GET /api-keys': () => ({ keys: [{ id: 'a1', name: 'First start', masked_key: 'mx_live_8f3a****', is_active: true, is_expired: false, created_at: now(), last_used_at: now(), revoked_at: null, expires_at: null }] }),
  'GET /dashboard/users': () => ({ users: [{ id: 'u1', email: 'ada@example.com', username: 'Ada', role: 'owner', is_active: true, last_active_at: now() }, { id: 'u2', email: 'linus@example.com', username: 'Linus', role: 'admin', is_active: true }, { id: 'i1', email: 'grace@example.com', role: 'admin', is_invitation: true, invitation_status: 'pending', invitation_expires_at: now() }] }),
  'GET /dashboard/logs': () => ({ data: { logs: Array.from({ length: 8 }, (_, index) => ({ id: `l${index}`, audit_time: now(), category: 'CREDENTIALS', operation: 'CREDENTIAL_CREATED', actor_email: 'ada@example.com', message: 'Connected GitHub as ada.' })), total_count: 8, has_next: false } }),
  'GET /dashboard/analytics/overview': () => ({ data: { overview: { current_month_credit_usage: { used_credit: 412.5, max_credit: 1000, next_reset_date: now() } } } }),
  'GET /dashboard/analytics/daily': () => ({ data: { days: Array.from({ length: 90 }, usageDay) } }),
  'GET /knowledge-bases': () => [{ id: 'b1', name: 'Handbook', description: 'How we work', document_count: 3, total_chunks: 120, total_tokens: 45000, status: 'active' }],
  'GET /knowledge-bases/b1': () => ({ id: 'b1', name: 'Handbook', description: 'How we work' }),
  'GET /knowledge-bases/b1/documents': () => [{ id: 'd1', filename: 'handbook.pdf', file_size_bytes: 120034, status: 'completed', chunk_count: 44, error_message: null }, { id: 'd2', filename: 'broken.docx', file_size_bytes: 1200, status: 'failed', chunk_count: null, error_message: 'The file cannot be read.' }],
  'GET /assistant/chats': (query) => ({ items: [...chats.values()].filter((chat) => chat.title.toLowerCase().includes((query.get('q') ?? '').toLowerCase())).reverse().map((chat) => ({ ...chat, messages: undefined, is_running: chat.running_id !== null, awaiting_input: Boolean(chat.pending_user_input_request) })), next_cursor: null }),
  'POST /assistant/chat': (_, body) => {
    const denied = { denied: [402, 'credit'], quota: [403, 'quota'], rate: [429, 'rate'] };
    const word = Object.keys(denied).find((each) => body.message.includes(each));
    if (word) return { _status: denied[word][0], _headers: { 'Retry-After': '5' }, code: 'credit_plan_exhausted', layer: denied[word][1], key: 'monthly_credits', current: 100, limit: 100, reason: 'x' };
    const chat = chats.get(body.chat_id) ?? { id: randomUUID(), title: body.message.slice(0, 50), created_at: now(), messages: [], running_id: null, pending_user_input_request: null };
    chats.set(chat.id, chat);
    const run = start(chat, script(body.message));
    chat.messages.push({ id: randomUUID(), role: 'human', content: body.message, run_id: run.id, running_status: null, created_at: now() });
    return started(run, 'running');
  },
};

function chatRoute(method, [, , , id, verb, runId], body, response) {
  const chat = chats.get(id);
  if (!chat) return { _status: 404, detail: 'Chat not found' };
  if (verb === 'listen') return listen(runs.get(runId), response);
  if (verb === 'status') return { chat_id: id, is_running: Boolean(chat.running_id) && !chat.pending_user_input_request, awaiting_input: Boolean(chat.pending_user_input_request), running_id: chat.running_id };
  if (verb === 'cancel') { if (!chat.running_id) return { _status: 400, detail: 'No active execution to cancel' }; publish(runs.get(chat.running_id), ['cancelled', { reason: 'user_cancelled' }]); return {}; }
  if (verb === 'resume') {
    if (chat.pending_user_input_request?.request_id !== body.request_id) return { _status: 410, detail: 'This question was answered already.' };
    const old = runs.get(chat.running_id);
    chat.pending_user_input_request = null;
    const answer = body.response;
    const output = answer.kind === 'yes_no' && old.script.at(-1)[1].context?.type === 'approval' ? { status: answer.answer ? 'ok' : 'cancelled', result: { message: 'Deleted octocat/hello-world' } } : answer;
    const run = start(chat, [['tool_result', { tool: 'x', tool_call_id: 'c9', output, timestamp: now(), duration_ms: 300 }], ...chunks('Thank you. I went on with that.'), done('')]);
    publish(old, ['run_resumed', { new_run_id: run.id }]);
    return started(run, 'resuming');
  }
  if (method === 'DELETE') { chats.delete(id); return {}; }
  if (method === 'PATCH') { chat.title = body.title; return chat; }
  return chat;
}

function listen(run, response) {
  if (!run) return { _status: 404, detail: 'Run not found' };
  response.writeHead(200, { 'Content-Type': 'text/event-stream' });
  const send = (frame, id) => {
    if (frame === null) response.end();
    else response.write(`id: ${id}\ndata: ${JSON.stringify(frame)}\n\n`);
  };
  run.events.forEach((frame, index) => send(frame, index + 1));
  if (run.over || run.paused) return response.end() && undefined;
  run.listeners.add(send);
  response.on('close', () => run.listeners.delete(send));
  return undefined;
}

function file(path, response) {
  const name = extname(path) ? normalize(path.slice(5)) : '/index.html';
  try {
    const bytes = readFileSync(join(STATIC, name));
    response.writeHead(200, { 'Content-Type': TYPES[extname(name)] ?? 'application/json' });
    response.end(bytes);
  } catch {
    response.writeHead(404).end();
  }
}

createServer(async (request, response) => {
  const url = new URL(request.url, 'http://x');
  if (url.pathname.startsWith('/app/logos/')) return response.writeHead(404).end();
  if (url.pathname.startsWith('/app')) return file(url.pathname, response);
  let text = '';
  for await (const part of request) text += part;
  const body = text && request.headers['content-type'] === 'application/json' ? JSON.parse(text) : {};
  const route = routes[`${request.method} ${url.pathname}`];
  let answer = { _status: 404, detail: 'Not found' };
  const integration = /^\/integrations\/tools\/(.+)$/.exec(url.pathname);
  if (route) answer = route(url.searchParams, body);
  else if (integration) answer = integrations.find((each) => each.name === integration[1]) ?? answer;
  else if (url.pathname.startsWith('/assistant/chat/')) answer = chatRoute(request.method, url.pathname.split('/'), body, response);
  if (answer === undefined) return undefined;
  const { _status = 200, _headers = {}, ...plain } = Array.isArray(answer) ? { list: answer } : answer;
  response.writeHead(_status, { 'Content-Type': 'application/json', ..._headers });
  return response.end(JSON.stringify(Array.isArray(answer) ? answer : plain));
}).listen(PORT, '127.0.0.1', () => console.log(`http://127.0.0.1:${PORT}/app/`));

import { describe, expect, test } from 'vitest';
import type { Question } from '../api/types';
import { decodeEvent, type RunEvent } from './events';
import { EMPTY_REPLY, fold, openQuestion, type Reply, replyText, weight } from './reply';

const line = (type: string, data: object): RunEvent => {
  const event = decodeEvent(JSON.stringify({ type, data }));
  if (!event) throw new Error(`not an event: ${type}`);
  return event;
};

const reply = (...events: RunEvent[]): Reply => events.reduce(fold, EMPTY_REPLY);

const METADATA = line('metadata', { run_id: 'r1', timestamp: '2026-06-20T10:00:00+00:00' });
const CALL = line('tool_call', {
  tool: 'execute_integration_tool',
  input: { integration_name: 'github', tool_name: 'list_repositories' },
  tool_call_id: 'c1',
  timestamp: '2026-06-20T10:00:02+00:00',
});
const RESULT = line('tool_result', {
  tool: 'execute_integration_tool',
  tool_call_id: 'c1',
  output: { status: 'ok', result: [] },
  timestamp: '2026-06-20T10:00:03.500000+00:00',
});
const APPROVAL: Question = {
  kind: 'yes_no',
  request_id: 'q1',
  message: 'Delete it?',
  required: true,
  context: { type: 'approval' },
};

test('a turn with one tool becomes text, tool and text, with the time the tool took', () => {
  const done = reply(
    METADATA,
    line('response_chunk', { chunk: 'Let me ' }),
    line('response_chunk', { chunk: 'look.' }),
    CALL,
    RESULT,
    line('response_chunk', { chunk: 'Nothing there.' }),
    line('done', { response: 'Nothing there.', usage: { input_tokens: 5, output_tokens: 2, total_tokens: 7, llm_calls: 2 } }),
  );
  expect(done.parts.map((part) => part.kind)).toEqual(['text', 'tool', 'text']);
  expect(done.parts[1]).toMatchObject({ durationMs: 1500, output: { status: 'ok' } });
  expect(replyText(done)).toBe('Let me look.\n\nNothing there.');
  expect(done.status).toBe('completed');
  expect(done.usage?.total_tokens).toBe(7);
});

test('a repeated call or result changes nothing', () => {
  const once = reply(METADATA, CALL, RESULT);
  expect(reply(METADATA, CALL, CALL, RESULT, RESULT)).toEqual(once);
});

test('the response of done counts only where no text was streamed after the last tool', () => {
  expect(replyText(reply(METADATA, CALL, RESULT, line('done', { response: 'All of it' })))).toBe('All of it');
  const spoken = reply(METADATA, line('response_chunk', { chunk: 'Streamed' }), line('done', { response: 'Other' }));
  expect(replyText(spoken)).toBe('Streamed');
});

test('an error and the done that follows it make one failed reply with the message', () => {
  const failed = reply(METADATA, CALL, line('error', { message: 'The model is down.' }), line('done', { error: true }));
  expect(failed.status).toBe('failed');
  expect(failed.error).toBe('The model is down.');
  expect(failed.parts[0]).toMatchObject({ kind: 'tool', abandoned: true });
});

test('a cancelled turn gives up its running tool and its open question', () => {
  const stopped = reply(METADATA, CALL, { type: 'question', question: APPROVAL }, line('cancelled', { reason: 'user_cancelled' }));
  expect(stopped.status).toBe('cancelled');
  expect(openQuestion(stopped)).toBeNull();
});

describe('an approval', () => {
  const asked = reply(METADATA, CALL, { type: 'question', question: APPROVAL });

  test('waits, and its replay is the same question', () => {
    expect(asked.status).toBe('awaiting');
    expect(fold(fold(asked, { type: 'question', question: APPROVAL }), { type: 'interrupted' }).parts).toEqual(asked.parts);
  });

  test('is answered yes by a result of the call, and no by a cancelled one', () => {
    const yes = fold(asked, RESULT);
    expect(yes.parts[1]).toMatchObject({ state: 'answered', answer: { kind: 'yes_no', answer: true } });
    const no = fold(
      asked,
      line('tool_result', { tool: 'execute_integration_tool', tool_call_id: 'c1', output: { status: 'cancelled' } }),
    );
    expect(no.parts[1]).toMatchObject({ state: 'answered', answer: { kind: 'yes_no', answer: false } });
  });

  test('answered in another tab closes here, answer unknown', () => {
    const elsewhere = fold(asked, line('run_resumed', { new_run_id: 'r2' }));
    expect(elsewhere.parts[1]).toMatchObject({ state: 'answered', answer: null });
    expect(elsewhere.status).toBe('running');
  });
});

describe('a turn at its cap', () => {
  const CAP: Question = { ...APPROVAL, request_id: 'cap', message: 'Go on?', context: { type: 'turn_cap' } };
  const asked = reply(METADATA, CALL, { type: 'question', question: CAP });
  const stopped = line('tool_result', {
    tool: 'execute_integration_tool',
    tool_call_id: 'c1',
    output: { status: 'cancelled', reason: 'No more credits.' },
  });

  test('went on where the call returned, whatever it returned, and stopped where it was cancelled', () => {
    const odd = line('tool_result', { tool: 'ask', tool_call_id: 'c1', output: { kind: 'free_text', text: 'Hi' } });
    for (const returned of [RESULT, odd]) {
      expect(fold(asked, returned).parts[1]).toMatchObject({ state: 'answered', answer: { kind: 'yes_no', answer: true } });
    }
    const last = fold(fold(asked, stopped), line('response_chunk', { chunk: 'I stopped here.' }));
    expect(last.parts[1]).toMatchObject({ state: 'answered', answer: { kind: 'yes_no', answer: false } });
    expect(replyText(last)).toBe('I stopped here.');
  });

  test('went on where its call asks for approval next, whose answer is its own', () => {
    const resumed = fold(asked, line('run_resumed', { new_run_id: 'r2' }));
    const again = fold(fold(resumed, { type: 'question', question: APPROVAL }), stopped);
    expect(again.parts.slice(1)).toMatchObject([
      { question: { request_id: 'cap' }, state: 'answered', answer: { kind: 'yes_no', answer: true } },
      { question: { request_id: 'q1' }, state: 'answered', answer: { kind: 'yes_no', answer: false } },
    ]);
  });
});

test('heartbeats, unknown types and broken JSON are nothing', () => {
  for (const text of ['{"type":"heartbeat"}', '{"type":"subagent_start","data":{}}', '{"type":"constructor"}', '{"type":', '[]', 'null']) {
    expect(decodeEvent(text)).toBeNull();
  }
});

test('a replay weighs no more than the whole at any point', () => {
  const events = [METADATA, line('response_chunk', { chunk: 'ab' }), CALL, RESULT, line('response_chunk', { chunk: 'c' })];
  const weights = events.map((_, index) => weight(reply(...events.slice(0, index + 1))));
  expect(weights).toEqual([...weights].sort((a, b) => a - b));
});

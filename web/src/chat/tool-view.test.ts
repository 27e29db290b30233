import { expect, test } from 'vitest';
import type { Json } from '../api/types';
import type { ToolPart } from './reply';
import { stateOf, summaryOf } from './tool-view';

const part = (output: Json | undefined, abandoned = false): ToolPart =>
  ({ kind: 'tool', id: 'c1', tool: 'execute_integration_tool', input: {}, output, abandoned }) as unknown as ToolPart;

test.each<[Json | undefined, string]>([
  [undefined, 'running'],
  [{ status: 'ok', result: [] }, 'done'],
  ['text', 'done'],
  [{ matches: [] }, 'done'],
  [{ status: 'error', error: 'No' }, 'failed'],
  [{ error: 'No', success: false }, 'failed'],
  [{ error: 'No' }, 'failed'],
  [{ status: 'needs_credential' }, 'needs'],
  [{ status: 'credit_limit', reason: 'credit_exhausted' }, 'limit'],
  [{ status: 'cancelled' }, 'declined'],
  [{ status: 'constructor' }, 'done'],
])('what came of a call shows as one state: %j', (output, state) => {
  expect(stateOf(part(output), false)).toBe(state);
});

test('a call without a result waits for the person, or was stopped with its turn', () => {
  expect(stateOf(part(undefined), true)).toBe('waiting');
  expect(stateOf(part(undefined, true), true)).toBe('stopped');
});

test('the line of a call says what happened', () => {
  expect(summaryOf(part({ status: 'ok', result: { repositories: [1, 2] } }))).toBe('2 repositories');
  expect(summaryOf(part({ status: 'error', error: 'It is  gone.' }))).toBe('It is gone.');
  expect(summaryOf(part({ total_matches: 1, matches: [{}] }))).toBe('1 passage');
});

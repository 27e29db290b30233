import { expect, test } from 'vitest';
import { words } from './format';

test.each([
  ['list_repositories', 'List repositories'],
  ['get-api_url', 'Get API URL'],
  ['call_constructor', 'Call constructor'],
  ['toString', 'ToString'],
])('the name %s is written %s', (name, text) => {
  expect(words(name)).toBe(text);
});

import { expect, test } from 'vitest';
import type { LlmChoice, LlmModel, OrganizationSettings } from '../api/types';
import { modelOf, offeredBy, shownAs } from './models';

const model = { id: 'gpt-4o', integration_name: 'openai', display_name: 'GPT-4o' } as LlmModel;

test('without a choice of the organization every model is shown as it is', () => {
  expect(shownAs(model, undefined)).toEqual([model]);
});

test('a chosen model is shown under the name it was given, the others are not', () => {
  expect(shownAs(model, [{ id: 'gpt-4o', display_name: 'Ours' }])).toEqual([{ ...model, display_name: 'Ours' }]);
  expect(shownAs(model, [{ id: 'gpt-4o' }])).toEqual([model]);
  expect(shownAs(model, [{ id: 'gpt-5' }])).toEqual([]);
});

const choice = (name: string): LlmChoice => ({ integration_name: name, provider_id: name, model_id: name });
const listOf = (...names: string[]) => ({
  active_llms: names.map((name) => ({ id: name, integration_name: name }) as LlmModel),
  inactive_llms: [],
});
const settingsWith = (composer_llm: LlmChoice | null): OrganizationSettings => ({
  llm_model_visibility: {},
  composer_llm,
  fallback_llm: null,
  approval_policy: null,
  operator_approval_policy: 'catalog',
  chat_retention_days: null,
});

test("a chat's model is the one picked there, the one picked last, the default, the first usable, in this order", () => {
  const offered = offeredBy(listOf('first', 'default', 'last', 'there'), settingsWith(choice('default')));
  expect(modelOf('c', { c: choice('there'), '': choice('last') }, offered)).toEqual(choice('there'));
  expect(modelOf('c', { b: choice('there'), '': choice('last') }, offered)).toEqual(choice('last'));
  expect(modelOf('c', { '': choice('gone') }, offered)).toEqual(choice('default'));
  expect(modelOf(null, {}, offered)).toEqual(choice('default'));
  expect(modelOf(null, {}, offeredBy(listOf('first', 'second'), settingsWith(null)))).toEqual(choice('first'));
  expect(modelOf(null, {}, offeredBy(listOf('first'), settingsWith(choice('gone'))))).toEqual(choice('first'));
});

test('what could not be read leaves what is known', () => {
  const unlisted = offeredBy(undefined, settingsWith(choice('default')));
  expect(unlisted.usable).toBeNull();
  expect(modelOf('c', { c: choice('there') }, unlisted)).toEqual(choice('there'));
  expect(modelOf('c', {}, unlisted)).toEqual(choice('default'));
  expect(modelOf('c', {}, offeredBy(listOf('first'), undefined))).toEqual(choice('first'));
  expect(modelOf('c', {}, offeredBy(undefined, undefined))).toBeNull();
});

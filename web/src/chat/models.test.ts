import { expect, test } from 'vitest';
import type { LlmModel } from '../api/types';
import { shownAs } from './models';

const model = { id: 'gpt-4o', integration_name: 'openai', display_name: 'GPT-4o' } as LlmModel;

test('without a choice of the organization every model is shown as it is', () => {
  expect(shownAs(model, undefined)).toEqual([model]);
});

test('a chosen model is shown under the name it was given, the others are not', () => {
  expect(shownAs(model, [{ id: 'gpt-4o', display_name: 'Ours' }])).toEqual([{ ...model, display_name: 'Ours' }]);
  expect(shownAs(model, [{ id: 'gpt-4o' }])).toEqual([model]);
  expect(shownAs(model, [{ id: 'gpt-5' }])).toEqual([]);
});

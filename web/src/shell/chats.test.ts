import { expect, test } from 'vitest';
import { groupByDay } from './chats';

const chat = (id: string, updated: string) => ({ id, title: id, created_at: updated, updated_at: updated, is_running: false });

test('chats are grouped by the reader’s own midnight', () => {
  const now = new Date(2026, 5, 20, 9, 0);
  const at = (day: number, hour: number): string => new Date(2026, 5, day, hour).toISOString();
  const groups = groupByDay([chat('a', at(20, 1)), chat('b', at(19, 23)), chat('c', at(14, 12)), chat('d', at(2, 12))], now);
  expect(groups.map((group) => [group.label, group.chats.map((each) => each.id).join()])).toEqual([
    ['Today', 'a'],
    ['Yesterday', 'b'],
    ['Previous 7 days', 'c'],
    ['Older', 'd'],
  ]);
});

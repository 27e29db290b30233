import { expect, test } from 'vitest';
import { everyDay } from './daily';
import type { DailyUsage } from '../api/types';
import { csv, dayPlots, toolShares } from './series';

const NOW = Date.parse('2026-06-20T10:00:00Z');
const given: Partial<DailyUsage>[] = [
  { date: '2026-06-19', credits: 3, tool_calls: 4, failed_calls: 1, integrations: { github: 3, slack: 1 } },
  { date: '2026-06-20T00:00:00+00:00', credits: 1.5, integrations: { slack: 5 } },
];

test('days without use are there, as zero', () => {
  const days = everyDay(given, 3, NOW);
  expect(days.map((each) => [each.date, each.credits])).toEqual([
    ['2026-06-18', 0],
    ['2026-06-19', 3],
    ['2026-06-20', 1.5],
  ]);
});

test('the plots say in words what they show', () => {
  const [credits, , errors] = dayPlots(everyDay(given, 3, NOW));
  expect(credits?.summary).toBe('4.5 credits in 3 days, most on 2026-06-19 (3).');
  expect(errors?.series[0]?.values).toEqual([0, 25, 0]);
});

test('shares are summed over the days, most first', () => {
  expect(toolShares(everyDay(given, 3, NOW))).toEqual([
    { name: 'slack', calls: 6 },
    { name: 'github', calls: 3 },
  ]);
});

test('a cell cannot become a formula, and quotes survive', () => {
  expect(csv(['Name', 'Calls'], [['=cmd()', 1], ['a "b", c', -2]])).toBe('Name,Calls\n\'=cmd(),1\n"a ""b"", c",-2\n');
});

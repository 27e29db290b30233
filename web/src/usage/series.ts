import type { DailyUsage } from '../api/types';
import { count, decimal } from '../ui/format';

export interface Series {
  name: string;
  values: number[];
}

export interface Plot {
  key: string;
  title: string;
  /** The plot in a sentence. */
  summary: string;
  days: string[];
  series: Series[];
  format: (value: number) => string;
}

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

function peak(days: readonly string[], values: readonly number[]): string {
  const most = Math.max(...values);
  return most > 0 ? `, most on ${days[values.indexOf(most)]} (${decimal(most)})` : '';
}

/** The plots over days. */
export function dayPlots(daily: readonly DailyUsage[]): Plot[] {
  const days = daily.map((each) => each.date);
  const spent = daily.map((each) => each.credits);
  const into = daily.map((each) => each.input_tokens);
  const out = daily.map((each) => each.output_tokens);
  const errors = daily.map((each) => (each.tool_calls === 0 ? 0 : (100 * each.failed_calls) / each.tool_calls));
  const calls = sum(daily.map((each) => each.tool_calls));
  const failed = sum(daily.map((each) => each.failed_calls));
  return [
    {
      key: 'credits',
      title: 'Credits per day',
      summary: `${decimal(sum(spent))} ${sum(spent) === 1 ? 'credit' : 'credits'} in ${days.length} days${peak(days, spent)}.`,
      days,
      series: [{ name: 'Credits', values: spent }],
      format: decimal,
    },
    {
      key: 'tokens',
      title: 'Tokens per day',
      summary: `${count(sum(into))} tokens in and ${count(sum(out))} out in ${days.length} days.`,
      days,
      series: [
        { name: 'In', values: into },
        { name: 'Out', values: out },
      ],
      format: count,
    },
    {
      key: 'errors',
      title: 'Tool calls that failed, in percent',
      summary: `${count(failed)} of ${count(calls)} tool calls failed in ${days.length} days.`,
      days,
      series: [{ name: 'Failed, %', values: errors }],
      format: decimal,
    },
  ];
}

export interface Share {
  name: string;
  calls: number;
}

/** Tool calls by integration over the whole period, most first. */
export function toolShares(daily: readonly DailyUsage[]): Share[] {
  const totals = new Map<string, number>();
  for (const { integrations } of daily) {
    for (const [name, calls] of Object.entries(integrations)) totals.set(name, (totals.get(name) ?? 0) + calls);
  }
  return [...totals].map(([name, calls]) => ({ name, calls })).sort((a, b) => b.calls - a.calls);
}

/** Spreadsheet text; a cell that a spreadsheet would run as a formula is made plain. */
export function csv(head: readonly string[], rows: readonly (string | number)[][]): string {
  const cell = (value: string | number): string => {
    const text = String(value);
    const safe = typeof value === 'string' && /^[=+\-@\t]/.test(text) ? `'${text}` : text;
    return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return `${[head, ...rows].map((row) => row.map(cell).join(',')).join('\n')}\n`;
}

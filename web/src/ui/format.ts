/** Numbers, times and names as people write them, in the browser's language. */

const WHOLE = new Intl.NumberFormat();
const SHORT = new Intl.NumberFormat(undefined, { maximumFractionDigits: 2 });
const COMPACT = new Intl.NumberFormat(undefined, { notation: 'compact', maximumFractionDigits: 1 });
const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium' });
const MINUTE = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });
const RELATIVE = new Intl.RelativeTimeFormat(undefined, { numeric: 'auto' });

const MICRO = 1_000_000;
const UNITS: readonly [Intl.RelativeTimeFormatUnit, number][] = [
  ['year', 31_536_000],
  ['month', 2_592_000],
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
];

export const count = (value: number): string => WHOLE.format(value);
export const decimal = (value: number): string => SHORT.format(value);
export const compact = (value: number): string => COMPACT.format(value);

/** Credits from micro-credits. */
export function credits(micro: number): string {
  const value = SHORT.format(micro / MICRO);
  return `${value} ${value === '1' ? 'credit' : 'credits'}`;
}

/** "1 run", "3 runs". */
export function several(value: number, one: string, many = `${one}s`): string {
  return `${WHOLE.format(value)} ${value === 1 ? one : many}`;
}

export function day(iso: string | null | undefined): string {
  return iso ? DAY.format(new Date(iso)) : '—';
}

export function minute(iso: string | null | undefined): string {
  return iso ? MINUTE.format(new Date(iso)) : '—';
}

/** "3 hours ago"; "now" within a minute. */
export function ago(iso: string | null | undefined): string {
  if (!iso) return 'never';
  const seconds = (Date.parse(iso) - Date.now()) / 1_000;
  for (const [unit, size] of UNITS) {
    if (Math.abs(seconds) >= size) return RELATIVE.format(Math.round(seconds / size), unit);
  }
  return 'just now';
}

/** "0.4 s", "12 s", "3 min 5 s". */
export function duration(milliseconds: number): string {
  const seconds = Math.max(0, milliseconds) / 1_000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

/** Words that are not written as they are spelt in a name. */
const WRITTEN: ReadonlyMap<string, string> = new Map([
  ['api', 'API'],
  ['llm', 'LLM'],
  ['mcp', 'MCP'],
  ['oauth', 'OAuth'],
  ['url', 'URL'],
]);

/** `list_repositories` → `List repositories`. */
export function words(name: string): string {
  const parts = name.split(/[_\s-]+/).filter(Boolean);
  const text = parts.map((part) => WRITTEN.get(part) ?? part).join(' ');
  return text.charAt(0).toUpperCase() + text.slice(1);
}

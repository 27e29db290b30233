import { useQuery } from '@tanstack/react-query';
import type { DailyUsage } from '../api/types';
import { useSession } from '../session';

const DAY_MS = 86_400_000;

interface DailyAnswer {
  data: { days: Partial<DailyUsage>[] };
}

const EMPTY = { credits: 0, turns: 0, input_tokens: 0, output_tokens: 0, cached_tokens: 0, llm_calls: 0, tool_calls: 0, failed_calls: 0, integrations: {} };

/** One entry for each of the last `days` UTC days, oldest first; days without use are zero. */
export function everyDay(given: readonly Partial<DailyUsage>[], days: number, now: number): DailyUsage[] {
  const byDate = new Map(given.map((each) => [each.date?.slice(0, 10), each]));
  return Array.from({ length: days }, (_, index) => {
    const date = new Date(now - (days - 1 - index) * DAY_MS).toISOString().slice(0, 10);
    return { ...EMPTY, ...byDate.get(date), date };
  });
}

export function useDailyUsage(period: string, days: number) {
  const { api } = useSession();
  return useQuery({
    queryKey: ['daily-usage', period],
    queryFn: async ({ signal }) => {
      const answer = await api.get<DailyAnswer>('/dashboard/analytics/daily', { period }, signal);
      return everyDay(answer.data.days, days, Date.now());
    },
  });
}

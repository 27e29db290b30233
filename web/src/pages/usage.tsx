import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { useDailyUsage } from '../usage/daily';
import { dayPlots, toolShares } from '../usage/series';
import { PlotPanel } from '../usage/plot-panel';
import { SharePanel } from '../usage/share-panel';
import type { CreditUsage } from '../api/types';
import { useSession } from '../session';
import { Page } from '../shell/page';
import { compact, count, day, decimal } from '../ui/format';
import { Failed, Skeleton } from '../ui/states';

const PERIODS = [
  { key: '7d', label: '7 days', days: 7 },
  { key: '30d', label: '30 days', days: 30 },
  { key: '90d', label: '90 days', days: 90 },
] as const;

type Period = (typeof PERIODS)[number]['key'];

interface Overview {
  overview: { current_month_credit_usage: CreditUsage | null };
}

function Credits({ usage }: { usage: CreditUsage }) {
  const share = usage.max_credit ? Math.min(1, usage.used_credit / usage.max_credit) : null;
  return (
    <section className="panel" aria-labelledby="credits">
      <h2 id="credits">Credits this month</h2>
      <p>
        <strong>{decimal(usage.used_credit)}</strong> used
        {usage.max_credit === null ? ', no ceiling' : ` of ${count(usage.max_credit)}`}
        {usage.next_reset_date && <span className="muted"> · starts anew on {day(usage.next_reset_date)}</span>}
      </p>
      {share !== null && (
        <div
          className="meter"
          role="meter"
          aria-label="Credits used"
          aria-valuemin={0}
          aria-valuemax={usage.max_credit ?? undefined}
          aria-valuenow={usage.used_credit}
        >
          <span style={{ width: `${share * 100}%` }} />
        </div>
      )}
    </section>
  );
}

/** What the organization used, in figures, plots and tables. */
export default function UsagePage() {
  const { api } = useSession();
  const [period, setPeriod] = useState<Period>('30d');
  const days = PERIODS.find((each) => each.key === period)?.days ?? 30;
  const overview = useQuery({
    queryKey: ['overview'],
    queryFn: ({ signal }) => api.get<{ data: Overview }>('/dashboard/analytics/overview', { period: '30d' }, signal),
  });
  const daily = useDailyUsage(period, days);
  const credits = overview.data?.data?.overview?.current_month_credit_usage ?? null;
  const problem = overview.error ?? daily.error;
  const again = (): void => {
    void overview.refetch();
    void daily.refetch();
  };
  const totals = daily.data?.reduce(
    (sum, each) => ({
      turns: sum.turns + each.turns,
      tokens: sum.tokens + each.input_tokens + each.output_tokens,
      input: sum.input + each.input_tokens,
      cached: sum.cached + each.cached_tokens,
      models: sum.models + each.llm_calls,
      tools: sum.tools + each.tool_calls,
      failed: sum.failed + each.failed_calls,
    }),
    { turns: 0, tokens: 0, input: 0, cached: 0, models: 0, tools: 0, failed: 0 },
  );
  return (
    <Page title="Usage">
      <div className="scroller">
        <div className="content">
          {problem ? <Failed problem={problem} onRetry={again} /> : credits && <Credits usage={credits} />}
          <div className="segmented" role="group" aria-label="Period">
            {PERIODS.map((each) => (
              <button key={each.key} type="button" aria-pressed={each.key === period} onClick={() => setPeriod(each.key)}>
                {each.label}
              </button>
            ))}
          </div>
          {daily.isPending && <Skeleton lines={8} />}
          {daily.data && totals && (
            <>
              <dl className="figures">
                <Figure name="Turns" value={count(totals.turns)} />
                <Figure name="Model calls" value={count(totals.models)} />
                <Figure name="Tokens" value={compact(totals.tokens)} />
                <Figure
                  name="Input from the provider's cache"
                  value={totals.input === 0 ? '—' : `${decimal((100 * totals.cached) / totals.input)} %`}
                />
                <Figure name="Tool calls" value={count(totals.tools)} />
                <Figure
                  name="Tool calls that worked"
                  value={totals.tools === 0 ? '—' : `${decimal((100 * (totals.tools - totals.failed)) / totals.tools)} %`}
                />
              </dl>
              <div className="plots">
                {dayPlots(daily.data).map((plot) => (
                  <PlotPanel key={plot.key} plot={plot} />
                ))}
                <SharePanel shares={toolShares(daily.data)} />
              </div>
            </>
          )}
        </div>
      </div>
    </Page>
  );
}

function Figure({ name, value }: { name: string; value: string }) {
  return (
    <div className="figure-card">
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

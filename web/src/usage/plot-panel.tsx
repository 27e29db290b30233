import { useEffect, useId, useRef, useState } from 'react';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { compact, decimal } from '../ui/format';
import { DownloadCsv, Legend, Panel } from './panel';
import type { Plot } from './series';

const HEIGHT = 200;
const DAYS_HEIGHT = 32;
/** Series differ by dash as well as by colour. */
export const DASHES: readonly number[][] = [[], [6, 5], [2, 4]];

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function optionsFor(plot: Plot, width: number): uPlot.Options {
  const axis = { stroke: colour('--ink-3'), grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false } };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, points: { size: 7 } },
    scales: { x: { time: true }, y: { range: (_, __, most) => [0, most > 0 ? most * 1.1 : 1] } },
    axes: [
      { ...axis, values: (_, marks) => marks.map((at) => new Date(at * 1_000).toISOString().slice(5, 10)), space: 60, size: DAYS_HEIGHT },
      { ...axis, size: 52, values: (_, marks) => marks.map((value) => (value < 10 ? decimal(value) : compact(value))) },
    ],
    series: [
      {},
      ...plot.series.map((series, index): uPlot.Series => {
        const stroke = colour(`--series-${index + 1}`);
        return {
          label: series.name,
          stroke,
          width: 2,
          dash: DASHES[index],
          fill: plot.series.length === 1 ? `color-mix(in srgb, ${stroke} 12%, transparent)` : undefined,
          points: { show: plot.days.length <= 10 },
        };
      }),
    ],
  };
}

/** Draws on a canvas; drawn anew when the width or the theme changes. */
function Canvas({ plot, label }: { plot: Plot; label: string }) {
  const area = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = area.current;
    if (!element) return;
    const data: uPlot.AlignedData = [
      plot.days.map((date) => Date.parse(date) / 1_000),
      ...plot.series.map((series) => series.values),
    ];
    let drawn: uPlot | null = null;
    const draw = (): void => {
      drawn?.destroy();
      if (element.clientWidth > 0) drawn = new uPlot(optionsFor(plot, element.clientWidth), data, element);
    };
    const resized = new ResizeObserver(draw);
    resized.observe(element);
    const themed = new MutationObserver(draw);
    themed.observe(document.documentElement, { attributes: true, attributeFilter: ['data-theme'] });
    return () => {
      resized.disconnect();
      themed.disconnect();
      drawn?.destroy();
    };
  }, [plot]);
  return <div ref={area} className="plot-area" role="img" aria-label={label} />;
}

/** One plot with its sentence, and the same as a table. */
export function PlotPanel({ plot }: { plot: Plot }) {
  const [asTable, setAsTable] = useState(false);
  const id = useId();
  const head = ['Day', ...plot.series.map((series) => series.name)];
  const rows = plot.days.map((date, index) => [date, ...plot.series.map((series) => series.values[index] ?? 0)]);
  return (
    <Panel
      id={id}
      title={plot.title}
      summary={plot.summary}
      asTable={asTable}
      onToggle={() => setAsTable(!asTable)}
      extra={<DownloadCsv name={plot.key} head={head} rows={rows} />}
    >
      {asTable ? (
        <div className="data-scroll plot-table" tabIndex={0} role="region" aria-label={`${plot.title}, table`}>
          <table className="data">
            <thead>
              <tr>
                {head.map((name, index) => (
                  <th key={name} scope="col" className={index > 0 ? 'figure' : undefined}>
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <tr key={row[0]}>
                  {row.map((value, index) => (
                    <td key={head[index]} className={index > 0 ? 'figure' : undefined}>
                      {typeof value === 'number' ? plot.format(value) : value}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : (
        <>
          <Canvas plot={plot} label={`${plot.title}. ${plot.summary}`} />
          {plot.series.length > 1 && <Legend names={plot.series.map((series) => series.name)} />}
        </>
      )}
    </Panel>
  );
}

import type { ReactNode } from 'react';
import { csv } from './series';
import { saveFile } from '../ui/save';

export function Panel({
  id,
  title,
  summary,
  asTable,
  onToggle,
  extra,
  children,
}: {
  id: string;
  title: string;
  summary: string;
  asTable: boolean;
  onToggle: () => void;
  extra: ReactNode;
  children: ReactNode;
}) {
  return (
    <section className="panel" aria-labelledby={id}>
      <div className="plot-head">
        <h2 id={id}>{title}</h2>
        <span className="row">
          <button type="button" className="button quiet small" aria-pressed={asTable} onClick={onToggle}>
            Table<span className="visually-hidden"> of {title}</span>
          </button>
          {extra}
        </span>
      </div>
      <p className="plot-summary">{summary}</p>
      {children}
    </section>
  );
}

export function DownloadCsv({
  name,
  head,
  rows,
}: {
  name: string;
  head: readonly string[];
  rows: readonly (string | number)[][];
}) {
  const save = (): void => saveFile(`parley-${name}.csv`, new Blob([csv(head, rows)], { type: 'text/csv' }));
  return (
    <button type="button" className="button quiet small" onClick={save}>
      CSV<span className="visually-hidden"> of {name}</span>
    </button>
  );
}

const DASH_TEXT = ['', '6 5', '2 4'];

/** Which line is which. */
export function Legend({ names }: { names: readonly string[] }) {
  return (
    <div className="legend">
      {names.map((name, index) => (
        <span key={name}>
          <svg width="28" height="8" aria-hidden="true">
            <line
              x1="0"
              x2="28"
              y1="4"
              y2="4"
              strokeWidth="2"
              stroke={`var(--series-${index + 1})`}
              strokeDasharray={DASH_TEXT[index]}
            />
          </svg>
          {name}
        </span>
      ))}
    </div>
  );
}

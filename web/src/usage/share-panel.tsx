import { useId, useState } from 'react';
import { count, several } from '../ui/format';
import { DownloadCsv, Panel } from './panel';
import type { Share } from './series';

/** Bars drawn; the table has them all. */
const MOST_BARS = 8;

/** Tool calls by integration, as bars and as a table. */
export function SharePanel({ shares }: { shares: readonly Share[] }) {
  const [asTable, setAsTable] = useState(false);
  const id = useId();
  const total = shares.reduce((sum, share) => sum + share.calls, 0);
  const most = shares[0]?.calls ?? 1;
  const summary =
    shares.length === 0
      ? 'No tool was called in this time.'
      : `${several(total, 'call')} of ${several(shares.length, 'integration')}, most of ${shares[0]?.name}.`;
  const rows = shares.map((share) => [share.name, share.calls]);
  return (
    <Panel
      id={id}
      title="Tool calls by integration"
      summary={summary}
      asTable={asTable}
      onToggle={() => setAsTable(!asTable)}
      extra={<DownloadCsv name="tool-calls" head={['Integration', 'Calls']} rows={rows} />}
    >
      {asTable ? (
        <div className="data-scroll plot-table" tabIndex={0} role="region" aria-label="Tool calls by integration, table">
          <table className="data">
            <thead>
              <tr>
                <th scope="col">Integration</th>
                <th scope="col" className="figure">
                  Calls
                </th>
              </tr>
            </thead>
            <tbody>
              {shares.map((share) => (
                <tr key={share.name}>
                  <td>{share.name}</td>
                  <td className="figure">{count(share.calls)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : (
        <ul className="bars" aria-label={summary}>
          {shares.slice(0, MOST_BARS).map((share) => (
            <li key={share.name}>
              <span className="clip">{share.name}</span>
              <span className="bar-track" aria-hidden="true">
                <span style={{ width: `${(100 * share.calls) / most}%` }} />
              </span>
              <span className="bar-figure">{count(share.calls)}</span>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import type { AuditRow } from '../api/types';
import { useSession } from '../session';
import { BackLink } from '../shell/back-link';
import { Page } from '../shell/page';
import { minute, words } from '../ui/format';
import { Empty, Failed, Skeleton } from '../ui/states';

const PAGE = 50;
const CATEGORIES = ['CREDENTIALS', 'MEMBERSHIP', 'ORGANIZATION'];

interface Logs {
  data: { logs: AuditRow[]; total_count: number; has_next: boolean };
}

/** Who changed what in the organization. */
export default function AuditPage() {
  const { api } = useSession();
  const [category, setCategory] = useState('');
  const [offset, setOffset] = useState(0);
  const logs = useQuery({
    queryKey: ['audit', category, offset],
    placeholderData: keepPreviousData,
    queryFn: ({ signal }) => api.get<Logs>('/dashboard/logs', { limit: PAGE, offset, category }, signal),
  });
  const rows = logs.data?.data.logs ?? [];
  return (
    <Page title="Audit">
      <div className="scroller">
        <div className="content">
          <BackLink href="/settings">Settings</BackLink>
          <div className="toolbar">
            <select
              aria-label="Category"
              value={category}
              onChange={(event) => {
                setCategory(event.target.value);
                setOffset(0);
              }}
            >
              <option value="">Everything</option>
              {CATEGORIES.map((each) => (
                <option key={each} value={each}>
                  {words(each.toLowerCase())}
                </option>
              ))}
            </select>
          </div>
          {logs.isPending && <Skeleton lines={8} />}
          {logs.error && <Failed problem={logs.error} onRetry={() => void logs.refetch()} />}
          {logs.data && rows.length === 0 && <Empty icon="list" title="Nothing here yet" />}
          {rows.length > 0 && (
            <>
              <div className="data-scroll" tabIndex={0} role="region" aria-label="Audit log">
                <table className="data">
                  <thead>
                    <tr>
                      <th scope="col">When</th>
                      <th scope="col">Who</th>
                      <th scope="col">What</th>
                      <th scope="col">Details</th>
                    </tr>
                  </thead>
                  <tbody>
                    {rows.map((row) => (
                      <tr key={row.id}>
                        <td className="nowrap">{minute(row.audit_time)}</td>
                        <td>{row.actor_email ?? 'Parley'}</td>
                        <td className="nowrap">{words((row.operation ?? row.category ?? '').toLowerCase())}</td>
                        <td className="text">{row.message}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
              <div className="row">
                <button type="button" className="button small" disabled={offset === 0} onClick={() => setOffset(Math.max(0, offset - PAGE))}>
                  Newer
                </button>
                <button
                  type="button"
                  className="button small"
                  disabled={!logs.data?.data.has_next}
                  onClick={() => setOffset(offset + PAGE)}
                >
                  Older
                </button>
                <span className="muted small-text" role="status">
                  {offset + 1}–{offset + rows.length} of {logs.data?.data.total_count}
                </span>
              </div>
            </>
          )}
        </div>
      </div>
    </Page>
  );
}

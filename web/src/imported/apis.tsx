import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { Link, useLocation } from 'wouter';
import type { ImportedApiSummary } from '../api/types';
import { apiPage } from '../connect/place';
import { useSession } from '../session';
import { several } from '../ui/format';
import { Icon } from '../ui/icon';
import { Empty, Failed, Skeleton } from '../ui/states';
import { ImportApi } from './import-api';
import { importedApisQuery } from './queries';

function ApiTile({ imported }: { imported: ImportedApiSummary }) {
  const { unreviewed } = imported;
  return (
    <Link href={apiPage(imported.integration_name)} className="tile">
      <span className="logo" aria-hidden="true">
        <Icon name="plug" />
      </span>
      <span className="tile-text">
        <span className="tile-name">
          {imported.display_name}
          {unreviewed > 0 && <span className="badge warn">{unreviewed} to review</span>}
        </span>
        <span className="tile-description breakable">{imported.base_url}</span>
        <span className="tile-foot">{several(imported.total_actions, 'action')}</span>
      </span>
    </Link>
  );
}

/** The APIs that the organization imported from their OpenAPI documents. */
export function Apis() {
  const { api } = useSession();
  const apis = useQuery(importedApisQuery(api));
  const [, navigate] = useLocation();
  const [importing, setImporting] = useState(false);
  const add = (
    <button type="button" className="button primary" onClick={() => setImporting(true)}>
      <Icon name="plus" /> Import an API
    </button>
  );
  return (
    <div className="stack">
      {apis.isPending && <Skeleton />}
      {apis.error && <Failed problem={apis.error} onRetry={() => void apis.refetch()} />}
      {apis.data?.length === 0 && (
        <Empty icon="plug" title="No API imported yet">
          <p>An API of your own with an OpenAPI document becomes an integration: its operations are what the assistant can do.</p>
          <p>{add}</p>
        </Empty>
      )}
      {apis.data && apis.data.length > 0 && (
        <>
          <div>{add}</div>
          <ul className="cards">
            {apis.data.map((each) => (
              <li key={each.integration_name}>
                <ApiTile imported={each} />
              </li>
            ))}
          </ul>
        </>
      )}
      {importing && <ImportApi onClose={() => setImporting(false)} onImported={(name) => navigate(apiPage(name))} />}
    </div>
  );
}

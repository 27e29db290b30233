import { useState } from 'react';
import { Link, useLocation } from 'wouter';
import { useCredentials } from '../api/queries';
import type { Credential } from '../api/types';
import { MCP, pageOf, serverPage } from '../connect/place';
import { several } from '../ui/format';
import { Icon } from '../ui/icon';
import { Empty, Failed, Skeleton } from '../ui/states';
import { AddServer } from './add-server';

/** What is noted of a server beside its secret. */
export function noted(credential: Credential): { address: string; tools: number } {
  const { server_url: address, total_tools: tools } = credential.credentials_metadata ?? {};
  return { address: typeof address === 'string' ? address : '', tools: typeof tools === 'number' ? tools : 0 };
}

function ServerTile({ server }: { server: Credential }) {
  const { address, tools } = noted(server);
  return (
    <Link href={pageOf(server)} className="tile">
      <span className="logo" aria-hidden="true">
        <Icon name="plug" />
      </span>
      <span className="tile-text">
        <span className="tile-name">
          {server.display_name}
          {server.is_valid === false && <span className="badge warn">Needs reconnect</span>}
        </span>
        <span className="tile-description breakable">{address}</span>
        <span className="tile-foot">{several(tools, 'tool')}</span>
      </span>
    </Link>
  );
}

/** The organization's MCP servers. */
export function Servers() {
  const credentials = useCredentials();
  const [, navigate] = useLocation();
  const [adding, setAdding] = useState(false);
  const add = (
    <button type="button" className="button primary" onClick={() => setAdding(true)}>
      <Icon name="plus" /> Add a server
    </button>
  );
  const servers = credentials.data?.filter((credential) => credential.integration_name === MCP) ?? [];
  return (
    <div className="stack">
      {credentials.isPending && <Skeleton />}
      {credentials.error && <Failed problem={credentials.error} onRetry={() => void credentials.refetch()} />}
      {credentials.data && servers.length === 0 && (
        <Empty icon="plug" title="No MCP server yet">
          <p>A server brings tools of its own. Each of them asks first until you have said what it does.</p>
          <p>{add}</p>
        </Empty>
      )}
      {servers.length > 0 && (
        <>
          <div>{add}</div>
          <ul className="cards">
            {servers.map((server) => (
              <li key={server.credential_id}>
                <ServerTile server={server} />
              </li>
            ))}
          </ul>
        </>
      )}
      {adding && <AddServer onClose={() => setAdding(false)} onAdded={(id) => navigate(serverPage(id))} />}
    </div>
  );
}

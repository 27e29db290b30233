import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { useLocation, useParams } from 'wouter';
import { hasStatus } from '../api/client';
import { problemSentence } from '../api/problem';
import { useCredentials } from '../api/queries';
import type { ActionChanges, Credential, McpTools } from '../api/types';
import { Changes } from '../connect/changes';
import { DeleteDialog, RenameDialog } from '../connect/credential-rows';
import { MCP, SERVERS } from '../connect/place';
import { noted } from '../mcp/servers';
import { ServerTools } from '../mcp/tools';
import { useSession } from '../session';
import { BackLink } from '../shell/back-link';
import { Page } from '../shell/page';
import { ago } from '../ui/format';
import { Icon, Spinner } from '../ui/icon';
import { Menu } from '../ui/menu';
import { Empty, Failed, Skeleton } from '../ui/states';

/** After a sign-in the server is still being asked for its tools. */
const LOOK_MS = 2_000;

function Server({ server }: { server: Credential }) {
  const { api } = useSession();
  const client = useQueryClient();
  const [, navigate] = useLocation();
  const [dialog, setDialog] = useState<'rename' | 'delete' | null>(null);
  const id = server.credential_id;
  const tools = useQuery({
    queryKey: ['mcp-tools', id],
    queryFn: ({ signal }) => api.get<McpTools>(`/credentials/${id}/mcp-tools`, {}, signal),
    refetchInterval: (query) => (hasStatus(query.state.error, 404) ? LOOK_MS : false),
  });
  const look = useMutation({
    mutationFn: () => api.post<{ changes: ActionChanges }>(`/credentials/${id}/refresh-discovery`),
    onSuccess: async () => {
      await client.invalidateQueries({ queryKey: ['mcp-tools', id] });
      await client.invalidateQueries({ queryKey: ['credentials'] });
    },
  });
  const unknown = hasStatus(tools.error, 404);
  return (
    <>
      <div className="integration-head">
        <span className="logo big" aria-hidden="true">
          <Icon name="plug" size={24} />
        </span>
        <div>
          <p className="breakable">{noted(server).address}</p>
          {tools.data && (
            <p className="small-text muted">
              The assistant calls it <code>{tools.data.integration_name}</code> · looked at {ago(tools.data.refreshed_at)}
            </p>
          )}
        </div>
        <span className="row">
          <button type="button" className="button small" disabled={look.isPending} onClick={() => look.mutate()}>
            {look.isPending ? <Spinner /> : <Icon name="retry" size={16} />} Look again
          </button>
          <Menu
            label={`More for ${server.display_name}`}
            triggerClass="button quiet icon-only small"
            trigger={<Icon name="more" size={16} />}
            groups={[
              {
                key: 'all',
                items: [
                  { key: 'rename', label: 'Rename', icon: 'edit', onSelect: () => setDialog('rename') },
                  { key: 'delete', label: 'Delete', icon: 'trash', danger: true, onSelect: () => setDialog('delete') },
                ],
              },
            ]}
          />
        </span>
      </div>
      {look.error && (
        <p className="notice danger" role="alert">
          {problemSentence(look.error)}
        </p>
      )}
      {look.data && <Changes changes={look.data.changes} />}
      {tools.isPending && <Skeleton lines={6} />}
      {unknown && (
        <p className="notice" role="status">
          <Spinner /> The server has not told its tools yet. If it takes long, look again.
        </p>
      )}
      {tools.error && !unknown && <Failed problem={tools.error} onRetry={() => void tools.refetch()} />}
      {tools.data && <ServerTools found={tools.data} />}
      {dialog === 'rename' && <RenameDialog credential={server} onClose={() => setDialog(null)} />}
      {dialog === 'delete' && (
        <DeleteDialog credential={server} onClose={() => setDialog(null)} onDeleted={() => navigate(SERVERS, { replace: true })} />
      )}
    </>
  );
}

/** One MCP server: its tools, what they do, and what changed since the last look. */
export default function McpServerPage() {
  const { id } = useParams<{ id: string }>();
  const credentials = useCredentials();
  const server = credentials.data?.find((each) => each.credential_id === id && each.integration_name === MCP);
  return (
    <Page title={server?.display_name ?? 'MCP server'}>
      <div className="scroller">
        <div className="content narrow">
          <BackLink href={SERVERS}>All MCP servers</BackLink>
          {credentials.isPending && <Skeleton lines={6} />}
          {credentials.error && <Failed problem={credentials.error} onRetry={() => void credentials.refetch()} />}
          {credentials.data && !server && <Empty icon="plug" title="There is no such server" />}
          {server && <Server server={server} />}
        </div>
      </div>
    </Page>
  );
}

import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { useLocation, useParams } from 'wouter';
import { hasStatus } from '../api/client';
import { problemSentence } from '../api/problem';
import type { ImportedApi, SeenApi } from '../api/types';
import { Changes } from '../connect/changes';
import { Connections } from '../connect/connections';
import { optionsOf } from '../connect/fields';
import { APIS, plainName } from '../connect/place';
import { ReviewedActions } from '../connect/reviewed-actions';
import { LeftOut } from '../imported/left-out';
import { IMPORTED, importedApiQuery, pathOf } from '../imported/queries';
import { useSession } from '../session';
import { BackLink } from '../shell/back-link';
import { Page } from '../shell/page';
import { ConfirmDialog } from '../ui/dialog';
import { ago, words } from '../ui/format';
import { Icon, Spinner } from '../ui/icon';
import { Menu } from '../ui/menu';
import { Empty, Failed, Skeleton } from '../ui/states';
import { useToast } from '../ui/toast';

function Delete({ imported, onClose }: { imported: ImportedApi; onClose: () => void }) {
  const { api } = useSession();
  const client = useQueryClient();
  const toast = useToast();
  const [, navigate] = useLocation();
  const remove = useMutation({
    mutationFn: () => api.call('DELETE', pathOf(imported.integration_name)),
    onSuccess: async () => {
      toast(`${imported.display_name} is deleted.`);
      navigate(APIS, { replace: true });
      client.removeQueries({ queryKey: importedApiQuery(api, imported.integration_name).queryKey });
      await client.invalidateQueries({ queryKey: IMPORTED });
      await client.invalidateQueries({ queryKey: ['credentials'] });
    },
  });
  return (
    <ConfirmDialog
      title={`Delete ${imported.display_name}?`}
      verb="Delete"
      busy={remove.isPending}
      problem={remove.error ? problemSentence(remove.error) : null}
      onConfirm={() => remove.mutate()}
      onClose={onClose}
    >
      <p>Its actions, what was said of them and every connection to it are erased. The assistant can no longer call it.</p>
    </ConfirmDialog>
  );
}

/** Whether there is something to take over: of the actions, or of the rest of the document, which the notes tell. */
function differs({ changes, notes }: SeenApi): boolean {
  return changes.added.length + changes.removed.length + changes.changed.length + notes.length > 0;
}

/** What the document says now, shown first and then taken over; only where the server can fetch it again. */
function LookAgain({ imported }: { imported: ImportedApi }) {
  const { api } = useSession();
  const client = useQueryClient();
  const path = `${pathOf(imported.integration_name)}/refresh`;
  const look = useMutation({ mutationFn: () => api.post<SeenApi>(path, {}) });
  const take = useMutation({
    mutationFn: (digest: string) => api.post<SeenApi>(path, { digest }),
    onSuccess: async () => {
      look.reset();
      await client.invalidateQueries({ queryKey: IMPORTED });
    },
  });
  const begin = (): void => {
    // What was refused is about the look before.
    take.reset();
    look.mutate();
  };
  const problem = look.error ?? take.error;
  return (
    <>
      <div className="row">
        <button type="button" className="button small" disabled={look.isPending} onClick={begin}>
          {look.isPending ? <Spinner /> : <Icon name="retry" size={16} />} Look again
        </button>
      </div>
      {problem && (
        <p className="notice danger" role="alert">
          {problemSentence(problem)}
        </p>
      )}
      {look.data && (
        <>
          <Changes changes={look.data.changes} notes={look.data.notes} />
          <LeftOut rejected={look.data.rejected} />
          {differs(look.data) && (
            <div className="row">
              <button type="button" className="button small primary" disabled={take.isPending} onClick={() => take.mutate(look.data.digest)}>
                {take.isPending && <Spinner />} Take the changes over
              </button>
            </div>
          )}
        </>
      )}
    </>
  );
}

function Imported({ imported }: { imported: ImportedApi }) {
  const { api } = useSession();
  const client = useQueryClient();
  const [deleting, setDeleting] = useState(false);
  const name = imported.integration_name;
  const { queryKey } = importedApiQuery(api, name);
  return (
    <>
      <div className="integration-head">
        <span className="logo big" aria-hidden="true">
          <Icon name="plug" size={24} />
        </span>
        <div>
          {imported.description && <p className="clamped">{imported.description}</p>}
          <p className="small-text muted breakable">{imported.base_url}</p>
          <p className="small-text muted">
            The assistant calls it <code>{name}</code> · version {imported.version} · looked at {ago(imported.refreshed_at)}
          </p>
        </div>
        <Menu
          label={`More for the API ${imported.display_name}`}
          triggerClass="button quiet icon-only small"
          trigger={<Icon name="more" size={16} />}
          groups={[
            { key: 'all', items: [{ key: 'delete', label: 'Delete', icon: 'trash', danger: true, onSelect: () => setDeleting(true) }] },
          ]}
        />
      </div>
      {imported.document_url && <LookAgain imported={imported} />}
      {imported.needs_credential && (
        <Connections
          integrationName={name}
          displayName={imported.display_name}
          options={optionsOf(imported.connect_by)}
          pooled={false}
        />
      )}
      <ReviewedActions
        noun="action"
        actions={imported.actions.map((action) => ({ ...action, request: `${action.method} ${action.path}` }))}
        hint="Go by what you know of the API, not by what the document says. An action that changes has to be reviewed again."
        review={async (action, effect) => {
          try {
            const body = { reviews: [{ name: action.name, fingerprint: action.fingerprint, effect }] };
            client.setQueryData(queryKey, await api.call<ImportedApi>('PUT', `${pathOf(name)}/actions`, { body }));
          } finally {
            await client.invalidateQueries({ queryKey: IMPORTED });
          }
        }}
      />
      {deleting && <Delete imported={imported} onClose={() => setDeleting(false)} />}
    </>
  );
}

/** One imported API: its connections, its actions and what people have said of them. */
export default function ImportedApiPage() {
  const name = useParams<{ name: string }>().name ?? '';
  const { api } = useSession();
  const detail = useQuery(importedApiQuery(api, name));
  const missing = hasStatus(detail.error, 404);
  return (
    <Page title={detail.data?.display_name ?? words(plainName(name))}>
      <div className="scroller">
        <div className="content narrow">
          <BackLink href={APIS}>All imported APIs</BackLink>
          {detail.isPending && <Skeleton lines={6} />}
          {missing && <Empty icon="plug" title="There is no such API" />}
          {detail.error && !missing && <Failed problem={detail.error} onRetry={() => void detail.refetch()} />}
          {detail.data && <Imported imported={detail.data} />}
        </div>
      </div>
    </Page>
  );
}

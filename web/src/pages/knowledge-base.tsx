import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { useLocation, useParams } from 'wouter';
import { hasStatus } from '../api/client';
import { problemSentence } from '../api/problem';
import type { KnowledgeBase } from '../api/types';
import { Documents } from '../knowledge/documents';
import { Search } from '../knowledge/search';
import { useSession } from '../session';
import { BackLink } from '../shell/back-link';
import { Page } from '../shell/page';
import { ConfirmDialog } from '../ui/dialog';
import { Empty, Failed, Skeleton } from '../ui/states';
import { Tabs } from '../ui/tabs';

const TABS = [
  { key: 'documents', label: 'Documents' },
  { key: 'search', label: 'Search' },
];

/** One knowledge base. */
export default function KnowledgeBasePage() {
  const id = useParams<{ id: string }>().id ?? '';
  const { api } = useSession();
  const client = useQueryClient();
  const [, navigate] = useLocation();
  const [tab, setTab] = useState('documents');
  const [deleting, setDeleting] = useState(false);
  const base = useQuery({
    queryKey: ['knowledge-base', id],
    queryFn: ({ signal }) => api.get<KnowledgeBase>(`/knowledge-bases/${id}`, {}, signal),
  });
  const remove = useMutation({
    mutationFn: () => api.call('DELETE', `/knowledge-bases/${id}`, { query: { delete_files: true } }),
    onSuccess: async () => {
      await client.invalidateQueries({ queryKey: ['knowledge-bases'] });
      navigate('/knowledge');
    },
  });
  return (
    <Page
      title={base.data?.name ?? 'Knowledge base'}
      actions={
        base.data && (
          <button type="button" className="button small" onClick={() => setDeleting(true)}>
            Delete base
          </button>
        )
      }
    >
      <div className="scroller">
        <div className="content narrow">
          <BackLink href="/knowledge">Knowledge</BackLink>
          {base.isPending && <Skeleton />}
          {hasStatus(base.error, 404) && <Empty icon="book" title="There is no such knowledge base" />}
          {base.error && !hasStatus(base.error, 404) && <Failed problem={base.error} onRetry={() => void base.refetch()} />}
          {base.data && (
            <>
              {base.data.description && <p className="lead">{base.data.description}</p>}
              <Tabs label="Parts" tabs={TABS} current={tab} onChange={setTab}>
                {tab === 'documents' ? <Documents baseId={id} /> : <Search baseId={id} />}
              </Tabs>
            </>
          )}
        </div>
      </div>
      {deleting && (
        <ConfirmDialog
          title="Delete this knowledge base?"
          verb="Delete all of it"
          busy={remove.isPending}
          problem={remove.error ? problemSentence(remove.error) : null}
          onConfirm={() => remove.mutate()}
          onClose={() => setDeleting(false)}
        >
          <p>“{base.data?.name}” and its documents are erased. This cannot be undone.</p>
        </ConfirmDialog>
      )}
    </Page>
  );
}

import { useMutation, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { Link, useLocation } from 'wouter';
import { problemSentence } from '../api/problem';
import { useKnowledgeBases } from '../api/queries';
import type { KnowledgeBase } from '../api/types';
import { useSession } from '../session';
import { Page } from '../shell/page';
import { Dialog } from '../ui/dialog';
import { Field } from '../ui/field';
import { compact, several, words } from '../ui/format';
import { Icon } from '../ui/icon';
import { Empty, Failed, Skeleton } from '../ui/states';

function NewBase({ onClose }: { onClose: () => void }) {
  const { api } = useSession();
  const client = useQueryClient();
  const [, navigate] = useLocation();
  const [name, setName] = useState('');
  const [description, setDescription] = useState('');
  const create = useMutation({
    mutationFn: () =>
      api.post<KnowledgeBase>('/knowledge-bases', {
        name: name.trim(),
        ...(description.trim() ? { description: description.trim() } : {}),
      }),
    onSuccess: async (made) => {
      await client.invalidateQueries({ queryKey: ['knowledge-bases'] });
      navigate(`/knowledge/${made.id}`);
    },
  });
  return (
    <Dialog title="New knowledge base" onClose={onClose}>
      <form
        className="stack"
        onSubmit={(event: FormEvent) => {
          event.preventDefault();
          if (name.trim()) create.mutate();
        }}
      >
        <Field label="Name" required autoFocus maxLength={255} value={name} onChange={(event) => setName(event.target.value)} />
        <Field label="What it is about (optional)" value={description} onChange={(event) => setDescription(event.target.value)} />
        {create.error && (
          <p className="notice danger" role="alert">
            {problemSentence(create.error)}
          </p>
        )}
        <div className="dialog-actions">
          <button type="submit" className="button primary" disabled={!name.trim() || create.isPending}>
            Create
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** The organization's knowledge bases. */
export default function KnowledgePage() {
  const bases = useKnowledgeBases();
  const [creating, setCreating] = useState(false);
  if (bases.data === null) {
    return (
      <Page title="Knowledge">
        <Empty icon="book" title="This server has no knowledge bases" />
      </Page>
    );
  }
  return (
    <Page
      title="Knowledge"
      actions={
        <button type="button" className="button small" onClick={() => setCreating(true)}>
          <Icon name="plus" size={16} /> New base
        </button>
      }
    >
      <div className="scroller">
        <div className="content">
          <p className="lead">Documents the assistant can search. It quotes what it finds, with its source.</p>
          {bases.isPending && <Skeleton />}
          {bases.error && <Failed problem={bases.error} onRetry={() => void bases.refetch()} />}
          {bases.data?.length === 0 && (
            <Empty icon="book" title="No knowledge yet">
              Make a base, then drop documents into it.
            </Empty>
          )}
          {bases.data && bases.data.length > 0 && (
            <ul className="cards">
              {bases.data.map((base) => (
                <li key={base.id}>
                  <Link href={`/knowledge/${base.id}`} className="tile">
                    <span className="empty-icon small-icon">
                      <Icon name="book" />
                    </span>
                    <span className="tile-text">
                      <span className="tile-name">
                        {base.name}
                        {base.status !== 'active' && <span className="badge warn">{words(base.status)}</span>}
                      </span>
                      {base.description && <span className="tile-description">{base.description}</span>}
                      <span className="tile-foot">
                        {several(base.document_count, 'document')} · {several(base.total_chunks, 'passage')} ·{' '}
                        {compact(base.total_tokens)} tokens
                      </span>
                    </span>
                  </Link>
                </li>
              ))}
            </ul>
          )}
        </div>
      </div>
      {creating && <NewBase onClose={() => setCreating(false)} />}
    </Page>
  );
}

import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { type DragEvent, useRef, useState } from 'react';
import { problemSentence } from '../api/problem';
import { useSession } from '../session';
import { ConfirmDialog } from '../ui/dialog';
import { compact, several } from '../ui/format';
import { Spinner } from '../ui/icon';
import { Empty, Failed, Skeleton } from '../ui/states';
import { useToast } from '../ui/toast';
import type { KnowledgeDocument } from './types';

const WORK_POLL_MS = 2_000;

const STATES: Record<KnowledgeDocument['status'], { word: string; tone: string }> = {
  pending: { word: 'Waiting', tone: '' },
  processing: { word: 'Reading', tone: '' },
  completed: { word: 'Ready', tone: 'ok' },
  failed: { word: 'Failed', tone: 'danger' },
};

interface Upload {
  name: string;
  state: 'sending' | 'failed';
  problem?: string;
}

function useUploads(baseId: string): [readonly Upload[], (files: Iterable<File>) => void] {
  const { api } = useSession();
  const client = useQueryClient();
  const [uploads, setUploads] = useState<readonly Upload[]>([]);
  const put = (name: string, upload: Upload | null): void =>
    setUploads((now) => [...now.filter((each) => each.name !== name), ...(upload ? [upload] : [])]);
  const send = async (files: Iterable<File>): Promise<void> => {
    for (const file of files) {
      put(file.name, { name: file.name, state: 'sending' });
      const body = new FormData();
      body.append('file', file);
      body.append('metadata', '{}');
      try {
        await api.post(`/knowledge-bases/${baseId}/documents`, body);
        put(file.name, null);
      } catch (problem) {
        put(file.name, { name: file.name, state: 'failed', problem: problemSentence(problem) });
      }
      await client.invalidateQueries({ queryKey: ['documents', baseId] });
    }
  };
  return [uploads, (files) => void send(files)];
}

function Drop({ onFiles }: { onFiles: (files: Iterable<File>) => void }) {
  const [over, setOver] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const drop = (event: DragEvent): void => {
    event.preventDefault();
    setOver(false);
    onFiles(event.dataTransfer.files);
  };
  return (
    <div
      className={over ? 'drop over' : 'drop'}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={drop}
    >
      <p>Drop documents here, or</p>
      <button type="button" className="button" onClick={() => input.current?.click()}>
        Choose files
      </button>
      <input
        ref={input}
        type="file"
        multiple
        hidden
        onChange={(event) => {
          onFiles([...(event.target.files ?? [])]);
          event.target.value = '';
        }}
      />
      <p className="small-text muted">PDF, Word, text, Markdown, HTML, CSV, JSON, Excel and PowerPoint, up to 50 MB each</p>
    </div>
  );
}

function DocumentRow({ baseId, document }: { baseId: string; document: KnowledgeDocument }) {
  const { api } = useSession();
  const client = useQueryClient();
  const toast = useToast();
  const [deleting, setDeleting] = useState(false);
  const path = `/knowledge-bases/${baseId}/documents/${document.id}`;
  const changed = (): Promise<void> => client.invalidateQueries({ queryKey: ['documents', baseId] });
  const retry = useMutation({
    mutationFn: () => api.post(`${path}/retry`),
    onSuccess: changed,
    onError: (problem) => toast(problemSentence(problem)),
  });
  const remove = useMutation({ mutationFn: () => api.call('DELETE', path), onSuccess: changed });
  const state = STATES[document.status];
  const working = document.status === 'pending' || document.status === 'processing';
  return (
    <li>
      <div className="row-main">
        <span className="row-title">
          {document.filename}
          <span className={`badge ${state.tone}`}>
            {working && <Spinner />} {state.word}
          </span>
        </span>
        <span className="row-detail">
          {compact(document.file_size_bytes)}B
          {document.chunk_count ? ` · ${several(document.chunk_count, 'passage')}` : ''}
          {document.error_message && ` · ${document.error_message}`}
          {working && document.message && ` · ${document.message}`}
        </span>
      </div>
      <span className="row-tools">
        {document.status === 'failed' && (
          <button type="button" className="button small" disabled={retry.isPending} onClick={() => retry.mutate()}>
            Retry
          </button>
        )}
        <button type="button" className="button small" onClick={() => setDeleting(true)}>
          Delete<span className="visually-hidden"> {document.filename}</span>
        </button>
      </span>
      {deleting && (
        <ConfirmDialog
          title="Delete this document?"
          verb="Delete"
          busy={remove.isPending}
          problem={remove.error ? problemSentence(remove.error) : null}
          onConfirm={() => remove.mutate()}
          onClose={() => setDeleting(false)}
        >
          <p>“{document.filename}” can no longer be found by the assistant.</p>
        </ConfirmDialog>
      )}
    </li>
  );
}

/** The documents of a base: upload, watch, retry, delete. */
export function Documents({ baseId }: { baseId: string }) {
  const { api } = useSession();
  const [uploads, upload] = useUploads(baseId);
  const documents = useQuery({
    queryKey: ['documents', baseId],
    queryFn: ({ signal }) => api.get<KnowledgeDocument[]>(`/knowledge-bases/${baseId}/documents`, {}, signal),
    refetchInterval: (query) =>
      query.state.data?.some((each) => each.status === 'pending' || each.status === 'processing') ? WORK_POLL_MS : false,
  });
  return (
    <div className="stack">
      <Drop onFiles={upload} />
      {uploads.length > 0 && (
        <ul className="rows" aria-label="Uploads">
          {uploads.map((each) => (
            <li key={each.name}>
              {each.state === 'sending' && <Spinner label="Uploading" />}
              <span className="row-main">{each.name}</span>
              {each.problem && <span className="field-problem">{each.problem}</span>}
            </li>
          ))}
        </ul>
      )}
      {documents.isPending && <Skeleton />}
      {documents.error && <Failed problem={documents.error} onRetry={() => void documents.refetch()} />}
      {documents.data?.length === 0 && uploads.length === 0 && <Empty icon="book" title="No documents yet" />}
      {documents.data && documents.data.length > 0 && (
        <ul className="rows" aria-label="Documents">
          {documents.data.map((each) => (
            <DocumentRow key={each.id} baseId={baseId} document={each} />
          ))}
        </ul>
      )}
    </div>
  );
}

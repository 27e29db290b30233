import { useMutation } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { useLocation } from 'wouter';
import { problemSentence } from '../api/problem';
import { rememberDraft } from '../chat/draft';
import { useSession } from '../session';
import { Field, Select } from '../ui/field';
import { decimal } from '../ui/format';
import { Empty } from '../ui/states';
import type { Match } from './types';

const COUNTS = ['3', '5', '10', '20'].map((value) => ({ value, label: value }));
const KINDS = [
  { value: 'search', label: 'By meaning' },
  { value: 'hybrid-search', label: 'By meaning and words' },
];

function Found({ match, query }: { match: Match; query: string }) {
  const { organization } = useSession();
  const [, navigate] = useLocation();
  const share = Math.round(Math.max(0, Math.min(1, match.score)) * 100);
  return (
    <li>
      <div className="row-main">
        <span className="row-title">
          {match.document_filename}
          <span className="meter score" role="meter" aria-label="Match" aria-valuemin={0} aria-valuemax={1} aria-valuenow={match.score}>
            <span style={{ width: `${share}%` }} />
          </span>
          <span className="muted small-text">{decimal(match.score)}</span>
        </span>
        <span className="passage">{match.content}</span>
      </div>
      <button
        type="button"
        className="button small"
        onClick={() => {
          const about = `About “${query}”, using this passage of ${match.document_filename}:`;
          rememberDraft(organization.id, `${about}\n\n> ${match.content ?? ''}\n\n`);
          navigate('/');
        }}
      >
        Use in chat
      </button>
    </li>
  );
}

/** Tries a search out, as the assistant would make it. */
export function Search({ baseId }: { baseId: string }) {
  const { api } = useSession();
  const [query, setQuery] = useState('');
  const [count, setCount] = useState('5');
  const [kind, setKind] = useState('search');
  const search = useMutation({
    mutationFn: () =>
      api.post<{ matches: Match[] }>(`/knowledge-bases/${baseId}/${kind}`, { query: query.trim(), top_k: Number(count) }),
  });
  return (
    <div className="stack">
      <form
        className="stack"
        onSubmit={(event: FormEvent) => {
          event.preventDefault();
          if (query.trim()) search.mutate();
        }}
      >
        <Field label="Search" type="search" value={query} onChange={(event) => setQuery(event.target.value)} />
        <div className="row">
          <Select label="Passages" value={count} options={COUNTS} onChange={setCount} />
          <Select label="Find" value={kind} options={KINDS} onChange={setKind} />
        </div>
        <div>
          <button type="submit" className="button primary" disabled={!query.trim() || search.isPending}>
            Search
          </button>
        </div>
      </form>
      {search.error && (
        <p className="notice danger" role="alert">
          {problemSentence(search.error)}
        </p>
      )}
      {search.data?.matches.length === 0 && <Empty icon="search" title="Nothing found" />}
      {search.data && search.data.matches.length > 0 && (
        <ul className="rows" aria-label="Found passages">
          {search.data.matches.map((match) => (
            <Found key={match.chunk_id} match={match} query={query.trim()} />
          ))}
        </ul>
      )}
    </div>
  );
}

import { useQuery } from '@tanstack/react-query';
import { useDeferredValue, useMemo, useState } from 'react';
import { Link, useSearchParams } from 'wouter';
import { isConnected, useCatalog, useCredentials } from '../api/queries';
import type { Integration, IntegrationPage } from '../api/types';
import { CredentialRows } from '../connect/credential-rows';
import { Apis } from '../imported/apis';
import { Servers } from '../mcp/servers';
import { useSession } from '../session';
import { Page } from '../shell/page';
import { SearchInput } from '../ui/field';
import { several, words } from '../ui/format';
import { Logo } from '../ui/logo';
import { Empty, Failed, Skeleton } from '../ui/states';
import { Tabs } from '../ui/tabs';

const TYPES = { tools: 'tool', llm: 'llm_provider', knowledge: 'knowledge_provider' } as const;
type Shelf = keyof typeof TYPES;
type State = 'connected' | 'broken' | 'none';

/** Shorter texts match too many action names to ask the server for. */
const ASK_SERVER_FROM = 3;

const STATES: Record<State, { word: string; tone: string }> = {
  connected: { word: 'Connected', tone: 'ok' },
  broken: { word: 'Needs reconnect', tone: 'warn' },
  none: { word: 'Not connected', tone: '' },
};

function Tile({ item, state }: { item: Integration; state: State }) {
  const type = item.integration_type === 'tool' ? '' : `?type=${item.integration_type}`;
  return (
    <Link href={`/integrations/${item.name}${type}`} className="tile">
      <Logo name={item.name} />
      <span className="tile-text">
        <span className="tile-name">
          {item.display_name}
          {state !== 'none' && <span className={`badge ${STATES[state].tone}`}>{STATES[state].word}</span>}
          {item.status === 'unavailable' && <span className="badge">Not available here</span>}
        </span>
        <span className="tile-description">{item.description}</span>
        <span className="tile-foot">
          {item.categories.slice(0, 2).map(words).join(' · ')}
          {item.action_count !== undefined && ` · ${several(item.action_count, 'action')}`}
        </span>
      </span>
    </Link>
  );
}

/** Names of integrations one of whose actions matches; only the server knows all action names. */
function useActionMatches(text: string, type: string): ReadonlySet<string> {
  const { api } = useSession();
  const found = useQuery({
    queryKey: ['catalog-search', type, text],
    enabled: text.length >= ASK_SERVER_FROM,
    staleTime: 600_000,
    queryFn: async ({ signal }) => {
      const query = { search: text, type, include_details: false, paginate: false };
      const answer = await api.get<IntegrationPage>('/integrations/browse', query, signal);
      return new Set(answer.integrations.map((item) => item.name));
    },
  });
  return found.data ?? new Set();
}

function matches(item: Integration, text: string): boolean {
  return `${item.name} ${item.display_name} ${item.description} ${item.categories.join(' ')}`.toLowerCase().includes(text);
}

function Catalog({ section }: { section: Shelf }) {
  const catalog = useCatalog();
  const credentials = useCredentials();
  const [text, setText] = useState('');
  const [category, setCategory] = useState('');
  const [state, setState] = useState('');
  const wanted = useDeferredValue(text.trim().toLowerCase());
  const type = TYPES[section];
  const byAction = useActionMatches(wanted, type);
  const all = useMemo(() => catalog.data?.filter((item) => item.integration_type === type) ?? [], [catalog.data, type]);
  const categories = useMemo(() => [...new Set(all.flatMap((item) => item.categories))].sort(), [all]);
  if (catalog.isPending) return <Skeleton lines={8} />;
  if (catalog.error) return <Failed problem={catalog.error} onRetry={() => void catalog.refetch()} />;
  const shown = all.filter(
    (item) =>
      (wanted === '' || matches(item, wanted) || byAction.has(item.name)) &&
      (category === '' || item.categories.includes(category)) &&
      (state === '' || isConnected(credentials.data, item.name) === state),
  );
  const order: Record<State, number> = { broken: 0, connected: 1, none: 2 };
  const sorted = shown
    .map((item) => ({ item, state: isConnected(credentials.data, item.name) }))
    .sort((a, b) => order[a.state] - order[b.state]);
  return (
    <div className="stack">
      <div className="toolbar">
        <SearchInput label="Search by name, category or action" value={text} onChange={setText} />
        <select aria-label="Category" value={category} onChange={(event) => setCategory(event.target.value)}>
          <option value="">All categories</option>
          {categories.map((each) => (
            <option key={each} value={each}>
              {words(each)}
            </option>
          ))}
        </select>
        <select aria-label="State" value={state} onChange={(event) => setState(event.target.value)}>
          <option value="">Any state</option>
          {Object.entries(STATES).map(([key, { word }]) => (
            <option key={key} value={key}>
              {word}
            </option>
          ))}
        </select>
      </div>
      <p className="muted small-text" role="status">
        {several(shown.length, 'integration')}
      </p>
      {shown.length === 0 ? (
        <Empty icon="search" title="Nothing matches">
          Try a shorter word, or another category.
        </Empty>
      ) : (
        <ul className="cards">
          {sorted.map(({ item, state: held }) => (
            <li key={item.name}>
              <Tile item={item} state={held} />
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

function Connections() {
  const credentials = useCredentials();
  if (credentials.isPending) return <Skeleton />;
  if (credentials.error) return <Failed problem={credentials.error} onRetry={() => void credentials.refetch()} />;
  if (credentials.data.length === 0) {
    return (
      <Empty icon="plug" title="Nothing is connected yet">
        Open a tool or a model provider and connect it. The assistant also asks when it needs one.
      </Empty>
    );
  }
  return (
    <div className="panel">
      <h2 className="visually-hidden">Connections</h2>
      <CredentialRows credentials={credentials.data} />
    </div>
  );
}

function isShelf(section: string): section is Shelf {
  return section in TYPES;
}

/** The tab that the address names; an unknown name is the first. */
function sectionOf(name: string | null): Shelf | 'servers' | 'apis' | 'connections' {
  if (name === 'servers' || name === 'apis' || name === 'connections') return name;
  return name !== null && isShelf(name) ? name : 'tools';
}

/** All that can be connected, and what is. */
export default function IntegrationsPage() {
  const [query, setQuery] = useSearchParams();
  const credentials = useCredentials();
  const section = sectionOf(query.get('tab'));
  const tabs = [
    { key: 'tools', label: 'Tools' },
    { key: 'llm', label: 'Models' },
    { key: 'knowledge', label: 'Knowledge' },
    { key: 'servers', label: 'MCP servers' },
    { key: 'apis', label: 'Own APIs' },
    { key: 'connections', label: `Connections${credentials.data?.length ? ` (${credentials.data.length})` : ''}` },
  ];
  return (
    <Page title="Integrations">
      <div className="scroller">
        <div className="content">
          <p className="lead">What the assistant can work with. Connect an account once; every chat of the organization can use it.</p>
          <Tabs
            label="Kinds of integrations"
            tabs={tabs}
            current={section}
            onChange={(key) => setQuery(key === 'tools' ? {} : { tab: key }, { replace: true })}
          >
            {section === 'connections' && <Connections />}
            {section === 'servers' && <Servers />}
            {section === 'apis' && <Apis />}
            {isShelf(section) && <Catalog key={section} section={section} />}
          </Tabs>
        </div>
      </div>
    </Page>
  );
}

import { useState } from 'react';
import { useParams, useSearch } from 'wouter';
import { hasStatus } from '../api/client';
import { asksFirst } from '../api/asks-first';
import { useIntegration } from '../api/queries';
import type { Integration, IntegrationAction } from '../api/types';
import { Connections } from '../connect/connections';
import { isPooled, optionsOf } from '../connect/fields';
import { PROVIDERS } from '../connect/place';
import { PolicyNote } from '../connect/policy-note';
import { safeLink } from '../md/links';
import { BackLink } from '../shell/back-link';
import { Page } from '../shell/page';
import { ActionRow, SEARCH_FROM } from '../ui/action-row';
import { SearchInput } from '../ui/field';
import { compact, several, words } from '../ui/format';
import { Logo } from '../ui/logo';
import { ParameterTable } from '../ui/parameter-table';
import { Empty, Failed, Skeleton } from '../ui/states';

function Action({ action }: { action: IntegrationAction }) {
  const reason = asksFirst(action);
  return (
    <ActionRow
      title={action.display_name || words(action.name)}
      description={action.description}
      badges={
        <>
          {reason && <span className="badge danger">Asks first</span>}
          {action.switched_off && <span className="badge warn">Switched off</span>}
        </>
      }
    >
      {reason && <p className="row-detail">Asks first: {reason}</p>}
      {action.switched_off && <p className="row-detail">Switched off: {action.switched_off}</p>}
      <ParameterTable name={action.name} parameters={action.parameters} />
    </ActionRow>
  );
}

function Actions({ actions }: { actions: readonly IntegrationAction[] }) {
  const [text, setText] = useState('');
  const [asking, setAsking] = useState(false);
  const wanted = text.trim().toLowerCase();
  const shown = actions.filter(
    (action) =>
      (wanted === '' || `${action.name} ${words(action.name)} ${action.description}`.toLowerCase().includes(wanted)) &&
      (!asking || asksFirst(action) !== null),
  );
  const askers = actions.filter((action) => asksFirst(action) !== null).length;
  return (
    <section className="panel" aria-labelledby="actions">
      <h2 id="actions">{several(actions.length, 'action')}</h2>
      <p className="muted small-text">
        {askers === 0 ? 'None of them asks' : `${askers} of them ${askers === 1 ? 'asks' : 'ask'}`} you first, every time.
      </p>
      <PolicyNote />
      {actions.length > SEARCH_FROM && (
        <div className="toolbar">
          <SearchInput label="Search actions" value={text} onChange={setText} />
          {askers > 0 && (
            <label className="check">
              <input type="checkbox" checked={asking} onChange={(event) => setAsking(event.target.checked)} /> Only those that ask first
            </label>
          )}
        </div>
      )}
      <div>
        {shown.map((action) => (
          <Action key={action.name} action={action} />
        ))}
        {shown.length === 0 && <p className="muted">No action matches.</p>}
      </div>
    </section>
  );
}

function ModelList({ item }: { item: Integration }) {
  const models = item.models ?? [];
  if (models.length === 0) return null;
  return (
    <section className="panel" aria-labelledby="models">
      <h2 id="models">{several(models.length, 'model')}</h2>
      <div className="data-scroll" tabIndex={0} role="region" aria-label="Models">
        <table className="data">
          <thead>
            <tr>
              <th scope="col">Model</th>
              <th scope="col" className="figure">
                Context
              </th>
              <th scope="col" className="figure">
                Most out
              </th>
            </tr>
          </thead>
          <tbody>
            {models.map((model) => (
              <tr key={model.id}>
                <td>{model.display_name ?? model.id}</td>
                <td className="figure">{model.context_length ? compact(model.context_length) : '—'}</td>
                <td className="figure">{model.max_output_tokens ? compact(model.max_output_tokens) : '—'}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Outward({ href, children }: { href: string | null | undefined; children: string }) {
  const link = href ? safeLink(href) : null;
  if (!link) return null;
  return (
    <a href={link.href} target="_blank" rel="noopener noreferrer">
      {children} ({link.destination})
    </a>
  );
}

/** One integration: connect it, and see everything it can do. */
export default function IntegrationPage() {
  const name = useParams<{ name: string }>().name ?? '';
  const type = new URLSearchParams(useSearch()).get('type') ?? 'tool';
  const detail = useIntegration(name, type);
  const item = detail.data;
  return (
    <Page title={item?.display_name ?? words(name)}>
      <div className="scroller">
        <div className="content narrow">
          <BackLink href={type === 'tool' ? '/integrations' : PROVIDERS}>All integrations</BackLink>
          {detail.isPending && <Skeleton lines={8} />}
          {hasStatus(detail.error, 404) && <Empty icon="plug" title="There is no such integration" />}
          {detail.error && !hasStatus(detail.error, 404) && <Failed problem={detail.error} onRetry={() => void detail.refetch()} />}
          {item && (
            <>
              <div className="integration-head">
                <Logo name={item.name} size={44} />
                <div>
                  <p>{item.description}</p>
                  <p className="row small-text muted">
                    {item.categories.map(words).join(' · ')} <Outward href={item.app_url}>Website</Outward>
                  </p>
                </div>
              </div>
              {item.status === 'unavailable' && (
                <p className="notice warn">Not available on this server: {item.unavailable_reason ?? 'it does not load here.'}</p>
              )}
              <Connections
                integrationName={item.name}
                displayName={item.display_name}
                options={optionsOf(item.auth_schemas ?? [])}
                pooled={isPooled(item.auth_schemas)}
              />
              {item.actions && item.actions.length > 0 && <Actions actions={item.actions} />}
              <ModelList item={item} />
            </>
          )}
        </div>
      </div>
    </Page>
  );
}

import { Component, lazy, type ReactNode, Suspense } from 'react';
import { Link, Route, Router, Switch } from 'wouter';
import type { Api } from './api/client';
import { ChatPage } from './pages/chat';
import { SessionGate } from './session';
import { Page } from './shell/page';
import { Shell } from './shell/shell';
import { Empty, Skeleton } from './ui/states';
import { Toasts } from './ui/toast';

const IntegrationsPage = lazy(() => import('./pages/integrations'));
const IntegrationPage = lazy(() => import('./pages/integration'));
const ImportedApiPage = lazy(() => import('./pages/imported-api'));
const McpServerPage = lazy(() => import('./pages/mcp-server'));
const KnowledgePage = lazy(() => import('./pages/knowledge'));
const KnowledgeBasePage = lazy(() => import('./pages/knowledge-base'));
const UsagePage = lazy(() => import('./pages/usage'));
const SettingsPage = lazy(() => import('./pages/settings'));
const KeysPage = lazy(() => import('./pages/keys'));
const MembersPage = lazy(() => import('./pages/members'));
const AuditPage = lazy(() => import('./pages/audit'));

/** One route for a new chat and an old one, so that the page stays when a new chat gets its address. */
const CHAT = /^\/(?:c\/(?<id>[^/]+))?$/;

function NotFoundPage() {
  return (
    <Page title="Page not found">
      <Empty icon="question" title="There is no such page">
        <Link href="/">Start a new chat</Link>
      </Empty>
    </Page>
  );
}

/** Keeps one broken page from taking everything with it. */
class Guard extends Component<{ children: ReactNode }, { broken: boolean }> {
  override state = { broken: false };

  static getDerivedStateFromError(): { broken: boolean } {
    return { broken: true };
  }

  override render(): ReactNode {
    if (!this.state.broken) return this.props.children;
    return (
      <main className="alone">
        <h1>This page broke</h1>
        <p>Nothing you did on the server is lost. Load the page again to go on.</p>
        <button type="button" className="button primary" onClick={() => location.reload()}>
          Load again
        </button>
      </main>
    );
  }
}

function Loading() {
  return (
    <Page title="Loading">
      <div className="scroller">
        <div className="column">
          <Skeleton />
        </div>
      </div>
    </Page>
  );
}

/** The web app: who is signed in, the frame, and the page the address names. */
export function App({ api }: { api: Api }) {
  return (
    <Guard>
      <Router base="/app">
        <Toasts>
          <SessionGate api={api}>
            <Shell>
              <Suspense fallback={<Loading />}>
                <Switch>
                  <Route path={CHAT} component={ChatPage} />
                  <Route path="/integrations" component={IntegrationsPage} />
                  <Route path="/integrations/:name" component={IntegrationPage} />
                  <Route path="/integrations/api/:name" component={ImportedApiPage} />
                  <Route path="/integrations/mcp/:id" component={McpServerPage} />
                  <Route path="/knowledge" component={KnowledgePage} />
                  <Route path="/knowledge/:id" component={KnowledgeBasePage} />
                  <Route path="/usage" component={UsagePage} />
                  <Route path="/settings" component={SettingsPage} />
                  <Route path="/settings/keys" component={KeysPage} />
                  <Route path="/settings/members" component={MembersPage} />
                  <Route path="/settings/audit" component={AuditPage} />
                  <Route component={NotFoundPage} />
                </Switch>
              </Suspense>
            </Shell>
          </SessionGate>
        </Toasts>
      </Router>
    </Guard>
  );
}

import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { createRoot } from 'react-dom/client';
import { Api } from './api/client';
import { ApiProblem } from './api/problem';
import { App } from './app';
import './styles/tokens.css';
import './styles/base.css';
import './styles/controls.css';
import './styles/shell.css';
import './styles/chat.css';
import './styles/cards.css';
import './styles/markdown.css';
import './styles/pages.css';

const MOST_RETRIES = 2;

const client = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 15_000,
      // What the server refused it will refuse again; only what may pass is tried again.
      retry: (failures, problem) =>
        failures < MOST_RETRIES && !(problem instanceof ApiProblem && problem.status < 500 && problem.status !== 429),
    },
  },
});

const root = document.getElementById('root');
if (root) {
  createRoot(root).render(
    <QueryClientProvider client={client}>
      <App api={new Api()} />
    </QueryClientProvider>,
  );
}

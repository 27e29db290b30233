import { ApiProblem, NetworkProblem, OrganizationChanged, readProblem } from './problem';

export interface CallOptions {
  body?: unknown;
  query?: Record<string, string | number | boolean | undefined | null>;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /** A 401 here is about what was sent, not about the session. */
  quiet?: boolean;
}

function withQuery(path: string, query: CallOptions['query']): string {
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined && value !== null && value !== '') parts.set(name, String(value));
  }
  const text = parts.toString();
  return text ? `${path}?${text}` : path;
}

/** The server, reached with the session cookie and the chosen organization. */
export class Api {
  organizationId: string | null = null;
  /** Called once for each answer of 401, so that the shell can ask to sign in. */
  onSignedOut: () => void = () => {};

  /** The parsed body. Throws ApiProblem for a refusal and NetworkProblem where no answer came. */
  async call<T>(method: string, path: string, options: CallOptions = {}): Promise<T> {
    const response = await this.open(method, path, options);
    if (response.status === 204) return undefined as T;
    return (await response.json().catch(() => null)) as T;
  }

  /** A successful response whose body has not been read, for streams. Throws like `call`. */
  async open(method: string, path: string, options: CallOptions = {}): Promise<Response> {
    const headers: Record<string, string> = { ...options.headers };
    if (this.organizationId) headers['X-Organization-ID'] = this.organizationId;
    const form = options.body instanceof FormData;
    if (options.body !== undefined && !form) headers['Content-Type'] = 'application/json';
    let response: Response;
    try {
      response = await fetch(withQuery(path, options.query), {
        method,
        headers,
        body: form ? (options.body as FormData) : options.body === undefined ? null : JSON.stringify(options.body),
        signal: options.signal ?? null,
        credentials: 'same-origin',
        cache: 'no-store',
      });
    } catch (problem) {
      if (options.signal?.aborted) throw problem;
      throw new NetworkProblem();
    }
    if (response.ok) return response;
    const body: unknown = await response.json().catch(() => null);
    if (response.status === 401 && !options.quiet) this.onSignedOut();
    throw readProblem(response.status, body, response.headers.get('Retry-After'));
  }

  /**
   * Throws OrganizationChanged where requests go out for another organization than this one by now. For what waited
   * for something: call it last before the request, with nothing to wait for in between.
   */
  mustSpeakFor(organizationId: string): void {
    if (this.organizationId !== organizationId) throw new OrganizationChanged();
  }

  get<T>(path: string, query?: CallOptions['query'], signal?: AbortSignal): Promise<T> {
    return this.call<T>('GET', path, { query, signal });
  }

  post<T>(path: string, body?: unknown, headers?: Record<string, string>): Promise<T> {
    return this.call<T>('POST', path, { body, headers });
  }
}

/** Whether the problem is an answer with this status. */
export function hasStatus(problem: unknown, status: number): problem is ApiProblem {
  return problem instanceof ApiProblem && problem.status === status;
}

/** A random key that names one intended request, so that a repeat of it is not done twice. */
export function freshKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

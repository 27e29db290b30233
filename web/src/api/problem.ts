/** What a refused or failed request means to the page. */

export type DenialLayer = 'credit' | 'wallet' | 'quota' | 'rate';

/** The flat billing envelope (contract §9.3). */
export interface Denial {
  code: string;
  layer: DenialLayer;
  key: string | null;
  current: number | null;
  limit: number | null;
}

/** The server answered, and it was not a success. */
export class ApiProblem extends Error {
  constructor(
    readonly status: number,
    readonly detail: string,
    readonly denial: Denial | null = null,
    readonly retryAfterSeconds: number | null = null,
  ) {
    super(detail);
    this.name = 'ApiProblem';
  }
}

/** No answer came: offline, server down, connection cut. */
export class NetworkProblem extends Error {
  constructor() {
    super('The server could not be reached. Check your connection and try again.');
    this.name = 'NetworkProblem';
  }
}

/** The pages went on to another organization, which must not get what was meant for the one before. */
export class OrganizationChanged extends Error {
  constructor() {
    super('You went on to another organization, so this was not sent.');
    this.name = 'OrganizationChanged';
  }
}

const LAYERS = new Set(['credit', 'wallet', 'quota', 'rate']);

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function numberOrNull(value: unknown): number | null {
  return typeof value === 'number' ? value : null;
}

function denialIn(body: Record<string, unknown>): Denial | null {
  const held = isRecord(body.detail) ? body.detail : body;
  if (typeof held.code !== 'string' || typeof held.layer !== 'string' || !LAYERS.has(held.layer)) return null;
  return {
    code: held.code,
    layer: held.layer as DenialLayer,
    key: typeof held.key === 'string' ? held.key : null,
    current: numberOrNull(held.current),
    limit: numberOrNull(held.limit),
  };
}

function sentence(status: number, body: unknown): string {
  if (isRecord(body)) {
    if (typeof body.detail === 'string') return body.detail;
    if (Array.isArray(body.detail)) return body.detail.map(fieldSentence).join(' ');
    if (isRecord(body.error) && typeof body.error.message === 'string') return body.error.message;
  }
  return status >= 500 ? 'The server had a problem. Try again in a moment.' : `The server refused this (${status}).`;
}

function fieldSentence(item: unknown): string {
  if (!isRecord(item)) return '';
  const place = Array.isArray(item.loc) ? item.loc.filter((part) => part !== 'body').join('.') : '';
  const message = typeof item.msg === 'string' ? item.msg : 'is not valid';
  return place ? `${place}: ${message}.` : `${message}.`;
}

/** Reads any of the four error envelopes (contract §10). */
export function readProblem(status: number, body: unknown, retryAfter: string | null): ApiProblem {
  const denial = isRecord(body) ? denialIn(body) : null;
  const seconds = retryAfter !== null && Number.isFinite(Number(retryAfter)) ? Number(retryAfter) : null;
  return new ApiProblem(status, denial ? denialSentence(denial) : sentence(status, body), denial, seconds);
}

/** What a billing denial says to a person (web.md §4.4). */
export function denialSentence(denial: Denial): string {
  switch (denial.layer) {
    case 'credit':
      return 'Out of credits for this period.';
    case 'wallet':
      return 'The wallet cannot cover this.';
    case 'quota': {
      const figures = denial.limit !== null ? ` ${denial.current ?? '?'}/${denial.limit}` : '';
      return `Plan limit reached: ${(denial.key ?? denial.code).replaceAll('_', ' ')}${figures}`;
    }
    case 'rate':
      return 'Too many requests just now.';
  }
}

/** A sentence for any thrown thing. */
export function problemSentence(problem: unknown): string {
  const own = problem instanceof ApiProblem || problem instanceof NetworkProblem || problem instanceof OrganizationChanged;
  if (own) return problem.message;
  return 'Something went wrong on this page. Load it again.';
}

import type { Credential } from '../api/types';

/** What an MCP server's credential is filed under. */
export const MCP = 'mcp_server';

/** The list of model providers. */
export const PROVIDERS = '/integrations?tab=llm';
/** The list of MCP servers. */
export const SERVERS = '/integrations?tab=servers';

/** The list of imported APIs. */
export const APIS = '/integrations?tab=apis';
/** How the server begins the names of imported APIs. */
const API = 'api_';

/** An integration's name without what the server puts before an imported one's. */
export function plainName(name: string): string {
  return name.startsWith(API) ? name.slice(API.length) : name;
}

/** The page of one imported API. */
export function apiPage(name: string): string {
  return `/integrations/api/${name}`;
}

/** The page of one MCP server. */
export function serverPage(credentialId: string): string {
  return `/integrations/mcp/${credentialId}`;
}

/** The page on which a credential is looked after. */
export function pageOf(credential: Credential): string {
  if (credential.integration_name === MCP) return serverPage(credential.credential_id);
  if (credential.integration_name.startsWith(API)) return apiPage(credential.integration_name);
  const type = credential.integration_type;
  return `/integrations/${credential.integration_name}${type && type !== 'tool' ? `?type=${type}` : ''}`;
}

/** Where the credential is replaced by a new one. */
export function reconnectPageOf(credential: Credential): string {
  const page = pageOf(credential);
  return `${page}${page.includes('?') ? '&' : '?'}reconnect=${credential.credential_id}`;
}

/** The wire, as far as the pages read it (contract §1–§13). Unknown fields are ignored. */

export type Json = string | number | boolean | null | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

export interface User {
  id: string;
  email: string;
  username?: string;
  is_active?: boolean;
}

export interface Organization {
  id: string;
  name: string;
  slug?: string;
  role: string;
  is_default?: boolean;
}

export interface LlmChoice {
  integration_name: string;
  provider_id: string;
  model_id: string;
  credential_id?: string;
}

export interface LlmModel {
  id: string;
  model_id?: string;
  provider_id?: string;
  name?: string;
  display_name?: string;
  description?: string;
  context_length?: number | null;
  max_output_tokens?: number | null;
  integration_name: string;
  integration_display_name?: string;
  default_credential_display_name?: string | null;
}

export interface LlmList {
  active_llms: LlmModel[];
  inactive_llms: LlmModel[];
}

export interface ShownModel {
  id: string;
  display_name?: string | null;
}

/** When a person is asked before an action runs. */
export type ApprovalPolicy = 'documented' | 'catalog' | 'guarded' | 'strict';

export interface OrganizationSettings {
  /** The models that are shown, by integration; one that is absent shows all of its models. */
  llm_model_visibility: { [integration: string]: ShownModel[] };
  /** The organization's own choice, which counts where it is the stricter one. */
  approval_policy: ApprovalPolicy | null;
  operator_approval_policy: ApprovalPolicy;
  composer_llm: LlmChoice | null;
  fallback_llm: LlmChoice | null;
  /** Days that a chat is kept after its last word; null: for ever. */
  chat_retention_days: number | null;
}

export interface ChatSummary {
  id: string;
  title: string;
  created_at: string;
  updated_at: string;
  is_running: boolean;
  awaiting_input?: boolean;
}

export interface ChatMessage {
  id: string;
  role: 'human' | 'ai' | 'system';
  content: string;
  thinking: string | null;
  run_id: string | null;
  running_status: string | null;
  created_at: string;
}

export interface ChatDetail {
  id: string;
  title: string;
  running_id: string | null;
  pending_user_input_request: Question | null;
  messages: ChatMessage[];
}

export interface ChatStatus {
  chat_id: string;
  is_running: boolean;
  awaiting_input: boolean;
  pending_request_id: string | null;
  running_id: string | null;
  /** The chat's newest run. */
  run_status?: { run_id: string } | null;
}

export interface RunStarted {
  status: string;
  chat_id: string;
  run_id: string;
}

export interface ChoiceOption {
  value: string;
  label: string;
  description?: string | null;
  badge?: string | null;
}

export interface AuthField {
  name: string;
  display_name?: string;
  label?: string;
  description?: string | null;
  required?: boolean;
  sensitive?: boolean;
  sample_format?: string | null;
  about_url?: string | null;
  only_for_custom?: boolean;
}

export interface AuthOption {
  auth_type: string;
  display_name: string;
  fields?: AuthField[];
  oauth_initiate_endpoint?: string | null;
  setup_instructions?: string[] | null;
  test_supported?: boolean;
}

export interface ApprovalContext {
  type: 'approval';
  integration_name?: string;
  integration_display_name?: string;
  action_name?: string;
  account?: string | null;
  reason?: string | null;
  effect?: string | null;
  parameters?: JsonObject;
  irreversible?: boolean;
}

interface QuestionBase {
  request_id: string;
  message: string;
  required: boolean;
  allow_free_text?: boolean;
  context?: JsonObject | null;
  timeout_hint_seconds?: number | null;
}

export type Question = QuestionBase &
  (
    | { kind: 'single_choice'; options: ChoiceOption[] }
    | { kind: 'multi_choice'; options: ChoiceOption[]; min_selections?: number; max_selections?: number | null }
    | { kind: 'yes_no'; yes_label?: string; no_label?: string }
    | {
        kind: 'free_text';
        placeholder?: string | null;
        multiline?: boolean;
        min_length?: number;
        max_length?: number | null;
      }
    | {
        kind: 'credential_request';
        integration_name: string;
        integration_display_name: string;
        integration_logo?: string | null;
        auth_options: AuthOption[];
      }
  );

export type Answer =
  | { kind: 'single_choice'; selected_value?: string; free_text?: string }
  | { kind: 'multi_choice'; selected_values: string[] }
  | { kind: 'yes_no'; answer: boolean }
  | { kind: 'free_text'; text: string }
  | { kind: 'credential_added'; credential_id: string; integration_name: string; auth_type: string }
  | {
      kind: 'credential_failed';
      integration_name: string;
      auth_type: string;
      error_code: string;
      error_message: string;
      retryable: boolean;
    }
  | { kind: 'skipped'; reason?: string };

export interface Usage {
  input_tokens: number;
  output_tokens: number;
  total_tokens: number;
  llm_calls: number;
  cached_tokens?: number;
  credits_micro?: number;
}

export interface ActionParameter {
  type: string;
  description?: string;
  required?: boolean;
  default?: Json;
  enum?: Json[];
}

export interface IntegrationAction {
  name: string;
  display_name?: string;
  description: string;
  parameters: { [name: string]: ActionParameter };
  /** Why this server does not run it. */
  switched_off?: string | null;
  /** What it may do, in a word: read, write, destructive, money … */
  effect?: string | null;
  /** Why it asks before it runs; null where it does not. */
  asks_first?: string | null;
}

export interface AuthSchema {
  auth_type: string;
  display_name: string;
  description?: string;
  setup_instructions?: string[] | null;
  setup_environment_variables?: AuthField[];
  fields?: AuthField[];
  important_notes?: string[];
  test_supported?: boolean;
  supports_modulex_oauth?: boolean;
  supports_custom_oauth?: boolean;
}

export interface Integration {
  name: string;
  display_name: string;
  description: string;
  logo?: string | null;
  app_url?: string | null;
  docs_url?: string | null;
  categories: string[];
  integration_type: string;
  status?: string;
  unavailable_reason?: string | null;
  recommended?: boolean;
  action_count?: number;
  actions?: IntegrationAction[];
  models?: LlmModel[];
  auth_schemas?: AuthSchema[];
}

export interface IntegrationPage {
  integrations: Integration[];
  total: number;
  page: number;
  page_size: number;
  has_more: boolean;
}

export interface Credential {
  credential_id: string;
  integration_name: string;
  integration_type?: string | null;
  display_name: string;
  auth_type: string;
  is_default: boolean;
  is_valid?: boolean;
  created_at: string;
  last_used_at?: string | null;
  expires_at?: string | null;
  credentials_metadata?: JsonObject;
}

/** What an action may do to the world; people say it, action by action. */
export type EffectKind = 'read' | 'write' | 'egress' | 'infra' | 'identity' | 'exec' | 'money' | 'destructive';

/** A tool of an MCP server. `effect` is what people of the organization say of it; null until somebody has looked. */
export interface McpTool {
  name: string;
  title: string;
  description: string;
  input_schema: JsonObject;
  fingerprint: string;
  effect: EffectKind | null;
  reviewed_at: string | null;
}

export interface McpTools {
  credential_id: string;
  /** What the assistant calls the server. */
  integration_name: string;
  refreshed_at: string;
  tools: McpTool[];
}

/** What is different since the last look: names of actions, and why some are not offered. */
export interface ActionChanges {
  added: string[];
  removed: string[];
  changed: string[];
  rejected: { [name: string]: string };
}

/** An action of an OpenAPI document. */
interface ApiAction {
  name: string;
  description: string;
  method: string;
  path: string;
  input_schema: JsonObject;
  proposed_effect: EffectKind;
  fingerprint: string;
}

interface ApiConnect {
  auth_type: string;
  display_name: string;
  fields: AuthField[];
}

/** What an OpenAPI document describes, before anything of it is taken over. */
export interface SeenApi {
  /** Stands for exactly this. */
  digest: string;
  display_name: string;
  description: string;
  version: string;
  base_url: string;
  connect_by: ApiConnect[];
  actions: ApiAction[];
  /** Operations and sign-ins that are not offered, and why. */
  rejected: { [name: string]: string };
  notes: string[];
  changes: ActionChanges;
}

/** An API that was imported from an OpenAPI document. */
export interface ImportedApiSummary {
  integration_name: string;
  display_name: string;
  description: string;
  version: string;
  base_url: string;
  /** Where the document is; empty for one that was sent. */
  document_url: string;
  needs_credential: boolean;
  total_actions: number;
  unreviewed: number;
  refreshed_at: string;
}

export interface ImportedApi extends ImportedApiSummary {
  connect_by: ApiConnect[];
  actions: (ApiAction & { effect: EffectKind | null })[];
}

export interface CredentialGroups {
  integrations: { [name: string]: { credentials: Credential[] } };
}

export interface CredentialTest {
  is_valid: boolean;
  message: string;
}

export interface ApiKey {
  id: string;
  name: string;
  masked_key: string;
  key?: string;
  organization_id: string | null;
  expires_at: string | null;
  is_expired: boolean;
  is_active: boolean;
  rate_limit_per_minute: number;
  last_used_at: string | null;
  created_at: string;
  revoked_at: string | null;
}

export interface Member {
  id: string;
  email: string;
  username?: string | null;
  role: string;
  is_active?: boolean;
  /** Not yet a member: `id` is then the invitation's. */
  is_invitation?: boolean;
  invitation_status?: string | null;
  invitation_expires_at?: string | null;
  last_active_at?: string | null;
  created_at?: string | null;
}

export interface AuditRow {
  id: string;
  audit_time: string | null;
  category: string | null;
  operation: string | null;
  actor_email: string | null;
  message: string | null;
}

/** One UTC day of an organization. */
export interface DailyUsage {
  date: string;
  credits: number;
  turns: number;
  input_tokens: number;
  output_tokens: number;
  cached_tokens: number;
  llm_calls: number;
  tool_calls: number;
  failed_calls: number;
  integrations: { [name: string]: number };
}

export interface CreditUsage {
  used_credit: number;
  max_credit: number | null;
  next_reset_date: string | null;
}

export interface KnowledgeBase {
  id: string;
  name: string;
  description?: string | null;
  document_count: number;
  total_chunks: number;
  total_tokens: number;
  status: string;
}

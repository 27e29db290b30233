import type { AuthField, AuthOption, AuthSchema } from '../api/types';

/** What the person fills in, for each way to connect. */

export const OAUTH = 'oauth2';
export const MANAGED = 'modulex_key';

const CLIENT_FIELDS = /(^|_)client_(id|secret)$/i;
const ALTERNATIVES: Record<string, AuthField> = {
  api_key: { name: 'api_key', display_name: 'API key', required: true, sensitive: true },
  bearer_token: { name: 'token', display_name: 'Token', required: true, sensitive: true },
};

export function labelOf(field: AuthField): string {
  return field.label ?? field.display_name ?? field.name;
}

/** The fields of a way to connect; OAuth's own client fields are asked for apart. */
export function fieldsOf(option: AuthOption): AuthField[] {
  const fields = option.fields ?? [];
  if (option.auth_type === OAUTH) {
    return fields.filter((field) => !field.only_for_custom && !CLIENT_FIELDS.test(field.name));
  }
  const fallback = ALTERNATIVES[option.auth_type];
  return fields.length === 0 && fallback ? [fallback] : fields;
}

/** A manifest's schemas as the options of a card. */
export function optionsOf(schemas: readonly AuthSchema[]): AuthOption[] {
  return schemas
    .filter((schema) => schema.auth_type !== 'internal')
    .map((schema) => ({
      auth_type: schema.auth_type,
      display_name: schema.display_name,
      fields: schema.fields ?? schema.setup_environment_variables ?? [],
      setup_instructions: schema.setup_instructions ?? [],
      test_supported: schema.test_supported === true,
    }));
}

/** Whether the operator has an OAuth app for it; undefined while its ways to connect are not known. */
export function isPooled(schemas: readonly AuthSchema[] | undefined): boolean | undefined {
  if (!schemas) return undefined;
  return schemas.some((schema) => schema.auth_type === OAUTH && schema.supports_modulex_oauth === true);
}

/** The given values without the empty ones. */
export function filled(values: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value.trim() !== ''));
}

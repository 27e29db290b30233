import type { AuthField } from '../api/types';
import { safeLink } from '../md/links';
import { Field, SecretField } from '../ui/field';
import { labelOf } from './fields';

function Hint({ field }: { field: AuthField }) {
  const about = field.about_url ? safeLink(field.about_url) : null;
  return (
    <>
      {field.description}
      {about && (
        <>
          {' '}
          <a href={about.href} target="_blank" rel="noopener noreferrer">
            Where to find it ({about.destination})
          </a>
        </>
      )}
    </>
  );
}

/** One input for each field; secrets are hidden. */
export function FieldInputs({
  fields,
  values,
  onChange,
}: {
  fields: readonly AuthField[];
  values: Readonly<Record<string, string>>;
  onChange: (values: Record<string, string>) => void;
}) {
  return fields.map((field) => {
    const Input = field.sensitive ? SecretField : Field;
    return (
      <Input
        key={field.name}
        label={field.required === false ? `${labelOf(field)} (optional)` : labelOf(field)}
        hint={field.description || field.about_url ? <Hint field={field} /> : undefined}
        placeholder={field.sample_format ?? undefined}
        required={field.required !== false}
        autoComplete="new-password"
        value={values[field.name] ?? ''}
        onChange={(event) => onChange({ ...values, [field.name]: event.target.value })}
      />
    );
  });
}

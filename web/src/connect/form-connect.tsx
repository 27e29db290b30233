import { type FormEvent, useEffect, useState } from 'react';
import { problemSentence } from '../api/problem';
import type { AuthOption, Credential, CredentialTest } from '../api/types';
import { useSession } from '../session';
import { Spinner } from '../ui/icon';
import type { ConnectProps } from './connect-form';
import { FieldInputs } from './field-inputs';
import { fieldsOf, filled, MANAGED } from './fields';

/** Connecting with something typed in: tested where the service allows it, then stored. */
export function FormConnect({
  option,
  integrationName,
  displayName,
  busy,
  storedAs,
  onConnected,
  onFailed,
}: ConnectProps & { option: AuthOption }) {
  const { api, organization } = useSession();
  const [values, setValues] = useState<Record<string, string>>({});
  const [step, setStep] = useState<'idle' | 'testing' | 'saving'>('idle');
  const [problem, setProblem] = useState<string | null>(null);
  const fields = fieldsOf(option);

  // A secret lives as long as the form, and no longer.
  useEffect(() => () => setValues({}), []);

  const refuse = (message: string): void => {
    setProblem(message);
    setStep('idle');
    onFailed?.({ auth_type: option.auth_type, error_code: 'invalid_credentials', error_message: message });
  };

  const connect = async (): Promise<void> => {
    const body = { integration_name: integrationName, auth_type: option.auth_type, auth_data: filled(values) };
    setProblem(null);
    try {
      if (option.test_supported && option.auth_type !== MANAGED) {
        setStep('testing');
        const test = await api.post<CredentialTest>('/credentials/test-temporary', body);
        if (!test.is_valid) {
          refuse(test.message ? `${displayName} refused this: ${test.message}` : `${displayName} refused this key.`);
          return;
        }
        api.mustSpeakFor(organization.id);
      }
      setStep('saving');
      const credential = await api.post<Credential>('/credentials', { ...body, ...storedAs });
      setValues({});
      setStep('idle');
      onConnected(credential.credential_id, option.auth_type);
    } catch (refusal) {
      refuse(problemSentence(refusal));
    }
  };

  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (step === 'idle' && !busy) void connect();
  };

  const verb = { idle: `Connect ${displayName}`, testing: 'Testing…', saving: 'Saving…' }[step];
  return (
    <form onSubmit={submit} className="stack" autoComplete="off">
      <FieldInputs fields={fields} values={values} onChange={setValues} />
      {problem && (
        <p className="notice danger" role="alert">
          {problem}
        </p>
      )}
      <div>
        <button type="submit" className="button primary" disabled={step !== 'idle' || busy}>
          {step !== 'idle' && <Spinner />}
          {verb}
        </button>
      </div>
    </form>
  );
}

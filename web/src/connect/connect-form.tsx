import { useState } from 'react';
import type { AuthOption, LlmChoice } from '../api/types';
import { Tabs } from '../ui/tabs';
import { FormConnect } from './form-connect';
import { OAUTH } from './fields';
import { OAuthConnect } from './oauth-connect';

/** The open question that a sign-in answers by itself once it is through. */
export interface Binding {
  chatId: string;
  requestId: string;
  /** The model that goes on with the turn. */
  model: () => Promise<LlmChoice | null>;
}

export interface Pooled {
  /** Whether the operator has an OAuth app for it; undefined while that is not known. */
  pooled: boolean | undefined;
}

export interface ConnectProps {
  integrationName: string;
  displayName: string;
  binding: Binding | null;
  busy: boolean;
  /** The name and the standing of the new credential, where the server is not to choose them. */
  storedAs?: { display_name?: string; make_default?: boolean };
  /** Values that are settled already and not asked for. */
  given?: Readonly<Record<string, string>>;
  onConnected: (credentialId: string, authType: string) => void;
  onFailed?: (failure: { auth_type: string; error_code: string; error_message: string }) => void;
  /** The sign-in window closed or the page is looked at again. */
  onMaybeDone?: () => void;
}

function Instructions({ option }: { option: AuthOption }) {
  const steps = option.setup_instructions ?? [];
  if (steps.length === 0) return null;
  return (
    <ol className="instructions">
      {steps.map((step, index) => (
        // Manifests number some of their steps themselves.
        <li key={index}>{step.replace(/^\d+[.)]\s*/, '')}</li>
      ))}
    </ol>
  );
}

/** Every way to connect an integration, as tabs where there is more than one. */
export function ConnectForm({ options, pooled, ...props }: ConnectProps & Pooled & { options: readonly AuthOption[] }) {
  const [chosen, setChosen] = useState<string | null>(null);
  // Without an OAuth app of the operator, signing in takes registering one: a key is quicker then.
  const easiest = (pooled === false && options.find((candidate) => candidate.auth_type !== OAUTH)) || options[0];
  const option = options.find((candidate) => candidate.auth_type === chosen) ?? easiest;
  if (!option) return <p className="muted">This integration offers no way to connect from here.</p>;
  const body = (
    <div className="stack" key={option.auth_type}>
      <Instructions option={option} />
      {option.auth_type === OAUTH ? <OAuthConnect option={option} pooled={pooled} {...props} /> : <FormConnect option={option} {...props} />}
    </div>
  );
  if (options.length === 1) return body;
  const tabs = options.map((candidate) => ({ key: candidate.auth_type, label: candidate.display_name }));
  return (
    <Tabs label="Ways to connect" tabs={tabs} current={option.auth_type} onChange={setChosen}>
      {body}
    </Tabs>
  );
}

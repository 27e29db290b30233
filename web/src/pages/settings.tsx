import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { Link } from 'wouter';
import { problemSentence } from '../api/problem';
import type { Api } from '../api/client';
import type { LlmChoice, LlmModel } from '../api/types';
import { choiceOf, modelName, type Models, sameChoice, useModels } from '../chat/models';
import { PROVIDERS } from '../connect/place';
import { type Preferences, setPreferences, usePreferences } from '../preferences';
import { useSession } from '../session';
import { Approvals } from '../settings/approvals';
import { Retention } from '../settings/retention';
import { ShownModels } from '../settings/shown-models';
import { Page } from '../shell/page';
import { Select, SecretField } from '../ui/field';
import { Icon, type IconName } from '../ui/icon';
import { Failed, Skeleton } from '../ui/states';
import { useToast } from '../ui/toast';

const LEAST_PASSWORD = 10;

const SECTIONS: readonly { href: string; icon: IconName; title: string; text: string }[] = [
  { href: '/settings/keys', icon: 'key', title: 'API keys', text: 'For scripts and the SDKs' },
  { href: '/settings/members', icon: 'people', title: 'Members', text: 'Who is in the organization' },
  { href: '/settings/audit', icon: 'list', title: 'Audit', text: 'Who changed what, and when' },
];

function Looks() {
  const preferences = usePreferences();
  return (
    <section className="panel" aria-labelledby="looks">
      <h2 id="looks">On this device</h2>
      <Select
        label="Theme"
        value={preferences.theme}
        options={[
          { value: 'system', label: 'As the system' },
          { value: 'light', label: 'Light' },
          { value: 'dark', label: 'Dark' },
        ]}
        onChange={(theme) => setPreferences({ theme: theme as Preferences['theme'] })}
      />
      <label className="check">
        <input type="checkbox" checked={preferences.follow} onChange={(event) => setPreferences({ follow: event.target.checked })} />
        <span>
          Follow replies
          <span className="field-hint"> — keep the newest text in view while you are at the end of a chat</span>
        </span>
      </label>
      <label className="check">
        <input
          type="checkbox"
          checked={preferences.enterSends}
          onChange={(event) => setPreferences({ enterSends: event.target.checked })}
        />
        <span>
          Enter sends
          <span className="field-hint"> — otherwise Ctrl or ⌘ with Enter does, and Enter makes a new line</span>
        </span>
      </label>
    </section>
  );
}

const keyOf = (model: LlmModel): string => `${model.integration_name}/${model.id}`;

/** Saves a model choice of the organization; the key of no model saves none. */
function useSaveModel(models: Models, said: string, request: (api: Api, choice: LlmChoice | null) => Promise<void>) {
  const { api } = useSession();
  const client = useQueryClient();
  const toast = useToast();
  return useMutation({
    mutationFn: (key: string) => {
      const model = models.usable?.find((each) => keyOf(each) === key);
      return request(api, model ? choiceOf(model) : null);
    },
    onSuccess: async () => {
      await client.invalidateQueries({ queryKey: ['organization-settings'] });
      toast(said);
    },
    onError: (problem) => toast(problemSentence(problem)),
  });
}

function OrganizationModels() {
  const { organization } = useSession();
  const models = useModels();
  const saveDefault = useSaveModel(models, 'The default model is set.', (api, choice) =>
    choice ? api.call<void>('PUT', '/organizations/settings/composer-llm', { body: choice }) : Promise.resolve(),
  );
  const saveFallback = useSaveModel(models, 'The fall-back model is set.', (api, choice) =>
    api.call<void>('PUT', '/organizations/settings/fallback-llm', { body: { fallback_llm: choice } }),
  );
  const find = (choice: LlmChoice | null) => models.usable?.find((model) => sameChoice(choiceOf(model), choice));
  const [chosen, fallback] = [find(models.organizationDefault), find(models.fallback)];
  const lost = models.fallback && !fallback && { value: 'lost', label: `${models.fallback.model_id} (cannot be used now)` };
  const options = (models.usable ?? []).map((model) => ({
    value: keyOf(model),
    label: `${modelName(model)} (${model.integration_display_name ?? model.integration_name})`,
  }));
  return (
    <section className="panel" aria-labelledby="default-model">
      <h2 id="default-model">Models of {organization.name}</h2>
      {models.loading && <Skeleton lines={1} />}
      {Boolean(models.problem) && <Failed problem={models.problem} onRetry={models.refetch} />}
      {!models.loading && !models.problem && (
        <>
          <Select
            label="New chats begin with"
            value={chosen ? keyOf(chosen) : ''}
            options={chosen ? options : [{ value: '', label: 'Not chosen yet' }, ...options]}
            onChange={(key) => saveDefault.mutate(key)}
          />
          <Select
            label="When a model's provider is down, go on with"
            value={fallback ? keyOf(fallback) : lost ? 'lost' : ''}
            options={[{ value: '', label: 'No other model' }, ...(lost ? [lost] : []), ...options]}
            onChange={(key) => saveFallback.mutate(key)}
          />
          <ShownModels models={models} />
        </>
      )}
      <p className="small-text">
        <Link href={PROVIDERS}>Add a model provider</Link>
      </p>
    </section>
  );
}

function Password() {
  const { api } = useSession();
  const toast = useToast();
  const [current, setCurrent] = useState('');
  const [next, setNext] = useState('');
  const save = useMutation({
    mutationFn: () =>
      api.call('PUT', '/auth/password', {
        body: { new_password: next, ...(current ? { current_password: current } : {}) },
        quiet: true,
      }),
    onSuccess: () => {
      setCurrent('');
      setNext('');
      toast('The password is set. Your other sessions have ended.');
    },
  });
  const short = next.length > 0 && next.length < LEAST_PASSWORD;
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (next.length >= LEAST_PASSWORD) save.mutate();
  };
  return (
    <section className="panel" aria-labelledby="password">
      <h2 id="password">Your password</h2>
      <form className="stack" onSubmit={submit}>
        <SecretField
          label="Present password"
          hint="Leave it empty if you never set one."
          autoComplete="current-password"
          value={current}
          onChange={(event) => setCurrent(event.target.value)}
        />
        <SecretField
          label="New password"
          required
          problem={short ? `At least ${LEAST_PASSWORD} characters.` : null}
          value={next}
          onChange={(event) => setNext(event.target.value)}
        />
        {save.error && (
          <p className="notice danger" role="alert">
            {problemSentence(save.error)}
          </p>
        )}
        <div>
          <button type="submit" className="button primary" disabled={next.length < LEAST_PASSWORD || save.isPending}>
            Set password
          </button>
        </div>
      </form>
    </section>
  );
}

interface ReceivedInvitation {
  id: string;
  organization: { name: string };
  invited_by: { email: string };
  invitation_message: string | null;
}

/** Invitations of other organizations; nothing where there are none. */
function Invitations() {
  const { api } = useSession();
  const client = useQueryClient();
  const toast = useToast();
  const list = useQuery({
    queryKey: ['my-invitations'],
    queryFn: ({ signal }) => api.get<{ invitations: ReceivedInvitation[] }>('/auth/invitations/my', {}, signal),
  });
  const settle = useMutation({
    mutationFn: ({ id, verb }: { id: string; verb: 'accept' | 'reject' }) =>
      api.post<{ message: string }>(`/auth/invitations/${id}/${verb}`),
    onSuccess: async ({ message }) => {
      toast(message);
      await client.invalidateQueries({ queryKey: ['my-invitations'] });
      await client.invalidateQueries({ queryKey: ['identity'] });
    },
    onError: (problem) => toast(problemSentence(problem)),
  });
  const invitations = list.data?.invitations ?? [];
  if (invitations.length === 0) return null;
  return (
    <section className="panel" aria-labelledby="invitations">
      <h2 id="invitations">You are invited</h2>
      <ul className="rows">
        {invitations.map(({ id, organization, invited_by, invitation_message }) => (
          <li key={id}>
            <div className="row-main">
              <span className="row-title">{organization.name}</span>
              <span className="row-detail">
                by {invited_by.email}
                {invitation_message && `: ${invitation_message}`}
              </span>
            </div>
            <span className="row-tools">
              <button type="button" className="button small primary" onClick={() => settle.mutate({ id, verb: 'accept' })}>
                Join<span className="visually-hidden"> {organization.name}</span>
              </button>
              <button type="button" className="button small" onClick={() => settle.mutate({ id, verb: 'reject' })}>
                Decline<span className="visually-hidden"> the invitation of {organization.name}</span>
              </button>
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** What can be chosen for this device, this person and the organization. */
export default function SettingsPage() {
  return (
    <Page title="Settings">
      <div className="scroller">
        <div className="content narrow">
          <div className="settings-nav">
            {SECTIONS.map((section) => (
              <Link key={section.href} href={section.href} className="tile">
                <Icon name={section.icon} />
                <span className="tile-text">
                  <span className="tile-name">{section.title}</span>
                  <span className="tile-foot">{section.text}</span>
                </span>
              </Link>
            ))}
          </div>
          <Invitations />
          <Looks />
          <OrganizationModels />
          <Approvals />
          <Retention />
          <Password />
        </div>
      </div>
    </Page>
  );
}

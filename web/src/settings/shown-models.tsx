import { useMutation, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { problemSentence } from '../api/problem';
import type { LlmModel, ShownModel } from '../api/types';
import { choiceOf, modelName, type Models, sameChoice, shownAs } from '../chat/models';
import { useSession } from '../session';
import { ActionRow, SEARCH_FROM } from '../ui/action-row';
import { SearchInput } from '../ui/field';
import { several } from '../ui/format';
import { Empty } from '../ui/states';
import { useToast } from '../ui/toast';

/** Why the model must stay; null where it need not. */
function useOf(model: LlmModel, { organizationDefault, fallback }: Models): string | null {
  if (sameChoice(choiceOf(model), organizationDefault)) return 'the default of new chats';
  return sameChoice(choiceOf(model), fallback) ? 'the fall-back of the others' : null;
}

function ShownForm({ provider, listed, models }: { provider: string; listed: readonly LlmModel[]; models: Models }) {
  const { api } = useSession();
  const client = useQueryClient();
  const toast = useToast();
  const [text, setText] = useState('');
  const present = models.shown[provider];
  const isShown = (model: LlmModel): boolean => shownAs(model, present).length > 0;
  const [ticked, setTicked] = useState<ReadonlySet<string>>(() => new Set(listed.filter(isShown).map(({ id }) => id)));
  const isOn = (model: LlmModel): boolean => ticked.has(model.id) || useOf(model, models) !== null;
  const entries = listed.filter(isOn).map(({ id }): ShownModel => present?.find((each) => each.id === id) ?? { id });
  // Without a list, what the provider adds later is shown, too; names of the organization's own need one.
  const whole = entries.length === listed.length && entries.every((entry) => !entry.display_name);
  const save = useMutation({
    mutationFn: () =>
      api.call('PUT', '/organizations/settings/llm-model-visibility', {
        body: { integration_name: provider, models: whole ? [] : entries },
      }),
    onSuccess: async () => {
      await client.invalidateQueries({ queryKey: ['organization-settings'] });
      toast('The models to choose from are set.');
    },
  });
  const wanted = text.trim().toLowerCase();
  const found = listed.filter((model) => `${modelName(model)} ${model.id}`.toLowerCase().includes(wanted));
  const tick = (some: readonly LlmModel[], on: boolean): void => {
    const ids = new Set(some.map(({ id }) => id));
    setTicked(on ? new Set([...ticked, ...ids]) : new Set([...ticked].filter((id) => !ids.has(id))));
  };
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    save.mutate();
  };
  return (
    <form className="stack" onSubmit={submit}>
      {listed.length > SEARCH_FROM && (
        <div className="toolbar">
          <SearchInput label="Search models" value={text} onChange={setText} />
          <button type="button" className="button small" onClick={() => tick(found, true)}>
            Tick all
          </button>
          <button type="button" className="button small" onClick={() => tick(found, false)}>
            Tick none
          </button>
        </div>
      )}
      <fieldset className="options" disabled={save.isPending}>
        <legend className="visually-hidden">Models that chats offer</legend>
        {found.map((model) => {
          const use = useOf(model, models);
          return (
            <label key={model.id} className="check">
              <input
                type="checkbox"
                checked={isOn(model)}
                disabled={use !== null}
                onChange={(event) => tick([model], event.target.checked)}
              />
              <span className="breakable">
                {modelName(shownAs(model, present)[0] ?? model)}
                {use && <span className="field-hint"> — {use}</span>}
              </span>
            </label>
          );
        })}
        {found.length === 0 && <p className="muted">No model matches.</p>}
      </fieldset>
      {entries.length === 0 && (
        <p className="field-problem" role="status">
          At least one. To offer none of them, delete the connection.
        </p>
      )}
      {save.error && (
        <p className="notice danger" role="alert">
          Not saved. {problemSentence(save.error)}
        </p>
      )}
      <div>
        <button
          type="submit"
          className="button"
          disabled={entries.length === 0 || listed.every((model) => isOn(model) === isShown(model)) || save.isPending}
        >
          Save
        </button>
      </div>
    </form>
  );
}

/** Which of the models that can be used chats offer, provider by provider. */
export function ShownModels({ models }: { models: Models }) {
  const providers = [...new Set(models.all.map((model) => model.integration_name))];
  if (providers.length === 0) {
    return (
      <Empty icon="plug" title="No model yet">
        Connect a model provider; which of its models chats offer is then chosen here.
      </Empty>
    );
  }
  return (
    <div>
      {providers.map((provider) => {
        const listed = models.all.filter((model) => model.integration_name === provider);
        const shown = models.shown[provider];
        const count = listed.filter((model) => shownAs(model, shown).length > 0).length;
        return (
          <ActionRow
            key={provider}
            title={listed[0]?.integration_display_name ?? provider}
            badges={null}
            description={shown ? `Chats offer ${count} of ${several(listed.length, 'model')}` : `Chats offer every model (${listed.length})`}
          >
            <ShownForm key={JSON.stringify(shown)} provider={provider} listed={listed} models={models} />
          </ActionRow>
        );
      })}
    </div>
  );
}

import { Link } from 'wouter';
import type { LlmChoice, LlmModel } from '../api/types';
import { PROVIDERS } from '../connect/place';
import { Icon } from '../ui/icon';
import { compact } from '../ui/format';
import { Menu, type MenuGroup } from '../ui/menu';
import { choiceOf, modelName, type Models, sameChoice } from './models';

function detailOf(model: LlmModel): string {
  const key = model.integration_name === 'modulexai' ? 'Managed' : (model.default_credential_display_name ?? 'Own key');
  const most = model.max_output_tokens ? `, up to ${compact(model.max_output_tokens)} tokens out` : '';
  return `${key}${most}`;
}

/** Chooses the model that answers in this chat. */
export function ModelPicker({
  models,
  chosen,
  onChoose,
}: {
  models: Models;
  chosen: LlmChoice | null;
  onChoose: (choice: LlmChoice) => void;
}) {
  if (models.loading) return <span className="muted small-text">Loading models…</span>;
  if (!models.usable) {
    return (
      <button type="button" className="button quiet small" onClick={models.refetch}>
        <Icon name="retry" size={16} /> Models could not be read
      </button>
    );
  }
  if (models.usable.length === 0) {
    return (
      <Link href={PROVIDERS} className="button quiet small">
        <Icon name="plus" /> Add a model provider
      </Link>
    );
  }
  const groups = new Map<string, MenuGroup>();
  for (const model of models.usable) {
    const key = model.integration_name;
    const group = groups.get(key) ?? { key, label: model.integration_display_name ?? key, items: [] };
    groups.set(key, group);
    group.items.push({
      key: `${key}/${model.id}`,
      label: modelName(model),
      detail: detailOf(model),
      checked: sameChoice(choiceOf(model), chosen),
      onSelect: () => onChoose(choiceOf(model)),
    });
  }
  const current = models.usable.find((model) => sameChoice(choiceOf(model), chosen));
  const name = current ? modelName(current) : (chosen?.model_id ?? 'Choose a model');
  return (
    <Menu
      label={`Model: ${name}`}
      triggerClass="button quiet small model-picker"
      trigger={
        <>
          <span className="clip">{name}</span>
          <Icon name="chevron" size={15} />
        </>
      }
      groups={[...groups.values()]}
      footer={<Link href={PROVIDERS}>Add a model provider</Link>}
    />
  );
}

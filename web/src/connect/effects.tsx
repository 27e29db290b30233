import type { ActionParameter, EffectKind, JsonObject } from '../api/types';
import { isObject } from '../chat/events';
import { Select } from '../ui/field';

const UNDECIDED = '';
/** What an action may do, and whether that asks every time. */
const EFFECTS: readonly { value: EffectKind; label: string; badge: string; asks: boolean }[] = [
  { value: 'read', label: 'Only looks something up', badge: 'Looks up', asks: false },
  { value: 'write', label: 'Changes something', badge: 'Changes', asks: false },
  { value: 'egress', label: 'Sends something out of the organization', badge: 'Sends out', asks: false },
  { value: 'infra', label: 'Changes production or infrastructure', badge: 'Infrastructure', asks: true },
  { value: 'identity', label: 'Changes who has access, or a secret', badge: 'Access', asks: true },
  { value: 'exec', label: 'Runs code or a command', badge: 'Runs code', asks: true },
  { value: 'money', label: 'Moves money or binds legally', badge: 'Money', asks: true },
  { value: 'destructive', label: 'Deletes, removes or cancels something', badge: 'Destructive', asks: true },
];

/** What people have said that an action does; null while nobody has. */
export function EffectBadge({ effect }: { effect: EffectKind | null }) {
  const known = EFFECTS.find((each) => each.value === effect);
  if (!known) return <span className="badge warn">Not reviewed</span>;
  return <span className={known.asks ? 'badge danger' : 'badge ok'}>{known.badge}</span>;
}

/** Says what an action does, so that the approval policy knows it. */
export function EffectSelect({
  name,
  effect,
  undecided,
  hint,
  onChange,
}: {
  name: string;
  effect: EffectKind | null;
  /** What saying nothing means, where that may be chosen. */
  undecided?: string;
  hint?: string;
  onChange: (effect: EffectKind | null) => void;
}) {
  return (
    <Select
      label={`What ${name} does`}
      value={effect ?? UNDECIDED}
      options={[
        ...(undecided ? [{ value: UNDECIDED, label: undecided }] : []),
        ...EFFECTS.map(({ value, label, asks }) => ({ value, label: asks ? `${label}: asks first` : label })),
      ]}
      onChange={(value) => onChange(EFFECTS.find((each) => each.value === value)?.value ?? null)}
      hint={hint}
    />
  );
}

function typeOf(schema: JsonObject): string {
  const { type } = schema;
  if (typeof type === 'string') return type;
  return Array.isArray(type) ? type.filter((each) => typeof each === 'string').join(' or ') : 'any';
}

/** An action's parameters as its schema names them. */
export function parametersOf(schema: JsonObject): { [name: string]: ActionParameter } {
  const { properties, required } = schema;
  if (!isObject(properties)) return {};
  const needed = new Set(Array.isArray(required) ? required : []);
  return Object.fromEntries(
    Object.entries(properties).map(([name, each]) => {
      const own = isObject(each) ? each : {};
      const description = typeof own.description === 'string' ? own.description : '';
      return [name, { type: typeOf(own), description, required: needed.has(name) }];
    }),
  );
}

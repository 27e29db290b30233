import { useMutation } from '@tanstack/react-query';
import { useState } from 'react';
import { problemSentence } from '../api/problem';
import type { EffectKind, JsonObject } from '../api/types';
import { ActionRow, SEARCH_FROM } from '../ui/action-row';
import { SearchInput } from '../ui/field';
import { several, words } from '../ui/format';
import { ParameterTable } from '../ui/parameter-table';
import { useToast } from '../ui/toast';
import { EffectBadge, EffectSelect, parametersOf } from './effects';
import { PolicyNote } from './policy-note';

/** An action that a server or a document brought: nothing is known of it but what people have said. */
export interface ReviewedAction {
  name: string;
  title?: string;
  description: string;
  input_schema: JsonObject;
  /** The version that was looked at. */
  fingerprint: string;
  effect: EffectKind | null;
  /** What is called, such as `GET /tasks`. */
  request?: string;
}

/** Notes what an action does. May fail. */
export type Review = (action: ReviewedAction, effect: EffectKind | null) => Promise<void>;

function Row({ action, hint, review }: { action: ReviewedAction; hint: string; review: Review }) {
  const toast = useToast();
  const note = useMutation({
    mutationFn: (effect: EffectKind | null) => review(action, effect),
    onSuccess: () => toast('Noted.'),
    onError: (problem) => toast(problemSentence(problem)),
  });
  return (
    <ActionRow title={action.title || words(action.name)} badges={<EffectBadge effect={action.effect} />} description={action.description}>
      {action.request && (
        <p className="breakable">
          <code>{action.request}</code>
        </p>
      )}
      <EffectSelect
        name={action.name}
        effect={action.effect}
        undecided="Not reviewed: asks first, every time"
        hint={hint}
        onChange={(effect) => note.mutate(effect)}
      />
      <ParameterTable name={action.name} parameters={parametersOf(action.input_schema)} />
    </ActionRow>
  );
}

function standing(total: number, open: number): string {
  if (total === 0) return 'There is none.';
  if (open === 0) return 'All of them are reviewed.';
  const [are, ask] = open === 1 ? ['is', 'asks'] : ['are', 'ask'];
  return `${open} of them ${are} not reviewed and ${ask} first. Say what each does, and those that do no harm run at once.`;
}

/** Actions that people say the effects of. */
export function ReviewedActions({
  noun,
  actions,
  hint,
  review,
}: {
  /** What one of them is called here. */
  noun: string;
  actions: readonly ReviewedAction[];
  hint: string;
  review: Review;
}) {
  const [text, setText] = useState('');
  const [opening, setOpening] = useState(false);
  const wanted = text.trim().toLowerCase();
  const open = actions.filter((action) => action.effect === null).length;
  const shown = actions.filter(
    (action) =>
      `${action.name} ${words(action.name)} ${action.title ?? ''} ${action.description}`.toLowerCase().includes(wanted) &&
      (!opening || action.effect === null),
  );
  return (
    <section className="panel" aria-labelledby="reviewed">
      <h2 id="reviewed">{several(actions.length, noun)}</h2>
      <p className="muted small-text">{standing(actions.length, open)}</p>
      <PolicyNote />
      {actions.length > SEARCH_FROM && (
        <div className="toolbar">
          <SearchInput label={`Search ${noun}s`} value={text} onChange={setText} />
          <label className="check">
            <input type="checkbox" checked={opening} onChange={(event) => setOpening(event.target.checked)} /> Only those not reviewed
          </label>
        </div>
      )}
      <div>
        {shown.map((action) => (
          <Row key={action.name} action={action} hint={hint} review={review} />
        ))}
        {shown.length === 0 && actions.length > 0 && <p className="muted">No {noun} matches.</p>}
      </div>
    </section>
  );
}

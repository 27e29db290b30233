import { type FormEvent, useId, useState } from 'react';
import type { ChoiceOption, Question } from '../api/types';
import { Field } from '../ui/field';
import { type CardProps, CardFrame } from './question-view';

type Single = Extract<Question, { kind: 'single_choice' }>;
type Multi = Extract<Question, { kind: 'multi_choice' }>;

/** The value of "Other", which no option can have: options come from the wire without it. */
const OTHER = '\u0000other';

function OptionText({ option }: { option: ChoiceOption }) {
  return (
    <span className="option-text">
      <span className="option-label">
        {option.label}
        {option.badge && <span className="badge">{option.badge}</span>}
      </span>
      {option.description && <span className="option-description">{option.description}</span>}
    </span>
  );
}

/** One of several. Nothing is chosen beforehand. */
export function SingleChoiceCard({ question, ...card }: CardProps & { question: Single }) {
  const [chosen, setChosen] = useState<string | null>(null);
  const [text, setText] = useState('');
  const name = useId();
  const ready = chosen === OTHER ? text.trim() !== '' : chosen !== null;
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (!ready || card.busy) return;
    card.answer(
      chosen === OTHER
        ? { kind: 'single_choice', free_text: text.trim() }
        : { kind: 'single_choice', selected_value: chosen ?? '' },
    );
  };
  return (
    <CardFrame {...card} icon="question" title="Choose one">
      <form onSubmit={submit}>
        <fieldset className="options" disabled={card.busy}>
          <legend className="visually-hidden">Choose one</legend>
          {question.options.map((option) => (
            <label key={option.value} className="option">
              <input type="radio" name={name} checked={chosen === option.value} onChange={() => setChosen(option.value)} />
              <OptionText option={option} />
            </label>
          ))}
          {question.allow_free_text && (
            <label className="option">
              <input type="radio" name={name} checked={chosen === OTHER} onChange={() => setChosen(OTHER)} />
              <OptionText option={{ value: OTHER, label: 'Other' }} />
            </label>
          )}
          {chosen === OTHER && (
            <Field label="Your answer" value={text} onChange={(event) => setText(event.target.value)} />
          )}
        </fieldset>
        <button type="submit" className="button primary" disabled={!ready || card.busy}>
          Continue
        </button>
      </form>
    </CardFrame>
  );
}

function howMany(least: number, most: number): string {
  if (least === most) return `Pick ${least}`;
  if (most === Number.POSITIVE_INFINITY) return least > 0 ? `Pick at least ${least}` : 'Pick any number';
  return `Pick ${least}–${most}`;
}

/** Some of several, between the least and the most. */
export function MultiChoiceCard({ question, ...card }: CardProps & { question: Multi }) {
  const [chosen, setChosen] = useState<readonly string[]>([]);
  const least = question.min_selections ?? 0;
  const most = question.max_selections ?? Number.POSITIVE_INFINITY;
  const ready = chosen.length >= least && chosen.length <= most;
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (ready && !card.busy) card.answer({ kind: 'multi_choice', selected_values: [...chosen] });
  };
  const toggle = (value: string): void =>
    setChosen(chosen.includes(value) ? chosen.filter((other) => other !== value) : [...chosen, value]);
  return (
    <CardFrame {...card} icon="list" title="Choose some">
      <form onSubmit={submit}>
        <fieldset className="options" disabled={card.busy}>
          <legend className="visually-hidden">{howMany(least, most)}</legend>
          {question.options.map((option) => (
            <label key={option.value} className="option">
              <input
                type="checkbox"
                checked={chosen.includes(option.value)}
                disabled={!chosen.includes(option.value) && chosen.length >= most}
                onChange={() => toggle(option.value)}
              />
              <OptionText option={option} />
            </label>
          ))}
        </fieldset>
        <div className="row">
          <button type="submit" className="button primary" disabled={!ready || card.busy}>
            Continue
          </button>
          <span className="muted small-text" aria-live="polite">
            {howMany(least, most)}, {chosen.length} selected
          </span>
        </div>
      </form>
    </CardFrame>
  );
}

import { type FormEvent, useId, useState } from 'react';
import type { Question } from '../api/types';
import { type CardProps, CardFrame } from './question-view';

/** The counter appears when this share of the allowed length is used. */
const NEARLY = 0.8;

function shortBy(text: string, least: number): string | null {
  const missing = least - text.trim().length;
  return missing > 0 ? `Write at least ${least} characters (${missing} more).` : null;
}

/** An answer in one's own words. */
export function FreeTextCard({ question, ...card }: CardProps & { question: Extract<Question, { kind: 'free_text' }> }) {
  const [text, setText] = useState('');
  const [tried, setTried] = useState(false);
  const id = useId();
  const least = Math.max(question.min_length ?? 0, question.required ? 1 : 0);
  const most = question.max_length ?? undefined;
  const problem = tried ? shortBy(text, least) : null;
  const near = most !== undefined && text.length >= most * NEARLY;
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    setTried(true);
    if (shortBy(text, least) === null && !card.busy) card.answer({ kind: 'free_text', text });
  };
  const shared = {
    id,
    value: text,
    maxLength: most,
    placeholder: question.placeholder ?? undefined,
    disabled: card.busy,
    'aria-invalid': problem ? true : undefined,
    'aria-describedby': `${id}-note`,
  };
  return (
    <CardFrame {...card} icon="edit" title="A question">
      <form onSubmit={submit} className="stack" noValidate>
        <div className="field">
          <label htmlFor={id}>Your answer</label>
          {question.multiline ? (
            <textarea rows={4} {...shared} onChange={(event) => setText(event.target.value)} />
          ) : (
            <input {...shared} onChange={(event) => setText(event.target.value)} />
          )}
          <p id={`${id}-note`} className={problem ? 'field-problem' : 'field-hint'} aria-live="polite">
            {problem ?? (near ? `${text.length} of ${most} characters` : '')}
          </p>
        </div>
        <div>
          <button type="submit" className="button primary" disabled={card.busy}>
            Send answer
          </button>
        </div>
      </form>
    </CardFrame>
  );
}

import type { Question } from '../api/types';
import { type CardProps, CardFrame } from './question-view';

/** A plain yes or no. */
export function YesNoCard({ question, ...card }: CardProps & { question: Extract<Question, { kind: 'yes_no' }> }) {
  return (
    <CardFrame {...card} icon="question" title="A question">
      <div className="row">
        <button
          type="button"
          className="button primary"
          disabled={card.busy}
          onClick={() => card.answer({ kind: 'yes_no', answer: true })}
        >
          {question.yes_label ?? 'Yes'}
        </button>
        <button
          type="button"
          className="button"
          disabled={card.busy}
          onClick={() => card.answer({ kind: 'yes_no', answer: false })}
        >
          {question.no_label ?? 'No'}
        </button>
      </div>
    </CardFrame>
  );
}

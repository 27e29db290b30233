import { type ReactNode, useEffect, useState } from 'react';
import type { ApprovalContext, Json, JsonObject, Question } from '../api/types';
import { isObject } from '../chat/events';
import { pretty } from '../chat/tool-view';
import { Markdown } from '../md/markdown';
import { words } from '../ui/format';
import { Logo } from '../ui/logo';
import { type CardProps, CardFrame } from './question-view';

/** A hand already on its way to a button must not approve what has only just appeared. */
const ARM_MS = 500;
/** Longer values fold, and open on request. */
const LONG = 160;

function Value({ value }: { value: Json }): ReactNode {
  const shown = pretty(value);
  if (shown.length <= LONG && !shown.includes('\n')) return <code>{shown}</code>;
  return (
    <details className="long-value">
      <summary>
        <code>{shown.slice(0, LONG).replaceAll('\n', ' ')}…</code> <span className="link">Show all {shown.length} characters</span>
      </summary>
      <pre tabIndex={0} role="region" aria-label="Whole value">
        {shown}
      </pre>
    </details>
  );
}

function Parameters({ parameters }: { parameters: JsonObject }) {
  const entries = Object.entries(parameters);
  if (entries.length === 0) return <p className="muted">It takes no parameters.</p>;
  return (
    <dl className="parameters">
      {entries.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>
            <Value value={value} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

function verbOf(question: Extract<Question, { kind: 'yes_no' }>, context: ApprovalContext): string {
  const label = question.yes_label ?? '';
  return label && label.toLowerCase() !== 'yes' ? label : words(context.action_name ?? 'Go on');
}

function declineOf(question: Extract<Question, { kind: 'yes_no' }>): string {
  const label = question.no_label ?? '';
  return label && label.toLowerCase() !== 'no' ? label : 'Decline';
}

/**
 * The approval of one action, with everything it would be done with. Neither button has the focus
 * and no key is a shortcut for either: approving takes a deliberate act.
 */
export function ApprovalCard({ question, ...card }: CardProps & { question: Extract<Question, { kind: 'yes_no' }> }) {
  const [armed, setArmed] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setArmed(true), ARM_MS);
    return () => clearTimeout(timer);
  }, []);
  const context = question.context as unknown as ApprovalContext;
  const name = context.integration_name ?? '';
  return (
    <CardFrame
      {...card}
      icon="shield"
      title="Approval needed"
      tone="danger"
      headed={
        <div className="approval-head">
          <Logo name={name} size={36} />
          <div>
            <p className="approval-action">
              {words(context.action_name ?? 'Action')}
              {context.effect && <span className="badge danger">{words(context.effect)}</span>}
            </p>
            <p className="muted">
              {context.integration_display_name ?? name}
              {context.account && <> · as {context.account}</>}
            </p>
          </div>
        </div>
      }
    >
      <div className="card-message">
        <Markdown text={question.message} />
      </div>
      {context.reason && !question.message.includes(context.reason) && (
        <p className="approval-reason">Why it asks: {context.reason}</p>
      )}
      {isObject(context.parameters) && <Parameters parameters={context.parameters} />}
      {context.irreversible && <p className="approval-warning">This cannot be undone.</p>}
      <div className="approval-buttons">
        <button
          type="button"
          className="button"
          disabled={card.busy || !armed}
          onClick={() => card.answer({ kind: 'yes_no', answer: false })}
        >
          {declineOf(question)}
        </button>
        <button
          type="button"
          className="button danger"
          disabled={card.busy || !armed}
          onClick={() => card.answer({ kind: 'yes_no', answer: true })}
        >
          {verbOf(question, context)}
        </button>
      </div>
    </CardFrame>
  );
}

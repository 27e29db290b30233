import { type ReactNode, useEffect, useId, useRef } from 'react';
import { useChatActions } from '../chat/chat-context';
import { isApproval, type QuestionPart } from '../chat/reply';
import type { Answer } from '../api/types';
import { Markdown } from '../md/markdown';
import { several } from '../ui/format';
import { Icon, type IconName } from '../ui/icon';
import { ApprovalCard } from './approval';
import { MultiChoiceCard, SingleChoiceCard } from './choices';
import { CredentialCard } from './credential';
import { FreeTextCard } from './free-text';
import { Receipt } from './receipt';
import { YesNoCard } from './yes-no';

export interface CardProps {
  part: QuestionPart;
  busy: boolean;
  answer: (answer: Answer) => void;
}

/** A question in the thread: the card while it is open, a receipt afterwards. */
export function QuestionView({ part }: { part: QuestionPart }) {
  const actions = useChatActions();
  if (part.state !== 'open') return <Receipt part={part} />;
  const busy = actions.answering !== null;
  const answer = (given: Answer): void => void actions.answer(part, given);
  return <Card part={part} busy={busy} answer={answer} />;
}

function Card(props: CardProps): ReactNode {
  const { question } = props.part;
  switch (question.kind) {
    case 'single_choice':
      return <SingleChoiceCard {...props} question={question} />;
    case 'multi_choice':
      return <MultiChoiceCard {...props} question={question} />;
    case 'yes_no':
      return isApproval(question) ? (
        <ApprovalCard {...props} question={question} />
      ) : (
        <YesNoCard {...props} question={question} />
      );
    case 'free_text':
      return <FreeTextCard {...props} question={question} />;
    case 'credential_request':
      return <CredentialCard {...props} question={question} />;
    default:
      return (
        <CardFrame part={props.part} busy={props.busy} answer={props.answer} icon="question" title="A question">
          <p className="muted">This page is too old to show this kind of question. Load it again, or stop the turn.</p>
        </CardFrame>
      );
  }
}

function isTyping(): boolean {
  const at = document.activeElement;
  return at instanceof HTMLTextAreaElement || at instanceof HTMLInputElement ? at.value !== '' : false;
}

/** What all cards share: heading, message, skip, hint, and the focus that arrives once and never interrupts typing. */
export function CardFrame({
  part,
  busy,
  answer,
  icon,
  title,
  tone = 'plain',
  headed,
  children,
}: CardProps & {
  icon: IconName;
  title: string;
  tone?: 'plain' | 'danger';
  /** Stands in for the question's own message. */
  headed?: ReactNode;
  children: ReactNode;
}) {
  const { question } = part;
  const heading = useRef<HTMLHeadingElement>(null);
  const { stop } = useChatActions();
  const id = useId();
  useEffect(() => {
    if (!isTyping()) heading.current?.focus({ preventScroll: true });
  }, []);
  const hint = question.timeout_hint_seconds;
  return (
    <section className={`card ${tone}`} aria-labelledby={id} aria-busy={busy} data-question={question.request_id}>
      <header className="card-head">
        <Icon name={icon} />
        <h2 id={id} ref={heading} tabIndex={-1}>
          {title}
        </h2>
      </header>
      {headed ?? (
        <div className="card-message">
          <Markdown text={question.message} />
        </div>
      )}
      {children}
      <footer className="card-foot">
        {question.required === false && (
          <button type="button" className="button quiet" disabled={busy} onClick={() => answer({ kind: 'skipped' })}>
            Skip for now
          </button>
        )}
        <button type="button" className="button quiet" disabled={busy} onClick={stop}>
          Stop the turn
        </button>
        {hint ? <span className="muted small-text">The assistant hopes for an answer within {several(Math.ceil(hint / 60), 'minute')}.</span> : null}
      </footer>
    </section>
  );
}

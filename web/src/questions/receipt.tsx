import type { Answer, Question } from '../api/types';
import { isApproval, type QuestionPart } from '../chat/reply';
import { words } from '../ui/format';
import { Icon, type IconName } from '../ui/icon';

function labelOf(question: Question, value: string | undefined): string {
  const options = question.kind === 'single_choice' || question.kind === 'multi_choice' ? question.options : [];
  return options.find((option) => option.value === value)?.label ?? value ?? '';
}

function yesNo(question: Question, yes: boolean): string {
  if (question.kind !== 'yes_no') return yes ? 'Yes' : 'No';
  if (isApproval(question)) return yes ? 'Approved' : 'Declined';
  return (yes ? question.yes_label : question.no_label) ?? (yes ? 'Yes' : 'No');
}

/** The answer in the words its giver saw. */
export function answerText(question: Question, answer: Answer): string {
  switch (answer.kind) {
    case 'single_choice':
      return answer.free_text ?? labelOf(question, answer.selected_value);
    case 'multi_choice':
      return answer.selected_values.map((value) => labelOf(question, value)).join(', ') || 'None';
    case 'yes_no':
      return yesNo(question, answer.answer);
    case 'free_text':
      return answer.text;
    case 'credential_added':
      return 'Connected';
    case 'credential_failed':
      return `Not connected: ${answer.error_message || words(answer.error_code)}`;
    case 'skipped':
      return 'Skipped';
    default:
      return 'Answered';
  }
}

/** What the question was about, in a line. */
function subjectOf(question: Question): string {
  if (question.kind === 'credential_request') return question.integration_display_name;
  const context = question.context;
  if (isApproval(question) && context) {
    const who = context.integration_display_name ?? context.integration_name;
    return `${String(who ?? '')} · ${words(String(context.action_name ?? ''))}`;
  }
  return question.message.replaceAll(/[*_`#]/g, '');
}

function iconOf(part: QuestionPart): IconName {
  const { answer } = part;
  if (part.state === 'cancelled' || answer?.kind === 'skipped' || answer?.kind === 'credential_failed') return 'cross';
  return answer?.kind === 'yes_no' && !answer.answer && isApproval(part.question) ? 'cross' : 'check';
}

/** What is left of a card once its question is settled. */
export function Receipt({ part }: { part: QuestionPart }) {
  const { question, answer } = part;
  const outcome =
    part.state === 'cancelled' ? 'Not answered' : answer ? answerText(question, answer) : 'Answered in another window';
  return (
    <div className="receipt-line">
      <Icon name={iconOf(part)} size={16} />
      <span className="receipt-subject">{subjectOf(question)}</span>
      <span className="receipt-answer">
        <span className="visually-hidden">Your answer: </span>
        {outcome}
      </span>
    </div>
  );
}

import { useEffect, useRef, useState } from 'react';
import { openQuestion, replyText } from './reply';
import type { ChatState } from './store';

/** A finished reply is read out this far; the rest is there to be read. */
const READ_OUT = 200;

function sentenceOf(state: ChatState): string {
  const reply = state.turns.at(-1)?.reply;
  if (!reply) return '';
  if (openQuestion(reply)) return 'The assistant needs your input.';
  switch (reply.status) {
    case 'running':
      if (state.link === 'reconnecting') return 'Connection lost. Reconnecting.';
      return reply.parts.at(-1)?.kind === 'text' ? 'The assistant is replying.' : 'The assistant is thinking.';
    case 'completed':
      return `Reply complete. ${replyText(reply).slice(0, READ_OUT)}`;
    case 'failed':
      return 'The turn failed.';
    case 'cancelled':
      return 'Stopped.';
    default:
      return '';
  }
}

/** Tells a screen reader where a turn stands: in sentences, not word by word. */
export function Announcer({ state }: { state: ChatState }) {
  const [said, setSaid] = useState('');
  const began = useRef(false);
  const sentence = sentenceOf(state);
  const running = state.turns.at(-1)?.reply?.status === 'running';
  useEffect(() => {
    // A chat that is merely opened says nothing of its old turns.
    if (running) began.current = true;
    if (began.current) setSaid(sentence);
  }, [sentence, running]);
  return (
    <div role="status" aria-live="polite" className="visually-hidden" data-testid="announcer">
      {said}
    </div>
  );
}

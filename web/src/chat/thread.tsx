import { memo, useCallback, useLayoutEffect, useRef, useState } from 'react';
import { CopyButton } from '../ui/copy';
import { Icon, Spinner } from '../ui/icon';
import { ReplyView } from './reply-view';
import type { ChatState, ChatStore } from './store';
import type { Turn } from './turns';

/** Turns drawn at first, and how many more each "Show earlier" adds. */
const WINDOW = 30;
/** Longer messages of the person fold. */
const LONG_TEXT = 2_000;

function UserText({ text }: { text: string }) {
  const [whole, setWhole] = useState(false);
  if (text.length <= LONG_TEXT) return <div className="user-text">{text}</div>;
  return (
    <>
      <div className="user-text">{whole ? text : `${text.slice(0, LONG_TEXT)}…`}</div>
      <button type="button" className="button quiet small" aria-expanded={whole} onClick={() => setWhole(!whole)}>
        {whole ? 'Show less' : `Show all ${text.length.toLocaleString()} characters`}
      </button>
    </>
  );
}

interface TurnProps {
  turn: Turn;
  link: ChatState['link'];
  store: ChatStore;
  last: boolean;
  onEdit: (text: string) => void;
  onResend: (turn: Turn) => void;
  onAgain: (text: string) => void;
}

const TurnView = memo(function TurnView({ turn, link, store, last, onEdit, onResend, onAgain }: TurnProps) {
  const seen = useCallback(() => void store.restore(turn.key), [store, turn.key]);
  const again = useCallback(() => onAgain(turn.text), [onAgain, turn.text]);
  return (
    <div className="turn">
      <article className={`user ${turn.userState}`} aria-label="You">
        <UserText text={turn.text} />
        {turn.userState === 'unsent' ? (
          <div className="unsent" role="alert">
            <Icon name="alert" size={16} /> Not sent. {turn.problem}
            <button type="button" className="button small" onClick={() => onResend(turn)}>
              Retry
            </button>
            <button
              type="button"
              className="button quiet small"
              onClick={() => {
                onEdit(turn.text);
                store.discard(turn.key);
              }}
            >
              Edit
            </button>
          </div>
        ) : (
          <div className="user-tools">
            {turn.userState === 'sending' && <Spinner label="Sending" />}
            <CopyButton text={turn.text} label="Copy message" />
            <button
              type="button"
              className="button quiet small"
              aria-label="Edit as a new message"
              title="Put this text into the composer"
              onClick={() => onEdit(turn.text)}
            >
              <Icon name="edit" />
            </button>
          </div>
        )}
      </article>
      {turn.reply && (
        <ReplyView
          reply={turn.reply}
          link={last ? link : 'idle'}
          whole={turn.whole}
          onSeen={seen}
          onRetry={last ? again : undefined}
        />
      )}
    </div>
  );
});

/** The conversation, newest at the bottom; older turns come on request without moving what is read. */
export function Thread({
  state,
  store,
  scroller,
  onEdit,
  onResend,
  onAgain,
}: {
  state: ChatState;
  store: ChatStore;
  scroller: React.RefObject<HTMLElement | null>;
  onEdit: (text: string) => void;
  onResend: (turn: Turn) => void;
  onAgain: (text: string) => void;
}) {
  const [shown, setShown] = useState(WINDOW);
  const heightBefore = useRef<number | null>(null);
  const { turns } = state;
  const visible = turns.slice(-shown);
  const hidden = turns.length - visible.length;

  useLayoutEffect(() => {
    const element = scroller.current;
    if (heightBefore.current === null || !element) return;
    element.scrollTop += element.scrollHeight - heightBefore.current;
    heightBefore.current = null;
  }, [shown, scroller]);

  return (
    <div role="log" aria-live="off" aria-label="Conversation" className="thread">
      {hidden > 0 && (
        <button
          type="button"
          className="button quiet small earlier"
          onClick={() => {
            heightBefore.current = scroller.current?.scrollHeight ?? null;
            setShown(shown + WINDOW);
          }}
        >
          Show earlier messages ({hidden})
        </button>
      )}
      {visible.map((turn, index) => (
        <TurnView
          key={turn.key}
          turn={turn}
          link={index === visible.length - 1 ? state.link : 'idle'}
          store={store}
          last={index === visible.length - 1}
          onEdit={onEdit}
          onResend={onResend}
          onAgain={onAgain}
        />
      ))}
    </div>
  );
}

import { type KeyboardEvent, type ReactNode, useEffect, useLayoutEffect, useRef } from 'react';
import { usePreferences } from '../preferences';
import { Icon, Spinner } from '../ui/icon';

/** The text grows the box up to this height, then scrolls. */
const TALLEST_PX = 220;

export const COMPOSER_ID = 'composer';

export interface ComposerProps {
  text: string;
  onText: (text: string) => void;
  onSend: () => void;
  onStop: () => void;
  state: 'ready' | 'running' | 'stopping' | 'asking' | 'sending';
  /** Brings the open question into view. */
  onShowQuestion: () => void;
  children: ReactNode;
}

/** Where messages are written. Send becomes Stop while a turn runs, in the same place. */
export function Composer({ text, onText, onSend, onStop, state, onShowQuestion, children }: ComposerProps) {
  const area = useRef<HTMLTextAreaElement>(null);
  const { enterSends } = usePreferences();
  const canSend = state === 'ready' && text.trim() !== '';

  useLayoutEffect(() => {
    const box = area.current;
    if (!box || CSS.supports('field-sizing', 'content')) return;
    box.style.height = 'auto';
    box.style.height = `${Math.min(box.scrollHeight, TALLEST_PX)}px`;
  }, [text]);

  useEffect(() => {
    if (matchMedia('(pointer: fine)').matches) area.current?.focus();
  }, []);

  const onKeyDown = (event: KeyboardEvent): void => {
    // The Enter that confirms a Japanese or Chinese word is not ours; Safari tells it only by the code.
    if (event.key !== 'Enter' || event.nativeEvent.isComposing || event.keyCode === 229) return;
    const modified = event.ctrlKey || event.metaKey;
    if (event.shiftKey || (!enterSends && !modified)) return;
    event.preventDefault();
    if (canSend) onSend();
  };

  const busy = state === 'running' || state === 'stopping' || state === 'asking';
  return (
    <form
      className="composer"
      onSubmit={(event) => {
        event.preventDefault();
        if (canSend) onSend();
      }}
    >
      {state === 'asking' && (
        <div className="composer-note" role="status">
          <Icon name="question" size={16} />
          <span className="spacer">Answer the question above to continue.</span>
          <button type="button" className="button quiet small nowrap" onClick={onShowQuestion}>
            Show it
          </button>
        </div>
      )}
      <label htmlFor={COMPOSER_ID} className="visually-hidden">
        Message
      </label>
      <textarea
        id={COMPOSER_ID}
        ref={area}
        rows={1}
        value={text}
        placeholder={state === 'asking' ? 'A question is waiting for you' : 'Ask, or say what should be done'}
        enterKeyHint={enterSends ? 'send' : 'enter'}
        onChange={(event) => onText(event.target.value)}
        onKeyDown={onKeyDown}
      />
      <div className="composer-row">
        {children}
        <span className="spacer" />
        {busy ? (
          <button
            type="button"
            className="button round stop"
            onClick={onStop}
            disabled={state === 'stopping'}
            aria-label={state === 'stopping' ? 'Stopping' : 'Stop'}
            title="Stop (Esc)"
          >
            {state === 'stopping' ? <Spinner /> : <Icon name="stop" />}
          </button>
        ) : (
          <button type="submit" className="button round primary" disabled={!canSend} aria-label="Send" title="Send">
            {state === 'sending' ? <Spinner /> : <Icon name="send" />}
          </button>
        )}
      </div>
    </form>
  );
}

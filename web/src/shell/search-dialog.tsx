import { type KeyboardEvent, useDeferredValue, useState } from 'react';
import { useLocation } from 'wouter';
import { Dialog } from '../ui/dialog';
import { SearchInput } from '../ui/field';
import { ago } from '../ui/format';
import { Skeleton } from '../ui/states';
import { useChats } from './chats';

/** Finds a chat by its title. */
export function SearchDialog({ onClose }: { onClose: () => void }) {
  const [text, setText] = useState('');
  const wanted = useDeferredValue(text.trim());
  const found = useChats(wanted);
  const [, navigate] = useLocation();
  const chats = found.data?.pages.flatMap((page) => page.items) ?? [];
  const onKeyDown = (event: KeyboardEvent<HTMLFormElement>): void => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const stops = Array.from(event.currentTarget.querySelectorAll<HTMLElement>('input, .found button'));
    const at = stops.indexOf(document.activeElement as HTMLElement);
    stops[(at + step + stops.length) % stops.length]?.focus();
  };
  const go = (id: string): void => {
    onClose();
    navigate(`/c/${id}`);
  };
  return (
    <Dialog title="Search chats" onClose={onClose}>
      <form
        className="stack"
        onKeyDown={onKeyDown}
        onSubmit={(event) => {
          event.preventDefault();
          const [first] = chats;
          if (first) go(first.id);
        }}
      >
        <SearchInput label="Search chats by title" placeholder="Words of a title" value={text} onChange={setText} />
        <p className="visually-hidden" role="status">
          {found.isPending ? '' : `${chats.length} found`}
        </p>
        {found.isPending ? (
          <Skeleton lines={3} />
        ) : chats.length === 0 ? (
          <p className="muted">{wanted ? `No chat has “${wanted}” in its title.` : 'No chats yet.'}</p>
        ) : (
          <ul className="found">
            {chats.map((chat) => (
              <li key={chat.id}>
                <button type="button" onClick={() => go(chat.id)}>
                  <span className="clip">{chat.title || 'Untitled'}</span>
                  <small>{ago(chat.updated_at)}</small>
                </button>
              </li>
            ))}
          </ul>
        )}
      </form>
    </Dialog>
  );
}

import { useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { Link, useLocation } from 'wouter';
import { problemSentence } from '../api/problem';
import type { ChatSummary } from '../api/types';
import { useSession } from '../session';
import { ConfirmDialog } from '../ui/dialog';
import { Icon, Spinner } from '../ui/icon';
import { Menu } from '../ui/menu';
import { saveFile } from '../ui/save';
import { ShowMore } from '../ui/show-more';
import { Skeleton } from '../ui/states';
import { useToast } from '../ui/toast';
import { groupByDay, useChats } from './chats';

function Rename({ chat, onClose }: { chat: ChatSummary; onClose: () => void }) {
  const { api } = useSession();
  const client = useQueryClient();
  const toast = useToast();
  const [title, setTitle] = useState(chat.title);
  const save = async (): Promise<void> => {
    onClose();
    const wanted = title.trim();
    if (!wanted || wanted === chat.title) return;
    try {
      await api.call('PATCH', `/assistant/chat/${chat.id}`, { body: { title: wanted } });
      await client.invalidateQueries({ queryKey: ['chats'] });
    } catch (problem) {
      toast(`Not renamed. ${problemSentence(problem)}`);
    }
  };
  return (
    <form
      className="rename"
      onSubmit={(event: FormEvent) => {
        event.preventDefault();
        void save();
      }}
    >
      <input
        aria-label="Title"
        value={title}
        maxLength={200}
        autoFocus
        onFocus={(event) => event.target.select()}
        onChange={(event) => setTitle(event.target.value)}
        onBlur={() => void save()}
        onKeyDown={(event) => {
          if (event.key !== 'Escape') return;
          event.preventDefault();
          onClose();
        }}
      />
    </form>
  );
}

function Delete({ chat, permanent, onClose }: { chat: ChatSummary; permanent: boolean; onClose: () => void }) {
  const { api } = useSession();
  const client = useQueryClient();
  const toast = useToast();
  const [location, navigate] = useLocation();
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const remove = async (): Promise<void> => {
    setBusy(true);
    try {
      await api.call('DELETE', `/assistant/chat/${chat.id}`, { query: { permanent } });
      if (location === `/c/${chat.id}`) navigate('/');
      await client.invalidateQueries({ queryKey: ['chats'] });
      toast('Chat deleted.');
      onClose();
    } catch (refusal) {
      setProblem(problemSentence(refusal));
      setBusy(false);
    }
  };
  return (
    <ConfirmDialog
      title={permanent ? 'Delete this chat permanently?' : 'Delete this chat?'}
      verb={permanent ? 'Delete permanently' : 'Delete'}
      busy={busy}
      problem={problem}
      onConfirm={() => void remove()}
      onClose={onClose}
    >
      <p>
        “{chat.title}” {permanent ? 'and its record are erased and cannot be brought back.' : 'leaves your list.'}
        {chat.is_running && ' Its running turn is stopped.'}
      </p>
    </ConfirmDialog>
  );
}

const ENDINGS = { markdown: 'md', json: 'json' } as const;

/** Saves a chat as a document: Markdown to read, JSON with everything in it. */
function useExport(chat: ChatSummary): (format: keyof typeof ENDINGS) => Promise<void> {
  const { api } = useSession();
  const toast = useToast();
  return async (format) => {
    try {
      const document = await api.open('GET', `/assistant/chat/${chat.id}/export`, { query: { format } });
      saveFile(`chat-${chat.id}.${ENDINGS[format]}`, await document.blob());
    } catch (problem) {
      toast(`Not saved. ${problemSentence(problem)}`);
    }
  };
}

function ChatRow({ chat, current }: { chat: ChatSummary; current: boolean }) {
  const [mode, setMode] = useState<'rest' | 'rename' | 'delete' | 'erase'>('rest');
  const keep = useExport(chat);
  const rest = (): void => setMode('rest');
  if (mode === 'rename') return <Rename chat={chat} onClose={rest} />;
  return (
    <div className={current ? 'chat-row current' : 'chat-row'}>
      <Link href={`/c/${chat.id}`} aria-current={current ? 'page' : undefined} title={chat.title}>
        <span className="clip">{chat.title || 'Untitled'}</span>
        {chat.awaiting_input ? (
          <span className="dot" role="img" aria-label="A question is waiting" />
        ) : (
          chat.is_running && <Spinner label="Running" />
        )}
      </Link>
      <Menu
        label={`More for ${chat.title || 'Untitled'}`}
        triggerClass="button quiet icon-only small row-menu"
        trigger={<Icon name="more" size={16} />}
        groups={[
          {
            key: 'all',
            items: [
              { key: 'rename', label: 'Rename', icon: 'edit', onSelect: () => setMode('rename') },
              { key: 'markdown', label: 'Save as Markdown', icon: 'down', onSelect: () => void keep('markdown') },
              { key: 'json', label: 'Save as JSON', icon: 'down', onSelect: () => void keep('json') },
              { key: 'delete', label: 'Delete', icon: 'trash', onSelect: () => setMode('delete') },
              { key: 'erase', label: 'Delete permanently', icon: 'trash', danger: true, onSelect: () => setMode('erase') },
            ],
          },
        ]}
      />
      {(mode === 'delete' || mode === 'erase') && <Delete chat={chat} permanent={mode === 'erase'} onClose={rest} />}
    </div>
  );
}

/** The chats of the sidebar. */
export function ChatList() {
  const chats = useChats();
  const [location] = useLocation();
  if (chats.isPending) return <Skeleton lines={5} />;
  if (chats.error) {
    return (
      <p className="sidebar-note">
        The chats could not be loaded.{' '}
        <button type="button" className="link" onClick={() => void chats.refetch()}>
          Try again
        </button>
      </p>
    );
  }
  const all = chats.data.pages.flatMap((page) => page.items);
  if (all.length === 0) return <p className="sidebar-note">Your chats will be listed here.</p>;
  return (
    <>
      {groupByDay(all, new Date()).map((group) => (
        <section key={group.label} aria-label={group.label}>
          <p className="group-label" aria-hidden="true">
            {group.label}
          </p>
          <ul className="chat-list">
            {group.chats.map((chat) => (
              <li key={chat.id}>
                <ChatRow chat={chat} current={location === `/c/${chat.id}`} />
              </li>
            ))}
          </ul>
        </section>
      ))}
      <ShowMore list={chats} />
    </>
  );
}

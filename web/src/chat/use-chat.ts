import { useQueryClient } from '@tanstack/react-query';
import { useEffect, useMemo, useState, useSyncExternalStore } from 'react';
import type { Api } from '../api/client';
import { type ChatHooks, type ChatState, ChatStore } from './store';

/** A page nobody looks at gives its connection up after this long. */
const REST_MS = 60_000;
const CHANNEL = 'parley.chats';

interface Changed {
  chatId: string;
}

function nextFrame(work: () => void): void {
  // Hidden pages get no animation frames.
  if (document.hidden) setTimeout(work, 100);
  else requestAnimationFrame(work);
}

/** The store of the chat in the address, kept through the moment a new chat gets its address. */
export function useChat(api: Api, chatId: string | null, onCreated: ChatHooks['onCreated']): [ChatStore, ChatState] {
  const client = useQueryClient();
  const channel = useMemo(() => new BroadcastChannel(CHANNEL), []);
  const held = useState<{ store: ChatStore | null; onCreated: ChatHooks['onCreated'] }>({ store: null, onCreated })[0];
  held.onCreated = onCreated;

  const listChanged = (): void => void client.invalidateQueries({ queryKey: ['chats'] });
  if (held.store === null || held.store.snapshot().chatId !== chatId) {
    held.store?.dispose();
    held.store = new ChatStore(
      api,
      {
        schedule: nextFrame,
        onCreated: (created, llm) => held.onCreated(created, llm),
        onListChanged: listChanged,
        onChanged: (changed) => channel.postMessage({ chatId: changed } satisfies Changed),
      },
      chatId,
    );
  }
  const { store } = held;

  useEffect(() => {
    void store.load();
  }, [store]);

  useEffect(() => {
    let resting: ReturnType<typeof setTimeout> | undefined;
    const onVisible = (): void => {
      clearTimeout(resting);
      if (document.hidden) resting = setTimeout(() => store.rest(), REST_MS);
      else void store.refresh();
    };
    const wake = (): void => void store.refresh();
    const onMessage = (event: MessageEvent<Changed>): void => {
      if (event.data.chatId === store.snapshot().chatId) void store.refresh();
      listChanged();
    };
    document.addEventListener('visibilitychange', onVisible);
    addEventListener('online', wake);
    addEventListener('focus', wake);
    channel.addEventListener('message', onMessage);
    return () => {
      clearTimeout(resting);
      document.removeEventListener('visibilitychange', onVisible);
      removeEventListener('online', wake);
      removeEventListener('focus', wake);
      channel.removeEventListener('message', onMessage);
    };
  });

  useEffect(
    () => () => {
      held.store?.dispose();
      held.store = null;
      channel.close();
    },
    [held, channel],
  );

  return [store, useSyncExternalStore(store.subscribe, store.snapshot)];
}

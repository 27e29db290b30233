import { keepPreviousData, useInfiniteQuery } from '@tanstack/react-query';
import type { ChatSummary } from '../api/types';
import { useSession } from '../session';

const PAGE = 40;
const RUNNING_POLL_MS = 5_000;

interface ChatsPage {
  items: ChatSummary[];
  next_cursor: string | null;
}

/** The person's chats, newest first, page by page. `search` filters by title on the server. */
export function useChats(search = '') {
  const { api } = useSession();
  return useInfiniteQuery({
    queryKey: ['chats', search],
    initialPageParam: '',
    // What was found for the last letters stays until the next answer is here.
    placeholderData: search ? keepPreviousData : undefined,
    queryFn: ({ pageParam, signal }) =>
      api.get<ChatsPage>('/assistant/chats', { limit: PAGE, cursor: pageParam, q: search }, signal),
    getNextPageParam: (page) => page.next_cursor,
    // A chat that runs elsewhere ends without telling this page.
    refetchInterval: (query) =>
      query.state.data?.pages.some((page) => page.items.some((chat) => chat.is_running)) ? RUNNING_POLL_MS : false,
  });
}

export interface ChatGroup {
  label: string;
  chats: ChatSummary[];
}

const DAY_MS = 86_400_000;

/** Chats under Today, Yesterday, Previous 7 days and Older, by the reader's own midnight. */
export function groupByDay(chats: readonly ChatSummary[], now: Date): ChatGroup[] {
  const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime();
  const labelOf = (chat: ChatSummary): string => {
    const at = Date.parse(chat.updated_at);
    if (at >= midnight) return 'Today';
    if (at >= midnight - DAY_MS) return 'Yesterday';
    return at >= midnight - 7 * DAY_MS ? 'Previous 7 days' : 'Older';
  };
  const groups: ChatGroup[] = [];
  for (const chat of chats) {
    const label = labelOf(chat);
    const group = groups.find((candidate) => candidate.label === label);
    if (group) group.chats.push(chat);
    else groups.push({ label, chats: [chat] });
  }
  return groups;
}

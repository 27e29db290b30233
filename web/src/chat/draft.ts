import { useCallback, useState } from 'react';
import { useSession } from '../session';

const keyOf = (organizationId: string, chatId: string | null): string => `parley.draft.${organizationId}.${chatId ?? 'new'}`;

function stored(key: string): string {
  try {
    return sessionStorage.getItem(key) ?? '';
  } catch {
    return '';
  }
}

function store(key: string, text: string): void {
  try {
    if (text) sessionStorage.setItem(key, text);
    else sessionStorage.removeItem(key);
  } catch {
    // Without storage the draft lives as long as the page.
  }
}

/** Puts text into the composer of the organization's next new chat. */
export function rememberDraft(organizationId: string, text: string): void {
  store(keyOf(organizationId, null), text);
}

/** What was typed and not sent, kept for each chat of each organization while the tab is open. */
export function useDraft(chatId: string | null): [string, (text: string) => void] {
  const { organization } = useSession();
  const key = keyOf(organization.id, chatId);
  const [drafts, setDrafts] = useState<Record<string, string>>({});
  const set = useCallback(
    (text: string) => {
      setDrafts((before) => ({ ...before, [key]: text }));
      store(key, text);
    },
    [key],
  );
  return [drafts[key] ?? stored(key), set];
}

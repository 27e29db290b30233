import { useSyncExternalStore } from 'react';

/** What this browser remembers for itself. The theme is also read by public/theme.js, before the first paint. */
export interface Preferences {
  theme: 'system' | 'light' | 'dark';
  /** Scroll along with a reply that is being written. */
  follow: boolean;
  enterSends: boolean;
}

const KEY = 'parley.preferences';
const DEFAULTS: Preferences = { theme: 'system', follow: true, enterSends: true };
const darkSystem = matchMedia('(prefers-color-scheme: dark)');

function read(): Preferences {
  try {
    return { ...DEFAULTS, ...(JSON.parse(localStorage.getItem(KEY) ?? '{}') as Partial<Preferences>) };
  } catch {
    return DEFAULTS;
  }
}

let current = read();
const listeners = new Set<() => void>();

function changed(): void {
  const dark = current.theme === 'dark' || (current.theme === 'system' && darkSystem.matches);
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  for (const listener of listeners) listener();
}

darkSystem.addEventListener('change', changed);
addEventListener('storage', (event) => {
  if (event.key !== KEY) return;
  current = read();
  changed();
});

export function setPreferences(change: Partial<Preferences>): void {
  current = { ...current, ...change };
  try {
    localStorage.setItem(KEY, JSON.stringify(current));
  } catch {
    // Storage may be closed to us; the choice then holds for this page.
  }
  changed();
}

export function usePreferences(): Preferences {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => current,
  );
}

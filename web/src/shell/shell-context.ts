import { createContext, useContext } from 'react';

export interface Shell {
  openSidebar: () => void;
  closeDrawer: () => void;
  /** Whether the sidebar stands beside the page, on screens wide enough for it. */
  sidebarShown: boolean;
  openSearch: () => void;
}

export const ShellContext = createContext<Shell>({
  openSidebar: () => {},
  closeDrawer: () => {},
  sidebarShown: true,
  openSearch: () => {},
});

export const useShell = (): Shell => useContext(ShellContext);

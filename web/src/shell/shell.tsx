import { type ReactNode, useCallback, useEffect, useMemo, useState } from 'react';
import { useLocation } from 'wouter';
import { COMPOSER_ID } from '../chat/composer';
import { Dialog } from '../ui/dialog';
import { useModal } from '../ui/modal';
import { MAIN_ID } from './page';
import { SearchDialog } from './search-dialog';
import { type Shell as ShellValue, ShellContext } from './shell-context';
import { Sidebar } from './sidebar';

const SHORTCUTS: readonly [string, string][] = [
  ['Ctrl K', 'Search chats'],
  ['Ctrl Shift O', 'New chat'],
  ['Ctrl Shift S', 'Show or hide the sidebar'],
  ['Shift Esc', 'Go to the message box'],
  ['Esc', 'Close what is open, else stop the turn'],
  ['Enter', 'Send (see Settings)'],
  ['Shift Enter', 'New line'],
  ['Ctrl /', 'This list'],
];

const isNarrow = (): boolean => matchMedia('(max-width: 759px)').matches;

function Shortcuts({ onClose }: { onClose: () => void }) {
  const mac = navigator.platform.startsWith('Mac');
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose}>
      <dl className="shortcuts">
        {SHORTCUTS.map(([keys, what]) => (
          <div key={keys}>
            <dt>{what}</dt>
            <dd>
              {keys.split(' ').map((key) => (
                <kbd key={key}>{mac && key === 'Ctrl' ? '⌘' : key}</kbd>
              ))}
            </dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}

/** The drawer of narrow screens: a modal dialog, so that focus stays in it and comes back. */
function Drawer({ onClose, children }: { onClose: () => void; children: ReactNode }) {
  const element = useModal();
  return (
    <dialog
      ref={element}
      className="drawer"
      aria-label="Sidebar"
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onMouseDown={(event) => {
        if (event.target === element.current) onClose();
      }}
    >
      {children}
    </dialog>
  );
}

type Open = 'none' | 'drawer' | 'search' | 'shortcuts';

/** Sidebar, page, and the keys that work everywhere. */
export function Shell({ children }: { children: ReactNode }) {
  const [open, setOpen] = useState<Open>('none');
  const [sidebarShown, setSidebarShown] = useState(true);
  const [location, navigate] = useLocation();

  useEffect(() => setOpen((now) => (now === 'drawer' ? 'none' : now)), [location]);

  const toggleSidebar = useCallback(() => {
    if (isNarrow()) setOpen((now) => (now === 'drawer' ? 'none' : 'drawer'));
    else setSidebarShown((shown) => !shown);
  }, []);

  useEffect(() => {
    const keys: Record<string, () => void> = {
      k: () => setOpen('search'),
      '/': () => setOpen('shortcuts'),
    };
    const shiftKeys: Record<string, () => void> = { o: () => navigate('/'), s: toggleSidebar };
    const onKey = (event: KeyboardEvent): void => {
      if (event.key === 'Escape' && event.shiftKey) {
        event.preventDefault();
        document.getElementById(COMPOSER_ID)?.focus();
        return;
      }
      if (!event.ctrlKey && !event.metaKey) return;
      const act = (event.shiftKey ? shiftKeys : keys)[event.key.toLowerCase()];
      if (!act) return;
      event.preventDefault();
      act();
    };
    document.addEventListener('keydown', onKey);
    return () => document.removeEventListener('keydown', onKey);
  }, [navigate, toggleSidebar]);

  const shell = useMemo<ShellValue>(
    () => ({
      openSidebar: toggleSidebar,
      closeDrawer: () => setOpen('none'),
      sidebarShown,
      openSearch: () => setOpen('search'),
    }),
    [toggleSidebar, sidebarShown],
  );

  return (
    <ShellContext.Provider value={shell}>
      <a className="skip-link" href={`#${MAIN_ID}`} onClick={(event) => {
        event.preventDefault();
        document.getElementById(MAIN_ID)?.focus();
      }}>
        Skip to the content
      </a>
      <div className={sidebarShown ? 'shell' : 'shell no-sidebar'}>
        <div className="sidebar-place">{sidebarShown && <Sidebar />}</div>
        {children}
      </div>
      {open === 'drawer' && (
        <Drawer onClose={() => setOpen('none')}>
          <Sidebar />
        </Drawer>
      )}
      {open === 'search' && <SearchDialog onClose={() => setOpen('none')} />}
      {open === 'shortcuts' && <Shortcuts onClose={() => setOpen('none')} />}
    </ShellContext.Provider>
  );
}

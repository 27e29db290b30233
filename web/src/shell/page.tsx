import { type ReactNode, useEffect } from 'react';
import { Icon } from '../ui/icon';
import { useShell } from './shell-context';

export const MAIN_ID = 'main';

/** One page: its bar with the only h1, and its content. */
export function Page({
  title,
  actions,
  className = '',
  children,
}: {
  title: string;
  actions?: ReactNode;
  className?: string;
  children: ReactNode;
}) {
  const { openSidebar, sidebarShown } = useShell();
  useEffect(() => {
    document.title = `${title} · Parley`;
  }, [title]);
  return (
    <main id={MAIN_ID} className={`page ${className}`} tabIndex={-1}>
      <header className="page-bar">
        <button
          type="button"
          className={sidebarShown ? 'button quiet icon-only only-narrow' : 'button quiet icon-only'}
          aria-label="Open the sidebar"
          onClick={openSidebar}
        >
          <Icon name="menu" />
        </button>
        <h1 title={title}>{title}</h1>
        <span className="spacer" />
        {actions}
      </header>
      {children}
    </main>
  );
}

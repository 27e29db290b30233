import type { ReactNode } from 'react';
import { Icon } from './icon';

/** Longer lists of actions get a search box. */
export const SEARCH_FROM = 8;

/** One thing an integration can do: a line that opens to all there is to know of it. */
export function ActionRow({
  title,
  badges,
  description,
  children,
}: {
  title: string;
  badges: ReactNode;
  description: string;
  children: ReactNode;
}) {
  return (
    <details className="action">
      <summary>
        <Icon name="forward" size={16} />
        <span className="row-main">
          <span className="row-title">
            {title}
            {badges}
          </span>
          <span className="row-detail">{description}</span>
        </span>
      </summary>
      <div className="action-body">{children}</div>
    </details>
  );
}

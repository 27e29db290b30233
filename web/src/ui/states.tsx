import type { ReactNode } from 'react';
import { hasStatus } from '../api/client';
import { problemSentence } from '../api/problem';
import { Icon, type IconName } from './icon';

/** Grey lines where a list will be. */
export function Skeleton({ lines = 4 }: { lines?: number }) {
  return (
    <div className="skeleton" role="status" aria-label="Loading">
      {Array.from({ length: lines }, (_, index) => (
        <div key={index} className="skeleton-line" />
      ))}
    </div>
  );
}

/** What a list says when it holds nothing, with the next step. */
export function Empty({ icon, title, children }: { icon: IconName; title: string; children?: ReactNode }) {
  return (
    <div className="empty">
      <span className="empty-icon">
        <Icon name={icon} size={26} />
      </span>
      <p className="empty-title">{title}</p>
      {children && <div className="empty-text">{children}</div>}
    </div>
  );
}

/** What a page says when its data could not be had. A missing role leaves the rest of the page readable. */
export function Failed({ problem, onRetry }: { problem: unknown; onRetry?: () => void }) {
  const role = hasStatus(problem, 403);
  return (
    <div className="notice danger" role="alert">
      <Icon name={role ? 'shield' : 'alert'} />
      <div className="notice-text">
        {problemSentence(problem)}
      </div>
      {onRetry && !role && (
        <button type="button" className="button small" onClick={onRetry}>
          Try again
        </button>
      )}
    </div>
  );
}

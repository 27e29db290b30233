import { useEffect, useState } from 'react';
import { Link } from 'wouter';
import { Icon } from '../ui/icon';
import type { Notice } from './store';

/** Seconds left until a refused request may be tried again. */
function useCountdown(notice: Notice): number {
  const until = notice.at + (notice.problem.retryAfterSeconds ?? 0) * 1_000;
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (until <= Date.now()) return;
    const timer = setInterval(() => setNow(Date.now()), 500);
    return () => clearInterval(timer);
  }, [until]);
  return Math.max(0, Math.ceil((until - now) / 1_000));
}

function NextStep({ notice, left, onRetry }: { notice: Notice; left: number; onRetry: () => void }) {
  const layer = notice.problem.denial?.layer;
  if (layer === 'credit' || layer === 'wallet' || layer === 'quota') {
    return (
      <Link href="/usage" className="button small">
        See usage
      </Link>
    );
  }
  if (notice.problem.status === 429) {
    return (
      <button type="button" className="button small" disabled={left > 0} onClick={onRetry}>
        {left > 0 ? `Retry in ${left} s` : 'Retry'}
      </button>
    );
  }
  return null;
}

/** What the last send, answer or stop was refused with. The text is still in the composer. */
export function NoticeBar({ notice, onRetry, onClose }: { notice: Notice; onRetry: () => void; onClose: () => void }) {
  const left = useCountdown(notice);
  const { problem } = notice;
  return (
    <div className={problem.denial ? 'notice warn' : 'notice danger'} role="alert">
      <Icon name="alert" />
      <div className="notice-text">{problem.message}</div>
      <NextStep notice={notice} left={left} onRetry={onRetry} />
      <button type="button" className="button quiet icon-only small" aria-label="Dismiss" onClick={onClose}>
        <Icon name="cross" size={16} />
      </button>
    </div>
  );
}

import { useEffect, useState } from 'react';
import { Icon } from './icon';

/** How long "Copied" stays. */
const SHOWN_MS = 1_600;

async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

/** For pages on plain http, where browsers offer no clipboard. */
function copyBySelection(text: string): boolean {
  const area = document.createElement('textarea');
  area.value = text;
  area.className = 'visually-hidden';
  document.body.append(area);
  area.select();
  const copied = document.execCommand('copy');
  area.remove();
  return copied;
}

/** Copies the text, and says so. */
export function CopyButton({ text, label, showLabel = false }: { text: string; label: string; showLabel?: boolean }) {
  const [outcome, setOutcome] = useState<'copied' | 'failed' | null>(null);
  useEffect(() => {
    if (outcome === null) return;
    const timer = setTimeout(() => setOutcome(null), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [outcome]);
  const said = outcome === 'copied' ? 'Copied' : outcome === 'failed' ? 'Could not copy' : label;
  return (
    <button
      type="button"
      className="button quiet small"
      aria-label={said}
      title={said}
      onClick={() => void copy(text).then((done) => setOutcome(done ? 'copied' : 'failed'))}
    >
      <Icon name={outcome === 'copied' ? 'check' : 'copy'} />
      {(showLabel || outcome !== null) && <span>{said}</span>}
    </button>
  );
}

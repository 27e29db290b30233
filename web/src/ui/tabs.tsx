import { type KeyboardEvent, type ReactNode, useEffect, useId } from 'react';

export interface Tab {
  key: string;
  label: ReactNode;
}

/** Tabs with arrow keys; the panel is the one child. */
export function Tabs({
  label,
  tabs,
  current,
  onChange,
  children,
}: {
  label: string;
  tabs: readonly Tab[];
  current: string;
  onChange: (key: string) => void;
  children: ReactNode;
}) {
  const id = useId();
  // On a small screen the list scrolls, and what is chosen must be in view; the page must stay where it is.
  useEffect(() => {
    const tab = document.getElementById(`${id}-${current}`);
    const list = tab?.parentElement;
    if (!tab || !list) return;
    const [at, frame] = [tab.getBoundingClientRect(), list.getBoundingClientRect()];
    if (at.left < frame.left) list.scrollLeft -= frame.left - at.left;
    else if (at.right > frame.right) list.scrollLeft += at.right - frame.right;
  }, [id, current]);
  const onKeyDown = (event: KeyboardEvent<HTMLDivElement>): void => {
    const at = tabs.findIndex((tab) => tab.key === current);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const next = event.key === 'Home' ? 0 : event.key === 'End' ? tabs.length - 1 : step === undefined ? null : at + step;
    if (next === null) return;
    event.preventDefault();
    const tab = tabs[(next + tabs.length) % tabs.length];
    if (!tab) return;
    onChange(tab.key);
    document.getElementById(`${id}-${tab.key}`)?.focus();
  };
  return (
    <div className="tabs">
      <div role="tablist" aria-label={label} className="tab-list" onKeyDown={onKeyDown}>
        {tabs.map((tab) => (
          <button
            key={tab.key}
            id={`${id}-${tab.key}`}
            type="button"
            role="tab"
            aria-selected={tab.key === current}
            aria-controls={tab.key === current ? `${id}-panel` : undefined}
            tabIndex={tab.key === current ? 0 : -1}
            onClick={() => onChange(tab.key)}
          >
            {tab.label}
          </button>
        ))}
      </div>
      <div role="tabpanel" id={`${id}-panel`} aria-labelledby={`${id}-${current}`} className="tab-panel">
        {children}
      </div>
    </div>
  );
}

import { type ReactNode, useId } from 'react';
import { Icon } from './icon';
import { useModal } from './modal';

/**
 * A modal dialog on the browser's own `<dialog>`: it traps focus, closes on Escape and gives focus
 * back. A component library's would inject a style element, which our security policy refuses.
 */
export function Dialog({
  title,
  onClose,
  children,
  wide = false,
}: {
  title: string;
  onClose: () => void;
  children: ReactNode;
  wide?: boolean;
}) {
  const element = useModal();
  const titleId = useId();
  return (
    <dialog
      ref={element}
      className={wide ? 'dialog wide' : 'dialog'}
      aria-labelledby={titleId}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onMouseDown={(event) => {
        if (event.target === element.current) onClose();
      }}
    >
      <div className="dialog-body">
        <header className="dialog-head">
          <h2 id={titleId}>{title}</h2>
          <button type="button" className="button quiet icon-only" aria-label="Close" onClick={onClose}>
            <Icon name="cross" />
          </button>
        </header>
        {children}
      </div>
    </dialog>
  );
}

/** Asks before something is done that cannot be taken back. */
export function ConfirmDialog({
  title,
  children,
  verb,
  keep = 'Keep it',
  busy = false,
  problem = null,
  onConfirm,
  onClose,
}: {
  title: string;
  children: ReactNode;
  verb: string;
  /** What the way out is called. */
  keep?: string;
  busy?: boolean;
  problem?: string | null;
  onConfirm: () => void;
  onClose: () => void;
}) {
  return (
    <Dialog title={title} onClose={onClose}>
      <div className="stack">
        {children}
        {problem && (
          <p className="field-problem" role="alert">
            {problem}
          </p>
        )}
        <div className="dialog-actions">
          <button type="button" className="button" onClick={onClose}>
            {keep}
          </button>
          <button type="button" className="button danger" disabled={busy} onClick={onConfirm}>
            {verb}
          </button>
        </div>
      </div>
    </Dialog>
  );
}

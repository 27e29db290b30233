import { Fragment, type KeyboardEvent, type ReactNode, useCallback, useEffect, useId, useRef, useState } from 'react';
import { Icon, type IconName } from './icon';

export interface MenuItem {
  key: string;
  label: string;
  detail?: string;
  icon?: IconName;
  danger?: boolean;
  /** Given: the item is one of a group of which one is chosen. */
  checked?: boolean;
  onSelect: () => void;
}

export interface MenuGroup {
  key: string;
  label?: string;
  items: MenuItem[];
}

const EDGE = 8;

/** Puts the panel by its button, on the side where there is room. */
function place(panel: HTMLElement, trigger: HTMLElement): void {
  const at = trigger.getBoundingClientRect();
  const size = panel.getBoundingClientRect();
  const above = at.top - size.height - 4;
  const below = at.bottom + 4;
  const fits = below + size.height <= innerHeight - EDGE;
  const top = fits ? below : Math.max(EDGE, above);
  const left = Math.min(Math.max(EDGE, at.left), Math.max(EDGE, innerWidth - size.width - EDGE));
  panel.style.top = `${top}px`;
  panel.style.left = `${left}px`;
}

function itemsIn(panel: HTMLElement | null): HTMLElement[] {
  return panel ? Array.from(panel.querySelectorAll<HTMLElement>('[role^="menuitem"]')) : [];
}

/** A button that opens a menu, by mouse and by keyboard (arrows, Home, End, first letters, Escape). */
export function Menu({
  label,
  trigger,
  groups,
  triggerClass = 'button quiet icon-only',
  triggerSpeaks = false,
  footer,
}: {
  label: string;
  trigger: ReactNode;
  groups: MenuGroup[];
  triggerClass?: string;
  /** The trigger's own words name it; otherwise `label` does. */
  triggerSpeaks?: boolean;
  footer?: ReactNode;
}) {
  const [open, setOpen] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const panel = useRef<HTMLDivElement>(null);
  const id = useId();

  const close = useCallback((giveFocusBack: boolean) => {
    setOpen(false);
    if (giveFocusBack) button.current?.focus();
  }, []);

  useEffect(() => {
    const element = panel.current;
    if (!open || !element || !button.current) return;
    element.showPopover();
    place(element, button.current);
    const items = itemsIn(element);
    (items.find((item) => item.getAttribute('aria-checked') === 'true') ?? items[0])?.focus();
    const outside = (event: PointerEvent): void => {
      const target = event.target as Node;
      if (!element.contains(target) && !button.current?.contains(target)) close(false);
    };
    document.addEventListener('pointerdown', outside);
    return () => document.removeEventListener('pointerdown', outside);
  }, [open, close]);

  const onKeyDown = (event: KeyboardEvent): void => {
    const items = itemsIn(panel.current);
    const at = items.indexOf(document.activeElement as HTMLElement);
    const go = (index: number): void => {
      event.preventDefault();
      items[(index + items.length) % items.length]?.focus();
    };
    if (event.key === 'ArrowDown') go(at + 1);
    else if (event.key === 'ArrowUp') go(at - 1);
    else if (event.key === 'Home') go(0);
    else if (event.key === 'End') go(items.length - 1);
    else if (event.key === 'Escape') {
      event.preventDefault();
      event.stopPropagation();
      close(true);
    } else if (event.key === 'Tab') close(false);
    else if (event.key.length === 1 && !event.ctrlKey && !event.metaKey) {
      const letter = event.key.toLowerCase();
      const rotated = [...items.slice(at + 1), ...items.slice(0, at + 1)];
      rotated.find((item) => item.textContent?.trim().toLowerCase().startsWith(letter))?.focus();
    }
  };

  return (
    <>
      <button
        ref={button}
        type="button"
        className={triggerClass}
        aria-haspopup="menu"
        aria-expanded={open}
        aria-controls={open ? id : undefined}
        aria-label={triggerSpeaks ? undefined : label}
        onClick={() => setOpen(!open)}
        onKeyDown={(event) => {
          if (!open && event.key === 'ArrowDown') {
            event.preventDefault();
            setOpen(true);
          }
        }}
      >
        {trigger}
      </button>
      {open && (
        <div ref={panel} id={id} popover="manual" className="menu" onKeyDown={onKeyDown}>
          <div role="menu" aria-label={label}>
            {groups.map((group) => (
              <Fragment key={group.key}>
                {/* A heading for the eye; each item's own words are complete without it. */}
                {group.label && (
                  <div className="menu-label" aria-hidden="true">
                    {group.label}
                  </div>
                )}
                {group.items.map((item) => (
                  <Item key={item.key} item={item} close={close} />
                ))}
              </Fragment>
            ))}
          </div>
          {footer && <div className="menu-footer">{footer}</div>}
        </div>
      )}
    </>
  );
}

function Item({ item, close }: { item: MenuItem; close: (giveFocusBack: boolean) => void }) {
  return (
    <button
      type="button"
      role={item.checked === undefined ? 'menuitem' : 'menuitemradio'}
      aria-checked={item.checked}
      tabIndex={-1}
      className={item.danger ? 'menu-item danger' : 'menu-item'}
      onClick={() => {
        close(true);
        item.onSelect();
      }}
    >
      {item.icon && <Icon name={item.icon} />}
      <span className="menu-text">
        {item.label}
        {item.detail && <small>{item.detail}</small>}
      </span>
      {item.checked && <Icon name="check" />}
    </button>
  );
}

import { type RefObject, useLayoutEffect, useRef } from 'react';

/**
 * Opens the `<dialog>` as long as it is shown: the browser keeps the focus inside and gives it back
 * at the end. Where there is something to fill in, the focus begins there. It has to be closed before it leaves the page, or there is nobody left to give it back.
 */
export function useModal(): RefObject<HTMLDialogElement | null> {
  const element = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const dialog = element.current;
    const before = document.activeElement;
    dialog?.showModal();
    // The browser would begin at the button that closes it.
    dialog?.querySelector<HTMLElement>('input, textarea')?.focus();
    return () => {
      dialog?.close();
      // What opened it may be gone by now, with the page it was on.
      const back = before?.isConnected ? before : document.querySelector('main');
      if (back instanceof HTMLElement) back.focus();
    };
  }, []);
  return element;
}

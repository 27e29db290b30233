import { type RefObject, useCallback, useEffect, useRef, useState } from 'react';

/** This near the end counts as at the end. */
const NEAR_PX = 40;
const CARD_GAP_PX = 12;

export interface Follow {
  /** Whether the newest text is in view. */
  atEnd: boolean;
  toEnd: (smoothly?: boolean) => void;
}

/**
 * Keeps the end of a growing thread in view while the reader is there, and never moves one who went up.
 *
 * Only a scroll upwards lets go: judging by the gap alone lets go by itself when text grows faster
 * than scroll events arrive.
 */
export function useFollow(
  scroller: RefObject<HTMLElement | null>,
  content: RefObject<HTMLElement | null>,
  enabled: boolean,
): Follow {
  const [atEnd, setAtEnd] = useState(true);
  const stuck = useRef(true);
  const lastTop = useRef(0);
  const active = useRef(enabled);
  active.current = enabled;

  const toEnd = useCallback(
    (smoothly = false) => {
      const element = scroller.current;
      if (!element) return;
      stuck.current = true;
      setAtEnd(true);
      const calm = matchMedia('(prefers-reduced-motion: reduce)').matches;
      element.scrollTo({ top: element.scrollHeight, behavior: smoothly && !calm ? 'smooth' : 'instant' });
    },
    [scroller],
  );

  useEffect(() => {
    const element = scroller.current;
    const inner = content.current;
    if (!element || !inner) return;
    // A question too tall for the view is read from its beginning.
    const goal = (): number => {
      const card = inner.querySelector('[data-question]');
      if (!card || card.clientHeight <= element.clientHeight) return element.scrollHeight;
      return element.scrollTop + card.getBoundingClientRect().top - element.getBoundingClientRect().top - CARD_GAP_PX;
    };
    const gap = (): number => element.scrollHeight - element.scrollTop - element.clientHeight;
    const onScroll = (): void => {
      const top = element.scrollTop;
      if (top < lastTop.current - 1 && gap() > NEAR_PX) stuck.current = false;
      else if (gap() <= NEAR_PX) stuck.current = true;
      lastTop.current = top;
      setAtEnd(stuck.current || gap() <= NEAR_PX);
    };
    const grown = new ResizeObserver(() => {
      if (stuck.current && active.current) element.scrollTop = goal();
      else setAtEnd(gap() <= NEAR_PX);
    });
    element.addEventListener('scroll', onScroll, { passive: true });
    grown.observe(inner);
    grown.observe(element);
    return () => {
      element.removeEventListener('scroll', onScroll);
      grown.disconnect();
    };
  }, [scroller, content]);

  return { atEnd, toEnd };
}

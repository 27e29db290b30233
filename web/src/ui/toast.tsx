import { createContext, type ReactNode, useCallback, useContext, useRef, useState } from 'react';

/** How long a message stays. */
const SHOWN_MS = 5_000;

interface Toast {
  id: number;
  text: string;
}

const ToastContext = createContext<(text: string) => void>(() => {});

/** Says something in passing, to the eye and to a screen reader. */
export function useToast(): (text: string) => void {
  return useContext(ToastContext);
}

export function Toasts({ children }: { children: ReactNode }) {
  const [toasts, setToasts] = useState<readonly Toast[]>([]);
  const last = useRef(0);
  const show = useCallback((text: string) => {
    last.current += 1;
    const id = last.current;
    setToasts((shown) => [...shown.slice(-2), { id, text }]);
    setTimeout(() => setToasts((shown) => shown.filter((toast) => toast.id !== id)), SHOWN_MS);
  }, []);
  return (
    <ToastContext.Provider value={show}>
      {children}
      <div className="toasts" role="status" aria-live="polite">
        {toasts.map((toast) => (
          <div key={toast.id} className="toast">
            {toast.text}
          </div>
        ))}
      </div>
    </ToastContext.Provider>
  );
}

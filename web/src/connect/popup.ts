/** The sign-in window of a provider. */

const SIZE = { width: 560, height: 720 };

/** Opens the window. Call it straight from the click: after a wait, browsers block it. Null where one did. */
export function openPopup(): Window | null {
  const left = Math.max(0, screenX + (outerWidth - SIZE.width) / 2);
  const top = Math.max(0, screenY + (outerHeight - SIZE.height) / 2);
  return open('about:blank', 'parley-connect', `popup,width=${SIZE.width},height=${SIZE.height},left=${left},top=${top}`);
}

/** The address if it is one a browser may be sent to: only http and https. */
export function webAddress(text: string): string | null {
  try {
    const url = new URL(text, location.origin);
    return url.protocol === 'https:' || url.protocol === 'http:' ? url.href : null;
  } catch {
    return null;
  }
}

/** A window that reads as closed may still be at work: a provider's page can cut our hold on it. */
export function seemsClosed(popup: Window | null): boolean {
  return popup !== null && popup.closed;
}

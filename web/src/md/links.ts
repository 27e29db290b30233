/** What a message may link to. */

export interface SafeLink {
  href: string;
  /** Where it goes, for people: a host, or an e-mail address. */
  destination: string;
}

/** The link if it is one that may be followed (http, https, mailto), else null. */
export function safeLink(href: string): SafeLink | null {
  // Control characters are how `java\nscript:` gets past a check.
  if (/[\u0000-\u0020\u007f]/.test(href.trim())) return null;
  let url: URL;
  try {
    url = new URL(href.trim());
  } catch {
    return null;
  }
  if (url.protocol === 'mailto:') return { href: url.href, destination: decodeURIComponentSafely(url.pathname) };
  if (url.protocol !== 'http:' && url.protocol !== 'https:') return null;
  if (url.username || url.password) return null;
  return { href: url.href, destination: url.host };
}

function decodeURIComponentSafely(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

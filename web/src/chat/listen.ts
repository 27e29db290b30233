import type { Api } from '../api/client';
import { NetworkProblem } from '../api/problem';
import { decodeEvent, type RunEvent } from './events';
import { FrameReader } from './sse';

/** The server sends a heartbeat every 15 s; this long without a byte means the connection is dead. */
export const SILENCE_MS = 40_000;

export interface Heard {
  event: RunEvent;
  /** Where the reader is after this event, in the server's own words; null where it does not say. */
  cursor: string | null;
}

/**
 * Reads one run's stream until the server closes it.
 *
 * Throws ApiProblem (404: no such run), NetworkProblem when the connection is lost or silent, and
 * the abort reason when `signal` fires.
 */
export async function listen(
  api: Api,
  chatId: string,
  runId: string,
  after: string | null,
  signal: AbortSignal,
  hear: (heard: Heard) => void,
): Promise<void> {
  const silence = new AbortController();
  const either = AbortSignal.any([signal, silence.signal]);
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  try {
    const response = await api.open('GET', `/assistant/chat/${chatId}/listen/${runId}`, {
      query: { after },
      headers: { Accept: 'text/event-stream' },
      signal: either,
    });
    const reader = response.body?.getReader();
    if (!reader) throw new NetworkProblem();
    const frames = new FrameReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
      for (const frame of frames.push(value)) {
        const event = decodeEvent(frame.data);
        if (!event) continue;
        hear({ event, cursor: frame.id });
      }
    }
  } catch (problem) {
    if (signal.aborted) throw signal.reason;
    if (silence.signal.aborted || problem instanceof TypeError) throw new NetworkProblem();
    throw problem;
  } finally {
    clearTimeout(timer);
  }
}

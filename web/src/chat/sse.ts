/** Server-sent events out of raw bytes, in whatever pieces they come. */

export interface Frame {
  /** The frame's own `id:` line; null where it has none. */
  id: string | null;
  data: string;
}

/** Feed it chunks; it gives back the frames that are complete. Comment and `event:` lines are dropped. */
export class FrameReader {
  private readonly decoder = new TextDecoder();
  private rest = '';
  private id: string | null = null;
  private data: string[] = [];

  push(bytes: Uint8Array): Frame[] {
    this.rest += this.decoder.decode(bytes, { stream: true });
    const frames: Frame[] = [];
    for (;;) {
      const end = this.rest.indexOf('\n');
      if (end < 0) return frames;
      const line = this.rest.slice(0, end).replace(/\r$/, '');
      this.rest = this.rest.slice(end + 1);
      this.line(line, frames);
    }
  }

  private line(line: string, frames: Frame[]): void {
    if (line === '') {
      if (this.data.length > 0) frames.push({ id: this.id, data: this.data.join('\n') });
      this.id = null;
      this.data = [];
      return;
    }
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'data') this.data.push(value);
    else if (field === 'id') this.id = value;
  }
}

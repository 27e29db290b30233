import { expect, test } from 'vitest';
import { FrameReader } from './sse';

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

function readAll(text: string, pieceSize: number): string[] {
  const whole = bytes(text);
  const reader = new FrameReader();
  const found: string[] = [];
  for (let at = 0; at < whole.length; at += pieceSize) {
    for (const frame of reader.push(whole.slice(at, at + pieceSize))) found.push(`${frame.id ?? '-'}|${frame.data}`);
  }
  return found;
}

const TRACE = 'id: 1\ndata: {"a":"é😀"}\n\n: comment\n\ndata: two\r\n\r\nid: 3\ndata: one\ndata: line\n\n';

test('frames are the same however the bytes are cut, in the middle of a character too', () => {
  const expected = ['1|{"a":"é😀"}', '-|two', '3|one\nline'];
  for (let size = 1; size <= TRACE.length; size += 1) expect(readAll(TRACE, size)).toEqual(expected);
});

test('an unfinished frame is held back', () => {
  const reader = new FrameReader();
  expect(reader.push(bytes('data: half'))).toEqual([]);
  expect(reader.push(bytes('\n'))).toEqual([]);
  expect(reader.push(bytes('\n'))).toEqual([{ id: null, data: 'half' }]);
});

test('event lines and comments are no frames', () => {
  const reader = new FrameReader();
  expect(reader.push(bytes('event: x\n\n: ping\n\n'))).toEqual([]);
});

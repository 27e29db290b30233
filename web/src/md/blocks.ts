import { marked, type Token, type TokensList } from 'marked';

/** One top-level piece of a message: a paragraph, a list, a table, a code block. */
export interface Block {
  raw: string;
  token: Token;
  /** More text may still change it. */
  open: boolean;
}

/** Blocks that may still change when text is appended; everything before them is final. */
const OPEN_BLOCKS = 2;

function lex(text: string): TokensList {
  return marked.lexer(text, { gfm: true });
}

/** Splits a growing message into blocks, lexing only its end as it grows. */
export class BlockSplitter {
  private text = '';
  private blocks: readonly Block[] = [];
  private settled = false;

  /**
   * The blocks of `text`. Unchanged blocks are the same objects as before, so that they need not be
   * drawn again. With `complete`, the whole text is lexed once more, because a late link definition
   * or a loose list may change blocks far above.
   */
  update(source: string, complete: boolean): readonly Block[] {
    const text = source.replace(/\r\n?/g, '\n');
    if (text === this.text && complete === this.settled) return this.blocks;
    const grows = !complete && !this.settled && text.startsWith(this.text);
    let frozen = grows ? this.frozenCount() : 0;
    let head = this.blocks.slice(0, frozen).map((block) => block.raw).join('');
    // The lexer may normalise a block's text; then its place cannot be told, and all is lexed again.
    if (!text.startsWith(head)) [frozen, head] = [0, ''];
    const kept = this.blocks.slice(0, frozen);
    const tokens = lex(text.slice(head.length));
    const reusable = complete && Object.keys(tokens.links).length > 0 ? [] : this.blocks.slice(frozen);
    const tail = tokens.map((token, index): Block => {
      const open = !complete && index === tokens.length - 1;
      const old = reusable[index];
      return old && old.raw === token.raw && old.open === open ? old : { raw: token.raw, token, open };
    });
    this.blocks = [...kept, ...tail];
    this.text = text;
    this.settled = complete;
    return this.blocks;
  }

  private frozenCount(): number {
    let seen = 0;
    for (let index = this.blocks.length - 1; index >= 0; index -= 1) {
      if (this.blocks[index]?.token.type !== 'space') seen += 1;
      if (seen === OPEN_BLOCKS) return index;
    }
    return 0;
  }
}

/** Inline marks that would show as raw signs while their other half is still on its way. */
const HALF_OPEN: readonly [RegExp, string][] = [
  [/(?<!`)`(?!`)/g, '`'],
  [/\*\*/g, '**'],
  [/~~/g, '~~'],
];

/** Closes what a still-growing paragraph leaves half open, for drawing only. */
export function mend(raw: string): string {
  const half = /!?\[[^\]\n]*(\]\([^)\n]*)?$/.exec(raw);
  // A link that has not arrived whole is drawn as its text.
  let text = half ? raw.slice(0, half.index) + half[0].replace(/^!?\[/, '').replace(/\]\(.*$/, '') : raw;
  text = text.replace(/(\*{1,2}|_{1,2}|~{1,2}|`)$/, '');
  for (const [pattern, mark] of HALF_OPEN) {
    if ((text.match(pattern)?.length ?? 0) % 2 === 1) text += mark;
  }
  return text;
}

/** The inline tokens of a growing block, mended; the given ones where it is no plain text block. */
export function mendedToken(block: Block): Token {
  if (!block.open || (block.token.type !== 'paragraph' && block.token.type !== 'heading')) return block.token;
  const mended = mend(block.raw);
  if (mended === block.raw) return block.token;
  const first = lex(mended)[0];
  return first?.type === block.token.type ? first : block.token;
}

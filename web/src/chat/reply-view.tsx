import { Fragment, memo, type ReactNode, useEffect, useRef, useState } from 'react';
import { Markdown } from '../md/markdown';
import { QuestionView } from '../questions/question-view';
import { CopyButton } from '../ui/copy';
import { Dialog } from '../ui/dialog';
import { count, credits, decimal, duration, several } from '../ui/format';
import { Icon, Spinner } from '../ui/icon';
import type { Part, Reply, ToolPart } from './reply';
import { replyText } from './reply';
import { ToolCard, ToolGroup } from './tool-card';
import { isAsking, isDiscovery, type Source, sourcesOf } from './tool-view';

type Piece = { key: string; part: Part } | { key: string; group: ToolPart[] };

/** The parts in the order they are drawn, with look-ups in a row put together. */
function piecesOf(parts: readonly Part[]): Piece[] {
  const pieces: Piece[] = [];
  parts.forEach((part, index) => {
    if (part.kind === 'tool' && isAsking(part)) return;
    const last = pieces.at(-1);
    if (isDiscovery(part)) {
      if (last && 'group' in last) last.group.push(part);
      else pieces.push({ key: part.id, group: [part] });
      return;
    }
    pieces.push({ key: String(index), part });
  });
  return pieces;
}

function drawPart(part: Part, reply: Reply, last: boolean): ReactNode {
  switch (part.kind) {
    case 'text':
      return <Markdown text={part.text} streaming={reply.status === 'running' && last} />;
    case 'tool':
      return <ToolCard part={part} waiting={reply.status === 'awaiting'} />;
    case 'guidance':
      return (
        <p className="guidance">
          <Icon name="light" size={16} />
          <span>
            <span className="visually-hidden">Note to the assistant: </span>
            {part.message}
          </span>
        </p>
      );
    case 'question':
      return <QuestionView part={part} />;
  }
}

function UsageLine({ reply }: { reply: Reply }) {
  const { usage } = reply;
  const taken = reply.startedAt !== null && reply.endedAt !== null ? reply.endedAt - reply.startedAt : null;
  if (!usage) return null;
  const cost = usage.credits_micro === undefined ? null : credits(usage.credits_micro);
  const rows: [string, string][] = [
    ['Tokens in', count(usage.input_tokens)],
    ...(usage.cached_tokens ? ([['of these cached', count(usage.cached_tokens)]] as [string, string][]) : []),
    ['Tokens out', count(usage.output_tokens)],
    ['Model calls', count(usage.llm_calls)],
    ...(taken !== null && taken > 0 && taken < 86_400_000 ? ([['Time', duration(taken)]] as [string, string][]) : []),
    ...(cost ? ([['Cost', cost]] as [string, string][]) : []),
  ];
  return (
    <details className="usage">
      <summary>
        {several(usage.total_tokens, 'token')} · {several(usage.llm_calls, 'model call')}
        {cost && ` · ${cost}`}
      </summary>
      <dl className="receipt">
        {rows.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}

function Sources({ reply }: { reply: Reply }) {
  const [open, setOpen] = useState<Source | null>(null);
  const sources = sourcesOf(reply);
  if (sources.length === 0 || reply.status === 'running') return null;
  return (
    <div className="sources">
      <span className="muted">Sources</span>
      {sources.map((source, index) => (
        <button key={index} type="button" className="chip" onClick={() => setOpen(source)}>
          <Icon name="book" size={14} />
          {source.name}
          {source.page !== null && `, page ${source.page}`}
        </button>
      ))}
      {open && (
        <Dialog title={open.name} onClose={() => setOpen(null)}>
          <p className="muted">
            {[
              open.page === null ? '' : `Page ${open.page}`,
              open.headings.join(' › '),
              open.score === null ? '' : `Match ${decimal(open.score)}`,
            ]
              .filter(Boolean)
              .join(' · ')}
          </p>
          <p className="passage">{open.passage}</p>
        </Dialog>
      )}
    </div>
  );
}

function Working({ reply, link }: { reply: Reply; link: 'idle' | 'open' | 'reconnecting' }) {
  if (reply.status !== 'running') return null;
  if (link === 'reconnecting') {
    return (
      <p className="working">
        <Spinner /> Connection lost. Reconnecting…
      </p>
    );
  }
  const last = reply.parts.at(-1);
  if (last?.kind === 'text' || (last?.kind === 'tool' && last.output === undefined)) return null;
  return (
    <p className="working">
      <span className="dots" aria-hidden="true">
        <i />
        <i />
        <i />
      </span>
      <span className="visually-hidden">Thinking</span>
    </p>
  );
}

/** What the assistant said and did in one turn. */
export const ReplyView = memo(function ReplyView({
  reply,
  link,
  whole,
  onSeen,
  onRetry,
}: {
  reply: Reply;
  link: 'idle' | 'open' | 'reconnecting';
  /** Whether the record, and not only the stored text, is here. */
  whole: boolean;
  onSeen: () => void;
  /** Given for the last turn once it ended. */
  onRetry?: () => void;
}) {
  const element = useRef<HTMLElement>(null);
  useEffect(() => {
    const article = element.current;
    if (whole || !article || reply.status === 'running' || reply.status === 'awaiting') return;
    const seen = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) onSeen();
    });
    seen.observe(article);
    return () => seen.disconnect();
  }, [whole, onSeen, reply.status]);

  const pieces = piecesOf(reply.parts);
  const busy = reply.status === 'running';
  const text = replyText(reply);
  return (
    <article ref={element} className="reply" aria-label="Assistant" aria-busy={busy}>
      {pieces.map((piece, index) => (
        <Fragment key={piece.key}>
          {'group' in piece ? <ToolGroup parts={piece.group} /> : drawPart(piece.part, reply, index === pieces.length - 1)}
        </Fragment>
      ))}
      <Working reply={reply} link={link} />
      {reply.status === 'failed' && (
        <div className="notice danger" role="alert">
          <Icon name="alert" />
          <div className="notice-text">{reply.error ?? 'The turn failed.'}</div>
        </div>
      )}
      {reply.status === 'cancelled' && <p className="stopped">Stopped</p>}
      <Sources reply={reply} />
      {!busy && reply.status !== 'awaiting' && (
        <footer className="reply-foot">
          {text && <CopyButton text={text} label="Copy reply" />}
          {onRetry && (
            <button
              type="button"
              className="button quiet small"
              aria-label="Ask again"
              title="Ask the same again. It is a new turn and costs 1 credit."
              onClick={onRetry}
            >
              <Icon name="retry" />
            </button>
          )}
          <UsageLine reply={reply} />
        </footer>
      )}
    </article>
  );
});

import { memo, type ReactNode, useEffect, useState } from 'react';
import { Link } from 'wouter';
import type { Json } from '../api/types';
import { CopyButton } from '../ui/copy';
import { duration } from '../ui/format';
import { Icon, type IconName, Spinner } from '../ui/icon';
import { isObject } from './events';
import type { ToolPart } from './reply';
import { pretty, STATE_WORDS, stateOf, summaryOf, titleOf, type ToolState } from './tool-view';

/** A running tool shows its time only once it has taken this long. */
const PATIENCE_MS = 2_000;
/** The server cuts a result here before the model sees it. */
const RESULT_CAP = 8_000;

const ICONS: Record<ToolState, IconName> = {
  running: 'clock',
  waiting: 'question',
  done: 'check',
  failed: 'cross',
  needs: 'plug',
  limit: 'chart',
  declined: 'cross',
  stopped: 'stop',
};

/** Seconds since the tool began, ticking; empty for quick ones. */
function Elapsed({ since }: { since: number | null }) {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, []);
  const taken = since === null ? 0 : now - since;
  return taken > PATIENCE_MS ? <>{Math.round(taken / 1_000)} s</> : null;
}

function StateBadge({ state }: { state: ToolState }) {
  return (
    <span className={`tool-state ${state}`}>
      {state === 'running' ? <Spinner /> : <Icon name={ICONS[state]} size={14} />}
      {STATE_WORDS[state]}
    </span>
  );
}

function JsonBox({ label, value }: { label: string; value: Json | undefined }) {
  const shown = pretty(value);
  return (
    <div className="json-box">
      <div className="json-head">
        <span>{label}</span>
        <CopyButton text={shown} label={`Copy ${label.toLowerCase()}`} />
      </div>
      <pre tabIndex={0} role="region" aria-label={label}>
        {shown}
      </pre>
    </div>
  );
}

function resultOf(output: Json | undefined): Json | undefined {
  return isObject(output) && output.result !== undefined ? output.result : output;
}

function wasCut(output: Json | undefined): boolean {
  if (!isObject(output)) return false;
  return output.truncated === true || (typeof output.result === 'string' && output.result.length >= RESULT_CAP);
}

/** An organization's own MCP servers have a list of their own. */
function connectPage(name: string): string {
  return name.startsWith('mcp_') ? '/integrations?tab=servers' : `/integrations/${encodeURIComponent(name)}`;
}

function NextStep({ state, part }: { state: ToolState; part: ToolPart }): ReactNode {
  if (state === 'limit') {
    return (
      <p className="tool-next">
        The plan’s credits for managed tools are used up. <Link href="/usage">See usage</Link> or connect your own account.
      </p>
    );
  }
  if (state === 'needs') {
    const name = typeof part.input.integration_name === 'string' ? part.input.integration_name : '';
    return (
      <p className="tool-next">
        No working connection. <Link href={connectPage(name)}>Connect it</Link>
      </p>
    );
  }
  return null;
}

/** One tool call: a line that says what happened; its arguments and result open below. */
export const ToolCard = memo(function ToolCard({ part, waiting }: { part: ToolPart; waiting: boolean }) {
  const state = stateOf(part, waiting);
  const { who, what } = titleOf(part);
  const summary = summaryOf(part);
  const [open, setOpen] = useState<boolean | null>(null);
  const shown = open ?? state === 'failed';
  return (
    <details className={`tool ${state}`} open={shown} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <Icon name="forward" size={14} />
        <span className="tool-title">
          <span className="tool-who">{who}</span> <span className="tool-what">{what}</span>
        </span>
        {summary && <span className="tool-summary">{summary}</span>}
        <StateBadge state={state} />
        <span className="tool-time">
          {state === 'running' ? <Elapsed since={part.startedAt} /> : part.durationMs !== null && duration(part.durationMs)}
        </span>
      </summary>
      {shown && (
        <div className="tool-body">
          <NextStep state={state} part={part} />
          {state === 'failed' && <p className="tool-error">{summary}</p>}
          {part.tainted && (
            <p className="tool-next">
              <Icon name="shield" size={15} /> This came from outside your organization. It is treated as information, never as
              instructions, and far-reaching actions after it ask first.
            </p>
          )}
          <JsonBox label="Input" value={part.tool === 'execute_integration_tool' ? (part.input.parameters ?? part.input) : part.input} />
          {part.output !== undefined && <JsonBox label="Result" value={resultOf(part.output)} />}
          {wasCut(part.output) && <p className="tool-next">The result is cut at 8,000 characters, as the assistant saw it.</p>}
        </div>
      )}
    </details>
  );
});

/** Several look-ups in a row, as one line. */
export const ToolGroup = memo(function ToolGroup({ parts }: { parts: readonly ToolPart[] }) {
  const [only] = parts;
  if (parts.length === 1 && only) return <ToolCard part={only} waiting={false} />;
  const running = parts.some((part) => stateOf(part, false) === 'running');
  const failed = parts.some((part) => stateOf(part, false) === 'failed');
  const time = parts.reduce((sum, part) => sum + (part.durationMs ?? 0), 0);
  return (
    <details className="tool group">
      <summary>
        <Icon name="forward" size={14} />
        <span className="tool-title">
          <span className="tool-what">Looked up integrations ({parts.length})</span>
        </span>
        <StateBadge state={running ? 'running' : failed ? 'failed' : 'done'} />
        <span className="tool-time">{!running && time > 0 && duration(time)}</span>
      </summary>
      <div className="tool-body nested">
        {parts.map((part) => (
          <ToolCard key={part.id} part={part} waiting={false} />
        ))}
      </div>
    </details>
  );
});

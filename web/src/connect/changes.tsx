import type { ActionChanges } from '../api/types';
import { Notes } from './notes';

function Names({ title, names }: { title: string; names: readonly string[] }) {
  if (names.length === 0) return null;
  return (
    <div>
      <dt>{title}</dt>
      <dd>
        {names.map((name) => (
          <code key={name}>{name}</code>
        ))}
      </dd>
    </div>
  );
}

/** What looking again has found; `notes` say what else is to be known before it is taken over. */
export function Changes({ changes, notes = [] }: { changes: ActionChanges; notes?: readonly string[] }) {
  const rejected = Object.entries(changes.rejected);
  const same = changes.added.length + changes.removed.length + changes.changed.length + rejected.length === 0;
  const unchanged = notes.length > 0 ? 'Its actions are the same' : 'Nothing has changed';
  return (
    <section className="panel" aria-labelledby="changes" role="status">
      <h2 id="changes">{same ? unchanged : 'Since the last look'}</h2>
      <Notes notes={notes} />
      {!same && (
        <dl className="changes">
          <Names title="New" names={changes.added} />
          <Names title="Changed, to be reviewed again" names={changes.changed} />
          <Names title="Gone" names={changes.removed} />
          {rejected.map(([name, reason]) => (
            <div key={name}>
              <dt>Not offered</dt>
              <dd>
                <code>{name}</code> <span className="muted">{reason}</span>
              </dd>
            </div>
          ))}
        </dl>
      )}
    </section>
  );
}

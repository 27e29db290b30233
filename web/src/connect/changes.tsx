import type { ActionChanges } from '../api/types';

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

/** What looking again has found. */
export function Changes({ changes }: { changes: ActionChanges }) {
  const rejected = Object.entries(changes.rejected);
  const nothing = changes.added.length + changes.removed.length + changes.changed.length + rejected.length === 0;
  return (
    <section className="panel" aria-labelledby="changes" role="status">
      <h2 id="changes">{nothing ? 'Nothing has changed' : 'Since the last look'}</h2>
      {!nothing && (
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

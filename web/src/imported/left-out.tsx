import type { SeenApi } from '../api/types';

/** What of a document is not offered, and why; nothing where all of it is. */
export function LeftOut({ rejected }: { rejected: SeenApi['rejected'] }) {
  const all = Object.entries(rejected);
  if (all.length === 0) return null;
  return (
    <details>
      <summary>Not offered ({all.length})</summary>
      <dl className="changes">
        {all.map(([name, reason]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{reason}</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}

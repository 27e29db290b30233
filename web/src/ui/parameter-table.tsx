import type { ActionParameter } from '../api/types';

/** What an action takes, one row each. */
export function ParameterTable({ name, parameters }: { name: string; parameters: { [key: string]: ActionParameter } }) {
  const entries = Object.entries(parameters);
  if (entries.length === 0) return <p className="muted">No parameters.</p>;
  return (
    <div className="data-scroll" tabIndex={0} role="region" aria-label={`Parameters of ${name}`}>
      <table className="data">
        <thead>
          <tr>
            <th scope="col">Parameter</th>
            <th scope="col">Type</th>
            <th scope="col">What it is</th>
          </tr>
        </thead>
        <tbody>
          {entries.map(([key, parameter]) => (
            <tr key={key}>
              <td>
                <code>{key}</code>
                {parameter.required && <span className="muted"> required</span>}
              </td>
              <td>{parameter.type}</td>
              <td>{parameter.description}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

import { useMutation, useQueryClient } from '@tanstack/react-query';
import { problemSentence } from '../api/problem';
import type { ActionParameter, JsonObject, McpTool, McpTools } from '../api/types';
import { isObject } from '../chat/events';
import { useSession } from '../session';
import { Select } from '../ui/field';
import { several, words } from '../ui/format';
import { Icon } from '../ui/icon';
import { ParameterTable } from '../ui/parameter-table';
import { useToast } from '../ui/toast';

const UNKNOWN = '';
/** What a tool may do, and whether that asks every time. */
const EFFECTS: readonly { value: string; label: string; badge: string; asks: boolean }[] = [
  { value: 'read', label: 'Only looks something up', badge: 'Looks up', asks: false },
  { value: 'write', label: 'Changes something', badge: 'Changes', asks: false },
  { value: 'egress', label: 'Sends something out of the organization', badge: 'Sends out', asks: false },
  { value: 'infra', label: 'Changes production or infrastructure', badge: 'Infrastructure', asks: true },
  { value: 'identity', label: 'Changes who has access, or a secret', badge: 'Access', asks: true },
  { value: 'exec', label: 'Runs code or a command', badge: 'Runs code', asks: true },
  { value: 'money', label: 'Moves money or binds legally', badge: 'Money', asks: true },
  { value: 'destructive', label: 'Deletes, removes or cancels something', badge: 'Destructive', asks: true },
];

function typeOf(schema: JsonObject): string {
  const { type } = schema;
  if (typeof type === 'string') return type;
  return Array.isArray(type) ? type.filter((each) => typeof each === 'string').join(' or ') : 'any';
}

/** A tool's parameters as its schema names them. */
export function parametersOf(schema: JsonObject): { [name: string]: ActionParameter } {
  const { properties, required } = schema;
  if (!isObject(properties)) return {};
  const needed = new Set(Array.isArray(required) ? required : []);
  return Object.fromEntries(
    Object.entries(properties).map(([name, each]) => {
      const own = isObject(each) ? each : {};
      const description = typeof own.description === 'string' ? own.description : '';
      return [name, { type: typeOf(own), description, required: needed.has(name) }];
    }),
  );
}

function Tool({ tool, credentialId }: { tool: McpTool; credentialId: string }) {
  const { api } = useSession();
  const client = useQueryClient();
  const toast = useToast();
  const key = ['mcp-tools', credentialId];
  const review = useMutation({
    mutationFn: (effect: string) =>
      api.call<McpTools>('PUT', `/credentials/${credentialId}/mcp-tools`, {
        body: { reviews: [{ name: tool.name, fingerprint: tool.fingerprint, effect: effect === UNKNOWN ? null : effect }] },
      }),
    onSuccess: (tools) => {
      client.setQueryData(key, tools);
      toast('Noted.');
    },
    onError: async (problem) => {
      toast(problemSentence(problem));
      await client.invalidateQueries({ queryKey: key });
    },
  });
  const known = EFFECTS.find((each) => each.value === tool.effect);
  return (
    <details className="action">
      <summary>
        <Icon name="forward" size={16} />
        <span className="row-main">
          <span className="row-title">
            {tool.title || words(tool.name)}
            {known ? (
              <span className={known.asks ? 'badge danger' : 'badge ok'}>{known.badge}</span>
            ) : (
              <span className="badge warn">Not reviewed</span>
            )}
          </span>
          <span className="row-detail">{tool.description}</span>
        </span>
      </summary>
      <div className="action-body">
        <Select
          label={`What ${tool.name} does`}
          value={tool.effect ?? UNKNOWN}
          options={[
            { value: UNKNOWN, label: 'Not reviewed: asks first, every time' },
            ...EFFECTS.map(({ value, label, asks }) => ({ value, label: asks ? `${label}: asks first` : label })),
          ]}
          onChange={(effect) => review.mutate(effect)}
          hint="Go by what you know of the tool, not by what the server says. A tool that changes has to be reviewed again."
        />
        <ParameterTable name={tool.name} parameters={parametersOf(tool.input_schema)} />
      </div>
    </details>
  );
}

/** The tools of a server, and what people have said that each does. */
export function ServerTools({ found }: { found: McpTools }) {
  const { tools } = found;
  const open = tools.filter((tool) => tool.effect === null).length;
  return (
    <section className="panel" aria-labelledby="tools">
      <h2 id="tools">{several(tools.length, 'tool')}</h2>
      <p className="muted small-text">
        {tools.length === 0 && 'The server offers no tool.'}
        {tools.length > 0 && open === 0 && 'All of them are reviewed.'}
        {open > 0 &&
          `${open} of them ${open === 1 ? 'is' : 'are'} not reviewed and ${open === 1 ? 'asks' : 'ask'} first. Say what each does, and those that do no harm run at once.`}
      </p>
      <div>
        {tools.map((tool) => (
          <Tool key={tool.name} tool={tool} credentialId={found.credential_id} />
        ))}
      </div>
    </section>
  );
}

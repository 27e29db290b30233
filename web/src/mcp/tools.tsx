import { useMutation, useQueryClient } from '@tanstack/react-query';
import { problemSentence } from '../api/problem';
import type { EffectKind, McpTool, McpTools } from '../api/types';
import { EffectBadge, EffectSelect, parametersOf } from '../connect/effects';
import { useSession } from '../session';
import { ActionRow } from '../ui/action-row';
import { several, words } from '../ui/format';
import { ParameterTable } from '../ui/parameter-table';
import { useToast } from '../ui/toast';

function Tool({ tool, credentialId }: { tool: McpTool; credentialId: string }) {
  const { api } = useSession();
  const client = useQueryClient();
  const toast = useToast();
  const key = ['mcp-tools', credentialId];
  const review = useMutation({
    mutationFn: (effect: EffectKind | null) =>
      api.call<McpTools>('PUT', `/credentials/${credentialId}/mcp-tools`, {
        body: { reviews: [{ name: tool.name, fingerprint: tool.fingerprint, effect }] },
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
  return (
    <ActionRow title={tool.title || words(tool.name)} badges={<EffectBadge effect={tool.effect} />} description={tool.description}>
      <EffectSelect
        name={tool.name}
        effect={tool.effect}
        onChange={(effect) => review.mutate(effect)}
        hint="Go by what you know of the tool, not by what the server says. A tool that changes has to be reviewed again."
      />
      <ParameterTable name={tool.name} parameters={parametersOf(tool.input_schema)} />
    </ActionRow>
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

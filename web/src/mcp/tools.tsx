import { useQueryClient } from '@tanstack/react-query';
import type { McpTools } from '../api/types';
import { ReviewedActions } from '../connect/reviewed-actions';
import { useSession } from '../session';

/** The tools of a server, and what people have said that each does. */
export function ServerTools({ found }: { found: McpTools }) {
  const { api } = useSession();
  const client = useQueryClient();
  const key = ['mcp-tools', found.credential_id];
  return (
    <ReviewedActions
      noun="tool"
      actions={found.tools}
      hint="Go by what you know of the tool, not by what the server says. A tool that changes has to be reviewed again."
      review={async ({ name, fingerprint }, effect) => {
        try {
          const body = { reviews: [{ name, fingerprint, effect }] };
          client.setQueryData(key, await api.call<McpTools>('PUT', `/credentials/${found.credential_id}/mcp-tools`, { body }));
        } catch (problem) {
          await client.invalidateQueries({ queryKey: key });
          throw problem;
        }
      }}
    />
  );
}

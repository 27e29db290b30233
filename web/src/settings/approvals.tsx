import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useId, useState } from 'react';
import { problemSentence } from '../api/problem';
import { settingsQuery } from '../api/queries';
import type { ApprovalPolicy, OrganizationSettings } from '../api/types';
import { useSession } from '../session';
import { Failed, Skeleton } from '../ui/states';
import { useToast } from '../ui/toast';
import { isLooser, POLICIES } from './policies';

interface Option {
  policy: ApprovalPolicy | null;
  label: string;
  text: string;
}

/** The organization's choice. One that is looser than the operator's would not count, so it cannot be made. */
function PolicyForm({ settings }: { settings: OrganizationSettings }) {
  const { api } = useSession();
  const client = useQueryClient();
  const toast = useToast();
  const name = useId();
  const { approval_policy: present, operator_approval_policy: operator } = settings;
  const [chosen, setChosen] = useState(present);
  const save = useMutation({
    mutationFn: () => api.call('PUT', '/organizations/settings/approval-policy', { body: { approval_policy: chosen } }),
    onSuccess: async () => {
      await client.invalidateQueries({ queryKey: ['integration'] });
      await client.invalidateQueries({ queryKey: ['organization-settings'] });
      toast('The approval policy is set. It holds from the next message on.');
    },
  });
  const options: Option[] = [
    { policy: null, label: 'As this server does', text: `Now: ${POLICIES[operator].label.toLowerCase()}.` },
    ...(Object.keys(POLICIES) as ApprovalPolicy[]).map((policy) => ({ policy, ...POLICIES[policy] })),
  ];
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    save.mutate();
  };
  return (
    <form className="stack" onSubmit={submit}>
      <fieldset className="options" disabled={save.isPending}>
        <legend className="visually-hidden">Approval policy</legend>
        {options.map(({ policy, label, text }) => {
          const outdone = policy !== null && isLooser(policy, operator);
          return (
            <label key={label} className="option">
              <input type="radio" name={name} checked={chosen === policy} disabled={outdone} onChange={() => setChosen(policy)} />
              <span className="option-text">
                <span className="option-label">
                  {label}
                  {outdone && <span className="badge">This server is stricter</span>}
                </span>
                <span className="option-description">{text}</span>
              </span>
            </label>
          );
        })}
      </fieldset>
      {save.error && (
        <p className="notice danger" role="alert">
          Not saved. {problemSentence(save.error)}
        </p>
      )}
      <div>
        <button type="submit" className="button" disabled={chosen === present || save.isPending}>
          Save
        </button>
      </div>
    </form>
  );
}

/** When a person of the organization is asked before an action runs. */
export function Approvals() {
  const { api } = useSession();
  const settings = useQuery(settingsQuery(api));
  return (
    <section className="panel" aria-labelledby="approvals">
      <h2 id="approvals">Which actions ask first</h2>
      {settings.isPending && <Skeleton lines={5} />}
      {settings.error && <Failed problem={settings.error} onRetry={() => void settings.refetch()} />}
      {settings.data && <PolicyForm key={settings.data.approval_policy} settings={settings.data} />}
    </section>
  );
}

import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { problemSentence } from '../api/problem';
import { settingsQuery } from '../api/queries';
import { useSession } from '../session';
import { ConfirmDialog } from '../ui/dialog';
import { Field } from '../ui/field';
import { several } from '../ui/format';
import { Failed, Skeleton } from '../ui/states';
import { useToast } from '../ui/toast';

const MOST_DAYS = 36_500;
const FIRST_DAYS = 365;

function wordsOf(days: number | null): string {
  return days === null ? 'Chats are kept until somebody deletes them.' : `A chat is erased for good ${several(days, 'day')} after its last word.`;
}

/** The owner's choice. What is erased cannot be had back, so fewer days are asked about once more. */
function RetentionForm({ days }: { days: number | null }) {
  const { api, organization } = useSession();
  const client = useQueryClient();
  const toast = useToast();
  const [erases, setErases] = useState(days !== null);
  const [text, setText] = useState(String(days ?? FIRST_DAYS));
  const [asking, setAsking] = useState(false);
  const number = /^\d+$/.test(text.trim()) ? Number(text) : 0;
  const fits = number >= 1 && number <= MOST_DAYS;
  const wanted = erases ? number : null;
  const save = useMutation({
    mutationFn: () => api.call('PUT', '/organizations/settings/retention', { body: { chat_retention_days: wanted } }),
    onSuccess: async () => {
      await client.invalidateQueries({ queryKey: ['organization-settings'] });
      setAsking(false);
      toast(wordsOf(wanted));
    },
  });
  const sooner = wanted !== null && (days === null || wanted < days);
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (erases && !fits) return;
    if (sooner) setAsking(true);
    else save.mutate();
  };
  const problem = save.error ? problemSentence(save.error) : null;
  return (
    <form className="stack" onSubmit={submit}>
      <label className="check">
        <input type="checkbox" checked={erases} onChange={(event) => setErases(event.target.checked)} />
        <span>
          Erase old chats
          <span className="field-hint"> — with everything said and done in them, deleted chats too; only the figures stay</span>
        </span>
      </label>
      {erases && (
        <Field
          label="Days after the last word"
          inputMode="numeric"
          className="short"
          required
          value={text}
          problem={fits ? null : `A whole number of days, from 1 to ${MOST_DAYS.toLocaleString()}.`}
          onChange={(event) => setText(event.target.value)}
        />
      )}
      {problem && !asking && (
        <p className="notice danger" role="alert">
          {problem}
        </p>
      )}
      <div>
        <button type="submit" className="button" disabled={wanted === days || (erases && !fits) || save.isPending}>
          Save
        </button>
      </div>
      {asking && (
        <ConfirmDialog
          title="Erase old chats for good?"
          verb="Erase old chats"
          keep="Keep them"
          busy={save.isPending}
          problem={problem}
          onConfirm={() => save.mutate()}
          onClose={() => setAsking(false)}
        >
          <p>
            Every chat of {organization.name} without a word for {several(number, 'day')} is erased within minutes, and from then on as it
            grows that old. It cannot be brought back.
          </p>
        </ConfirmDialog>
      )}
    </form>
  );
}

/** How long the organization keeps its chats; owners choose, the others read. */
export function Retention() {
  const { api, organization } = useSession();
  const settings = useQuery(settingsQuery(api));
  const days = settings.data?.chat_retention_days ?? null;
  return (
    <section className="panel" aria-labelledby="retention">
      <h2 id="retention">How long chats are kept</h2>
      {settings.isPending && <Skeleton lines={1} />}
      {settings.error && <Failed problem={settings.error} onRetry={() => void settings.refetch()} />}
      {settings.data && organization.role === 'owner' && <RetentionForm key={String(days)} days={days} />}
      {settings.data && organization.role !== 'owner' && <p>{wordsOf(days)} An owner can change that.</p>}
    </section>
  );
}

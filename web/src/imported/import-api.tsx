import { useMutation, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { freshKey } from '../api/client';
import { problemSentence } from '../api/problem';
import type { EffectKind, ImportedApi, SeenApi } from '../api/types';
import { EffectBadge, EffectSelect, parametersOf } from '../connect/effects';
import { Notes } from '../connect/notes';
import { useSession } from '../session';
import { ActionRow } from '../ui/action-row';
import { Dialog } from '../ui/dialog';
import { Field } from '../ui/field';
import { several, words } from '../ui/format';
import { Spinner } from '../ui/icon';
import { ParameterTable } from '../ui/parameter-table';
import { Tabs } from '../ui/tabs';
import { LeftOut } from './left-out';
import { IMPORTED } from './queries';

/** An OpenAPI document as it is asked for: where it is, or all of it; and where its API is, if it does not say. */
interface Wish {
  url?: string;
  spec?: string;
  server_url?: string;
}

interface Looked {
  wish: Wish;
  seen: SeenApi;
}

/** The first step: which document. Nothing is stored by looking at it. */
function Source({ onLooked }: { onLooked: (looked: Looked) => void }) {
  const { api } = useSession();
  const [place, setPlace] = useState('address');
  const [address, setAddress] = useState('');
  const [file, setFile] = useState<File | null>(null);
  const [server, setServer] = useState('');
  const look = useMutation({
    mutationFn: async () => {
      const document = place === 'file' && file ? { spec: await file.text() } : { url: address.trim() };
      const wish: Wish = { ...document, ...(server.trim() ? { server_url: server.trim() } : {}) };
      return { wish, seen: await api.post<SeenApi>('/integrations/openapi', wish) };
    },
    onSuccess: onLooked,
  });
  const ready = place === 'file' ? file !== null : address.trim() !== '';
  return (
    <form
      className="stack"
      autoComplete="off"
      onSubmit={(event: FormEvent) => {
        event.preventDefault();
        if (ready && !look.isPending) look.mutate();
      }}
    >
      <p className="muted">An HTTP API with an OpenAPI 3 document, in JSON or YAML, becomes an integration of your organization.</p>
      <Tabs
        label="Where the document is"
        tabs={[
          { key: 'address', label: 'At an address' },
          { key: 'file', label: 'In a file' },
        ]}
        current={place}
        onChange={setPlace}
      >
        {place === 'file' ? (
          <Field
            key="file"
            label="Document"
            type="file"
            required
            accept=".json,.yaml,.yml,application/json,application/yaml"
            onChange={(event) => setFile(event.target.files?.[0] ?? null)}
          />
        ) : (
          <Field
            key="address"
            label="Address of the document"
            required
            inputMode="url"
            spellCheck={false}
            placeholder="https://api.example.com/openapi.json"
            value={address}
            onChange={(event) => setAddress(event.target.value)}
          />
        )}
      </Tabs>
      <Field
        label="Address of the API (optional)"
        inputMode="url"
        spellCheck={false}
        hint="Where the document names none, or another one is to be called."
        value={server}
        onChange={(event) => setServer(event.target.value)}
      />
      {look.error && (
        <p className="notice danger" role="alert">
          {problemSentence(look.error)}
        </p>
      )}
      <div className="dialog-actions">
        <button type="submit" className="button primary" disabled={!ready || look.isPending}>
          {look.isPending && <Spinner />}
          {look.isPending ? 'Reading…' : 'Look at it'}
        </button>
      </div>
    </form>
  );
}

/** The second step: what the document describes, and what each action does. Importing it is the review. */
function Seen({ looked, onBack, onImported }: { looked: Looked; onBack: () => void; onImported: (name: string) => void }) {
  const { api } = useSession();
  const client = useQueryClient();
  const { wish, seen } = looked;
  const [name, setName] = useState('');
  const [effects, setEffects] = useState<ReadonlyMap<string, EffectKind>>(new Map());
  /** Names this import as it is chosen now: sending it again cannot do it twice. */
  const [onceKey, setOnceKey] = useState(freshKey);
  const add = useMutation({
    mutationFn: () => {
      const named = name.trim() ? { display_name: name.trim() } : {};
      const body = { ...wish, ...named, digest: seen.digest, effects: Object.fromEntries(effects) };
      return api.post<ImportedApi>('/integrations/openapi', body, { 'Idempotency-Key': onceKey });
    },
    onSuccess: async (made) => {
      await client.invalidateQueries({ queryKey: IMPORTED });
      onImported(made.integration_name);
    },
  });
  const ways = seen.connect_by.map((way) => way.display_name).join(', ');
  return (
    <div className="stack">
      <div>
        <p>
          <strong>{seen.display_name}</strong> {seen.version}
        </p>
        {seen.description && <p className="clamped">{seen.description}</p>}
        <p className="small-text muted breakable">
          {seen.base_url} · {ways ? `connected by ${ways}` : 'needs no connection'}
        </p>
      </div>
      <Notes notes={seen.notes} />
      <Field
        label="Name (optional)"
        maxLength={255}
        placeholder={seen.display_name}
        value={name}
        onChange={(event) => {
          setName(event.target.value);
          setOnceKey(freshKey());
        }}
      />
      <section aria-labelledby="described">
        <h3 id="described">{several(seen.actions.length, 'action')}</h3>
        <p className="muted small-text">
          Each stands as its verb promises. Open what does more or less than that, and say so: importing counts as your review.
        </p>
        {seen.actions.map((action) => {
          const effect = effects.get(action.name) ?? action.proposed_effect;
          return (
            <ActionRow
              key={action.name}
              title={words(action.name)}
              badges={<EffectBadge effect={effect} />}
              description={action.description || `${action.method} ${action.path}`}
            >
              <p className="breakable">
                <code>
                  {action.method} {action.path}
                </code>
              </p>
              <EffectSelect
                name={action.name}
                effect={effect}
                onChange={(chosen) => {
                  if (chosen) setEffects(new Map(effects).set(action.name, chosen));
                  setOnceKey(freshKey());
                }}
              />
              <ParameterTable name={action.name} parameters={parametersOf(action.input_schema)} />
            </ActionRow>
          );
        })}
      </section>
      <LeftOut rejected={seen.rejected} />
      {add.error && (
        <p className="notice danger" role="alert">
          {problemSentence(add.error)}
        </p>
      )}
      <div className="dialog-actions">
        <button type="button" className="button" onClick={onBack}>
          Another document
        </button>
        <button type="button" className="button primary" disabled={add.isPending || seen.actions.length === 0} onClick={() => add.mutate()}>
          {add.isPending && <Spinner />} Import
        </button>
      </div>
    </div>
  );
}

/** Imports an API: a document is looked at, then taken over as it was seen. */
export function ImportApi({ onImported, onClose }: { onImported: (name: string) => void; onClose: () => void }) {
  const [looked, setLooked] = useState<Looked | null>(null);
  return (
    <Dialog title="Import an API" wide onClose={onClose}>
      {looked ? (
        <Seen looked={looked} onBack={() => setLooked(null)} onImported={onImported} />
      ) : (
        <Source onLooked={setLooked} />
      )}
    </Dialog>
  );
}

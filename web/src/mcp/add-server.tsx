import { useMutation, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { freshKey, hasStatus } from '../api/client';
import { problemSentence } from '../api/problem';
import type { Credential } from '../api/types';
import { OAUTH } from '../connect/fields';
import { OAuthConnect } from '../connect/oauth-connect';
import { MCP } from '../connect/place';
import { useSession } from '../session';
import { Dialog } from '../ui/dialog';
import { Field, SecretField } from '../ui/field';
import { Icon, Spinner } from '../ui/icon';

interface HeaderLine {
  key: string;
  name: string;
  value: string;
}

function Headers({ lines, onChange }: { lines: readonly HeaderLine[]; onChange: (lines: HeaderLine[]) => void }) {
  const change = (key: string, part: Partial<HeaderLine>): void =>
    onChange(lines.map((line) => (line.key === key ? { ...line, ...part } : line)));
  return (
    <fieldset className="header-lines">
      <legend>Headers (optional)</legend>
      <p className="field-hint">What the server wants with each request, such as Authorization with a token.</p>
      {lines.map((line) => (
        <div key={line.key} className="header-line">
          <Field
            label="Header"
            required
            autoComplete="off"
            placeholder="Authorization"
            value={line.name}
            onChange={(event) => change(line.key, { name: event.target.value })}
          />
          <SecretField
            label="Value"
            required
            value={line.value}
            onChange={(event) => change(line.key, { value: event.target.value })}
          />
          <button
            type="button"
            className="button quiet icon-only"
            aria-label={`Take the header ${line.name} away`}
            onClick={() => onChange(lines.filter((each) => each.key !== line.key))}
          >
            <Icon name="cross" />
          </button>
        </div>
      ))}
      <div>
        <button
          type="button"
          className="button small"
          onClick={() => onChange([...lines, { key: freshKey(), name: '', value: '' }])}
        >
          <Icon name="plus" size={16} /> Add a header
        </button>
      </div>
    </fieldset>
  );
}

/** Connects an MCP server: by its address, with headers, or with a sign-in where the server asks for one. */
export function AddServer({ onAdded, onClose }: { onAdded: (credentialId: string) => void; onClose: () => void }) {
  const { api } = useSession();
  const client = useQueryClient();
  const [address, setAddress] = useState('');
  const [name, setName] = useState('');
  const [headers, setHeaders] = useState<HeaderLine[]>([]);
  /** Names this server as it is described now: sending it again cannot connect it twice. */
  const [onceKey, setOnceKey] = useState(freshKey);
  const named = name.trim() ? { display_name: name.trim() } : {};
  const added = async (credentialId: string): Promise<void> => {
    await client.invalidateQueries({ queryKey: ['credentials'] });
    onAdded(credentialId);
  };
  const add = useMutation({
    mutationFn: () =>
      api.post<Credential>(
        '/credentials/mcp-server',
        {
          server_url: address.trim(),
          ...named,
          ...(headers.length > 0 ? { headers: Object.fromEntries(headers.map((line) => [line.name.trim(), line.value])) } : {}),
        },
        { 'Idempotency-Key': onceKey },
      ),
    onSuccess: (made) => added(made.credential_id),
  });
  const wantsSignIn = hasStatus(add.error, 409);
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (address.trim() && !add.isPending) add.mutate();
  };
  const edited = (): void => {
    setOnceKey(freshKey());
    if (add.error) add.reset();
  };
  return (
    <Dialog title="Add an MCP server" onClose={onClose}>
      <div className="stack">
        <form className="stack" autoComplete="off" onSubmit={submit}>
          <Field
            label="Address"
            required
            inputMode="url"
            autoComplete="off"
            spellCheck={false}
            placeholder="https://mcp.example.com/mcp"
            hint="Or stdio:NAME for a program that whoever runs this installation has set up."
            value={address}
            onChange={(event) => {
              setAddress(event.target.value);
              edited();
            }}
          />
          <Field
            label="Name (optional)"
            maxLength={255}
            value={name}
            onChange={(event) => {
              setName(event.target.value);
              edited();
            }}
          />
          <Headers
            lines={headers}
            onChange={(lines) => {
              setHeaders(lines);
              edited();
            }}
          />
          {add.error && !wantsSignIn && (
            <p className="notice danger" role="alert">
              {problemSentence(add.error)}
            </p>
          )}
          {!wantsSignIn && (
            <div className="dialog-actions">
              <button type="submit" className="button primary" disabled={!address.trim() || add.isPending}>
                {add.isPending && <Spinner />}
                {add.isPending ? 'Asking the server…' : 'Add the server'}
              </button>
            </div>
          )}
        </form>
        {wantsSignIn && (
          <section className="stack" aria-label="Sign in">
            <p className="notice" role="status">
              This server lets in only who is known there. Sign in, or give the headers it wants above.
            </p>
            <OAuthConnect
              option={{ auth_type: OAUTH, display_name: 'Sign in' }}
              pooled
              integrationName={MCP}
              displayName={name.trim() || 'the server'}
              binding={null}
              busy={false}
              storedAs={named}
              given={{ server_url: address.trim() }}
              onConnected={(credentialId) => void added(credentialId)}
            />
          </section>
        )}
      </div>
    </Dialog>
  );
}

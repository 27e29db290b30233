import { useInfiniteQuery, useMutation, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { problemSentence } from '../api/problem';
import type { Member } from '../api/types';
import { useSession } from '../session';
import { BackLink } from '../shell/back-link';
import { Page } from '../shell/page';
import { CopyButton } from '../ui/copy';
import { ConfirmDialog, Dialog } from '../ui/dialog';
import { Field } from '../ui/field';
import { ago, day, words } from '../ui/format';
import { Icon } from '../ui/icon';
import { ShowMore } from '../ui/show-more';
import { Failed, Skeleton } from '../ui/states';
import { useToast } from '../ui/toast';

const PAGE = 100;

interface PeoplePage {
  users: Member[];
  current_page: number;
  has_next: boolean;
}

interface MadeInvitation {
  invitation: { email: string; link?: string };
}

function LinkDialog({ made, onClose }: { made: MadeInvitation; onClose: () => void }) {
  const { email, link } = made.invitation;
  return (
    <Dialog title="Pass this link on" onClose={onClose}>
      <div className="stack">
        <p>
          Give it to {email}. It is shown this once, and whoever opens it joins as that person.
        </p>
        {link && (
          <div className="secret-once">
            <code>{link}</code>
            <CopyButton text={link} label="Copy link" showLabel />
          </div>
        )}
        <div className="dialog-actions">
          <button type="button" className="button primary" onClick={onClose}>
            Done
          </button>
        </div>
      </div>
    </Dialog>
  );
}

function InviteDialog({ onMade, onClose }: { onMade: (made: MadeInvitation) => void; onClose: () => void }) {
  const { api, organization } = useSession();
  const client = useQueryClient();
  const [email, setEmail] = useState('');
  const [message, setMessage] = useState('');
  const invite = useMutation({
    mutationFn: () =>
      api.post<MadeInvitation>('/organizations/invite', {
        invited_email: email.trim(),
        role: 'admin',
        ...(message.trim() ? { invitation_message: message.trim() } : {}),
      }),
    onSuccess: async (made) => {
      await client.invalidateQueries({ queryKey: ['members'] });
      onMade(made);
    },
  });
  return (
    <Dialog title={`Invite to ${organization.name}`} onClose={onClose}>
      <form
        className="stack"
        onSubmit={(event: FormEvent) => {
          event.preventDefault();
          invite.mutate();
        }}
      >
        <Field
          label="E-mail"
          type="email"
          required
          value={email}
          onChange={(event) => setEmail(event.target.value)}
        />
        <Field label="A word with it (optional)" maxLength={1000} value={message} onChange={(event) => setMessage(event.target.value)} />
        <p className="field-hint">They join as admin: they can use the assistant, connect accounts and invite others.</p>
        {invite.error && (
          <p className="notice danger" role="alert">
            {problemSentence(invite.error)}
          </p>
        )}
        <div className="dialog-actions">
          <button type="submit" className="button primary" disabled={!email.trim() || invite.isPending}>
            Invite
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function MemberRow({ member, onMakeAdmin, onRemove }: { member: Member; onMakeAdmin?: () => void; onRemove?: () => void }) {
  return (
    <li>
      <span className="avatar" aria-hidden="true">
        {(member.username || member.email).charAt(0).toUpperCase()}
      </span>
      <div className="row-main">
        <span className="row-title">
          {member.username || member.email} <span className="badge">{words(member.role)}</span>
          {member.is_active === false && <span className="badge warn">Inactive</span>}
        </span>
        <span className="row-detail">
          {member.email}
          {member.last_active_at && ` · seen ${ago(member.last_active_at)}`}
        </span>
      </div>
      {(onMakeAdmin || onRemove) && (
        <span className="row-tools">
          {onMakeAdmin && (
            <button type="button" className="button small" onClick={onMakeAdmin}>
              Make admin<span className="visually-hidden"> of {member.email}</span>
            </button>
          )}
          {onRemove && (
            <button type="button" className="button small" onClick={onRemove}>
              Remove<span className="visually-hidden"> {member.email}</span>
            </button>
          )}
        </span>
      )}
    </li>
  );
}

function InvitationRow({ invitation, onMade }: { invitation: Member; onMade: (made: MadeInvitation) => void }) {
  const { api } = useSession();
  const client = useQueryClient();
  const toast = useToast();
  const changed = (): Promise<void> => client.invalidateQueries({ queryKey: ['members'] });
  const cancel = useMutation({
    mutationFn: () => api.post(`/organizations/invitations/${invitation.id}/cancel`),
    onSuccess: async () => {
      await changed();
      toast('Invitation withdrawn.');
    },
    onError: (problem) => toast(problemSentence(problem)),
  });
  const again = useMutation({
    mutationFn: () => api.post<MadeInvitation>(`/organizations/invitations/${invitation.id}/reinvite`),
    onSuccess: async (made) => {
      await changed();
      onMade(made);
    },
    onError: (problem) => toast(problemSentence(problem)),
  });
  const busy = cancel.isPending || again.isPending;
  return (
    <li>
      <div className="row-main">
        <span className="row-title">
          {invitation.email} <span className="badge warn">{words(invitation.invitation_status ?? 'pending')}</span>
        </span>
        <span className="row-detail">{invitation.invitation_expires_at ? `until ${day(invitation.invitation_expires_at)}` : words(invitation.role)}</span>
      </div>
      <span className="row-tools">
        <button type="button" className="button small" disabled={busy} onClick={() => again.mutate()}>
          New link<span className="visually-hidden"> for {invitation.email}</span>
        </button>
        <button type="button" className="button small" disabled={busy} onClick={() => cancel.mutate()}>
          Withdraw<span className="visually-hidden"> the invitation of {invitation.email}</span>
        </button>
      </span>
    </li>
  );
}

function RemoveDialog({ member, onClose }: { member: Member; onClose: () => void }) {
  const { api, organization } = useSession();
  const client = useQueryClient();
  const remove = useMutation({
    mutationFn: () => api.call('DELETE', `/organizations/${organization.id}/users/${member.id}`),
    onSuccess: async () => {
      await client.invalidateQueries({ queryKey: ['members'] });
      onClose();
    },
  });
  return (
    <ConfirmDialog
      title={`Remove ${member.username || member.email}?`}
      verb="Remove"
      busy={remove.isPending}
      problem={remove.error ? problemSentence(remove.error) : null}
      onConfirm={() => remove.mutate()}
      onClose={onClose}
    >
      <p>
        They lose access to {organization.name} at once. What they connected stays with the organization.
      </p>
    </ConfirmDialog>
  );
}

/** An owner becomes an admin; the server keeps at least one owner. */
function DemoteDialog({ member, onClose }: { member: Member; onClose: () => void }) {
  const { api, user, organization } = useSession();
  const client = useQueryClient();
  const toast = useToast();
  const who = member.id === user.id ? 'You' : member.username || member.email;
  const demote = useMutation({
    mutationFn: () => api.call('PUT', `/organizations/${organization.id}/users/${member.id}/role`, { body: { role: 'admin' } }),
    onSuccess: async () => {
      await client.invalidateQueries({ queryKey: ['members'] });
      await client.invalidateQueries({ queryKey: ['identity'] });
      toast(`${who} ${member.id === user.id ? 'are' : 'is'} an admin now.`);
      onClose();
    },
  });
  return (
    <ConfirmDialog
      title={member.id === user.id ? 'Become an admin?' : `Make ${who} an admin?`}
      verb="Make admin"
      keep="Leave it"
      busy={demote.isPending}
      problem={demote.error ? problemSentence(demote.error) : null}
      onConfirm={() => demote.mutate()}
      onClose={onClose}
    >
      <p>
        An admin does everything an owner does, except removing people and changing roles of owners. It cannot be taken back here.
      </p>
    </ConfirmDialog>
  );
}

type Asked =
  | { kind: 'invite' }
  | { kind: 'link'; made: MadeInvitation }
  | { kind: 'remove' | 'demote'; member: Member };

/** Who is in the organization, and who is invited. */
export default function MembersPage() {
  const { api, user, organization } = useSession();
  const [asked, setAsked] = useState<Asked | null>(null);
  const members = useInfiniteQuery({
    queryKey: ['members'],
    initialPageParam: 1,
    queryFn: ({ pageParam, signal }) => api.get<PeoplePage>('/dashboard/users', { limit: PAGE, page: pageParam }, signal),
    getNextPageParam: (last) => (last.has_next ? last.current_page + 1 : undefined),
  });
  const everyone = members.data?.pages.flatMap((page) => page.users) ?? [];
  const people = everyone.filter((member) => !member.is_invitation);
  const open = everyone.filter((member) => member.is_invitation);
  const owners = people.filter((member) => member.role === 'owner').length;
  const close = (): void => setAsked(null);
  const showLink = (made: MadeInvitation): void => setAsked({ kind: 'link', made });
  return (
    <Page
      title="Members"
      actions={
        <button type="button" className="button small" onClick={() => setAsked({ kind: 'invite' })}>
          <Icon name="plus" size={16} /> Invite
        </button>
      }
    >
      <div className="scroller">
        <div className="content narrow">
          <BackLink href="/settings">Settings</BackLink>
          {members.isPending && <Skeleton />}
          {members.error && <Failed problem={members.error} onRetry={() => void members.refetch()} />}
          {members.data && (
            <section className="panel" aria-labelledby="people">
              <h2 id="people">People</h2>
              <ul className="rows">
                {people.map((member) => (
                  <MemberRow
                    key={member.id}
                    member={member}
                    onMakeAdmin={
                      organization.role === 'owner' && member.role !== 'admin' && (member.role !== 'owner' || owners > 1)
                        ? () => setAsked({ kind: 'demote', member })
                        : undefined
                    }
                    onRemove={
                      organization.role === 'owner' && member.id !== user.id ? () => setAsked({ kind: 'remove', member }) : undefined
                    }
                  />
                ))}
              </ul>
              <ShowMore list={members} />
            </section>
          )}
          {open.length > 0 && (
            <section className="panel" aria-labelledby="invited">
              <h2 id="invited">Invited</h2>
              <ul className="rows">
                {open.map((invitation) => (
                  <InvitationRow key={invitation.id} invitation={invitation} onMade={showLink} />
                ))}
              </ul>
            </section>
          )}
        </div>
      </div>
      {asked?.kind === 'invite' && <InviteDialog onMade={showLink} onClose={close} />}
      {asked?.kind === 'link' && <LinkDialog made={asked.made} onClose={close} />}
      {asked?.kind === 'remove' && <RemoveDialog member={asked.member} onClose={close} />}
      {asked?.kind === 'demote' && <DemoteDialog member={asked.member} onClose={close} />}
    </Page>
  );
}

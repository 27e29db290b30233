import { Link, useLocation } from 'wouter';
import { useKnowledgeBases } from '../api/queries';
import { useSession } from '../session';
import { words } from '../ui/format';
import { Icon, type IconName, Mark } from '../ui/icon';
import { Menu } from '../ui/menu';
import { ChatList } from './chat-list';
import { useShell } from './shell-context';

function NavLink({ href, icon, children }: { href: string; icon: IconName; children: string }) {
  const [location] = useLocation();
  const current = location === href || location.startsWith(`${href}/`);
  return (
    <Link href={href} className="nav-link" aria-current={current ? 'page' : undefined}>
      <Icon name={icon} />
      {children}
    </Link>
  );
}

function Account() {
  const { user, organization, organizations, chooseOrganization, signOut } = useSession();
  const [, navigate] = useLocation();
  return (
    <Menu
      label="Account menu"
      triggerSpeaks
      triggerClass="account"
      trigger={
        <>
          <span className="avatar" aria-hidden="true">
            {(user.username || user.email).charAt(0).toUpperCase()}
          </span>
          <span className="account-text">
            <span className="clip">{organization.name}</span>
            <small className="clip">{user.email}</small>
            <span className="visually-hidden">, account menu</span>
          </span>
          <Icon name="chevron" size={16} />
        </>
      }
      groups={[
        {
          key: 'organizations',
          label: 'Organization',
          items: organizations.map((each) => ({
            key: each.id,
            label: each.name,
            detail: words(each.role),
            checked: each.id === organization.id,
            onSelect: () => {
              if (each.id === organization.id) return;
              navigate('/');
              chooseOrganization(each.id);
            },
          })),
        },
        {
          key: 'account',
          label: 'You',
          items: [
            { key: 'settings', label: 'Settings', icon: 'gear', onSelect: () => navigate('/settings') },
            { key: 'sign-out', label: 'Sign out', icon: 'leave', onSelect: () => void signOut() },
          ],
        },
      ]}
    />
  );
}

/** Chats, pages and the account. */
export function Sidebar() {
  const { openSearch, closeDrawer } = useShell();
  const knowledge = useKnowledgeBases();
  return (
    <nav className="sidebar" aria-label="Chats and pages">
      <div className="sidebar-head">
        <Link href="/" className="brand" onClick={closeDrawer}>
          <Mark />
          <span>Parley</span>
        </Link>
        <button type="button" className="button quiet icon-only" aria-label="Search chats" title="Search chats (Ctrl K)" onClick={openSearch}>
          <Icon name="search" />
        </button>
      </div>
      <Link href="/" className="button new-chat" onClick={closeDrawer}>
        <Icon name="plus" /> New chat
      </Link>
      <div className="sidebar-chats">
        <ChatList />
      </div>
      <div className="sidebar-pages">
        <NavLink href="/integrations" icon="plug">
          Integrations
        </NavLink>
        {knowledge.data && (
          <NavLink href="/knowledge" icon="book">
            Knowledge
          </NavLink>
        )}
        <NavLink href="/usage" icon="chart">
          Usage
        </NavLink>
        <NavLink href="/settings" icon="gear">
          Settings
        </NavLink>
      </div>
      <Account />
    </nav>
  );
}

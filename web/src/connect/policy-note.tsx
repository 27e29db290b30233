import { useQuery } from '@tanstack/react-query';
import { Link } from 'wouter';
import { settingsQuery } from '../api/queries';
import { useSession } from '../session';
import { POLICIES, policyIn } from '../settings/policies';
import { Failed, Skeleton } from '../ui/states';

/** The policy by which actions ask first here, and where another is chosen. */
export function PolicyNote() {
  const { api, organization } = useSession();
  const settings = useQuery(settingsQuery(api));
  if (settings.isPending) return <Skeleton lines={1} />;
  if (settings.error) return <Failed problem={settings.error} onRetry={() => void settings.refetch()} />;
  const { label, text } = POLICIES[policyIn(settings.data)];
  return (
    <p className="muted small-text">
      Approval policy of {organization.name}: {label.toLowerCase()}. {text} <Link href="/settings">Change it in the settings</Link>
    </p>
  );
}

import { Link } from 'wouter';
import { Icon } from '../ui/icon';

export function BackLink({ href, children }: { href: string; children: string }) {
  return (
    <p>
      <Link href={href} className="row small-text back-link">
        <Icon name="back" size={16} /> {children}
      </Link>
    </p>
  );
}

import type { ApprovalPolicy, OrganizationSettings } from '../api/types';

/** What the policies are called and when they ask, from the loosest to the strictest. */
export const POLICIES: Readonly<Record<ApprovalPolicy, { label: string; text: string }>> = {
  documented: {
    label: 'By name',
    text: 'Asks before actions whose name says that they delete, drop or wipe something, or run any query.',
  },
  catalog: {
    label: 'By what they do',
    text: 'Asks before what deletes, pays, runs code, changes access or production, and before what nobody has reviewed.',
  },
  guarded: {
    label: 'By what they do and what was read',
    text: 'Asks before what deletes, pays, runs code, changes access or production, or was not reviewed; once a chat has read what outsiders may have written, before every change and every address made since.',
  },
  strict: { label: 'Every change', text: 'Asks before everything that is not known only to look something up.' },
};
const ORDER = Object.keys(POLICIES) as ApprovalPolicy[];

export function isLooser(policy: ApprovalPolicy, other: ApprovalPolicy): boolean {
  return ORDER.indexOf(policy) < ORDER.indexOf(other);
}

/** The policy that counts: the organization's own, unless the operator's is stricter. */
export function policyIn({ approval_policy: own, operator_approval_policy: operator }: OrganizationSettings): ApprovalPolicy {
  return own === null || isLooser(own, operator) ? operator : own;
}

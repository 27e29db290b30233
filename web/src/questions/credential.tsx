import { useState } from 'react';
import { useQueryClient } from '@tanstack/react-query';
import { hasStatus } from '../api/client';
import { useIntegration } from '../api/queries';
import type { Question } from '../api/types';
import { useChatActions } from '../chat/chat-context';
import { ConnectForm } from '../connect/connect-form';
import { isPooled } from '../connect/fields';
import { Markdown } from '../md/markdown';
import { Logo } from '../ui/logo';
import { type CardProps, CardFrame } from './question-view';

interface Failure {
  auth_type: string;
  error_code: string;
  error_message: string;
}

/** Connecting an integration in mid-turn. The secret goes to the credential store, never through the chat. */
export function CredentialCard({
  question,
  ...card
}: CardProps & { question: Extract<Question, { kind: 'credential_request' }> }) {
  const { chatId, model, refresh } = useChatActions();
  const client = useQueryClient();
  const [failure, setFailure] = useState<Failure | null>(null);
  const name = question.integration_name;
  const detail = useIntegration(name);
  // What is not in the catalog is the organization's own, and so is its OAuth app.
  const pooled = hasStatus(detail.error, 404) ? false : isPooled(detail.data?.auth_schemas);
  return (
    <CardFrame
      {...card}
      icon="plug"
      title={`Connect ${question.integration_display_name}`}
      headed={
        <div className="approval-head">
          <Logo name={name} size={36} />
          <div className="card-message">
            <Markdown text={question.message} />
          </div>
        </div>
      }
    >
      <ConnectForm
        integrationName={name}
        displayName={question.integration_display_name}
        options={question.auth_options}
        pooled={pooled}
        binding={chatId === null ? null : { chatId, requestId: question.request_id, model }}
        busy={card.busy}
        onConnected={(credentialId, authType) => {
          void client.invalidateQueries({ queryKey: ['credentials'] });
          card.answer({ kind: 'credential_added', credential_id: credentialId, integration_name: name, auth_type: authType });
        }}
        onFailed={setFailure}
        onMaybeDone={refresh}
      />
      {failure && (
        <p>
          <button
            type="button"
            className="button quiet small"
            disabled={card.busy}
            onClick={() => card.answer({ kind: 'credential_failed', integration_name: name, retryable: true, ...failure })}
          >
            Give up and tell the assistant
          </button>
        </p>
      )}
    </CardFrame>
  );
}

import { useCallback, useEffect, useMemo, useRef } from 'react';
import { ApiProblem } from '../api/problem';
import { Link, useLocation, useParams } from 'wouter';
import { Announcer } from '../chat/announcer';
import { type ChatActions, ChatContext } from '../chat/chat-context';
import { Composer, COMPOSER_ID } from '../chat/composer';
import { ModelPicker } from '../chat/model-picker';
import { useChatModel, useModels } from '../chat/models';
import { NoticeBar } from '../chat/notices';
import { openQuestion } from '../chat/reply';
import { useFollow } from '../chat/scroll';
import type { ChatState } from '../chat/store';
import { Thread } from '../chat/thread';
import type { Turn } from '../chat/turns';
import { useChat } from '../chat/use-chat';
import { usePreferences } from '../preferences';
import { useSession } from '../session';
import { Page } from '../shell/page';
import { Icon, Mark } from '../ui/icon';
import { Empty, Failed, Skeleton } from '../ui/states';
import { useDraft } from '../chat/draft';

const SUGGESTIONS = [
  { title: 'See what is possible', text: 'What can you do?' },
  { title: 'Check the connections', text: 'Which accounts are connected?' },
  { title: 'Look at your work', text: 'List my GitHub repositories' },
  { title: 'Find an answer', text: 'Search knowledge for refunds' },
];

function composerState(state: ChatState): 'ready' | 'running' | 'stopping' | 'asking' | 'sending' {
  const turn = state.turns.at(-1);
  if (state.stopping) return 'stopping';
  if (turn?.userState === 'sending') return 'sending';
  if (openQuestion(turn?.reply ?? null)) return 'asking';
  return turn?.reply?.status === 'running' || turn?.reply?.status === 'awaiting' ? 'running' : 'ready';
}

function Welcome({ onPick }: { onPick: (text: string) => void }) {
  const { organization } = useSession();
  return (
    <div className="welcome">
      <Mark size={48} />
      <p className="welcome-title">What shall we get done?</p>
      <p className="muted">
        Parley works with the tools {organization.name} has connected. It asks before it does anything that cannot be undone.
      </p>
      <ul className="suggestions">
        {SUGGESTIONS.map((suggestion) => (
          <li key={suggestion.title}>
            <button type="button" onClick={() => onPick(suggestion.text)}>
              <strong>{suggestion.title}</strong>
              <span>{suggestion.text}</span>
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}

/** One chat, new or old: the thread and the composer. */
export function ChatPage() {
  const { api } = useSession();
  const chatId = useParams<{ id?: string }>().id ?? null;
  const [, navigate] = useLocation();
  const models = useModels();
  const { shown: llm, settled: model, keep: keepModel } = useChatModel(chatId, models);
  const [store, state] = useChat(api, chatId, (id, begunWith) => {
    if (begunWith) keepModel(id, begunWith);
    navigate(`/c/${id}`, { replace: true });
  });
  const [draft, setDraft] = useDraft(chatId);
  const { follow } = usePreferences();
  const scroller = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const { atEnd, toEnd } = useFollow(scroller, content, follow && state.turns.length > 0);
  const mode = composerState(state);

  // These keep what they are from frame to frame: a turn is drawn anew when one of them changes.
  const send = useCallback(
    (text: string) => {
      setDraft('');
      toEnd();
      void store.send(text, model).then((outcome) => {
        if (outcome === 'refused') setDraft(text);
      });
    },
    [store, model, setDraft, toEnd],
  );
  const resend = useCallback(
    (turn: Turn) => {
      void store.resend(turn.key).then((outcome) => {
        if (outcome === 'refused') setDraft(turn.text);
      });
    },
    [store, setDraft],
  );
  const edit = useCallback(
    (text: string) => {
      setDraft(text);
      document.getElementById(COMPOSER_ID)?.focus();
    },
    [setDraft],
  );
  const stop = useCallback(() => void store.stop(), [store]);
  const showQuestion = useCallback(() => {
    const heading = scroller.current?.querySelector<HTMLElement>('[data-question] h2');
    heading?.scrollIntoView({ block: 'center' });
    heading?.focus({ preventScroll: true });
  }, []);

  const actions = useMemo<ChatActions>(
    () => ({
      chatId: state.chatId,
      model,
      answering: state.answering,
      answer: (question, answer) => store.answer(question, answer, model),
      stop,
      refresh: () => void store.refresh(),
    }),
    [state.chatId, state.answering, model, store, stop],
  );

  // Escape closes what is open first: menus and dialogs take the key before it gets here.
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.key !== 'Escape' || event.shiftKey || event.defaultPrevented || event.isComposing) return;
      if (mode === 'running' && !document.querySelector('dialog[open]')) stop();
    };
    document.addEventListener('keydown', onKey);
    return () => document.removeEventListener('keydown', onKey);
  }, [mode, stop]);

  // Refused because of a question, perhaps asked elsewhere: once it is here, it has the floor.
  const refusal = state.notice?.problem.status === 409 ? state.notice : null;
  const asked = openQuestion(state.turns.at(-1)?.reply ?? null)?.question.request_id ?? null;
  useEffect(() => {
    if (refusal && asked) showQuestion();
  }, [refusal, asked, showQuestion]);

  const title = state.title || state.turns[0]?.text.slice(0, 50) || 'New chat';
  if (state.phase === 'missing') {
    return (
      <Page title="Chat not found">
        <Empty icon="question" title="This chat does not exist here">
          It may have been deleted, or belong to another organization. <Link href="/">Start a new chat</Link>
        </Empty>
      </Page>
    );
  }
  return (
    <ChatContext.Provider value={actions}>
      <Page title={title} className="chat-page">
        <div className="scroller" ref={scroller} tabIndex={-1}>
          <div className="column" ref={content}>
            {state.phase === 'loading' && <Skeleton lines={6} />}
            {state.phase === 'failed' && <Failed problem={new ApiProblem(0, state.problem ?? '')} onRetry={() => void store.load()} />}
            {state.phase === 'new' && state.turns.length === 0 && <Welcome onPick={edit} />}
            {(state.phase === 'ready' || state.turns.length > 0) && state.phase !== 'loading' && (
              <Thread
                state={state}
                store={store}
                scroller={scroller}
                onEdit={edit}
                onResend={resend}
                onAgain={send}
              />
            )}
          </div>
        </div>
        <div className="dock">
          <div className="column">
            {!atEnd && (
              <button type="button" className="button jump" onClick={() => toEnd(true)}>
                <Icon name="down" size={16} /> Jump to latest
              </button>
            )}
            {state.notice && (
              <NoticeBar notice={state.notice} onRetry={() => send(draft)} onClose={() => store.clearNotice()} />
            )}
            <Composer
              text={draft}
              onText={setDraft}
              onSend={() => send(draft.trim())}
              onStop={stop}
              state={mode}
              onShowQuestion={showQuestion}
            >
              <ModelPicker models={models} chosen={llm} onChoose={(choice) => keepModel(chatId, choice)} />
            </Composer>
            <p className="fine-print">{llm?.integration_name === 'demo' ? 'The demo model has no intelligence. Add a model provider for real answers.' : 'Parley can be wrong. Check what matters.'}</p>
          </div>
        </div>
        <Announcer state={state} />
      </Page>
    </ChatContext.Provider>
  );
}

import { createContext, useContext } from 'react';
import type { Answer, LlmChoice } from '../api/types';
import type { QuestionPart } from './reply';

/** What the cards in a thread may do, without every element between passing it on. */
export interface ChatActions {
  chatId: string | null;
  /** The chat's model, as soon as it is known. */
  model: () => Promise<LlmChoice | null>;
  /** The question whose answer is on its way. */
  answering: string | null;
  answer: (question: QuestionPart, answer: Answer) => Promise<boolean>;
  stop: () => void;
  /** Asks the server whether the chat moved on, for sign-ins that end in another window. */
  refresh: () => void;
}

export const ChatContext = createContext<ChatActions | null>(null);

export function useChatActions(): ChatActions {
  const actions = useContext(ChatContext);
  if (!actions) throw new Error('useChatActions is for cards inside a chat');
  return actions;
}

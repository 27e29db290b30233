import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import type { LlmChoice, LlmList, LlmModel, OrganizationSettings, ShownModel } from '../api/types';
import { useSession } from '../session';

const REMEMBERED = 'parley.models';
/** Chats whose model is remembered. */
const MOST_CHATS = 200;

export function choiceOf(model: LlmModel): LlmChoice {
  return {
    integration_name: model.integration_name,
    provider_id: model.provider_id ?? model.integration_name,
    model_id: model.model_id ?? model.id,
  };
}

export function sameChoice(a: LlmChoice | null, b: LlmChoice | null): boolean {
  return a?.integration_name === b?.integration_name && a?.model_id === b?.model_id;
}

export function modelName(model: LlmModel): string {
  return model.display_name ?? model.name ?? model.id;
}

function remembered(): Record<string, LlmChoice> {
  try {
    return JSON.parse(localStorage.getItem(REMEMBERED) ?? '{}') as Record<string, LlmChoice>;
  } catch {
    return {};
  }
}

function remember(chatId: string, choice: LlmChoice): void {
  const kept = Object.entries({ ...remembered(), [chatId]: choice }).slice(-MOST_CHATS);
  try {
    localStorage.setItem(REMEMBERED, JSON.stringify(Object.fromEntries(kept)));
  } catch {
    // Without storage the chat opens with the default model next time.
  }
}

/** The model under the name the organization gave it; nothing where it chose to show others. */
export function shownAs(model: LlmModel, chosen: ShownModel[] | undefined): LlmModel[] {
  if (!chosen) return [model];
  const entry = chosen.find((each) => each.id === model.id);
  return entry ? [{ ...model, display_name: entry.display_name ?? model.display_name }] : [];
}

export interface Models {
  loading: boolean;
  problem: unknown;
  /** The models there is a credential for, as far as the organization shows them. */
  usable: LlmModel[];
  organizationDefault: LlmChoice | null;
  /** The model that takes over when a turn's own cannot be reached. */
  fallback: LlmChoice | null;
  refetch: () => void;
}

/** The organization's models, its default and its fall-back. */
export function useModels(): Models {
  const { api } = useSession();
  const list = useQuery({ queryKey: ['llms'], queryFn: ({ signal }) => api.get<LlmList>('/organizations/llms', {}, signal) });
  const settings = useQuery({
    queryKey: ['organization-settings'],
    queryFn: ({ signal }) => api.get<OrganizationSettings>('/organizations/settings', {}, signal),
  });
  const shown = settings.data?.llm_model_visibility ?? {};
  return {
    loading: list.isPending || settings.isPending,
    problem: list.error ?? settings.error,
    usable: (list.data?.active_llms ?? []).flatMap((model) => shownAs(model, shown[model.integration_name])),
    organizationDefault: settings.data?.composer_llm ?? null,
    fallback: settings.data?.fallback_llm ?? null,
    refetch: () => {
      void list.refetch();
      void settings.refetch();
    },
  };
}

/**
 * The model of one chat: the one chosen there, else the organization's default, else the first usable.
 * Then what chooses another one, and what makes the present one that of a chat just begun.
 */
export function useChatModel(
  chatId: string | null,
  models: Models,
): [LlmChoice | null, (choice: LlmChoice) => void, (begun: string) => void] {
  const [picked, setPicked] = useState<Record<string, LlmChoice>>(remembered);
  const key = chatId ?? '';
  const isUsable = (choice: LlmChoice | null | undefined): choice is LlmChoice =>
    !!choice && models.usable.some((model) => sameChoice(choiceOf(model), choice));
  const first = models.usable[0];
  const chosen = [picked[key], picked[''], models.organizationDefault].find(isUsable);
  const llm = chosen ?? (first ? choiceOf(first) : models.organizationDefault);
  const keep = (chat: string, choice: LlmChoice): void => {
    remember(chat, choice);
    setPicked((before) => ({ ...before, [chat]: choice }));
  };
  const choose = (choice: LlmChoice): void => keep(key, choice);
  const begin = (begun: string): void => {
    if (llm) keep(begun, llm);
  };
  return [llm, choose, begin];
}

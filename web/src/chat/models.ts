import { type QueryClient, queryOptions, useQuery, useQueryClient } from '@tanstack/react-query';
import { useCallback, useState } from 'react';
import type { Api } from '../api/client';
import type { LlmChoice, LlmList, LlmModel, OrganizationSettings, ShownModel } from '../api/types';
import { settingsQuery } from '../api/queries';
import { useSession } from '../session';

const REMEMBERED = 'parley.models';
/** Chats whose model is remembered. */
const MOST_CHATS = 200;
/** How long a message waits for what decides its model. */
const MOST_WAIT_MS = 15_000;

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

/** What the organization offers its chats. */
export interface Offered {
  /** The models there is a credential for, as far as the organization shows them; null while the list is not known. */
  usable: LlmModel[] | null;
  organizationDefault: LlmChoice | null;
  /** The model that takes over when a turn's own cannot be reached. */
  fallback: LlmChoice | null;
}

export interface Models extends Offered {
  /** Every model there is a credential for, shown or not. */
  all: LlmModel[];
  /** The models that are shown, by integration; one that is absent shows all of its models. */
  shown: OrganizationSettings['llm_model_visibility'];
  loading: boolean;
  problem: unknown;
  refetch: () => void;
}

/** What both answers say together; an answer that is not here says nothing. */
export function offeredBy(list: LlmList | undefined, settings: OrganizationSettings | undefined): Offered {
  const shown = settings?.llm_model_visibility ?? {};
  return {
    usable: list ? list.active_llms.flatMap((model) => shownAs(model, shown[model.integration_name])) : null,
    organizationDefault: settings?.composer_llm ?? null,
    fallback: settings?.fallback_llm ?? null,
  };
}

/**
 * The model of one chat: the one picked there, else the one picked last, else the organization's default, else the
 * first usable. While the list is not known nothing can be ruled out. `picked` is by chat, '' for the last.
 */
export function modelOf(chatId: string | null, picked: Readonly<Record<string, LlmChoice>>, offered: Offered): LlmChoice | null {
  const wished = [picked[chatId ?? ''], picked[''], offered.organizationDefault].filter((choice) => !!choice);
  const { usable } = offered;
  if (!usable) return wished[0] ?? null;
  const first = usable[0] ? choiceOf(usable[0]) : offered.organizationDefault;
  return wished.find((choice) => usable.some((model) => sameChoice(choiceOf(model), choice))) ?? first;
}

// Not given up when the page that began it goes: a message may be waiting for it.
const listQuery = (api: Api) =>
  queryOptions({ queryKey: ['llms'], queryFn: () => api.get<LlmList>('/organizations/llms') });

/** The organization's models, its default and its fall-back. */
export function useModels(): Models {
  const { api } = useSession();
  const list = useQuery(listQuery(api));
  const settings = useQuery(settingsQuery(api));
  return {
    ...offeredBy(list.data, settings.data),
    all: list.data?.active_llms ?? [],
    shown: settings.data?.llm_model_visibility ?? {},
    loading: list.isPending || settings.isPending,
    problem: list.error ?? settings.error,
    refetch: () => {
      void list.refetch();
      void settings.refetch();
    },
  };
}

/** What is read, or nothing where that fails or takes too long; the picker says so. */
function inTime<T>(reading: Promise<T>): Promise<T | undefined> {
  return new Promise((resolve) => {
    const late = setTimeout(resolve, MOST_WAIT_MS, undefined);
    const settle = (read?: T): void => {
      clearTimeout(late);
      resolve(read);
    };
    reading.then(settle, () => settle());
  });
}

/** What is offered once both answers are here: at once if they are and still hold, else at most MOST_WAIT_MS later. */
async function offeredSoon(client: QueryClient, api: Api): Promise<Offered> {
  const [llms, settings] = [listQuery(api), settingsQuery(api)];
  const read = await Promise.all([
    inTime(client.fetchQuery({ ...llms, staleTime: Infinity })),
    inTime(client.fetchQuery({ ...settings, staleTime: Infinity })),
  ]);
  return offeredBy(read[0] ?? client.getQueryData(llms.queryKey), read[1] ?? client.getQueryData(settings.queryKey));
}

export interface ChatModel {
  /** The chat's model, for show; null while that is not known. */
  shown: LlmChoice | null;
  /**
   * The chat's model, for a request that must not go out with another one, nor for another organization than the
   * chat's: rejects with OrganizationChanged, and with nothing else.
   */
  settled: () => Promise<LlmChoice | null>;
  /** Makes the model that of the chat; of none, that of new chats. */
  keep: (chatId: string | null, choice: LlmChoice) => void;
}

/** The model that answers in one chat. */
export function useChatModel(chatId: string | null, models: Models): ChatModel {
  const { api, organization } = useSession();
  const client = useQueryClient();
  const [picked, setPicked] = useState<Record<string, LlmChoice>>(remembered);
  const settled = useCallback(async () => {
    const offered = await offeredSoon(client, api);
    api.mustSpeakFor(organization.id);
    return modelOf(chatId, picked, offered);
  }, [chatId, picked, client, api, organization.id]);
  const keep = (chat: string | null, choice: LlmChoice): void => {
    remember(chat ?? '', choice);
    setPicked((before) => ({ ...before, [chat ?? '']: choice }));
  };
  return { shown: models.loading ? null : modelOf(chatId, picked, models), settled, keep };
}

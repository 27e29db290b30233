import { Spinner } from './icon';

/** What a query of several pages tells of the next one. */
export interface Paged {
  hasNextPage: boolean;
  isFetchingNextPage: boolean;
  fetchNextPage: () => unknown;
}

/** Fetches the next page of a list; nothing where the list is whole. */
export function ShowMore({ list }: { list: Paged }) {
  if (!list.hasNextPage) return null;
  return (
    <div>
      <button
        type="button"
        className="button quiet small"
        disabled={list.isFetchingNextPage}
        onClick={() => void list.fetchNextPage()}
      >
        {list.isFetchingNextPage && <Spinner />} Show more
      </button>
    </div>
  );
}

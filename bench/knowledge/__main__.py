"""``make bench-knowledge``: how well documents are found, how fast they are read, how fast a search is."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.knowledge.library import corpus, parley_on, questions
from bench.knowledge.retrieval import measure
from bench.knowledge.scale import PASSAGES, ingest_rate, search_times, warm
from bench.postgres import answers, fresh_database


async def main() -> None:
    """Measure and print, on SQLite and, where one answers, on PostgreSQL."""
    print(f"{len(corpus())} documents, {len(questions())} questions")
    stores = ["SQLite", *(["PostgreSQL"] if await answers() else [])]
    for store in stores:
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory()))
            url = f"sqlite:///{folder / 'parley.db'}"
            if store == "PostgreSQL":
                url = await stack.enter_async_context(fresh_database())
            parley = await stack.enter_async_context(parley_on(url, folder))
            await warm(parley)
            for way, (recall, gain) in (await measure(parley)).items():
                print(f"{store:10}  {way:8} recall@5 {recall:.3f}  nDCG@10 {gain:.3f}")
            print(f"{store:10}  reading  {await ingest_rate(parley, folder):.1f} MB a minute a core")
            middle, late, first = await search_times(parley)
            print(
                f"{store:10}  search   p50 {middle:.0f} ms  p95 {late:.0f} ms among {PASSAGES:,} passages; "
                f"the first one {first:.0f} ms"
            )


asyncio.run(main())

"""How often the right document is found, and how high: by words, by meaning, by both."""

import math
from collections.abc import Awaitable, Callable, Sequence

from bench.knowledge.library import corpus, fresh, new_base, pieces_of, put, questions
from parley.knowledge.model import Base, Chunking, Match
from parley.knowledge.parsing.cut import Cutter
from parley.knowledge.search import Query, Weights
from parley.wiring import Parley

TOP = 10

type Way = Callable[[Base, str], Awaitable[Sequence[Match]]]


async def measure(parley: Parley) -> dict[str, tuple[float, float]]:
    """recall@5 and nDCG@10 of each way to search."""
    base, cutter = await new_base(parley), Cutter(Chunking())
    for name, text in corpus().items():
        await put(parley, base, name, pieces_of(cutter, name, text))
    base = await fresh(parley, base)
    search = parley.knowledge.search

    async def words(of: Base, text: str) -> Sequence[Match]:
        return (await search.by_both([of], Query(text, TOP * 2), Weights(keyword=1.0, semantic=0.0))).matches

    async def meaning(of: Base, text: str) -> Sequence[Match]:
        return (await search.by_meaning([of], Query(text, TOP * 2))).matches

    async def both(of: Base, text: str) -> Sequence[Match]:
        return (await search.by_both([of], Query(text, TOP * 2), Weights())).matches

    ways: dict[str, Way] = {"keyword": words, "vector": meaning, "hybrid": both}
    return {name: await _score(way, base) for name, way in ways.items()}


async def _score(way: Way, base: Base) -> tuple[float, float]:
    asked = questions()
    recall = gain = 0.0
    for question in asked:
        names = list(dict.fromkeys(match.filename.removesuffix(".md") for match in await way(base, question.text)))
        place = names.index(question.target) if question.target in names else TOP
        recall += place < 5
        gain += 1 / math.log2(place + 2) if place < TOP else 0.0
    return recall / len(asked), gain / len(asked)

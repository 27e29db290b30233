"""How long a search takes among 100,000 passages, and how fast text is read in."""

import asyncio
import random
import re
import resource
import time
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryFile

from bench.knowledge.library import corpus, fresh, new_base, put, questions
from parley.knowledge.matrix import pack
from parley.knowledge.model import Chunking, Embedding, Piece
from parley.knowledge.parsing import child
from parley.knowledge.search import Query, Weights
from parley.wiring import Parley

PASSAGES = 100_000
PASSAGES_A_DOCUMENT = 2_500
SENTENCES_A_PASSAGE = 8
TEXT_BYTES = 2_000_000
ROUNDS = 2
WARM_UP = 5


def sentences() -> list[str]:
    """What made-up passages are made of: the sentences of the retrieval set."""
    found = [part.strip() for text in corpus().values() for part in re.split(r"(?<=[.!?])\s+|\n\n", text)]
    return [sentence for sentence in found if 20 < len(sentence) < 300]


async def search_times(parley: Parley) -> tuple[float, float, float]:
    """Median and 95th percentile of a search by both, and the first search's time, in milliseconds."""
    base, pool, dice = await new_base(parley), sentences(), random.Random(7)
    for number in range(PASSAGES // PASSAGES_A_DOCUMENT):
        await put(parley, base, f"made-up-{number}", [_made_up(pool, dice) for _ in range(PASSAGES_A_DOCUMENT)])
    base = await fresh(parley, base)
    await parley.store.write(lambda tx: tx.exec_driver_sql("ANALYZE"))
    search, asked = parley.knowledge.search, [question.text for question in questions()]
    took: list[float] = []
    first = 0.0
    for number, text in enumerate(asked[:WARM_UP] + asked * ROUNDS):
        began = time.perf_counter()
        (found,) = await search.bases(base.organization_id, [base.id])
        found_passages = await search.by_both([found], Query(text, 5), Weights())
        spent = 1e3 * (time.perf_counter() - began)
        assert found_passages.matches
        first = first or spent
        if number >= WARM_UP:
            took.append(spent)
    return median(took), quantiles(took, n=20)[-1], first


def _made_up(pool: list[str], dice: random.Random) -> Piece:
    text = " ".join(dice.sample(pool, SENTENCES_A_PASSAGE))
    return Piece(text, 0, len(text), len(text) // 4)


async def ingest_rate(parley: Parley, folder: Path) -> float:
    """Megabytes of text read, cut, embedded and stored in a minute of one core's time, child included."""
    base, pool, dice = await new_base(parley), sentences(), random.Random(8)
    path = folder / "text.md"
    text = ""
    while len(text) < TEXT_BYTES:
        text += f"## Part {len(text)}\n\n" + " ".join(dice.sample(pool, 40)) + "\n\n"
    path.write_text(text, encoding="utf-8")
    began = _cpu()
    with TemporaryFile(dir=folder) as file:
        file.write(path.read_bytes())
        file.flush()
        file.seek(0)
        verdict = await child.read(file, "md", Chunking())
    for start in range(0, len(verdict.pieces), PASSAGES_A_DOCUMENT):
        await put(parley, base, f"part-{start}", verdict.pieces[start : start + PASSAGES_A_DOCUMENT])
    return len(text) / 1e6 / ((_cpu() - began) / 60)


async def warm(parley: Parley) -> None:
    """Load the model, so that nothing else is measured with it."""
    vectors = await parley.knowledge.search.embedder.embed("", Embedding(), ["warm"])
    await asyncio.to_thread(pack, vectors)


def _cpu() -> float:
    """Seconds of CPU of this process and of the children it has waited for."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime

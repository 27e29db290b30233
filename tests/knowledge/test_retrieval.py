"""The retrieval set: searching by both finds more than either half (``make bench-knowledge`` prints the figures)."""

from pathlib import Path
from uuid import uuid4

from sqlalchemy import insert, select

from bench.knowledge.library import corpus, new_base, parley_on, put, questions
from bench.knowledge.retrieval import measure
from parley.knowledge.model import Piece
from parley.knowledge.words import MOST_PASSAGES, search_words
from parley.storage import WriteTx
from parley.storage.tables.knowledge import chunks


def test_every_question_names_a_document_and_copies_none_of_its_name() -> None:
    documents, asked = corpus(), questions()
    assert len(documents) >= 300
    assert len(asked) >= 150
    assert len({question.target for question in asked}) == len(asked)
    for question in asked:
        assert question.target in documents
        assert question.text not in documents[question.target]


async def test_both_halves_together_find_more_than_either(store_url: str, tmp_path: Path) -> None:
    async with parley_on(store_url, tmp_path) as parley:
        found = await measure(parley)
    for figure in (0, 1):
        halves = max(found["keyword"][figure], found["vector"][figure])
        assert found["hybrid"][figure] > halves, found
    assert found["hybrid"][0] > 0.5


async def test_what_is_common_elsewhere_is_found_here(store_url: str, tmp_path: Path) -> None:
    """The words of all bases are in one index: those of others must not take the places of these."""
    said = Piece("The boiler is in the cellar.", 0, 28, 6)
    async with parley_on(store_url, tmp_path) as parley:
        elsewhere, here = await new_base(parley), await new_base(parley)
        await put(parley, elsewhere, "elsewhere", [said])

        def crowd(tx: WriteTx) -> None:
            (first,) = tx.execute(select(chunks)).mappings()
            more = range(1, MOST_PASSAGES + 1)
            same = {name: value for name, value in first.items() if name != "number"}
            tx.execute(insert(chunks), [{**same, "id": str(uuid4()), "chunk_index": index} for index in more])

        await parley.store.write(crowd)
        await put(parley, here, "here", [said])
        found = await parley.store.read(lambda tx: search_words(tx, [here.id], "boiler", 5))
        (document,) = {document_id for document_id, _, _ in found}
        only = frozenset({document})
        both = [elsewhere.id, here.id]
        narrowed = await parley.store.read(lambda tx: search_words(tx, both, "boiler", 5, only))
    assert [index for _, index, _ in found] == [0]
    if store_url.startswith("sqlite"):
        # PostgreSQL looks at twice as many passages before it narrows.
        assert narrowed == found

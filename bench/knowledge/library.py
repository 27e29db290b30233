"""The retrieval set, and putting it into a base of a running Parley."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from parley.base.settings import read_settings
from parley.knowledge import store as rows
from parley.knowledge.bases import NewBase
from parley.knowledge.chunk_store import insert_chunks
from parley.knowledge.matrix import pack
from parley.knowledge.model import Base, Document, Embedding, Piece
from parley.knowledge.parsing.cut import Cutter
from parley.knowledge.parsing.draft import Draft
from parley.storage import WriteTx
from parley.storage.acting import act_for
from parley.wiring import Parley, open_parley

HERE = Path(__file__).parent
ORGANIZATION = "11111111-1111-4111-8111-111111111111"


@dataclass(frozen=True, slots=True)
class Question:
    target: str
    text: str


def corpus() -> dict[str, str]:
    """Documents by name."""
    lines = (HERE / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines]
    return {entry["id"]: entry["text"] for entry in entries}


def questions() -> list[Question]:
    """Questions, each with the one document that counts as its answer."""
    lines = (HERE / "questions.tsv").read_text(encoding="utf-8").splitlines()
    return [Question(*line.split("\t")) for line in lines if line]


@asynccontextmanager
async def parley_on(url: str, folder: Path, **more: str) -> AsyncGenerator[Parley]:
    """A Parley on this store, without its HTTP side."""
    settings = read_settings(
        {
            "PARLEY_DATA_DIR": str(folder),
            "PARLEY_DATABASE_URL": url,
            "PARLEY_BOOTSTRAP_API_KEY": f"mx_live_{uuid4().hex}",
            "PARLEY_BOOTSTRAP_ORGANIZATION_ID": ORGANIZATION,
            "OLLAMA_HOST": "http://127.0.0.1:9",
            **more,
        }
    )
    async with open_parley(settings) as parley:
        act_for(ORGANIZATION)
        yield parley


async def new_base(parley: Parley) -> Base:
    """An empty base."""
    return await parley.knowledge.bases.create(ORGANIZATION, ORGANIZATION, NewBase("Bench"))


def pieces_of(cutter: Cutter, name: str, text: str) -> list[Piece]:
    """A document's passages, as the reader would cut them."""
    draft = Draft()
    draft.raw(f"# {name}\n\n{text}\n")
    return cutter.pieces(draft)


async def put(parley: Parley, base: Base, name: str, pieces: Sequence[Piece]) -> None:
    """Store a document's passages as the reader does, without its bytes."""
    embedder = parley.knowledge.search.embedder
    vectors = await embedder.embed(ORGANIZATION, Embedding(), [piece.embedded for piece in pieces])
    body, document_id, now = await asyncio.to_thread(pack, vectors), str(uuid4()), parley.clock.now()
    values = {
        "id": document_id,
        "organization_id": ORGANIZATION,
        "knowledge_base_id": base.id,
        "filename": f"{name}.md",
        "file_type": "md",
        "size_bytes": sum(len(piece.content) for piece in pieces),
        "sha256": sha256(document_id.encode()).hexdigest(),
        "metadata": {},
        "status": "completed",
        "chunk_count": len(pieces),
        "token_count": sum(piece.tokens for piece in pieces),
        "reading": 1,
        "attempts": 1,
        "epoch": 1,
        "created_by": ORGANIZATION,
        "created_at": now,
        "updated_at": now,
    }

    def work(tx: WriteTx) -> None:
        rows.insert_document(tx, values)
        document: Document = rows.find_document(tx, ORGANIZATION, base.id, document_id)
        insert_chunks(tx, document, 0, pieces, body, now)
        rows.touch_base(tx, base.id, now)

    await parley.store.write(work)


async def fresh(parley: Parley, base: Base) -> Base:
    """The base as it is now."""
    return await parley.knowledge.bases.get(ORGANIZATION, base.id)

"""Every kind of file is read, and no file harms (trust T20). The child runs as in production; no server is needed."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from parley.knowledge.model import FILE_TYPES, Chunking, FileType, Piece
from parley.knowledge.parsing import child
from parley.knowledge.parsing.cut import Cutter
from parley.knowledge.parsing.draft import Draft
from parley.knowledge.parsing.verdict import Verdict
from tests.knowledge import hostile

GOOD: dict[FileType, tuple[bytes, str]] = {
    "pdf": (hostile.pdf("Front page", "The boiler is in the cellar"), "boiler is in the cellar"),
    "docx": (hostile.docx("Book trains early."), "| Lisbon | 82 euros |"),
    "doc": (hostile.doc("The old contract ends in March. " * 8), "old contract ends in March"),
    "txt": ("Größe: fünf Meter".encode("cp1252"), "Größe: fünf Meter"),
    "md": (b"# Rules\n\nNo shoes inside.\n", "No shoes inside."),
    "html": (
        (
            b"<html><head><title>Shop</title></head><body><h2>Returns</h2><p>Within 30&nbsp;days.</p>"
            b"<script>hidden()</script><table><tr><th>Size</th></tr><tr><td>XL</td></tr></table></body></html>"
        ),
        "Within 30 days.",
    ),
    "csv": (b"name;city\nAda;London\nGrace;New York\n", "| Grace | New York |"),
    "json": (hostile.json_sample(), '"tuesday": "nine to five"'),
    "xlsx": (hostile.xlsx([["Item", "Price"], ["Lamp", 40.0]]), "| Lamp | 40 |"),
    "pptx": (hostile.pptx("Roadmap", "Ship in June"), "Ship in June"),
}


async def read(folder: Path, file_type: FileType, data: bytes, chunking: Chunking | None = None) -> Verdict:
    path = folder / "file"
    path.write_bytes(data)
    with path.open("rb") as file:
        return await child.read(file, file_type, chunking or Chunking())


@pytest.mark.parametrize("file_type", FILE_TYPES)
async def test_each_kind_of_file_is_read(tmp_path: Path, file_type: FileType) -> None:
    data, wanted = GOOD[file_type]
    verdict = await read(tmp_path, file_type, data)
    assert (verdict.fault, verdict.reason) == ("", "")
    assert wanted in "\n".join(piece.content for piece in verdict.pieces)
    assert "hidden()" not in "\n".join(piece.content for piece in verdict.pieces)


@pytest.mark.parametrize(("name", "data", "wanted"), list(hostile.corpus()), ids=lambda value: str(value)[:24])
async def test_a_hostile_file_ends_with_a_sentence_that_helps(
    tmp_path: Path, name: str, data: bytes, wanted: str
) -> None:
    file_type: FileType = name.rpartition(".")[2]  # pyright: ignore[reportAssignmentType]
    verdict = await read(tmp_path, file_type, data)
    assert verdict.pieces == []
    assert wanted in verdict.fault
    assert verdict.fault.endswith(".")


async def test_pages_headings_and_heads_of_tables_are_kept(tmp_path: Path) -> None:
    found = (await read(tmp_path, "pdf", GOOD["pdf"][0])).pieces
    assert [piece.page for piece in found][:1] == [1]
    rows: list[list[object]] = [["Item", "Price"], *[[f"Lamp number {number}", number] for number in range(200)]]
    tables = (await read(tmp_path, "xlsx", hostile.xlsx(rows), Chunking(chunk_size=64, chunk_overlap=0))).pieces
    assert len(tables) > 3
    assert tables[-1].table_head == "| Item | Price |"
    assert tables[-1].headings == ("Prices",)


@pytest.mark.parametrize("strategy", ["recursive", "fixed"])
@pytest.mark.parametrize("overlap", [0, 16])
def test_a_passage_is_exactly_what_its_places_say_and_never_too_long(strategy: str, overlap: int) -> None:
    draft = Draft()
    draft.raw("# Ünïcode 🎉\n\n" + "\n\n".join(f"Absatz {n}: déjà vu 🎈 " + "word " * (n % 90) for n in range(400)))
    pieces: list[Piece] = Cutter(Chunking(strategy, 64, overlap, ("Absatz 7",))).pieces(draft)  # pyright: ignore[reportArgumentType]
    assert all(draft.text[piece.start : piece.end] == piece.content for piece in pieces)
    assert max(piece.tokens for piece in pieces) <= 64
    assert all(piece.headings == ("Ünïcode 🎉",) for piece in pieces)


async def test_the_child_has_no_environment_and_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-children")
    script = """
import os, socket, subprocess
from parley.knowledge.parsing.confine import confine
confine(1)
could = []
for name, work in {
    "open a socket": lambda: socket.socket(),
    "start a program": lambda: subprocess.run(["true"]),
    "write a file": lambda: os.write(os.open("written", os.O_CREAT | os.O_WRONLY), b"x"),
    "fill the memory": lambda: bytearray(1 << 30),
}.items():
    try:
        work()
        could.append(name)
    except (OSError, MemoryError):
        pass
print(could, "OPENAI_API_KEY" in os.environ)
"""
    command = [sys.executable, "-I", "-c", script]
    done = subprocess.run(
        command, env=child.environment(), cwd=tmp_path, capture_output=True, timeout=30, check=False, text=True
    )
    assert done.stdout.strip() == "[] False", done.stderr


def test_a_child_that_was_stopped_or_talks_nonsense_is_told_as_such() -> None:
    assert child.verdict_of(b"", -signal.SIGXCPU).fault == child.TOO_SLOW
    assert child.verdict_of(b"", -signal.SIGSEGV).fault == child.GAVE_UP
    assert child.verdict_of(b"nonsense", 0).fault == child.GAVE_UP

"""Cutting a document's text into passages of so many tokens, with true places (contract §12)."""

from collections.abc import Iterator, Sequence

from semantic_text_splitter import MarkdownSplitter, TextSplitter
from tokenizers import Tokenizer

from parley.knowledge.embedding.weights import tokenizer_file
from parley.knowledge.model import Chunking, Piece
from parley.knowledge.parsing.draft import Draft, Unreadable

MOST_PIECES = 200_000
STRETCH_CHARACTERS = 100_000
SAMPLE_CHARACTERS = 1_000
# Passages are aimed a little short of their size, so that few have to be cut again.
AIM = 0.9

type Found = Sequence[tuple[int, str]]


class Cutter:
    """Cuts by characters, at the stretch's own rate of them a token, and cuts again what came out too long.

    Cutting by tokens throughout gives the same passages at seven times the cost.
    """

    def __init__(self, chunking: Chunking) -> None:
        self._tokenizer = Tokenizer.from_file(str(tokenizer_file()))
        self._tokenizer.no_truncation()
        self._kind = TextSplitter if chunking.strategy == "fixed" else MarkdownSplitter
        self._size, self._overlap = chunking.chunk_size, chunking.chunk_overlap
        self._separators = chunking.separators
        self._exact = self._kind.from_huggingface_tokenizer(self._tokenizer, self._size)

    def pieces(self, draft: Draft) -> list[Piece]:
        """The passages of a document. Raises Unreadable where there are none, or too many."""
        text = draft.text
        found: list[Piece] = []
        for start, end in _stretches(text, self._separators):
            found += [_piece(draft, start + at, content, tokens) for at, content, tokens in self._cut(text[start:end])]
            if len(found) > MOST_PIECES:
                raise Unreadable(f"The file makes more than {MOST_PIECES:,} passages. Split it into smaller files.")
        if not found:
            raise Unreadable("No text was found in the file.")
        return found

    def _cut(self, text: str) -> Iterator[tuple[int, str, int]]:
        """Passages with their places in this stretch and their sizes in tokens."""
        rate = len(text) / max(1, sum(self._count([text[at : at + SAMPLE_CHARACTERS] for at in _samples(text)])))
        most = max(1, int(self._size * AIM * rate))
        found: Found = self._kind(most, min(int(self._overlap * rate), most - 1)).chunk_indices(text)
        for (at, content), tokens in zip(found, self._count([content for _, content in found]), strict=True):
            if tokens <= self._size:
                yield at, content, tokens
            else:
                yield from self._again(at, content)

    def _again(self, start: int, text: str) -> Iterator[tuple[int, str, int]]:
        found: Found = self._exact.chunk_indices(text)
        for (at, content), tokens in zip(found, self._count([content for _, content in found]), strict=True):
            yield start + at, content, tokens

    def _count(self, texts: Sequence[str]) -> list[int]:
        return [len(one) for one in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]


def _samples(text: str) -> range:
    return range(0, len(text), SAMPLE_CHARACTERS)


def _piece(draft: Draft, start: int, content: str, tokens: int) -> Piece:
    # A passage that begins with its heading stands under it.
    return Piece(
        content=content,
        start=start,
        end=start + len(content),
        tokens=tokens,
        headings=draft.headings_at(start),
        page=draft.page_at(start),
        table_head=draft.table_head_at(start),
    )


def _stretches(text: str, separators: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Parts of the text that are cut each on its own: they end where a separator or a paragraph does."""
    start = 0
    while start < len(text):
        end = min(start + STRETCH_CHARACTERS, len(text))
        if end < len(text):
            border = text.rfind("\n\n", start + 1, end)
            border = border if border > start else text.rfind("\n", start + 1, end)
            end = border if border > start else end
        for separator in separators:
            found = text.find(separator, start, end)
            if found >= 0:
                end = min(end, found + len(separator))
        yield start, end
        start = end

"""Arguments that are never passed on, because they would turn one action into another (trust §2.5)."""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from urllib.parse import unquote

from parley.integrations.effects.table import Effect
from parley.turn.model import JsonValue

DECODING_ROUNDS = 8
UNICODE_ESCAPE = re.compile(r"%u([0-9a-f]{4})", re.IGNORECASE)
# Control characters, lone surrogates, line and paragraph separators.
INVISIBLE = frozenset({"Cc", "Cs", "Zl", "Zp"})
HOST_PART = re.compile(r"[a-z0-9-]{1,63}", re.IGNORECASE)
# A table or column: bare, or in double quotes, where a space may be; several are joined by dots.
IDENTIFIER = re.compile(r'(?:[\w$-]+|"[\w $-]+")(?:\.(?:[\w$-]+|"[\w $-]+"))*')

SEGMENT_RULE = (
    "one part of the request's address: it cannot be blank, nor hold '..', '/', '?', '#', a backslash or control "
    "characters, encoded or not."
)
PATH_RULE = (
    "part of the request's address: it cannot be '.', nor hold '..', '?', '#', a backslash or control characters, "
    "encoded or not."
)
ESCAPED_RULE = (
    "part of the request's address: no part of it can be '.' or '..', nor can it hold a backslash or control "
    "characters, encoded or not."
)
HOST_RULE = "part of a host name: it has only letters, digits and hyphens."
IDENTIFIER_RULE = "for names of tables and columns: letters, digits, '_', '$', '-', joined by dots."


def refuse_dangerous(arguments: Mapping[str, JsonValue], effect: Effect) -> str | None:
    """Why these arguments are not passed on, in a sentence for the model; None where nothing is wrong.

    A path parameter must not lead to another endpoint, nor a part of a host name to another host, and
    a name in SQL must be a name. Texts anywhere inside a parameter are checked, keys included.
    """
    rules: tuple[tuple[Sequence[str], Callable[[str], bool], str], ...] = (
        (effect.paths, _is_no_segment, SEGMENT_RULE),
        (effect.slashed_paths, _is_no_path, PATH_RULE),
        (effect.escaped_paths, _is_unsafe_path, ESCAPED_RULE),
        (effect.hosts, _is_no_host_part, HOST_RULE),
    )
    for names, is_wrong, rule in rules:
        for name in names:
            if any(is_wrong(text) for text in _texts(arguments.get(name))):
                return f"The parameter {name} is {rule} Send the plain value."
    for name in effect.identifiers:
        if any(_is_no_identifier(text) for text in _names(arguments.get(name))):
            return f"The parameter {name} is {IDENTIFIER_RULE}"
    return None


def _texts(value: JsonValue) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from _texts(item)
        case dict():
            for key, item in value.items():
                yield key
                yield from _texts(item)
        case _:
            return


def _names(value: JsonValue) -> Iterator[str]:
    """What is used as a name: a text, each text of a list, each key of an object (whose values are data)."""
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from _names(item)
        case dict():
            yield from value
        case _:
            return


# ── paths ───────────────────────────────────────────────────────────────────────────────────────


def _is_no_segment(text: str) -> bool:
    return not text.strip() or any("/" in form for form in _forms(text)) or _is_no_path(text)


def _is_no_path(text: str) -> bool:
    return _is_unsafe_path(text) or any(".." in form or not {"?", "#"}.isdisjoint(form) for form in _forms(text))


def _is_unsafe_path(text: str) -> bool:
    """Whether a server could read a part of it as here or up, or stumble over it."""
    return any(_is_unsafe(form) for form in _forms(text))


def _is_unsafe(form: str) -> bool:
    segments = re.split(r"[/\\]", unicodedata.normalize("NFKC", form))
    return (
        "\\" in form
        or any(segment.strip() in (".", "..") for segment in segments)
        or any(unicodedata.category(character) in INVISIBLE for character in form)
    )


def _forms(text: str) -> Iterator[str]:
    """The text, and what it becomes each time it is percent-decoded.

    What does not settle, or is no UTF-8 once decoded, comes with a control character, so that it is refused.
    """
    for _ in range(DECODING_ROUNDS):
        yield text
        decoded = unquote(UNICODE_ESCAPE.sub(lambda found: chr(int(found[1], 16)), text), errors="surrogateescape")
        if decoded == text:
            return
        text = decoded
    yield "\x00"


def _is_no_host_part(text: str) -> bool:
    return HOST_PART.fullmatch(text) is None


def _is_no_identifier(text: str) -> bool:
    return IDENTIFIER.fullmatch(text) is None or "--" in text

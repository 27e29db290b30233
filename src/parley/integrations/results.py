"""What comes out of an action: plain JSON values, of bounded size, without the credential's secrets.

Providers echo keys in error texts and integrations copy those into results, so secrets are
removed by value, in every form they travel in (trust §2.6).
"""

import base64
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, time
from enum import Enum
from html import escape
from typing import cast
from urllib.parse import quote, quote_plus

from parley.turn.model import JsonValue

ERROR_CHARACTERS = 500
RESULT_BYTES = 4 * 1024 * 1024
DEPTH = 64
NUMBER_BYTES = 8
BIGGEST_INTEGER = 2**63
REDACTED = "‹redacted›"
# Shorter texts would be found in innocent words; a secret of five characters is none.
SHORTEST_SECRET = 6
# A stable base64 core shorter than this matches by chance.
SHORTEST_CORE = 7
SHORTEST_LINE = 24
# Beyond it a secret is only looked for as it is, in base64, and line by line.
LONGEST_WHOLE = 600
QUOTED = 4  # how often a secret inside base64 may have been quoted before
PLAIN_RUN = re.compile(r"[A-Za-z0-9]*")
ESCAPES = 31  # backslashes before a character that was escaped five times over


class ActionFailed(Exception):
    """An action could not be run, or did not end well.

    ``public`` is a sentence for people and models, free of the credential's secrets, at most 500
    characters. ``attempted`` is False where nothing can have happened outside; ``unauthorized`` is
    True where the provider answered 401.
    """

    def __init__(self, public: str, *, attempted: bool, unauthorized: bool = False) -> None:
        self.public = public if len(public) <= ERROR_CHARACTERS else public[: ERROR_CHARACTERS - 1] + "…"
        self.attempted = attempted
        self.unauthorized = unauthorized
        super().__init__(self.public)


@dataclass(frozen=True, slots=True)
class Invoked:
    """An action ran and returned.

    ``succeeded`` is False where the integration reports a failure of its own in ``value``; the
    tool's status is ``ok`` all the same (contract §6).
    """

    value: JsonValue
    succeeded: bool = True
    unauthorized: bool = False


# ── secrets ─────────────────────────────────────────────────────────────────────────────────────


class Scrubber:
    """Replaces secrets in text, in the forms they travel in: as they are, URL-encoded, escaped, base64."""

    def __init__(self, secrets: Iterable[str]) -> None:
        pieces = {piece for secret in secrets for piece in _pieces(secret)}
        needles = {needle for piece in pieces for needle in _needles(piece)}
        self._needles = sorted(needles, key=lambda needle: (-len(needle), needle))
        # Of a document in lines, such as a private key, each line is looked for by itself.
        single = [piece for piece in pieces if not _is_plain(piece) and len(piece) <= LONGEST_WHOLE]
        spelled = sorted(single, key=lambda piece: (-len(piece), piece))
        # What is plain in a secret is so in each spelling: where that is missing, nothing needs to be tried.
        self._spelled = [(max(PLAIN_RUN.findall(piece), key=len), piece) for piece in spelled]
        sizes = [len(needle.encode()) for needle in needles] + [_greatest_length(piece) for piece in spelled]
        self.longest = max(sizes, default=0)

    def text(self, text: str) -> str:
        """The text without any of the secrets."""
        for needle in self._needles:
            if needle in text:
                text = text.replace(needle, REDACTED)
        for anchor, piece in self._spelled:
            if anchor in text:
                text = _pattern(piece).sub(REDACTED, text)
        return text

    def value(self, value: JsonValue) -> JsonValue:
        """The same value without any of the secrets, in keys either."""
        match value:
            case str():
                return self.text(value)
            case list():
                return [self.value(item) for item in value]
            case dict():
                return {self.text(key): self.value(item) for key, item in value.items()}
            case _:
                return value

    def head(self, text: str, most: int) -> str:
        """The first ``most`` characters of the text, or fewer, without any of the secrets.

        A secret is only recognised whole: what is looked at reaches one secret's length behind the
        cut, and as much is dropped again, because it may end in part of one.
        """
        if len(text) <= most + self.longest:
            return self.text(text)[:most]
        seen = self.text(text[: most + self.longest])
        return seen[: max(0, min(most, len(seen) - self.longest))]


def _pieces(secret: str) -> Iterable[str]:
    """The secret, and each long line of one that has several, such as a private key."""
    if len(secret) >= SHORTEST_SECRET:
        yield secret
    lines = secret.split("\n")
    if len(lines) > 1:
        yield from (
            line.strip() for line in lines if len(line.strip()) >= SHORTEST_LINE and not line.startswith("-----")
        )


def _needles(secret: str) -> set[str]:
    """The secret itself, and what base64 shows of it and of its usual spellings."""
    spellings = {secret, quote(secret, safe=""), quote_plus(secret)}
    quoted = secret
    for _ in range(QUOTED):
        quoted = json.dumps(quoted)[1:-1]
        spellings.add(quoted)
    return {*spellings, *(core for spelling in spellings for core in _base64_cores(spelling.encode()))}


def _is_plain(secret: str) -> bool:
    """Letters and digits look the same however often they are escaped."""
    return secret.isascii() and secret.isalnum()


def _greatest_length(secret: str) -> int:
    return sum(1 if _is_plain(character) else 4 * (ESCAPES + 6) for character in secret)


def _pattern(secret: str) -> re.Pattern[str]:
    """A pattern for every way of escaping the secret, each several times over.

    Texts are quoted inside texts: an error message in JSON in a log line in JSON has seven backslashes
    before a quote. The runs of backslashes are possessive, so that no text makes the search slow.
    """
    parts = list[str]()
    for found in re.finditer(r"\\+|[^\\]", secret, re.DOTALL):
        run = found[0] if found[0].startswith("\\") else ""
        coded = "%(?:25){0,2}5[cC]" * len(run)
        behind_run = found.start() > 0 and secret[found.start() - 1] == "\\"
        parts.append(rf"(?:(?<!\\)\\++|{coded})" if run else _spelled_character(found[0], behind_run=behind_run))
    return re.compile("".join(parts))


def _spelled_character(character: str, *, behind_run: bool) -> str:
    """One character in each spelling; behind a run of backslashes its own ones are already taken."""
    if _is_plain(character) and not behind_run:
        return character
    fewest = 0 if behind_run else 1
    percent = "".join(f"%(?:25){{0,2}}{_either_case(f'{byte:02x}')}" for byte in character.encode(errors="replace"))
    units = character.encode("utf-16-be", "surrogatepass").hex()
    coded = [f"u{_either_case(units[start : start + 4])}" for start in range(0, len(units), 4)]
    ways = [
        rf"\\{{0,{ESCAPES}}}+{re.escape(character)}",
        percent,
        rf"\\{{{fewest},{ESCAPES}}}+" + rf"\\{{1,{ESCAPES}}}+".join(coded),
        f"&#0*{ord(character)};",
        *(rf"\\{{{fewest},{ESCAPES}}}+{letter}" for letter in json.dumps(character)[2:3] if letter in "bfnrt"),
        *([re.escape(escape(character))] if escape(character) != character else []),
        *([r"\+"] if character == " " else []),
    ]
    return f"(?:{'|'.join(ways)})"


def _either_case(digits: str) -> str:
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in digits)


def _base64_cores(secret: bytes) -> Iterable[str]:
    """What base64 shows of the secret wherever it starts in the encoded bytes.

    That covers ``Basic`` pairs of any user name: the characters shared with neighbouring bytes are
    left out, so a core stands in every encoding that contains the secret at that offset.
    """
    for offset in range(3):
        padded = b"\0" * offset + secret
        first = math.ceil(offset * 8 / 6)
        last = len(padded) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            core = encode(padded).decode()[first:last]
            if len(core) >= SHORTEST_CORE:
                yield core


# ── plain values ────────────────────────────────────────────────────────────────────────────────


def plain(value: object, scrubber: Scrubber, max_bytes: int = RESULT_BYTES) -> JsonValue:
    """Whatever an action returned, as JSON values of at most ``max_bytes``, scrubbed.

    Models, dataclasses and rows become objects; bytes become text, or base64 where they are none;
    dates ISO 8601; what JSON has no number for, null. What does not fit is cut by structure: long
    texts say how much is missing, lists and objects how many items were left out.
    """
    return _Plainer(scrubber, max_bytes).value(value, 0)


class _Plainer:
    """One pass over a result, with the bytes that are left."""

    def __init__(self, scrubber: Scrubber, max_bytes: int) -> None:
        self._scrubber = scrubber
        self._left = max_bytes

    def value(self, value: object, depth: int) -> JsonValue:
        if value is None or isinstance(value, bool | int | float):
            self._left -= NUMBER_BYTES
            return _number(value)
        if depth > DEPTH:
            return "… [nested too deeply]"
        mapping = _as_mapping(value)
        if mapping is not None:
            return self._object(mapping, depth)
        if isinstance(value, list | tuple | set | frozenset):
            return self._list(cast("Collection[object]", value), depth)
        return self._text(_as_text(value))

    def _text(self, text: str) -> str:
        room = max(self._left, 0)
        encoded = text.encode(errors="replace")
        kept = self._scrubber.text(encoded.decode()) if len(encoded) <= room else self._cut(encoded, room)
        self._left -= len(kept.encode())
        return kept

    def _cut(self, encoded: bytes, room: int) -> str:
        kept = self._scrubber.head(encoded.decode(), room).encode()[:room].decode(errors="ignore")
        return f"{kept}… [{len(encoded) - len(kept.encode())} more bytes left out]"

    def _list(self, items: Collection[object], depth: int) -> list[JsonValue]:
        kept: list[JsonValue] = []
        for item in items:
            if self._left <= 0:
                kept.append(f"… [{len(items) - len(kept)} more items left out]")
                break
            kept.append(self.value(item, depth + 1))
        return kept

    def _object(self, items: Mapping[object, object], depth: int) -> dict[str, JsonValue]:
        kept: dict[str, JsonValue] = {}
        for key, item in items.items():
            if self._left <= 0:
                kept["…"] = f"[{len(items) - len(kept)} more fields left out]"
                break
            name = self._text(str(key))
            kept[name] = self.value(item, depth + 1)
        return kept


def _number(value: float | None) -> JsonValue:
    """A number JSON can carry: null for infinities, text for integers beyond 64 bits."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, bool):
        return value
    return int(value) if abs(value) < BIGGEST_INTEGER else str(int(value))


def _as_mapping(value: object) -> Mapping[object, object] | None:
    """A value with named parts as a mapping; None for any other."""
    if isinstance(value, Mapping):
        return cast("Mapping[object, object]", value)
    if isinstance(value, type):
        return None
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    dump = getattr(value, "model_dump", None) or getattr(value, "to_dict", None)
    dumped: object = dump() if callable(dump) else None
    return cast("Mapping[object, object]", dumped) if isinstance(dumped, Mapping) else None


def _as_text(value: object) -> str:
    match value:
        case Enum():
            return str(value.value)
        case bytes() | bytearray() | memoryview():
            return _bytes_text(bytes(value))
        case datetime() | date() | time():
            return value.isoformat()
        case _:
            return str(value)


def _bytes_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()

"""JSON values as the text a model reads, cut to a size without breaking them."""

import msgspec

from parley.turn.model import JsonValue

NOT_JSON = (msgspec.MsgspecError, ValueError, RecursionError)
"""What decoding a text from outside raises: it is no JSON, holds half a character, or is nested without end."""


def as_text(value: JsonValue) -> str:
    """The JSON text of a value."""
    return msgspec.json.encode(value).decode()


def parsed_arguments(arguments: str) -> JsonValue:
    """A call's arguments as people are shown them: the value, or the text where it is no JSON or ``null``."""
    if not arguments.strip():
        return {}
    try:
        value: JsonValue = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return arguments
    return arguments if value is None else value


# How much of long texts and long lists stays, tried in this order until the whole fits.
SQUEEZES = ((2_000, 40), (1_000, 20), (500, 12), (240, 8), (120, 5), (60, 3))
DEPTH = 12


def shortened(value: JsonValue, limit: int) -> JsonValue:
    """The value with long texts and lists cut in their middle, so that its JSON has at most ``limit`` characters.

    It stays a value of the same shape: what is left out is counted where it was. A value that no
    cutting makes small enough becomes the head of its JSON text.
    """
    for text_limit, list_limit in SQUEEZES:
        squeezed = _squeeze(value, text_limit, list_limit, DEPTH)
        if len(as_text(squeezed)) <= limit:
            return squeezed
    return as_text(value)[: limit - 2]


def _squeeze(value: JsonValue, text_limit: int, list_limit: int, depth: int) -> JsonValue:
    if isinstance(value, str):
        return value if len(value) <= text_limit else _middle_out(value, text_limit)
    if isinstance(value, list):
        if depth == 0:
            return f"… {len(value)} items left out …"
        kept = [_squeeze(item, text_limit, list_limit, depth - 1) for item in _ends(value, list_limit)]
        if len(value) > list_limit:
            kept.insert(len(kept) - 1, f"… {len(value) - len(kept)} more items left out …")
        return kept
    if isinstance(value, dict):
        if depth == 0:
            return f"… {len(value)} fields left out …"
        return {key: _squeeze(item, text_limit, list_limit, depth - 1) for key, item in value.items()}
    return value


def _ends(items: list[JsonValue], limit: int) -> list[JsonValue]:
    """The first items and the last one."""
    return items if len(items) <= limit else [*items[: limit - 1], items[-1]]


def _middle_out(text: str, limit: int) -> str:
    head, tail = limit * 2 // 3, limit // 3
    return f"{text[:head]} … {len(text) - head - tail} characters left out … {text[-tail:]}"

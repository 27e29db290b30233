"""The second net behind path parameters: what an action may send is known before it runs (trust §2.5).

``data/pins.json`` holds, for each integration, the hosts it speaks to and, for each action, the requests
it was seen to make: a method and a path in which ``*`` is one segment or a part of one, ``**`` any path,
and ``{}`` a part that comes from the credential. ``python -m parley.integrations.effects.review.record``
makes it. A request that fits none of them does not leave.
"""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import msgspec

PINS = Path(__file__).parent / "data" / "pins.json"
# Hosts that an action may be sent to by an answer of the provider (an upload address), or by an argument.
ANSWERED, FETCHED = "{answer}", "{argument}"
PARTS = re.compile(r"\*\*|\*|\{\}")


class Pinned(msgspec.Struct, frozen=True):
    """One integration: host patterns, and requests by action. An action without requests was never seen to make one."""

    hosts: tuple[str, ...]
    actions: dict[str, tuple[str, ...]]


class Pin:
    """What one call of one action may send, with these texts in its credential and in its arguments."""

    def __init__(self, pinned: Pinned, action: str, known: Iterable[str], given: Iterable[str]) -> None:
        self._hosts = pinned.hosts
        self._requests = pinned.actions.get(action, ())
        self._known = tuple(text.lower() for text in known)
        self._given = tuple(text.lower() for text in given)

    def allows(self, method: str, host: str, path: str) -> bool:
        """Whether a request fits; ``path`` is as it goes over the wire, without the query."""
        if not self._requests:
            return self._is_own(host)
        return any(self._is_such(request, method, host, path) for request in self._requests)

    def _is_such(self, request: str, method: str, host: str, path: str) -> bool:
        pinned, _, place = request.partition(" ")
        target, _, template = place.partition("/")
        if pinned != method or not self._fits(f"{'{}' if target == '{}' else ''}/{template}", path):
            return False
        if target == ANSWERED:
            return True
        if target == FETCHED:
            return any(host in text for text in self._given)
        return self._is_own(host)

    def _is_own(self, host: str) -> bool:
        return any(self._fits(pattern, host) for pattern in self._hosts)

    def _fits(self, template: str, text: str) -> bool:
        """Whether the text is made after the template, with parts of the credential where they belong."""
        found = _pattern(template).fullmatch(text)
        if found is None:
            return False
        return all(self._is_known(part) for name, part in found.groupdict().items() if name.startswith("c"))

    def _is_known(self, part: str | None) -> bool:
        wanted = unquote(part or "").strip("/").lower()
        return not wanted or any(wanted in text for text in self._known)


@cache
def _pinned() -> dict[str, Pinned]:
    return msgspec.json.decode(PINS.read_bytes(), type=dict[str, Pinned])


def pin_of(integration: str, action: str, known: Iterable[str], given: Iterable[str]) -> Pin | None:
    """The pin of one call; None for an integration that does not speak through httpx."""
    pinned = _pinned().get(integration)
    return None if pinned is None or not pinned.hosts else Pin(pinned, action, known, given)


def all_pins() -> dict[str, Pinned]:
    """Every integration's pins, by its name."""
    return _pinned()


@cache
def _pattern(template: str) -> re.Pattern[str]:
    is_path = "/" in template
    parts, position, count = list[str](), 0, 0
    for found in PARTS.finditer(template):
        parts.append(re.escape(template[position : found.start()]))
        match found[0]:
            case "**":
                parts.append(".*")
            case "*":
                parts.append("[^/]+" if is_path else "[a-z0-9-]+")
            case _:
                parts.append(f"(?P<c{count}>.*)" if is_path else f"(?P<c{count}>[a-z0-9.-]+)")
                count += 1
        position = found.end()
    return re.compile("".join((*parts, re.escape(template[position:]))), re.DOTALL)

"""What can go wrong between the terminal and the server, in words that say what to do next."""

from collections.abc import Mapping
from typing import Any, cast

import msgspec

LAYERS = ("credit", "wallet", "quota", "rate")


class Trouble(Exception):
    """Something stands in the way of a person; the message tells them what, and what to do."""


class Unreachable(Trouble):
    """No answer came, or one that no Parley gives."""


class Refused(Trouble):
    """The server said no, with this ``status``. ``retry_after`` is in seconds, where it says when."""

    def __init__(self, sentence: str, status: int, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.retry_after = retry_after


def not_running(url: str) -> Unreachable:
    """Nobody listens at the address."""
    return Unreachable(
        f"No Parley answers at {url}. Start one with: parley serve. Is it elsewhere? Name it with --url or PARLEY_URL."
    )


def not_parley(url: str) -> Unreachable:
    """Something else answers at the address."""
    return Unreachable(f"What answers at {url} is not a Parley server. Check --url or PARLEY_URL.")


def refusal(status: int, body: bytes, headers: Mapping[str, str], url: str) -> Trouble:
    """What a response that is no success means (contract §10)."""
    wait = _seconds(headers.get("Retry-After"))
    said = _decoded(body)
    denial = _denial(said)
    if denial is not None:
        return Refused(_denied(denial, wait, url), status, wait)
    detail = _detail(said)
    match status:
        case 401:
            return Refused(
                f"The server does not accept this API key ({detail or 'it gave no reason'}). Check --key or "
                "PARLEY_API_KEY. A new one is made on the server's machine with: parley keys create EMAIL",
                status,
            )
        case _ if status < 400 or (status in {404, 405} and not detail):
            return not_parley(url)
        case 404:
            return Refused(f"{detail.rstrip('.')}. Check the id; /app in a browser lists what is there.", status)
        case 429:
            return Refused(_later(detail or "The server is asked too often just now.", wait), status, wait)
        case _ if status >= 500:
            return Refused(_later(detail or "The server had a problem. Try again in a moment.", wait), status, wait)
        case _:
            return Refused(detail or f"The server refused this ({status}) without saying why.", status, wait)


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _denial(said: dict[str, Any]) -> dict[str, Any] | None:
    """The billing envelope, flat or inside ``detail``."""
    inner = said.get("detail")
    held = cast("dict[str, Any]", inner) if isinstance(inner, dict) else said
    return held if held.get("layer") in LAYERS else None


def _denied(denial: dict[str, Any], wait: float | None, url: str) -> str:
    figures = _figures(denial)
    usage = f"{url}/app/usage"
    match denial["layer"]:
        case "credit":
            return f"This month's credits are used up{figures}. Take a larger plan or switch on the wallet: {usage}"
        case "wallet":
            return f"This month's credits are used up, and the wallet cannot pay for more. Top it up: {usage}"
        case "quota":
            what = str(denial.get("key") or "things").replace("_", " ")
            return f"Your plan allows no more {what}{figures}. Wait, remove one, or take a larger plan: {usage}"
        case _:
            return _later(f"Your plan allows no more of this in one minute{figures}.", wait)


def _figures(denial: dict[str, Any]) -> str:
    current, limit = denial.get("current"), denial.get("limit")
    if not isinstance(current, int | float) or not isinstance(limit, int | float):
        return ""
    return f" ({current:g} of {limit:g})"


def _detail(said: dict[str, Any]) -> str:
    detail = said.get("detail")
    if isinstance(detail, list):
        return " ".join(_field(item) for item in cast("list[Any]", detail))
    return detail if isinstance(detail, str) else ""


def _field(item: object) -> str:
    if not isinstance(item, dict):
        return str(item)
    known = cast("dict[str, Any]", item)
    place = ".".join(str(part) for part in known.get("loc", ()) if part != "body")
    return f"{place}: {known.get('msg', 'is not valid')}." if place else f"{known.get('msg', 'Not valid')}."


def _later(sentence: str, wait: float | None) -> str:
    if wait is None or "second" in sentence:
        return sentence
    return f"{sentence} Try again in {wait:g} second{'' if wait == 1 else 's'}."


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None

"""Running one action: find it, fill it in, bound it, and hand back plain and clean values."""

import asyncio
import re
from collections.abc import Mapping
from functools import partial

from parley.integrations.arguments import Secret, call_arguments, secret_values, texts_of
from parley.integrations.catalog import Catalog
from parley.integrations.index import Action, Integration
from parley.integrations.loading import CannotLoad
from parley.integrations.pins import pin_of
from parley.integrations.results import ActionFailed, Invoked, Scrubber, plain
from parley.integrations.transport import Watch, watching
from parley.turn.model import JsonValue

UNAUTHORIZED = 401
# Results up to this size are made plain on the event loop; more would hold it up for milliseconds.
SMALL_BYTES = 64 * 1024
SNIPPET_CHARACTERS = 300


async def invoke(
    catalog: Catalog,
    integration_name: str,
    action_name: str,
    arguments: Mapping[str, JsonValue],
    secret: Secret,
    *,
    seconds: float,
    max_bytes: int,
) -> Invoked:
    """Run one action with one credential; at most ``seconds`` in all, loading its code included.

    ``arguments`` are the model's: unknown ones are dropped, and what belongs to the credential comes
    from ``secret`` only. ``max_bytes`` bounds what is read from the provider. The value is plain
    JSON, at most 4 MiB, without the credential's secrets.

    Raises ActionFailed for whatever goes wrong; a cancellation passes through.
    """
    integration, action = _find(catalog, integration_name, action_name)
    scrubber = Scrubber(secret_values(integration, secret))
    deadline = asyncio.timeout(seconds)
    pin = pin_of(integration.name, action.name, texts_of(secret.auth_data), texts_of(arguments))
    with watching(max_bytes, pin) as watch:
        try:
            async with deadline:
                value = await _run(catalog, integration, action, arguments, secret)
                if watch.strayed:
                    raise _strayed(integration, action, watch)
                return await _finished(integration, value, watch, scrubber)
        except ActionFailed:
            raise
        except TimeoutError as error:
            late = deadline.expired()
            said = _late(integration, seconds) if late else _described(integration, error, scrubber)
            raise ActionFailed(said, attempted=True) from None
        except Exception as error:  # whatever an integration or its driver raises is a value to the model
            if watch.strayed:
                raise _strayed(integration, action, watch) from None
            unauthorized = UNAUTHORIZED in (watch.status, _status(error))
            said = _too_large(integration, watch) if watch.overflowed else _described(integration, error, scrubber)
            raise ActionFailed(said, attempted=True, unauthorized=unauthorized) from None


def _find(catalog: Catalog, integration_name: str, action_name: str) -> tuple[Integration, Action]:
    integration = catalog.find(integration_name)
    if integration is None:
        raise ActionFailed(f"Integration '{integration_name}' not found", attempted=False)
    action = catalog.action(integration, action_name)
    if action is None:
        raise ActionFailed(f"Action '{action_name}' not found in {integration_name}", attempted=False)
    if action.switched_off:
        raise ActionFailed(
            f"{integration_name}.{action_name} is switched off on this server. {action.switched_off}", attempted=False
        )
    broken = catalog.failures().get(integration_name)
    if broken is not None:
        raise _unloadable(integration, broken)
    return integration, action


async def _run(
    catalog: Catalog, integration: Integration, action: Action, arguments: Mapping[str, JsonValue], secret: Secret
) -> object:
    try:
        loaded = (await catalog.loader.load(integration))[action.name]
    except CannotLoad as error:
        raise _unloadable(integration, str(error)) from error
    filled = call_arguments(integration, action, loaded.arguments, arguments, secret)
    return await catalog.loader.run(integration, partial(loaded.call, **filled))


async def _finished(integration: Integration, value: object, watch: Watch, scrubber: Scrubber) -> Invoked:
    if watch.overflowed:
        raise ActionFailed(_too_large(integration, watch), attempted=True)
    if 0 < watch.read <= SMALL_BYTES:
        result = plain(value, scrubber)
    else:
        result = await asyncio.to_thread(plain, value, scrubber)
    if isinstance(result, dict) and result.get("success") is False:
        # A client other than httpx is not watched, so there the integration's own words must do.
        status = watch.status or _told_status(str(result.get("error")))
        return Invoked(result, succeeded=False, unauthorized=status == UNAUTHORIZED)
    return Invoked(result)


# ── sentences ───────────────────────────────────────────────────────────────────────────────────


def _unloadable(integration: Integration, reason: str) -> ActionFailed:
    return ActionFailed(
        f"{integration.display_name} does not load on this server: {reason}. "
        "The operator of Parley can mend it; `parley doctor` says how.",
        attempted=False,
    )


def _late(integration: Integration, seconds: float) -> str:
    return (
        f"{integration.display_name} gave no answer within {seconds:g} s. "
        "It may have happened all the same: look before trying again."
    )


def _strayed(integration: Integration, action: Action, watch: Watch) -> ActionFailed:
    return ActionFailed(
        f"Parley held back a request of {integration.name}.{action.name}: with these parameters it would have sent "
        f"{watch.strayed} to a place where this action has no business. "
        f"{'Earlier requests of it were sent' if watch.sent else 'Nothing was sent'}. Send plain values.",
        attempted=watch.sent > 0,
    )


def _too_large(integration: Integration, watch: Watch) -> str:
    return (
        f"{integration.display_name} answered with more than {watch.max_bytes:,} bytes. "
        "Ask for less: a smaller page, fewer fields or a narrower filter."
    )


def _described(integration: Integration, error: Exception, scrubber: Scrubber) -> str:
    """The provider's answer where the exception carries one, else the exception's own words."""
    status = _status(error)
    if status is None:
        return f"{type(error).__name__}: {_one_line(str(error), scrubber)}".rstrip(": ")
    response = getattr(error, "response", None)
    body = getattr(response, "text", None) or getattr(error, "body", None) or getattr(error, "reason", None) or ""
    return f"{integration.display_name} answered {status}: {_one_line(str(body), scrubber)}".rstrip(": ")


def _status(error: Exception) -> int | None:
    """The HTTP status an exception of one of the usual clients carries."""
    for holder, name in ((getattr(error, "response", None), "status_code"), (error, "status"), (error, "status_code")):
        status = getattr(holder, name, None)
        if isinstance(status, int):
            return status
    return None


def _told_status(text: str) -> int:
    """The HTTP status that an error text begins with, such as ``(401) Reason: …``; 0 without one."""
    found = re.search(r"\((\d{3})\)", text[:SNIPPET_CHARACTERS])
    return int(found[1]) if found else 0


def _one_line(text: str, scrubber: Scrubber) -> str:
    line = " ".join(scrubber.head(text, 4 * SNIPPET_CHARACTERS).split())
    return line if len(line) <= SNIPPET_CHARACTERS else f"{line[:SNIPPET_CHARACTERS]}…"

"""``parley replay``: save a turn, or run it again and show where the decisions part."""

import asyncio
import os
from contextlib import AsyncExitStack
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import msgspec

from parley.base.settings import Settings
from parley.chats.direct import EXECUTE
from parley.cli.replay.bundle import Bundle, BundleUnusable, Decision, read_bundle, take_bundle
from parley.cli.replay.rerun import Rerun, plain_arguments, rerun
from parley.egress import Egress
from parley.llm import DEMO, MANAGED, LlmConfig
from parley.wiring import open_models

SHOWN_CHARACTERS = 160


class _Action(msgspec.Struct):
    """The arguments of ``execute_integration_tool``."""

    integration_name: str
    tool_name: str
    parameters: dict[str, Any] = {}  # msgspec cannot follow the recursive JsonValue


def replay(settings: Settings, what: str, llm: str, save: Path | None) -> int:
    """``what`` is a run's id or a bundle's file. The exit code: 1 when the decisions differ.

    Raises BundleUnusable, StoreTrouble, KeyringError or a Refusal of the model.
    """
    bundle = read_bundle(Path(what)) if Path(what).is_file() else take_bundle(settings, what)
    if save is not None:
        _save(bundle, save)
        print(f"{save}: {len(bundle.decisions)} decisions of {bundle.provider}/{bundle.model}, without secrets.")
        return 0
    provider, _, model = (llm or f"{bundle.provider}/{bundle.model}").partition("/")
    again = asyncio.run(_rerun(settings, bundle, provider, model))
    return _show(bundle, again, f"{provider}/{model}")


def _save(bundle: Bundle, path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise BundleUnusable(f"{path} cannot be written: {error.strerror}. Choose another name.") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(bundle), indent=1) + b"\n")


async def _rerun(settings: Settings, bundle: Bundle, provider: str, model: str) -> Rerun:
    config = LlmConfig(DEMO if provider == DEMO else MANAGED, provider, model)
    async with AsyncExitStack() as stack:
        egress = Egress(settings.allow_private_hosts, settings.environment)
        stack.push_async_callback(egress.close)
        models = await open_models(settings, egress)
        return await rerun(bundle, models.open(config, None), models.facts(config).context_tokens)


def _show(bundle: Bundle, again: Rerun, other: str) -> int:
    print(f"- {bundle.provider}/{bundle.model}, recorded ({bundle.outcome})")
    print(f"+ {other}, now ({again.ended})\n")
    recorded, now = [_line(each) for each in bundle.decisions], [_line(each) for each in again.decisions]
    same = 0
    for kind, a, b, c, d in SequenceMatcher(a=recorded, b=now, autojunk=False).get_opcodes():
        if kind == "equal":
            same += b - a
            _print(recorded[a:b], " ")
        else:
            _print(recorded[a:b], "-")
            _print(now[c:d], "+")
    print(f"\n{same} of {len(recorded)} decisions are the same; {len(now)} were made now.")
    for sign, text in (("-", bundle.answer), ("+", again.answer)):
        print(f"{sign} {_short(text)}")
    return 0 if recorded == now and again.ended == "completed" else 1


def _print(lines: list[str], sign: str) -> None:
    for line in lines:
        print(f"{sign} {_short(line)}")


def _line(decision: Decision) -> str:
    """A decision in one line; an action by its own name, which is what people look for."""
    plain = f"{decision.tool} {plain_arguments(decision.arguments)}"
    if decision.tool != EXECUTE:
        return plain
    try:
        action = msgspec.json.decode(decision.arguments, type=_Action)
    except msgspec.DecodeError:
        return plain
    parameters = plain_arguments(msgspec.json.encode(action.parameters).decode())
    return f"{action.integration_name}.{action.tool_name} {parameters}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]}…"

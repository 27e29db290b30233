"""A turn as one document: what the model was given, what it decided, what came back. No secret is in it.

The conversation before the turn is in it as the model was sent it, so a bundle is as private as its chat.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, select

from parley.base.settings import Settings, SettingsError
from parley.cli.opening import existing_keyring, read_rows
from parley.credentials.secrets_of import secrets_of
from parley.credentials.vault import Vault
from parley.integrations import Scrubber
from parley.runs import chat_store
from parley.runs.transcript import from_row, to_row
from parley.storage import ReadTx
from parley.storage.tables.chats import chats, runs, transcript
from parley.tools import PROFILES
from parley.turn.compaction import view
from parley.turn.model import AssistantEntry, Entry, ToolEntry, ToolSpec
from parley.turn.pace import NOT_RUN

FORMAT = 1


class BundleUnusable(SettingsError):
    """There is no such run, or the file is no bundle; the message says which."""


class Decision(msgspec.Struct, frozen=True):
    """One call that the model decided on, and what came back. ``arguments`` and ``output`` are JSON text."""

    tool: str
    arguments: str
    output: str


class Recorded(msgspec.Struct, frozen=True):
    """One entry of the conversation, as its row has it."""

    role: str
    body: dict[str, Any]  # msgspec cannot follow the recursive JsonValue


class ToolTold(msgspec.Struct, frozen=True):
    """A tool as the model was told of it."""

    name: str
    description: str
    parameters: dict[str, Any]


class Bundle(msgspec.Struct, frozen=True):
    """A turn. ``before`` ends with the message that began it; ``outcome`` is its last run's status."""

    format: int
    parley: str
    made_at: str
    run_id: str
    provider: str
    model: str
    outcome: str
    system: str
    tools: list[ToolTold]
    before: list[Recorded]
    decisions: list[Decision]
    answer: str

    def entries(self) -> list[Entry]:
        """The conversation that the turn began with."""
        return [from_row(each.role, each.body) for each in self.before]

    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools, as the loop knows them."""
        return tuple(ToolSpec(each.name, each.description, each.parameters) for each in self.tools)


def read_bundle(path: Path) -> Bundle:
    """A bundle from its file. Raises BundleUnusable."""
    try:
        bundle = msgspec.json.decode(path.read_bytes(), type=Bundle)
    except (OSError, msgspec.DecodeError) as error:
        raise BundleUnusable(f"{path} is no bundle of parley replay: {error}") from None
    if bundle.format != FORMAT:
        raise BundleUnusable(f"{path} has format {bundle.format}, and this Parley reads {FORMAT}.")
    return bundle


def take_bundle(settings: Settings, run_id: str) -> Bundle:
    """The turn of a run, out of the store, cleared of every secret of its organization.

    Raises BundleUnusable, StoreTrouble or KeyringError.
    """
    vault = Vault(existing_keyring(settings))

    def work(tx: ReadTx) -> Bundle:
        bundle, organization_id = _take(tx, run_id)
        scrubber = Scrubber(secrets_of(tx, organization_id, vault))
        return msgspec.convert(scrubber.value(msgspec.to_builtins(bundle)), Bundle)

    return asyncio.run(read_rows(settings, work))


def _take(tx: ReadTx, run_id: str) -> tuple[Bundle, str]:
    run = tx.execute(
        select(runs, chats.c.kind).join(chats, chats.c.id == runs.c.chat_id).where(runs.c.id == run_id)
    ).first()
    if run is None:
        raise BundleUnusable(f"There is no run {run_id} in this store.")
    turn = chat_store.runs_of_turn(tx, run.turn_id)
    first_seq = tx.execute(
        select(transcript.c.seq)
        .where(transcript.c.chat_id == run.chat_id, transcript.c.run_id == run.turn_id, transcript.c.role == "user")
        .order_by(transcript.c.seq)
        .limit(1)
    ).scalar()
    if first_seq is None:
        raise BundleUnusable(f"The run {run_id} has no message that began it: it cannot be replayed.")
    profile = PROFILES[run.kind]
    asked, *happened = _of_turn(tx, run.chat_id, [each.id for each in turn], first_seq)
    before = [*_sent_before(tx, run.chat_id, first_seq), asked]
    bundle = Bundle(
        format=FORMAT,
        parley=version("parley"),
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        run_id=run.id,
        provider=str(run.llm.get("provider_id", "")),
        model=str(run.llm.get("model_id", "")),
        outcome=turn[-1].status,
        system=profile.prompt,
        tools=[ToolTold(tool.spec.name, tool.spec.description, tool.spec.parameters) for tool in profile.tools],
        before=[_recorded(entry) for entry in before],
        decisions=_decisions(happened),
        answer=_answer(happened),
    )
    return bundle, run.organization_id


def _sent_before(tx: ReadTx, chat_id: str, first_seq: int) -> list[Entry]:
    """The conversation before the turn, as it is sent now."""
    from_seq, compaction = chat_store.latest_compaction(tx, chat_id)
    entries = _entries(tx, chat_id, transcript.c.seq >= from_seq, transcript.c.seq < first_seq)
    return view(entries, compaction)


def _of_turn(tx: ReadTx, chat_id: str, run_ids: Sequence[str], first_seq: int) -> list[Entry]:
    return _entries(tx, chat_id, transcript.c.run_id.in_(run_ids), transcript.c.seq >= first_seq)


def _entries(tx: ReadTx, chat_id: str, *where: ColumnElement[bool]) -> list[Entry]:
    rows = tx.execute(
        select(transcript.c.role, transcript.c.body)
        .where(transcript.c.chat_id == chat_id, transcript.c.role != "summary", *where)
        .order_by(transcript.c.seq)
    )
    return [from_row(role, body) for role, body in rows]


def _recorded(entry: Entry) -> Recorded:
    """An entry for any model: what only its own provider can read stays behind."""
    if isinstance(entry, AssistantEntry):
        entry = AssistantEntry(entry.text, entry.calls)
    return Recorded(*to_row(entry))


def _decisions(entries: Sequence[Entry]) -> list[Decision]:
    outputs = {entry.call_id: entry.output for entry in entries if isinstance(entry, ToolEntry)}
    calls = [entry.calls[0] for entry in entries if isinstance(entry, AssistantEntry) and entry.calls]
    return [Decision(call.tool, call.arguments, outputs.get(call.id, NOT_RUN)) for call in calls]


def _answer(entries: Sequence[Entry]) -> str:
    said = [entry.text for entry in entries if isinstance(entry, AssistantEntry) and not entry.calls]
    return said[-1] if said else ""

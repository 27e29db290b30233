"""T1: PostgreSQL shows a task the rows of the organization it acts for, and no other (the second net)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import delete, insert, inspect, select, text, update
from sqlalchemy.exc import ProgrammingError

from parley.base.ids import new_id
from parley.knowledge.words import search_words
from parley.storage import ReadTx, Store, WriteTx, open_store
from parley.storage.acting import NOBODY, acting_for
from parley.storage.schema import migrate
from parley.storage.tables.accounts import audit_log, organizations, users
from parley.storage.tables.chats import chats, messages, run_events, runs, tool_results, transcript
from parley.storage.tables.knowledge import chunks, document_pieces, documents, knowledge_bases
from parley.storage.tenancy import POLICY
from tests.conftest import fresh_database

OURS, THEIRS = new_id(), new_id()
# Tables without an organization of their own, whose rows cannot be without one of a table that has it.
HANGING = {"messages", "transcript", "run_events", "tool_results", "chunks", "chunk_vectors", "own_actions"}
SAID = [
    (messages, messages.c.chat_id),
    (transcript, transcript.c.chat_id),
    (tool_results, tool_results.c.chat_id),
    (run_events, run_events.c.run_id),
]


@pytest.fixture
async def net(tmp_path: Path, postgres_template: str | None) -> AsyncIterator[Store]:
    """A PostgreSQL store with one entry of each of two organizations, as a server has it."""
    async with fresh_database("postgresql", tmp_path, postgres_template) as url:
        store = open_store(url, connections=3)
        await store.across.write(_two_organizations)
        yield store
        await store.close()


def _two_organizations(tx: WriteTx) -> None:
    for organization_id in (OURS, THEIRS):
        tx.execute(
            insert(organizations).values(
                id=organization_id, name="One", slug=organization_id, is_active=True, settings={}, created_at=0
            )
        )
        tx.execute(insert(audit_log).values(_entry(organization_id)))


def _entry(organization_id: str) -> dict[str, object]:
    return {
        "id": new_id(),
        "organization_id": organization_id,
        "category": "CHAT",
        "operation": "made",
        "message": "Made",
        "detail": {},
        "created_at": 0,
    }


def _everything(tx: ReadTx) -> list[str]:
    """A query that forgot its organization."""
    return sorted(tx.execute(select(audit_log.c.organization_id)).scalars())


async def test_T1_a_query_that_forgot_its_organization_finds_only_the_callers_rows(net: Store) -> None:
    with acting_for(OURS):
        assert await net.read(_everything) == [OURS]
        assert await net.write(_everything) == [OURS]
    with acting_for(THEIRS):
        assert await net.read(_everything) == [THEIRS]


async def test_T1_a_task_that_acts_for_nobody_sees_and_changes_nothing(net: Store) -> None:
    assert await net.read(_everything) == []
    assert await net.write(_everything) == []
    assert await net.write(lambda tx: tx.execute(delete(audit_log)).rowcount) == 0
    assert await net.across.read(_everything) == sorted([OURS, THEIRS])


async def test_T1_no_row_is_put_into_another_organization_or_moved_there(net: Store) -> None:
    with acting_for(OURS):
        with pytest.raises(ProgrammingError, match="row-level security"):
            await net.write(lambda tx: tx.execute(insert(audit_log).values(_entry(THEIRS))))
        with pytest.raises(ProgrammingError, match="row-level security"):
            await net.write(lambda tx: tx.execute(update(audit_log).values(organization_id=THEIRS)))
        moved = await net.write(
            lambda tx: tx.execute(update(audit_log).where(audit_log.c.organization_id == THEIRS).values(message="x"))
        )
    assert moved.rowcount == 0
    assert await net.across.read(_everything) == sorted([OURS, THEIRS])


async def test_T1_connections_that_are_shared_never_carry_one_organizations_reach_to_another(net: Store) -> None:
    async def ask(organization_id: str) -> None:
        with acting_for(organization_id):
            for _ in range(20):
                assert await net.read(_everything) == [organization_id]
                assert await net.write(_everything) == [organization_id]

    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(ask((OURS, THEIRS)[number % 2]))
    assert await net.read(_everything) == []


async def test_T1_a_read_that_is_cut_short_leaves_no_reach_behind(net: Store) -> None:
    async def slow() -> None:
        with acting_for(OURS):
            await net.read(lambda tx: tx.execute(text("SELECT pg_sleep(5)")))

    reading = asyncio.get_running_loop().create_task(slow())
    await asyncio.sleep(0)
    for _ in range(3):
        reading.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert await net.read(_everything) == []


async def test_T1_every_table_with_an_organization_has_the_policy_whoever_added_it(net: Store) -> None:
    def add(tx: WriteTx) -> None:
        tx.execute(text("CREATE TABLE added_later (organization_id text, body text)"))
        tx.execute(text("CREATE TABLE hangs_later (chat_id varchar(36) NOT NULL REFERENCES chats (id), body text)"))
        tx.execute(text("CREATE TABLE may_hang_later (chat_id varchar(36) REFERENCES chats (id), body text)"))

    await net.across.write(add)
    await migrate(net)

    def look(tx: ReadTx) -> tuple[set[str], set[str]]:
        inspector = inspect(tx)
        held = {
            name
            for name in inspector.get_table_names()
            if any(column["name"] == "organization_id" for column in inspector.get_columns(name))
        }
        guarded = tx.execute(
            text(
                "SELECT relname FROM pg_class JOIN pg_policy ON polrelid = pg_class.oid "
                "WHERE polname = :name AND relrowsecurity AND relforcerowsecurity"
            ),
            {"name": POLICY},
        )
        return held, set(guarded.scalars())

    held, guarded = await net.across.read(look)
    assert "added_later" in held and len(held) > 10
    assert guarded - held == HANGING | {"hangs_later", "document_pieces"}
    assert held <= guarded


async def test_T1_what_hangs_from_a_chat_or_a_run_is_kept_apart_as_they_are(net: Store) -> None:
    rows = {OURS: await net.across.write(lambda tx: _conversation(tx, OURS))}
    rows[THEIRS] = await net.across.write(lambda tx: _conversation(tx, THEIRS))
    for organization_id, chat_id in rows.items():
        with acting_for(organization_id):
            for table, column in SAID:
                found = await net.read(
                    lambda tx, table=table, column=column: list(tx.execute(select(column)).scalars())
                )
                assert found == [chat_id], (table.name, found)
            other = rows[THEIRS if organization_id == OURS else OURS]
            with pytest.raises(ProgrammingError, match="row-level security"):
                await net.write(lambda tx, other=other: tx.execute(insert(messages).values(_message(other, 2))))
            gone = await net.write(
                lambda tx, other=other: tx.execute(delete(messages).where(messages.c.chat_id == other))
            )
            assert gone.rowcount == 0
    for table, column in SAID:
        assert await net.read(lambda tx, column=column: list(tx.execute(select(column)).scalars())) == [], table.name
        every = await net.across.read(lambda tx, column=column: sorted(tx.execute(select(column)).scalars()))
        assert every == sorted(rows.values())


async def test_T1_the_bytes_of_a_document_are_kept_apart_as_the_document_is(net: Store) -> None:
    """They are stored before their document is, and until then they are nobody's."""
    held = {OURS: new_id(), THEIRS: new_id()}

    def seen(tx: ReadTx) -> list[str]:
        return sorted(tx.execute(select(document_pieces.c.document_id)).scalars())

    for organization_id, document_id in held.items():
        piece = {"document_id": document_id, "seq": 0, "body": b"x", "created_at": 0}
        with acting_for(NOBODY), pytest.raises(ProgrammingError, match="row-level security"):
            await net.write(lambda tx, piece=piece: tx.execute(insert(document_pieces).values(piece)))
        with acting_for(organization_id):
            await net.write(lambda tx, piece=piece: tx.execute(insert(document_pieces).values(piece)))
            assert await net.read(seen) == []
        await net.across.write(lambda tx, owner=organization_id, own=document_id: _document(tx, owner, own))
    for organization_id, document_id in held.items():
        other = held[THEIRS if organization_id == OURS else OURS]
        with acting_for(organization_id):
            assert await net.read(seen) == [document_id]
            gone = await net.write(
                lambda tx, other=other: tx.execute(
                    delete(document_pieces).where(document_pieces.c.document_id == other)
                )
            )
            assert gone.rowcount == 0
    with acting_for(NOBODY):
        assert await net.read(seen) == []
    assert await net.across.read(seen) == sorted(held.values())


async def test_T1_a_search_by_words_in_another_organizations_base_finds_nothing(net: Store) -> None:
    """The index of words has no policy; the passages that it points to have."""
    document_id = new_id()
    base_id = await net.across.write(lambda tx: _document(tx, THEIRS, document_id))
    for organization_id, wanted in ((OURS, []), (THEIRS, [(document_id, 0)])):
        with acting_for(organization_id):
            hits = await net.read(lambda tx: search_words(tx, [base_id], "canary", 5, None))
            assert [(hit[0], hit[1]) for hit in hits] == wanted


BASE = {
    "name": "One", "provider": "modulexdb", "embedding_config": {}, "chunking_config": {}, "status": "active",
    "version": 1,
}  # fmt: skip
DOCUMENT = {
    "filename": "one.txt", "file_type": "txt", "size_bytes": 1, "sha256": "0" * 64, "metadata": {},
    "status": "completed",
    "chunk_count": 1, "token_count": 0, "reading": 1, "attempts": 0, "epoch": 0,
}  # fmt: skip


CHUNK = {
    "chunk_index": 0, "content": "The canary sings", "heading": "", "token_count": 3, "start_char": 0, "end_char": 16,
    "metadata": {}, "created_at": 0,
}  # fmt: skip


def _document(tx: WriteTx, organization_id: str, document_id: str) -> str:
    """A document of one passage in a base of its own; the base."""
    base_id = new_id()
    own = {"organization_id": organization_id, "created_by": new_id(), "created_at": 0, "updated_at": 0}
    tx.execute(insert(knowledge_bases).values(id=base_id, **BASE, **own))
    tx.execute(insert(documents).values(id=document_id, knowledge_base_id=base_id, **DOCUMENT, **own))
    tx.execute(insert(chunks).values(id=new_id(), document_id=document_id, knowledge_base_id=base_id, **CHUNK))
    return base_id


def _conversation(tx: WriteTx, organization_id: str) -> str:
    """A chat with a run of the same id, and one row of all that hangs from them."""
    chat_id = user_id = new_id()
    person = {"email": f"{user_id}@example.com", "username": "one", "platform_role": "user", "is_active": True}
    tx.execute(insert(users).values(id=user_id, created_at=0, **person))
    own = {"organization_id": organization_id, "user_id": user_id, "created_at": 0, "updated_at": 0}
    plain = {"kind": "assistant", "title": "One", "tainted": False, "next_seq": 2}
    tx.execute(insert(chats).values(id=chat_id, **own, **plain))
    counts = dict.fromkeys(("epoch", "attempts", "step", "model_calls", "failures_in_row", "context_tokens"), 0)
    run = {"turn_id": chat_id, "status": "completed", "llm": {}}
    tx.execute(insert(runs).values(id=chat_id, chat_id=chat_id, **own, **run, **counts))
    tx.execute(insert(messages).values(_message(chat_id, 1)))
    said = {"seq": 1, "run_id": chat_id, "created_at": 0}
    tx.execute(insert(transcript).values(chat_id=chat_id, step=1, role="user", body={}, **said))
    tx.execute(insert(tool_results).values(id=new_id(), chat_id=chat_id, run_id=chat_id, value={}, created_at=0))
    tx.execute(insert(run_events).values(last_seq=1, epoch=0, type="done", body="{}", **said))
    return chat_id


def _message(chat_id: str, seq: int) -> dict[str, object]:
    return {"id": new_id(), "chat_id": chat_id, "seq": seq, "role": "human", "content": "Hello", "created_at": 0}


async def test_T1_an_organization_id_is_never_sql(net: Store) -> None:
    with acting_for("x', true); DROP TABLE chats; --"), pytest.raises(ValueError, match="letters, digits"):
        await net.read(_everything)

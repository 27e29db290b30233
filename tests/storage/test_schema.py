"""Which schema a store is at, and how it gets to the newest one."""

from pathlib import Path

from alembic.config import Config
from alembic.script import ScriptDirectory

import parley.storage
from parley.storage import Store, open_store
from parley.storage.schema import FIRST_SQLITE, head_revision, migrate, revision
from tests.storage.sqlite_schema import made, migrated


def test_the_highest_numbered_migration_is_the_one_that_all_others_lead_to() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(parley.storage.__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    assert ScriptDirectory.from_config(config).get_current_head() == head_revision()


async def test_migrating_a_store_that_is_up_to_date_changes_nothing(store: Store) -> None:
    before = await store.read(revision)
    await migrate(store)
    assert before == head_revision()
    assert await store.read(revision) == before


async def test_a_new_sqlite_store_begins_with_what_the_migrations_would_have_made(tmp_path: Path) -> None:
    new = open_store(f"sqlite:///{tmp_path / 'new.db'}")
    await migrate(new)
    old = await migrated(tmp_path / "old.db")
    try:
        assert f"'{head_revision()}'" in FIRST_SQLITE.read_text(encoding="utf-8"), (
            "a migration was added: python -m tests.storage.sqlite_schema"
        )
        assert await new.read(revision) == await old.read(revision) == head_revision()
        # The order differs only where a migration made a table anew.
        assert sorted(await new.read(made)) == sorted(await old.read(made))
    finally:
        await new.close()
        await old.close()

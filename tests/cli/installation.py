"""A store that was started once, with its master keys: what an operator's commands work on."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from parley.accounts import Accounts, first_start, open_accounts
from parley.base.clock import Clock
from parley.base.settings import Settings, read_settings
from parley.keyring import Keyring, load_keyring
from parley.storage import Store, open_store
from parley.storage.schema import migrate
from tests.cli.conftest import Finished, command

OWNER = "owner@example.com"


@dataclass(slots=True)
class Installation:
    """The variables an operator has set, and the store behind them."""

    environment: dict[str, str]
    store: Store
    organization_id: str
    api_key: str

    @property
    def settings(self) -> Settings:
        return read_settings(self.environment)

    @property
    def keyring(self) -> Keyring:
        return load_keyring(self.settings.master_keys, self.settings.data_dir)

    async def command(self, *arguments: str, **changes: str) -> Finished:
        """``parley …`` as this operator."""
        return await command(*arguments, environment=self.environment | changes)

    @asynccontextmanager
    async def accounts(self) -> AsyncGenerator[Accounts]:
        """What a server would hold against keys and links."""
        opened = await open_accounts(self.store, self.keyring, Clock(), lambda _tx, _organization_id: None)
        try:
            yield opened
        finally:
            await opened.close()


@asynccontextmanager
async def installed(url: str, folder: Path) -> AsyncGenerator[Installation]:
    """An installation in the state after its first start, without a running server."""
    key = f"mx_live_{uuid4().hex}"
    environment = {
        "PARLEY_DATA_DIR": str(folder / "data"),
        "PARLEY_DATABASE_URL": url,
        "PARLEY_PORT": "0",
        "PARLEY_BOOTSTRAP_API_KEY": key,
        "PARLEY_BOOTSTRAP_EMAIL": OWNER,
        "OLLAMA_HOST": "http://127.0.0.1:9",
    }
    settings = read_settings(environment)
    store = open_store(url).across
    try:
        await migrate(store)
        made = await first_start(store, load_keyring("", settings.data_dir), settings, Clock())
        assert made is not None
        yield Installation(environment, store, made.organization_id, key)
    finally:
        await store.close()

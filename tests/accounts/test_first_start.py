"""First start: an owner, an organization and a key, once (README decision 10)."""

import asyncio
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import func, select

from parley.accounts import FirstStart, first_start, open_accounts
from parley.base.clock import Clock
from parley.base.settings import Settings, SettingsError
from parley.keyring import Keyring, SealBroken
from parley.storage import ReadTx, Store, open_store
from parley.storage.tables.accounts import api_keys, instance_secrets, memberships, organizations, sign_in_links, users
from tests.accounts.desk import Models, build_app, new_keyring, served

SEED_KEY = "mx_live_" + "8f3a2b1c" * 4
ORGANIZATION_ID = str(uuid4())


def no_ceiling(_tx: ReadTx, _organization_id: str) -> int | None:
    return None


def counts(tx: ReadTx) -> list[int]:
    tables = (users, organizations, memberships, api_keys, sign_in_links, instance_secrets)
    return [tx.execute(select(func.count()).select_from(table)).scalar_one() for table in tables]


async def profile(store: Store, keyring: Keyring, key: str) -> httpx.Response:
    accounts = await open_accounts(store, keyring, Clock(), no_ceiling)
    async with served(build_app(accounts, Models())) as url, httpx.AsyncClient(base_url=url) as web:
        answer = await web.get("/auth/me/organizations?role=owner", headers={"Authorization": f"Bearer {key}"})
    await accounts.close()
    return answer


async def test_an_empty_store_gets_an_owner_with_a_generated_key(store: Store) -> None:
    keyring = new_keyring()
    made = await first_start(store, keyring, Settings(port=8123), Clock())
    assert made is not None
    assert made.api_key is not None
    assert made.warning is None
    assert made.sign_in_link.startswith("http://127.0.0.1:8123/app/#sign-in=")
    assert made.api_key not in repr(made)
    assert made.sign_in_link not in repr(made)
    answer = await profile(store, keyring, made.api_key)
    assert [each["id"] for each in answer.json()["organizations"]] == [made.organization_id]


@pytest.mark.parametrize("key", [SEED_KEY, "mx_live_bench", "mx_live_" + "Aa0-_." * 20])
async def test_the_operator_chooses_key_organization_and_address(store: Store, key: str) -> None:
    keyring = new_keyring()
    chosen = Settings(
        bootstrap_api_key=key,
        bootstrap_organization_id=ORGANIZATION_ID.upper(),
        bootstrap_email=" Ada@Example.com ",
        public_url="https://parley.example/",
    )
    made = await first_start(store, keyring, chosen, Clock())
    assert made is not None
    assert (made.api_key, made.organization_id, made.email) == (None, ORGANIZATION_ID, "ada@example.com")
    assert made.sign_in_link.startswith("https://parley.example/app/#sign-in=")
    assert (made.warning is not None) == (key == "mx_live_bench")
    answer = await profile(store, keyring, key)
    assert [each["id"] for each in answer.json()["organizations"]] == [ORGANIZATION_ID]


async def test_the_next_start_makes_nothing_and_the_key_still_works(store: Store) -> None:
    keyring = new_keyring()
    made = await first_start(store, keyring, Settings(bootstrap_api_key=SEED_KEY), Clock())
    assert made is not None
    before = await store.read(counts)
    assert await first_start(store, keyring, Settings(), Clock()) is None
    assert await first_start(store, keyring, Settings(bootstrap_api_key=f"{SEED_KEY}2"), Clock()) is None
    assert await store.read(counts) == before == [1, 1, 1, 1, 1, 1]
    assert (await profile(store, keyring, SEED_KEY)).status_code == 200
    assert (await profile(store, keyring, f"{SEED_KEY}2")).status_code == 401


async def test_of_processes_that_start_together_one_makes_everything(store: Store, store_url: str) -> None:
    keyring = new_keyring()
    # On PostgreSQL each has its own connections, as processes do; SQLite has one process by design.
    others = [open_store(store_url).across for _ in range(3)] if store.dialect == "postgresql" else []
    made: list[FirstStart | None] = []

    async def start(where: Store) -> None:
        made.append(await first_start(where, keyring, Settings(), Clock()))

    async with asyncio.TaskGroup() as group:
        for each in [store, *others, store]:
            group.create_task(start(each))
    for other in others:
        await other.close()
    winners = [each for each in made if each is not None]
    assert len(winners) == 1
    assert await store.read(counts) == [1, 1, 1, 1, 1, 1]
    assert winners[0].api_key is not None
    assert (await profile(store, keyring, winners[0].api_key)).status_code == 200


async def test_another_keyring_cannot_open_the_store(store: Store) -> None:
    await first_start(store, new_keyring(), Settings(), Clock())
    with pytest.raises(SealBroken):
        await open_accounts(store, new_keyring(), Clock(), no_ceiling)


@pytest.mark.parametrize(
    ("settings", "variable"),
    [
        (Settings(bootstrap_api_key="sk-something"), "PARLEY_BOOTSTRAP_API_KEY"),
        (Settings(bootstrap_api_key="mx_live_"), "PARLEY_BOOTSTRAP_API_KEY"),
        (Settings(bootstrap_api_key="mx_live_a b"), "PARLEY_BOOTSTRAP_API_KEY"),
        (Settings(bootstrap_api_key="mx_live_" + "a" * 300), "PARLEY_BOOTSTRAP_API_KEY"),
        (Settings(bootstrap_organization_id="acme"), "PARLEY_BOOTSTRAP_ORGANIZATION_ID"),
        (Settings(bootstrap_email="ada"), "PARLEY_BOOTSTRAP_EMAIL"),
    ],
)
async def test_a_variable_that_cannot_be_used_is_named_and_nothing_is_made(
    store: Store, settings: Settings, variable: str
) -> None:
    with pytest.raises(SettingsError, match=variable):
        await first_start(store, new_keyring(), settings, Clock())
    assert await store.read(counts) == [0, 0, 0, 0, 0, 0]

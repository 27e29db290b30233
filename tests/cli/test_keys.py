"""``parley keys`` and ``parley sign-in-link``, with and without a running server (issue 1, sentence 10)."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from parley.accounts.callers import InvalidKey
from parley.keyring.keyring import load_keyring
from parley.testing.server import server_process
from tests.cli.conftest import command
from tests.cli.installation import OWNER, Installation, installed

A_KEY = re.compile(r"mx_live_[0-9A-Za-z]{32}\n")


@pytest.fixture
async def here(store_url: str, tmp_path: Path) -> AsyncIterator[Installation]:
    async with installed(store_url, tmp_path) as installation:
        yield installation


async def test_a_key_is_made_listed_without_its_text_and_revoked(here: Installation) -> None:
    made = await here.command("keys", "create", OWNER.upper(), "--name", "Laptop", "--days", "3")
    assert made.code == 0, made.err
    assert A_KEY.fullmatch(made.out)
    key = made.out.strip()
    async with here.accounts() as accounts:
        found = await accounts.callers.by_key(key, address="test")
        assert (found.user.email, found.user.locked_to, found.rate_limit) == (OWNER, None, 60)

    listed = await here.command("keys", "list", OWNER)
    assert key not in listed.out
    assert key[:12] in listed.out
    assert "Laptop" in listed.out
    assert "good until" in listed.out

    revoked = await here.command("keys", "revoke", OWNER, key)
    assert revoked.code == 0, revoked.err
    async with here.accounts() as accounts:
        with pytest.raises(InvalidKey):
            await accounts.callers.by_key(key, address="test")
    again = await here.command("keys", "revoke", OWNER, key)
    assert again.code == 1
    assert "No such key" in again.err
    assert "revoked" in (await here.command("keys", "list")).out


async def test_a_key_can_be_locked_to_an_organization(here: Installation) -> None:
    made = await here.command("keys", "create", OWNER, "--organization", here.organization_id, "--rate", "7")
    async with here.accounts() as accounts:
        found = await accounts.callers.by_key(made.out.strip(), address="test")
    assert (found.user.locked_to, found.rate_limit) == (here.organization_id, 7)


async def test_an_unknown_address_is_answered_with_the_known_ones(here: Installation) -> None:
    for arguments in (("keys", "create"), ("keys", "list"), ("sign-in-link",)):
        ended = await here.command(*arguments, "nobody@example.com")
        assert ended.code == 1
        assert ended.out == ""
        assert f"There are: {OWNER}" in ended.err


async def test_a_sign_in_link_works_once(here: Installation) -> None:
    ended = await here.command("sign-in-link", OWNER, PARLEY_PUBLIC_URL="https://parley.example.com")
    address, _, token = ended.out.strip().partition("#sign-in=")
    assert address == "https://parley.example.com/app/"
    async with here.accounts() as accounts:
        opened = await accounts.sessions.sign_in_with_link(token, address="test")
        assert opened.user.email == OWNER


async def test_a_sign_in_link_that_leads_past_the_running_server_says_so(tmp_path: Path) -> None:
    async with installed(f"sqlite:///{tmp_path / 'parley.db'}", tmp_path) as here:
        await here.store.close()
        async with server_process(here.environment) as server:
            past = await here.command("sign-in-link", OWNER, PARLEY_PORT="9")
            assert (past.code, past.out.startswith("http://127.0.0.1:9/app/")) == (0, True)
            assert "on another port than 9. Run this with the server's own PARLEY_PORT." in past.err
            port = server.base_url.rpartition(":")[2]
            right = await here.command("sign-in-link", OWNER, PARLEY_PORT=port)
            assert right.out.startswith(f"{server.base_url}/app/")
            assert "PARLEY_PORT" not in right.err


async def test_master_prints_an_entry_with_a_free_id_that_makes_a_keyring(tmp_path: Path) -> None:
    environment = {"PARLEY_DATA_DIR": str(tmp_path)}
    first = await command("keys", "master", environment=environment)
    assert first.out.startswith("k1:")
    assert not (tmp_path / "master.keys").exists()
    keys = first.out.strip()
    second = await command("keys", "master", environment={**environment, "PARLEY_MASTER_KEYS": keys})
    assert second.out.startswith("k2:")
    named = await command("keys", "master", "--id", "2027", environment=environment)
    joined = f"{second.out.strip()},{keys},{named.out.strip()}"
    assert load_keyring(joined, tmp_path).key_ids == ("k2", "k1", "2027")


async def test_without_the_servers_store_or_keys_nothing_is_made(tmp_path: Path) -> None:
    environment = {"PARLEY_DATA_DIR": str(tmp_path / "elsewhere")}
    for arguments in (("keys", "list"), ("keys", "rotate"), ("verify",), ("billing", "show"), ("policy", "check")):
        ended = await command(*arguments, environment=environment)
        assert ended.code == 2
        assert "PARLEY_DATA_DIR" in ended.err
        assert "Traceback" not in ended.err
    assert not (tmp_path / "elsewhere").exists()


async def test_the_commands_work_beside_a_running_server(here: Installation) -> None:
    await here.store.close()
    async with server_process(here.environment) as server, aiohttp.ClientSession(server.base_url) as session:

        async def status(key: str) -> int:
            async with session.get("/auth/me", headers={"Authorization": f"Bearer {key}"}) as response:
                return response.status

        key = (await here.command("keys", "create", OWNER)).out.strip()
        assert await status(key) == 200

        link = (await here.command("sign-in-link", OWNER)).out.strip()
        async with session.post("/auth/session", json={"sign_in_token": link.partition("#sign-in=")[2]}) as response:
            assert response.status == 200, await response.text()

        granted = await here.command("billing", "grant", here.organization_id, "25")
        assert granted.code == 0, granted.err
        headers = {"Authorization": f"Bearer {key}", "X-Organization-ID": here.organization_id}
        async with session.get("/billing/wallet", headers=headers) as response:
            assert (await response.json())["balance"] == 25

        verified = await here.command("verify")
        assert (verified.code, verified.out) == (0, "Everything fits together.\n")

        assert (await here.command("keys", "revoke", OWNER, key)).code == 0
        async with asyncio.timeout(60):
            while await status(key) != 401:
                await asyncio.sleep(0.1)

"""Renewing grants: once for everyone, never lost, never thrown away (trust T13)."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from parley.base.clock import SECOND, Clock
from parley.base.errors import Conflict, NotFound, Unavailable
from parley.credentials import (
    Credential,
    NewCredential,
    Refresher,
    Secrets,
    TokenEndpoint,
    Usable,
)
from parley.credentials.refresh import CLAIM, NotRefreshable, ReconnectNeeded
from parley.storage import ReadTx, Store, WriteTx
from tests.credentials.world import HERE, World, open_world


@pytest.fixture
async def second(world: World) -> AsyncIterator[World]:
    """Another process on the same store, with nothing in memory in common."""
    people = world.mine, world.theirs
    async with open_world(world.store, world.server, people=people, keyring=world.keyring, clock=world.clock) as opened:
        yield opened


async def usable_of(world: World, credential: Credential) -> Usable:
    usable = await world.credentials.resolve(
        world.mine.organization_id, credential.integration_name, credential.credential_id
    )
    assert usable is not None
    return usable


async def events_of(world: World, credential: Credential) -> list[str]:
    entries = await world.credentials.audit(world.mine.organization_id, credential.credential_id, limit=500)
    return sorted(entry.event_type for entry in entries)


async def test_a_token_with_time_left_is_used_as_it_is(world: World) -> None:
    usable = await usable_of(world, await world.sign_in(lives=301))
    assert await world.refresher.fresh(usable) is usable
    assert world.server.refreshes == 0


async def test_a_token_within_five_minutes_of_its_end_is_renewed_and_stored(world: World) -> None:
    credential = await world.sign_in(lives=299)
    old = await usable_of(world, credential)
    new = await world.refresher.fresh(old)
    assert world.server.refreshes == 1
    assert world.server.is_live(new.auth_data.text("access_token"))
    assert not world.server.is_live(old.auth_data.text("access_token"))
    again = await usable_of(world, credential)
    assert dict(again.auth_data) == dict(new.auth_data)
    assert again.expires_at is not None and again.expires_at > world.clock.now() + 3_000_000_000
    assert await events_of(world, credential) == ["created", "refreshed"]


async def test_two_hundred_calls_on_an_expired_token_make_one_refresh(world: World, second: World) -> None:
    credential = await world.sign_in(lives=60)
    world.clock.advance(seconds=61)
    usable = await usable_of(world, credential)
    tokens: list[str] = []

    async def call(process: World) -> None:
        fresh = await process.refresher.fresh(usable)
        tokens.append(fresh.auth_data.text("access_token"))

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for number in range(200):
            group.create_task(call(world if number % 2 else second))
    assert world.server.refreshes == 1 and world.server.replays == 0
    assert len(tokens) == 200 and len(set(tokens)) == 1
    assert world.server.is_live(tokens[0])
    assert (await usable_of(world, credential)).version == usable.version + 1


class WatchedClock(Clock):
    """Tells when it was asked for the time a second time, which is when a claim is tried."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0
        self.asked = asyncio.Event()

    def now(self) -> int:
        self.times += 1
        if self.times > 2:
            self.asked.set()
        return super().now()


async def test_another_process_waits_for_the_one_that_refreshes(world: World) -> None:
    watched = WatchedClock()
    people = world.mine, world.theirs
    async with open_world(world.store, world.server, people=people, keyring=world.keyring, clock=watched) as second:
        await one_waits(world, second, watched)


async def one_waits(world: World, second: World, watched: WatchedClock) -> None:
    usable = await usable_of(world, await world.sign_in(lives=60))
    world.server.gate = asyncio.Event()
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        first = group.create_task(world.refresher.fresh(usable))
        await world.server.arrived.wait()
        other = group.create_task(second.refresher.fresh(usable))
        await watched.asked.wait()
        assert not other.done() and len(world.server.forms) == 1
        world.server.gate.set()
    assert first.result().auth_data.text("access_token") == other.result().auth_data.text("access_token")
    assert world.server.refreshes == 1


async def test_a_process_that_died_while_refreshing_holds_nobody_up_for_ever(world: World) -> None:
    credential = await world.sign_in(lives=60)
    usable = await usable_of(world, credential)
    await world.set_columns(credential, refresh_until=world.clock.now() + CLAIM)
    world.clock.advance(seconds=61)
    assert world.server.is_live((await world.refresher.fresh(usable)).auth_data.text("access_token"))


async def test_a_cancelled_caller_loses_no_grant(world: World) -> None:
    credential = await world.sign_in(lives=60)
    usable = await usable_of(world, credential)
    world.server.gate = asyncio.Event()
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        caller = group.create_task(world.refresher.fresh(usable))
        await world.server.arrived.wait()
        caller.cancel()
        world.server.gate.set()
    assert caller.cancelled() and world.server.refreshes == 1
    kept = await usable_of(world, credential)
    assert kept.version == usable.version + 1 and world.server.is_live(kept.auth_data.text("access_token"))


async def test_a_caller_who_is_cancelled_twice_loses_no_grant_either(world: World) -> None:
    credential = await world.sign_in(lives=60)
    usable = await usable_of(world, credential)
    world.server.gate = asyncio.Event()
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        caller = group.create_task(world.refresher.fresh(usable))
        await world.server.arrived.wait()
        caller.cancel()
        group.create_task(_cancel_again(caller, world.server.gate))
    kept = await usable_of(world, credential)
    assert caller.cancelled() and kept.version == usable.version + 1


async def _cancel_again(caller: asyncio.Task[Usable], gate: asyncio.Event) -> None:
    caller.cancel()
    gate.set()


class Away:
    """A store that does not answer writes for a while."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.dialect = store.dialect
        self.failures = 0

    @property
    def across(self) -> Store:
        return self

    async def write[T](self, work: Callable[[WriteTx], T]) -> T:
        if self.failures:
            self.failures -= 1
            raise ConnectionResetError("the store is restarting")
        return await self._store.write(work)

    async def read[T](self, work: Callable[[ReadTx], T]) -> T:
        return await self._store.read(work)

    async def close(self) -> None:
        await self._store.close()


async def test_a_store_that_is_away_for_a_moment_loses_no_grant(world: World) -> None:
    credential = await world.sign_in(lives=60)
    usable = await usable_of(world, credential)
    away = Away(world.store)
    world.server.gate = asyncio.Event()
    refresher = Refresher(away, world.clock, vault=world.vault, offers=world.offers, tokens=TokenEndpoint(world.egress))
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        caller = group.create_task(refresher.fresh(usable))
        await world.server.arrived.wait()
        away.failures = 2
        world.server.gate.set()
    assert world.server.is_live(caller.result().auth_data.text("access_token"))
    assert (await usable_of(world, credential)).version == usable.version + 1


async def test_a_provider_that_keeps_its_refresh_token_is_understood(world: World) -> None:
    credential = await world.sign_in(lives=60)
    usable = await usable_of(world, credential)
    world.server.fault = "forgets_refresh"
    new = await world.refresher.fresh(usable)
    assert new.auth_data["refresh_token"] == usable.auth_data["refresh_token"]


async def test_a_dead_refresh_token_marks_the_credential_and_keeps_the_grant(world: World) -> None:
    credential = await world.sign_in(lives=60)
    usable = await usable_of(world, credential)
    world.server.revoke_all()
    with pytest.raises(ReconnectNeeded) as refusal:
        await world.refresher.fresh(usable)
    assert "Connect the account again" in refusal.value.detail
    after = await usable_of(world, credential)
    assert not after.is_valid and dict(after.auth_data) == dict(usable.auth_data)
    assert await events_of(world, credential) == ["created", "refresh_failed"]


async def test_a_caller_cancelled_before_the_provider_is_asked_holds_nobody_up(world: World) -> None:
    usable = await usable_of(world, await world.sign_in(lives=60))
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(world.refresher.fresh(usable)).cancel()
        callers = [group.create_task(world.refresher.fresh(usable)) for _ in range(5)]
        callers[0].cancel()
    assert {caller.result().version for caller in callers[1:]} == {usable.version + 1}
    assert world.server.refreshes == 1


@pytest.mark.parametrize("known", [True, False])
async def test_those_who_waited_for_a_dead_token_do_not_ask_again(world: World, *, known: bool) -> None:
    credential = await world.sign_in(lives=60)
    await world.set_columns(credential, is_valid=not known)
    usable = await usable_of(world, credential)
    world.server.revoke_all()
    refused: list[Conflict] = []

    async def call() -> None:
        try:
            await world.refresher.fresh(usable)
        except ReconnectNeeded as refusal:
            refused.append(refusal)

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        for _ in range(50):
            group.create_task(call())
    assert len(refused) == 50 and len(world.server.forms) == 1


async def test_a_refused_token_whose_successor_is_stored_is_no_dead_grant(world: World) -> None:
    """invalid_grant may only mean that somebody else was faster."""
    credential = await world.sign_in(lives=60)
    usable = await usable_of(world, credential)
    world.server.gate = asyncio.Event()
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        caller = group.create_task(world.refresher.fresh(usable))
        await world.server.arrived.wait()
        world.server.revoke_all()
        await world.set_columns(credential, version=usable.version + 1)
        world.server.gate.set()
    # The row of the other version opens: the seal does not bind the version.
    assert caller.result().version == usable.version + 1
    assert (await usable_of(world, credential)).is_valid


async def test_a_pooled_app_that_is_gone_is_the_operators_matter_not_the_grants(world: World) -> None:
    pooled = {
        "PLAIN_HUB_OAUTH2_CLIENT_ID": world.server.client_id,
        "PLAIN_HUB_OAUTH2_CLIENT_SECRET": world.server.client_secret,
    }
    world.environment |= pooled
    access_token, refresh_token = world.server.grant()
    new = NewCredential(
        "plain_hub",
        auth_data=Secrets({"access_token": access_token, "refresh_token": refresh_token}),
        auth_type="oauth2",
        expires_at=world.clock.now(),
    )
    credential = await world.credentials.create(world.mine, new, HERE)
    usable = await usable_of(world, credential)
    world.environment.clear()
    with pytest.raises(Unavailable, match="operator"):
        await world.refresher.fresh(usable)
    assert (await usable_of(world, credential)).is_valid
    world.environment |= pooled
    assert world.server.is_live((await world.refresher.fresh(usable)).auth_data.text("access_token"))


@pytest.mark.parametrize("fault", ["down", "garbage", "refuses"])
async def test_other_trouble_leaves_everything_as_it_is(world: World, fault: str) -> None:
    credential = await world.sign_in(lives=60)
    usable = await usable_of(world, credential)
    world.server.fault = fault  # pyright: ignore[reportAttributeAccessIssue]
    assert await world.refresher.fresh(usable) is usable, "there is still a minute of life in it"
    world.clock.advance(seconds=61)
    with pytest.raises(Unavailable):
        await world.refresher.fresh(usable)
    after = await usable_of(world, credential)
    assert after.is_valid and dict(after.auth_data) == dict(usable.auth_data)
    assert await events_of(world, credential) == ["created"]
    world.server.fault = None
    assert world.server.is_live((await world.refresher.fresh(usable)).auth_data.text("access_token"))


async def test_those_who_waited_for_a_provider_that_is_down_do_not_ask_in_turn(world: World) -> None:
    usable = await usable_of(world, await world.sign_in(lives=60))
    world.clock.advance(seconds=61)
    world.server.fault = "down"
    refused: list[Unavailable] = []

    async def call() -> None:
        try:
            await world.refresher.fresh(usable)
        except Unavailable as refusal:
            refused.append(refusal)

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        for _ in range(50):
            group.create_task(call())
    assert len(refused) == 50 and len(world.server.forms) == 1


async def test_an_expired_token_without_a_refresh_token_asks_to_reconnect(world: World) -> None:
    new = NewCredential(
        "hub",
        auth_data=Secrets({"access_token": world.server.grant()[0]}),
        oauth_config=Secrets({"client_id": "c"}),
        expires_at=world.clock.now() + 60 * SECOND,
    )
    usable = await usable_of(world, await world.credentials.create(world.mine, new, HERE))
    assert await world.refresher.fresh(usable) is usable
    world.clock.advance(seconds=61)
    with pytest.raises(ReconnectNeeded):
        await world.refresher.fresh(usable)
    assert world.server.forms == []
    with pytest.raises(NotRefreshable):
        await world.refresher.refresh(world.mine, usable.credential_id or "", HERE)


async def test_a_lasting_token_that_the_service_refuses_asks_to_reconnect(world: World) -> None:
    """Like GitHub's: no end, no refresh token, and dead once it is revoked."""
    new = NewCredential(
        "hub",
        auth_data=Secrets({"access_token": world.server.grant()[0]}),
        oauth_config=Secrets({"client_id": "c"}),
    )
    credential = await world.credentials.create(world.mine, new, HERE)
    usable = await usable_of(world, credential)
    with pytest.raises(ReconnectNeeded):
        await world.refresher.renew(usable)
    assert not (await usable_of(world, credential)).is_valid


async def test_a_token_refused_before_its_time_is_renewed_once(world: World) -> None:
    credential = await world.sign_in(lives=3600)
    usable = await usable_of(world, credential)
    first = await world.refresher.renew(usable)
    second = await world.refresher.renew(usable)
    assert world.server.refreshes == 1
    assert first.auth_data.text("access_token") == second.auth_data.text("access_token")


async def test_a_renewal_by_hand_gives_the_row_and_names_the_person(world: World) -> None:
    credential = await world.sign_in(lives=3600)
    world.clock.advance(seconds=10)
    row = await world.refresher.refresh(world.mine, credential.credential_id, HERE)
    assert row.updated_at > credential.updated_at and row.credential_id == credential.credential_id
    entries = await world.credentials.audit(world.mine.organization_id, credential.credential_id)
    assert (entries[0].event_type, entries[0].user_id, entries[0].source) == ("refreshed", world.mine.user_id, HERE)


async def test_a_renewal_by_hand_tries_an_invalid_credential_too(world: World) -> None:
    credential = await world.sign_in()
    await world.set_columns(credential, is_valid=False)
    await world.refresher.refresh(world.mine, credential.credential_id, HERE)
    assert (await usable_of(world, credential)).is_valid


async def test_only_sign_ins_can_be_renewed(world: World) -> None:
    token = await world.connect()
    with pytest.raises(NotRefreshable):
        await world.refresher.refresh(world.mine, token.credential_id, HERE)
    usable = await usable_of(world, token)
    assert await world.refresher.fresh(usable) is usable


async def test_a_credential_deleted_meanwhile_is_not_found(world: World) -> None:
    credential = await world.sign_in(lives=60)
    usable = await usable_of(world, credential)
    await world.credentials.delete(world.mine, credential.credential_id, HERE)
    with pytest.raises(NotFound):
        await world.refresher.fresh(usable)

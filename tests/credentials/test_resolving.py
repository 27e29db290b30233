"""Which credential a call uses (contract §6.1)."""

import pytest

from parley.base.clock import SECOND
from parley.credentials import Credential, NewCredential, Secrets
from tests.credentials.world import HERE, World, fake_key


async def resolved(world: World, credential_id: str | None = None, integration_name: str = "seeker") -> str | None:
    usable = await world.credentials.resolve(world.mine.organization_id, integration_name, credential_id)
    return None if usable is None else usable.credential_id


async def own(world: World, *, make_default: bool = False) -> Credential:
    world.clock.advance(seconds=1)
    return await world.connect("seeker", {"api_key": fake_key()}, make_default=make_default)


async def managed(world: World, *, make_default: bool = False) -> Credential:
    world.clock.advance(seconds=1)
    world.environment["SEEKER_API_KEY"] = fake_key()
    return await world.connect("seeker", make_default=make_default, auth_type="modulex_key")


async def test_nothing_connected_resolves_to_nothing(world: World) -> None:
    assert await resolved(world) is None


async def test_the_newest_is_used_when_none_is_the_default(world: World) -> None:
    await own(world)
    newest = await own(world)
    assert await resolved(world) == newest.credential_id


async def test_the_default_is_used_before_a_newer_one(world: World) -> None:
    default = await own(world, make_default=True)
    await own(world)
    assert await resolved(world) == default.credential_id


async def test_a_named_one_is_used_before_the_default(world: World) -> None:
    named = await own(world)
    await own(world, make_default=True)
    assert await resolved(world, named.credential_id) == named.credential_id


async def test_an_invalid_one_is_passed_over_for_an_older_valid_one(world: World) -> None:
    valid, invalid = await own(world), await own(world)
    await world.set_columns(invalid, is_valid=False)
    assert await resolved(world) == valid.credential_id


async def test_an_invalid_default_is_still_the_account_that_is_meant(world: World) -> None:
    default = await own(world, make_default=True)
    await own(world)
    await world.set_columns(default, is_valid=False)
    usable = await world.credentials.resolve(world.mine.organization_id, "seeker")
    assert usable is not None
    assert (usable.credential_id, usable.is_valid) == (default.credential_id, False)


async def test_an_invalid_one_alone_resolves_to_nothing_unless_it_is_named(world: World) -> None:
    invalid = await own(world)
    await world.set_columns(invalid, is_valid=False)
    assert await resolved(world) is None
    assert await resolved(world, invalid.credential_id) == invalid.credential_id


async def test_an_own_one_is_used_before_a_managed_default(world: World) -> None:
    mine = await own(world)
    await managed(world, make_default=True)
    assert await resolved(world) == mine.credential_id


async def test_a_managed_one_is_used_when_there_is_no_own_valid_one(world: World) -> None:
    mine, pooled = await own(world), await managed(world)
    await world.set_columns(mine, is_valid=False)
    assert await resolved(world) == pooled.credential_id


async def test_a_managed_one_without_the_operators_key_resolves_to_nothing(world: World) -> None:
    pooled = await managed(world)
    world.environment.clear()
    assert await resolved(world) is None
    assert await resolved(world, pooled.credential_id) is None


async def test_a_typed_in_credential_that_ran_out_is_passed_over(world: World) -> None:
    new = NewCredential(
        "seeker", auth_data=Secrets({"api_key": fake_key()}), expires_at=world.clock.now() + 60 * SECOND
    )
    older = await own(world)
    world.clock.advance(seconds=1)
    short = await world.credentials.create(world.mine, new, HERE)
    assert await resolved(world) == short.credential_id
    world.clock.advance(seconds=61)
    assert await resolved(world) == older.credential_id


async def test_a_sign_in_outlives_its_access_token(world: World) -> None:
    grant = await world.sign_in(lives=60)
    world.clock.advance(days=1)
    assert await resolved(world, integration_name="hub") == grant.credential_id


async def test_a_named_one_of_another_integration_does_not_resolve(world: World) -> None:
    other = await world.connect("hub")
    await own(world)
    assert await resolved(world, other.credential_id) is None


@pytest.mark.parametrize("credential_id", ["", "nothing", "00000000-0000-0000-0000-000000000000"])
async def test_a_named_one_that_is_missing_is_not_replaced_by_another(world: World, credential_id: str) -> None:
    await own(world, make_default=True)
    assert await resolved(world, credential_id) is None


async def test_the_other_organizations_are_never_considered(world: World) -> None:
    theirs = await world.connect("seeker", {"api_key": fake_key()}, caller=world.theirs, make_default=True)
    assert await resolved(world) is None
    assert await resolved(world, theirs.credential_id) is None


async def test_a_public_service_needs_no_credential(world: World) -> None:
    usable = await world.credentials.resolve(world.mine.organization_id, "library")
    assert usable is not None and usable.credential_id is None and not usable.auth_data
    assert await world.credentials.resolve(world.mine.organization_id, "nowhere") is None


async def test_every_name_of_a_value_finds_it(world: World) -> None:
    token = fake_key("tok_")
    await world.connect("hub", {"token": token})
    usable = await world.credentials.resolve(world.mine.organization_id, "hub")
    assert usable is not None
    for name in ("HUB_TOKEN", "token", "bearer_token", "access_token"):
        assert usable.auth_data[name] == token


async def test_use_is_noted_at_most_once_a_minute(world: World) -> None:
    credential = await own(world)

    async def last_used() -> int | None:
        return (await world.credentials.get(world.mine.organization_id, credential.credential_id))[0].last_used_at

    assert await last_used() is None
    await resolved(world)
    first = await last_used()
    assert first is not None
    world.clock.advance(seconds=30)
    await resolved(world)
    assert await last_used() == first
    world.clock.advance(seconds=31)
    await resolved(world)
    assert (await last_used() or 0) > first


async def test_marks_are_noted_and_an_old_view_marks_nothing(world: World) -> None:
    credential = await own(world)
    usable = await world.credentials.resolve(world.mine.organization_id, "seeker")
    assert usable is not None
    await world.credentials.mark_invalid(usable, "The service answered 401.")
    await world.credentials.mark_invalid(usable, "The service answered 401.")
    again = await world.credentials.resolve(world.mine.organization_id, "seeker", credential.credential_id)
    assert again is not None and not again.is_valid
    await world.credentials.mark_valid(again)
    await world.set_columns(credential, version=7)
    await world.credentials.mark_invalid(usable, "from before")
    events = await world.credentials.audit(world.mine.organization_id, credential.credential_id)
    assert sorted(event.event_type for event in events) == ["created", "marked_invalid", "marked_valid"]
    assert (await world.credentials.get(world.mine.organization_id, credential.credential_id))[0].is_valid

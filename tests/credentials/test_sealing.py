"""Secrets at rest: sealed to their row, hinted, never shown."""

from pathlib import Path

import pytest
from sqlalchemy import select

from parley.credentials import NewCredential, Secrets, Source
from parley.credentials.vault import CannotOpen, mask
from parley.keyring import Keyring
from parley.storage import Store
from parley.storage.tables.credentials import credentials
from tests.credentials.world import HERE, World, fake_key
from tests.stage import everything


async def test_a_secret_comes_back_for_its_own_row(world: World) -> None:
    token = fake_key("tok_")
    await world.connect("hub", {"token": token})
    usable = await world.credentials.resolve(world.mine.organization_id, "hub")
    assert usable is not None and usable.auth_data["token"] == token


async def test_a_sealed_secret_moved_to_another_row_does_not_open(world: World) -> None:
    first, second = await world.connect(), await world.connect()
    sealed = await world.store.read(
        lambda tx: tx.execute(select(credentials.c.sealed).where(credentials.c.id == first.credential_id)).scalar_one()
    )
    await world.set_columns(second, sealed=sealed)
    with pytest.raises(CannotOpen, match="Hub"):
        await world.credentials.resolve(world.mine.organization_id, "hub", second.credential_id)


async def test_a_row_moved_to_another_organization_does_not_open(world: World) -> None:
    stolen = await world.connect()
    await world.set_columns(stolen, organization_id=world.theirs.organization_id)
    with pytest.raises(CannotOpen):
        await world.credentials.resolve(world.theirs.organization_id, "hub", stolen.credential_id)


async def test_a_missing_master_key_is_named_together_with_the_credential(world: World) -> None:
    lost = await world.connect(display_name="Team token")
    await world.set_columns(lost, key_id="k0")
    with pytest.raises(CannotOpen) as refusal:
        await world.credentials.resolve(world.mine.organization_id, "hub")
    assert "Team token" in refusal.value.detail and "k0" in refusal.value.detail


async def test_only_the_chosen_credential_is_opened(world: World) -> None:
    broken = await world.connect()
    await world.set_columns(broken, key_id="k0")
    chosen = await world.connect(make_default=True)
    usable = await world.credentials.resolve(world.mine.organization_id, "hub")
    assert usable is not None and usable.credential_id == chosen.credential_id


async def test_no_table_of_the_store_holds_a_canary(world: World, store: Store) -> None:
    canary = fake_key("canary")
    credential = await world.connect("desk", {"domain": "acme", "api_key": canary})
    await world.credentials.create(
        world.mine,
        NewCredential(
            "hub",
            auth_data=Secrets({"access_token": canary + "a", "refresh_token": canary + "r"}),
            oauth_config=Secrets({"client_id": "c", "client_secret": canary + "s"}),
        ),
        HERE,
    )
    await world.credentials.update(
        world.mine, credential.credential_id, display_name="New", metadata={"a": 1}, source=HERE
    )
    await world.credentials.delete(world.mine, credential.credential_id, Source())

    dump = "\n".join((await store.read(everything)).values())
    assert "New" in dump
    assert canary[6:] not in dump


async def test_the_files_of_an_embedded_store_hold_no_canary(world: World, tmp_path: Path) -> None:
    canary = fake_key("canary")
    await world.connect("hub", {"token": canary}, display_name="Readable name")
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    if not written:
        pytest.skip("this store is not in files of ours")
    assert b"Readable name" in written
    assert canary.encode() not in written


def test_secrets_show_their_names_and_not_their_values() -> None:
    canary = fake_key()
    shown = (
        f"{Secrets({'api_key': canary})!r} {Secrets({'api_key': canary})} {NewCredential('x', Secrets({'a': canary}))}"
    )
    assert "api_key" in shown and canary not in shown


async def test_a_usable_credential_does_not_show_its_secret(world: World) -> None:
    canary = fake_key()
    await world.connect("hub", {"token": canary})
    usable = await world.credentials.resolve(world.mine.organization_id, "hub")
    assert canary not in repr(usable) and canary not in str(usable)


def test_a_long_key_is_hinted_by_its_ends() -> None:
    hint = mask("api_key", "sk-proj12" + "q" * 40 + "xyz")
    assert hint == "sk-proj12...xyz"


@pytest.mark.parametrize("length", range(60))
def test_a_hint_never_shows_more_than_a_quarter(length: int) -> None:
    secret = "".join(chr(0x4E00 + position) for position in range(length))
    hint = mask("api_key", secret)
    assert sum(character in secret for character in hint) <= length // 4
    assert len(hint) <= 15


def test_hints_of_sign_ins_and_managed_keys_say_what_they_are() -> None:
    assert mask("oauth2", "") == "OAuth2"
    assert mask("modulex_key", "") == "Managed"


def test_a_keyring_with_another_key_opens_nothing() -> None:
    one, other = Keyring({"k1": bytes(range(32))}), Keyring({"k1": bytes(range(1, 33))})
    sealed, key_id = one.seal(b"x", context="c")
    assert one.open(sealed, key_id=key_id, context="c") == b"x"
    with pytest.raises(Exception, match="does not belong"):
        other.open(sealed, key_id=key_id, context="c")

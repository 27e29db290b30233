"""T9, T10: what is sealed opens in its own place and nowhere else, today as on the day it was sealed."""

import base64
import os
import stat
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from parley.credentials.model import App, Credential, Draft, Flow, Opened, SealedFlow, Secrets, Wish
from parley.credentials.vault import (
    CannotOpen,
    FlowBroken,
    Vault,
    credential_context,
    flow_context,
    mask,
)
from parley.keyring import Keyring, KeyringError, SealBroken, load_keyring
from parley.keyring.keyring import new_key

KEY, OTHER_KEY = bytes(range(32)), bytes(range(32, 64))
CONTEXT = "credentials|org|row|auth_data"
# Sealed under KEY as k1 when this test was written: stores hold such values, so they must open for ever.
GOLDEN = base64.b64decode(
    "ASJKB/WVxnSPUI7fR/P7rmJ2Ls8NjFCuu9xCugcHkS9k7b00SIwRPpHlPsH5w00/p9DTsddkOAhNvobtiur0Rh5Ig734pNFk1VOP"
    "0qGXUsE2f4Bq8F2GuH/yoVhO2pzeeqHHxOYjCfqD0UsiGgwrisM="
)
HEAD = 1 + 12 + 48


def encoded(key: bytes) -> str:
    return base64.b64encode(key).decode()


# ── the keyring ─────────────────────────────────────────────────────────────────────────────────


def test_what_was_sealed_long_ago_still_opens() -> None:
    ring = Keyring({"k2": OTHER_KEY, "k1": KEY})
    assert ring.open(GOLDEN, key_id="k1", context=CONTEXT) == b"kept since the first day"


@pytest.mark.parametrize("plain", [b"", b"x", b"a secret", b"a secret" * 5_000])
def test_what_is_sealed_opens_and_never_looks_the_same_twice(plain: bytes) -> None:
    ring = Keyring({"k1": KEY, "k2": OTHER_KEY})
    sealed, key_id = ring.seal(plain, context=CONTEXT)
    again, _ = ring.seal(plain, context=CONTEXT)
    assert (key_id, ring.primary, ring.key_ids) == ("k1", "k1", ("k1", "k2"))
    assert ring.open(sealed, key_id="k1", context=CONTEXT) == plain
    assert sealed[:1] == b"\x01" and len(sealed) == HEAD + 12 + len(plain) + 16
    # Both nonces and both keys differ: nothing but the version is shared.
    for start, stop in ((1, 13), (13, HEAD), (HEAD, HEAD + 12)):
        assert sealed[start:stop] != again[start:stop]
    # One byte is in any random bytes by chance now and then; eight are not.
    assert len(plain) < 8 or plain[:8] not in sealed


def test_a_change_of_any_byte_of_the_place_or_of_the_key_opens_nothing() -> None:
    ring = Keyring({"k1": KEY, "k2": OTHER_KEY})
    for at in range(len(GOLDEN)):
        broken = GOLDEN[:at] + bytes([GOLDEN[at] ^ 1]) + GOLDEN[at + 1 :]
        said = "The sealed value is damaged." if at == 0 else "does not belong to this row, or was changed"
        with pytest.raises(SealBroken, match=said):
            ring.open(broken, key_id="k1", context=CONTEXT)
    for key_id, context in (("k2", CONTEXT), ("k1", CONTEXT + "x"), ("k1", "credentials|other|row|auth_data")):
        with pytest.raises(SealBroken, match="does not belong to this row, or was changed"):
            ring.open(GOLDEN, key_id=key_id, context=context)


def test_a_value_cut_short_is_damaged_and_the_shortest_there_is_is_not() -> None:
    ring = Keyring({"k1": KEY})
    shortest, _ = ring.seal(b"", context=CONTEXT)
    assert ring.open(shortest, key_id="k1", context=CONTEXT) == b""
    for length in (0, 1, HEAD, len(shortest) - 1):
        with pytest.raises(SealBroken, match=r"^The sealed value is damaged\.$"):
            ring.open(shortest[:length], key_id="k1", context=CONTEXT)


def test_a_key_that_is_not_there_is_named() -> None:
    with pytest.raises(SealBroken) as missing:
        Keyring({"k1": KEY}).open(GOLDEN, key_id="k9", context=CONTEXT)
    assert str(missing.value) == "Master key k9 is not in PARLEY_MASTER_KEYS. Add it to read what it sealed."


def test_no_key_at_all_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(KeyringError) as none:
        Keyring({})
    assert str(none.value) == "There is no master key. Set PARLEY_MASTER_KEYS or remove the empty key file."


def test_keys_are_read_in_their_order_from_one_line_or_from_several(tmp_path: Path) -> None:
    for text in (f"a:{encoded(KEY)},b:{encoded(OTHER_KEY)}", f" a:{encoded(KEY)}\n\n b:{encoded(OTHER_KEY)} \n,"):
        ring = load_keyring(text, tmp_path / "nowhere")
        assert ring.key_ids == ("a", "b")
        sealed, _ = Keyring({"a": KEY}).seal(b"x", context=CONTEXT)
        assert ring.open(sealed, key_id="a", context=CONTEXT) == b"x"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a:***", "key 'a' is not base64"),
        (f"a:{encoded(KEY)[:-4]}", "key 'a' must be 32 bytes, not 30"),
        (f"a:{encoded(KEY + b'x')}", "key 'a' must be 32 bytes, not 33"),
        (f"a:{encoded(bytes(32))}", "key 'a' is not random. Make one with: parley keys master"),
        (f"a:{encoded(bytes(range(7)) * 4 + bytes(4))}", "key 'a' is not random. Make one with: parley keys master"),
        (f":{encoded(KEY)}", "key ids must be present, unique and at most 40 characters"),
        (f"{'a' * 41}:{encoded(KEY)}", "key ids must be present, unique and at most 40 characters"),
        (f"a:{encoded(KEY)},a:{encoded(OTHER_KEY)}", "key ids must be present, unique and at most 40 characters"),
    ],
)
def test_a_key_that_cannot_be_used_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(KeyringError) as refused:
        load_keyring(text, tmp_path)
    assert str(refused.value) == f"PARLEY_MASTER_KEYS: {said}"


def test_the_most_ordinary_keys_that_pass() -> None:
    eight = bytes(range(8)) * 4
    assert load_keyring(f"{'a' * 40}:{encoded(eight)}", Path("nowhere")).primary == "a" * 40


def test_the_first_start_makes_a_key_that_only_its_owner_reads_and_the_next_finds_it(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "data"
    sealed, key_id = load_keyring("", folder).seal(b"x", context=CONTEXT)
    path = folder / "master.keys"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in folder.iterdir()] == ["master.keys"]
    text = path.read_text(encoding="ascii")
    assert text.startswith("k1:") and text.endswith("\n") and key_id == "k1"
    assert load_keyring("", folder).open(sealed, key_id="k1", context=CONTEXT) == b"x"
    assert path.read_text(encoding="ascii") == text


def test_processes_that_start_at_once_agree_on_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        rings = list(pool.map(load_keyring, [""] * 16, [tmp_path] * 16))
    sealed, _ = rings[0].seal(b"x", context=CONTEXT)
    assert {ring.open(sealed, key_id="k1", context=CONTEXT) for ring in rings} == {b"x"}
    assert [each.name for each in tmp_path.iterdir()] == ["master.keys"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    load_keyring("", tmp_path)
    path = tmp_path / "master.keys"
    os.chmod(path, mode)  # noqa: PTH101 - the command that the message names
    with pytest.raises(KeyringError) as refused:
        load_keyring("", tmp_path)
    assert str(refused.value) == f"{path} can be read by other users. Run: chmod 600 {path}"


def test_a_fault_in_the_key_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "master.keys"
    path.touch(mode=0o600)
    with pytest.raises(KeyringError, match="There is no master key"):
        load_keyring("", tmp_path)
    path.write_text("k1:***", encoding="ascii")
    with pytest.raises(KeyringError) as refused:
        load_keyring("", tmp_path)
    assert str(refused.value) == f"{path}: key 'k1' is not base64"


def test_a_fresh_key_is_32_random_bytes_under_its_name() -> None:
    made = {new_key("k7") for _ in range(50)}
    assert len(made) == 50
    for each in made:
        key_id, _, key = each.partition(":")
        assert key_id == "k7" and len(base64.b64decode(key, validate=True)) == 32


# ── the vault ───────────────────────────────────────────────────────────────────────────────────

VAULT = Vault(Keyring({"k1": KEY}))
DRAFT = Draft(
    "org", "person", "github", "tool", "bearer_token", "Mine",
    Opened(Secrets({"token": "ghp_0123456789abcdef", "deep": {"a": [1, None]}})),
    "ghp_0123456789abcdef", {"note": "n"}, make_default=True, expires_at=99,
)  # fmt: skip


def test_a_draft_becomes_a_row_that_is_nobodys_default_yet() -> None:
    stored = VAULT.sealed(DRAFT, 42)
    made = stored.credential
    assert len(made.credential_id) == 36
    assert made == Credential(
        credential_id=made.credential_id,
        organization_id="org",
        integration_name="github",
        integration_type="tool",
        display_name="Mine",
        auth_type="bearer_token",
        masked=mask("bearer_token", "ghp_0123456789abcdef"),
        is_default=False,
        is_valid=True,
        metadata={"note": "n"},
        version=1,
        created_by="person",
        created_at=42,
        updated_at=42,
        last_used_at=None,
        expires_at=99,
    )
    assert stored.box.key_id == "k1"
    assert VAULT.sealed(DRAFT, 42).credential.credential_id != made.credential_id


@pytest.mark.parametrize("app", [None, App("client", "its secret"), App("public client", "")])
def test_a_credential_opens_as_it_was_sealed(app: App | None) -> None:
    opened = Opened(DRAFT.opened.auth_data, app)
    stored = VAULT.sealed(replace(DRAFT, opened=opened), 1)
    again = Vault(Keyring({"k1": KEY})).open(stored)  # as another process would
    assert dict(again.auth_data) == dict(DRAFT.opened.auth_data)
    assert again.app == app


def test_a_row_of_another_place_or_under_another_key_does_not_open_and_says_which_it_is() -> None:
    stored = VAULT.sealed(DRAFT, 1)
    moved = replace(stored, credential=replace(stored.credential, organization_id="other"))
    other_row = replace(stored, credential=replace(stored.credential, credential_id="row"))
    for broken, why in (
        (moved, "The sealed value does not belong to this row, or was changed."),
        (other_row, "The sealed value does not belong to this row, or was changed."),
        (replace(stored, box=replace(stored.box, key_id="k9")), "Master key k9 is not in PARLEY_MASTER_KEYS."),
    ):
        with pytest.raises(CannotOpen) as refused:
            VAULT.open(broken)
        assert refused.value.detail.startswith(f"The credential 'Mine' of github cannot be opened. {why}")
        assert refused.value.detail.endswith(
            " Delete it and connect it again, or ask your operator to restore the key."
        )
        assert refused.value.status == 503


def test_seals_are_bound_to_places_that_stores_already_hold() -> None:
    assert credential_context("o", "c") == "credentials|o|c|auth_data"
    assert flow_context("o", b"\x01\xff") == "oauth_states|o|01ff|sealed"
    ring = Keyring({"k1": KEY})
    stored = VAULT.sealed(DRAFT, 1)
    context = credential_context("org", stored.credential.credential_id)
    assert b"ghp_0123456789abcdef" in ring.open(stored.box.sealed, key_id="k1", context=context)


FLOW = Flow("org", "person", "github", "https://here/callback", "chat", "request", {"model_id": "m"})
WISH = Wish(App("client", "secret"), "verifier", "repo user", "Mine", True, Secrets({"host": "x"}), b"\x00\xffhash")


@pytest.mark.parametrize(
    "wish",
    [
        WISH,
        replace(WISH, app=None, verifier=None, browser=None, make_default=False, scope="", values=Secrets()),
        replace(WISH, app=App("public client", "")),
    ],
)
@pytest.mark.parametrize("flow", [FLOW, replace(FLOW, llm=None, chat_id=None)])
def test_a_sign_in_opens_as_it_was_sealed(wish: Wish, flow: Flow) -> None:
    sealed = SealedFlow(flow, b"state", VAULT.seal_flow(flow, wish, b"state"), 1, 2)
    again, wanted = VAULT.open_flow(replace(sealed, flow=replace(flow, llm=None)))
    assert again == flow
    assert replace(wanted, values=Secrets()) == replace(wish, values=Secrets())
    assert dict(wanted.values) == dict(wish.values)


def test_a_sign_in_of_another_state_organization_or_key_does_not_open() -> None:
    sealed = SealedFlow(FLOW, b"state", VAULT.seal_flow(FLOW, WISH, b"state"), 1, 2)
    for broken in (
        replace(sealed, state_hash=b"other"),
        replace(sealed, flow=replace(FLOW, organization_id="other")),
        replace(sealed, box=replace(sealed.box, key_id="k9")),
    ):
        with pytest.raises(FlowBroken):
            VAULT.open_flow(broken)


@pytest.mark.parametrize(
    ("auth_type", "secret", "shown"),
    [
        ("oauth2", "ya29.secret-token-of-some-length", "OAuth2"),
        ("modulex_key", "sk-secret-token-of-some-length", "Managed"),
        ("api_key", "", "..."),
        ("api_key", "abc", "..."),
        ("api_key", "abcd", "a..."),
        ("api_key", "abcdefghijkl", "ab...l"),
        ("api_key", "abcdefghijklmnopqrstuvwx", "abcd...wx"),
        ("api_key", "sk-proj12" + "x" * 100 + "xyz", "sk-proj12...xyz"),
        ("api_key", "\x1b\n" + "y" * 46, "  yyyyyyy...yyy"),
    ],
)
def test_a_hint_shows_these_parts(auth_type: str, secret: str, shown: str) -> None:
    assert mask(auth_type, secret) == shown


def test_nothing_of_a_sealed_struct_shows_itself() -> None:
    stored = VAULT.sealed(DRAFT, 1)
    for shown in (repr(stored), repr(VAULT.open(stored)), repr(WISH), repr(DRAFT)):
        assert "ghp_0123" not in shown and "verifier=" not in shown and "its secret" not in shown


def test_a_traceback_that_shows_variables_shows_no_secret() -> None:
    """Here of a value that cannot be sealed, at the very line that holds everything in plain."""
    unfit = Opened(Secrets({**DRAFT.opened.auth_data, "unfit": object()}))  # pyright: ignore[reportArgumentType]
    credential = VAULT.sealed(DRAFT, 1).credential
    with pytest.raises(TypeError) as failed:
        VAULT.seal(unfit, credential)
    told = "".join(traceback.TracebackException.from_exception(failed.value, capture_locals=True).format())
    assert "plain = _Plain(…)" in told
    assert "ghp_0123" not in told

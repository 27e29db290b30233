"""A person's API keys over HTTP (contract §1.2)."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from parley.accounts.keys import PREFIX, digest, has_checksum, mask, new_key
from parley.base.clock import iso
from parley.storage.tables.accounts import audit_log
from tests.accounts.desk import Desk, Person

ROW = {
    "id",
    "name",
    "key_hint",
    "masked_key",
    "organization_id",
    "expires_at",
    "is_expired",
    "is_active",
    "rate_limit_per_minute",
    "last_used_at",
    "created_at",
    "revoked_at",
}


async def make(desk: Desk, person: Person, **wish: Any) -> dict[str, Any]:
    answer = await desk.web.post("/api-keys", json={"name": "ci", **wish}, headers=person.headers())
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_a_new_key_is_the_prefix_and_32_letters_and_digits_with_its_checksum() -> None:
    keys = {new_key() for _ in range(200)}
    assert len(keys) == 200
    for key in keys:
        assert re.fullmatch(r"mx_live_[0-9A-Za-z]{32}", key)
        assert has_checksum(key)


@given(position=st.integers(0, 31), letter=st.sampled_from("0Aa9zZ"))
def test_one_wrong_character_breaks_the_checksum(position: int, letter: str) -> None:
    key = new_key()
    at = len(PREFIX) + position
    changed = key[:at] + letter + key[at + 1 :]
    assert has_checksum(changed) == (changed == key)


@given(st.text(max_size=60))
def test_any_text_can_be_checked_and_hashed(text: str) -> None:
    has_checksum(PREFIX + text)
    assert len(digest(b"p" * 32, text)) == 32


async def test_the_key_is_shown_once_and_masked_from_then_on(desk: Desk) -> None:
    made = await make(desk, desk.owner)
    assert set(made) == ROW | {"key"}
    assert made["masked_key"] == mask(made["key"]) == made["key"][:12] + "****"
    assert made["key_hint"] == "mx_live_"
    assert (made["is_active"], made["is_expired"], made["rate_limit_per_minute"]) == (True, False, 60)
    one = await desk.web.get(f"/api-keys/{made['id']}", headers=desk.owner.headers())
    assert one.status_code == 200
    assert one.json() == {name: value for name, value in made.items() if name != "key"}
    listed = (await desk.web.get("/api-keys", headers=desk.owner.headers())).json()
    assert listed["max_keys"] == 25
    assert listed["total"] == len(listed["keys"]) == 2
    assert made["key"] not in str(listed)


@pytest.mark.parametrize(
    "wish",
    [
        {},
        {"name": ""},
        {"name": "   "},
        {"name": "n" * 256},
        {"name": "n", "rate_limit_per_minute": 0},
        {"name": "n", "rate_limit_per_minute": 1001},
        {"name": "n", "expires_at": "tomorrow"},
        {"name": "n", "expires_at": "9999-12-31T23:59:59-23:59"},
        {"name": "n", "expires_at": "0001-01-01T00:00:00+23:59"},
    ],
)
async def test_a_wish_outside_its_ranges_is_422(still: Desk, wish: dict[str, Any]) -> None:
    answer = await still.web.post("/api-keys", json=wish, headers=still.owner.headers())
    assert answer.status_code == 422
    assert all(set(each) == {"loc", "msg", "type"} for each in answer.json()["detail"])


async def test_an_end_in_the_past_is_refused(still: Desk) -> None:
    past = iso(still.clock.now() - 1_000_000)
    answer = await still.web.post("/api-keys", json={"name": "n", "expires_at": past}, headers=still.owner.headers())
    assert answer.status_code == 400


async def test_an_expired_key_is_401_and_shown_as_expired(desk: Desk) -> None:
    made = await make(desk, desk.owner, expires_at=iso(desk.clock.now() + 60_000_000))
    headers = {"X-API-KEY": made["key"]}
    assert (await desk.web.get("/auth/me", headers=headers)).status_code == 200
    desk.clock.advance(seconds=61)
    assert (await desk.web.get("/auth/me", headers=headers)).status_code == 401
    row = (await desk.web.get(f"/api-keys/{made['id']}", headers=desk.owner.headers())).json()
    assert (row["is_expired"], row["is_active"]) == (True, True)


async def test_a_revoked_key_is_401_at_once_and_stays_in_the_full_list_only(desk: Desk) -> None:
    made = await make(desk, desk.owner)
    headers = {"X-API-KEY": made["key"]}
    assert (await desk.web.get("/auth/me", headers=headers)).status_code == 200
    revoked = await desk.web.delete(f"/api-keys/{made['id']}", headers=desk.owner.headers())
    assert (revoked.status_code, revoked.json()["success"]) == (200, True)
    assert (await desk.web.get("/auth/me", headers=headers)).status_code == 401
    short = (await desk.web.get("/api-keys", headers=desk.owner.headers())).json()
    full = (await desk.web.get("/api-keys?include_revoked=true", headers=desk.owner.headers())).json()
    assert made["id"] not in {key["id"] for key in short["keys"]}
    gone = next(key for key in full["keys"] if key["id"] == made["id"])
    assert not gone["is_active"]
    assert gone["revoked_at"] is not None


async def test_a_key_that_is_unknown_revoked_or_anothers_is_the_same_404(desk: Desk) -> None:
    bea = await desk.newcomer("bea")
    mine = await make(desk, desk.owner)
    revoked = await make(desk, bea)
    assert (await desk.web.delete(f"/api-keys/{revoked['id']}", headers=bea.headers())).status_code == 200
    unknown = "00000000-0000-4000-8000-000000000000"
    gets = [await desk.web.get(f"/api-keys/{each}", headers=bea.headers()) for each in (mine["id"], unknown, "x")]
    ends = [
        await desk.web.delete(f"/api-keys/{each}", headers=bea.headers())
        for each in (mine["id"], unknown, "x", revoked["id"])
    ]
    assert {(answer.status_code, answer.content) for answer in gets + ends} == {(404, gets[0].content)}
    assert (await desk.web.get("/auth/me", headers={"X-API-KEY": mine["key"]})).status_code == 200


async def test_a_person_has_at_most_25_keys_and_revoking_makes_room(desk: Desk) -> None:
    made = [await make(desk, desk.owner) for _ in range(24)]
    full = await desk.web.post("/api-keys", json={"name": "one more"}, headers=desk.owner.headers())
    assert full.status_code == 409
    await desk.web.delete(f"/api-keys/{made[0]['id']}", headers=desk.owner.headers())
    await make(desk, desk.owner)


async def test_a_locked_key_acts_in_its_organization_only(desk: Desk) -> None:
    bea = await desk.colleague("bea", of=desk.owner)
    made = await make(desk, bea, organization_id=bea.organization_id)
    for organization_id, expected in ((bea.organization_id, 200), (desk.owner.organization_id, 403)):
        headers = {"X-API-KEY": made["key"], "X-Organization-ID": organization_id}
        assert (await desk.web.get("/probe/admin", headers=headers)).status_code == expected
    me = (await desk.web.get("/auth/me", headers={"X-API-KEY": made["key"]})).json()
    assert me["organization_ids"] == [bea.organization_id]
    joined = (await desk.web.get("/auth/me/organizations", headers={"X-API-KEY": made["key"]})).json()
    assert [each["id"] for each in joined["organizations"]] == [bea.organization_id]


async def test_a_locked_key_cannot_make_itself_wider(desk: Desk) -> None:
    bea = await desk.colleague("bea", of=desk.owner)
    wide = await make(desk, bea)
    locked = await make(desk, bea, organization_id=bea.organization_id)
    headers = {"X-API-KEY": locked["key"]}
    for wish in ({}, {"organization_id": desk.owner.organization_id}):
        assert (await desk.web.post("/api-keys", json={"name": "n", **wish}, headers=headers)).status_code == 403
    same = await desk.web.post("/api-keys", json={"name": "n", "organization_id": bea.organization_id}, headers=headers)
    assert same.status_code == 201
    seen = (await desk.web.get("/api-keys", headers=headers)).json()
    assert {key["id"] for key in seen["keys"]} == {locked["id"], same.json()["id"]}
    assert (await desk.web.delete(f"/api-keys/{wide['id']}", headers=headers)).status_code == 404
    assert (await desk.web.post("/organizations", json={"name": "Wide"}, headers=headers)).status_code == 403
    assert (await desk.web.get("/auth/invitations/my", headers=headers)).status_code == 403


async def test_a_key_cannot_be_locked_to_an_organization_one_is_not_in(desk: Desk) -> None:
    bea = await desk.newcomer("bea")
    for organization_id in (desk.owner.organization_id, "00000000-0000-4000-8000-000000000000"):
        wish = {"name": "n", "organization_id": organization_id}
        assert (await desk.web.post("/api-keys", json=wish, headers=bea.headers())).status_code == 403


async def test_making_and_revoking_a_key_is_audited_where_the_key_can_act(desk: Desk) -> None:
    bea = await desk.colleague("bea", of=desk.owner)
    made = await make(desk, bea, organization_id=desk.owner.organization_id)
    await desk.web.delete(f"/api-keys/{made['id']}", headers=bea.headers())
    rows = await desk.store.read(
        lambda tx: tx.execute(
            select(audit_log.c.organization_id, audit_log.c.operation, audit_log.c.detail, audit_log.c.category)
            .where(audit_log.c.category == "CREDENTIALS")
            .order_by(audit_log.c.created_at)
        ).all()
    )
    about = [row for row in rows if row.detail["api_key_id"] == made["id"]]
    assert [(row.organization_id, row.operation) for row in about] == [
        (desk.owner.organization_id, "api_key_created"),
        (desk.owner.organization_id, "api_key_revoked"),
    ]
    assert made["key"] not in str(rows)

"""Invitations over HTTP (contract §1.1, §1.3)."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import select

from parley.base.clock import DAY
from parley.storage.tables.accounts import invitations, users
from tests.accounts.desk import PASSWORD, Desk, Person

NOBODY = str(uuid4())


async def invited(desk: Desk, email: str, by: Person | None = None) -> dict[str, Any]:
    answer = await desk.invite(by or desk.owner, email)
    assert answer.status_code == 200, answer.text
    return answer.json()["invitation"]


async def answered(desk: Desk, person: Person, invitation_id: str, verb: str = "accept") -> int:
    answer = await desk.web.post(f"/auth/invitations/{invitation_id}/{verb}", headers=person.headers())
    return answer.status_code


async def test_the_link_is_shown_to_who_invites_and_its_token_is_not_stored(desk: Desk) -> None:
    answer = (await desk.invite(desk.owner, " Bea@Example.COM ")).json()
    assert (answer["success"], answer["error"], answer["code"]) == (True, None, None)
    invitation = answer["invitation"]
    assert (invitation["email"], invitation["role"], invitation["status"]) == ("bea@example.com", "admin", "pending")
    assert invitation["requires_acceptance"] is True
    assert invitation["link"] == f"http://parley.test/app/#invitation={invitation['token']}"
    row = await desk.store.read(lambda tx: tx.execute(select(invitations)).one())
    assert invitation["token"].encode() not in row.token_hash
    assert row.expires_at - row.created_at == 7 * DAY


@pytest.mark.parametrize(
    "wish",
    [
        {},
        {"invited_email": "bea"},
        {"invited_email": "a b@example.com"},
        {"invited_email": "bea@example.com", "role": "member"},
        {"invited_email": "bea@example.com", "role": "owner"},
        {"invited_email": "bea@example.com", "invitation_message": "m" * 1001},
    ],
)
async def test_a_malformed_invitation_is_422(still: Desk, wish: dict[str, str]) -> None:
    answer = await still.web.post("/organizations/invite", json=wish, headers=still.owner.headers())
    assert answer.status_code == 422


async def test_the_invited_see_it_and_join(desk: Desk) -> None:
    bea = await desk.newcomer("bea")
    wish = {"invited_email": bea.email, "invitation_message": "Come!"}
    made = await desk.web.post("/organizations/invite", json=wish, headers=desk.owner.headers())
    mine = (await desk.web.get("/auth/invitations/my", headers=bea.headers())).json()
    assert (mine["success"], mine["total_count"]) == (True, 1)
    (seen,) = mine["invitations"]
    assert seen["id"] == made.json()["invitation"]["id"]
    assert seen["organization"]["id"] == desk.owner.organization_id
    assert seen["invited_by"] == {"id": desk.owner.user_id, "email": desk.owner.email, "username": "owner"}
    assert (seen["invitation_message"], seen["days_until_expiry"], seen["role"]) == ("Come!", 7, "admin")
    joined = await desk.web.post(f"/auth/invitations/{seen['id']}/accept", headers=bea.headers())
    assert joined.status_code == 200
    assert joined.json()["organization"]["id"] == desk.owner.organization_id
    assert joined.json()["role"] == "admin"
    answer = await desk.web.get("/probe/admin", headers=bea.headers(desk.owner.organization_id))
    assert answer.json()["role"] == "admin"
    assert (await desk.web.get("/auth/invitations/my", headers=bea.headers())).json()["total_count"] == 0
    assert await answered(desk, bea, seen["id"]) == 409
    assert await answered(desk, bea, seen["id"], "reject") == 409


async def test_anothers_invitation_answers_like_one_that_does_not_exist(desk: Desk) -> None:
    bea = await desk.newcomer("bea")
    cyd = await desk.newcomer("cyd")
    invitation = await invited(desk, bea.email)
    bodies: set[tuple[int, bytes]] = set()
    for verb in ("accept", "reject"):
        for invitation_id in (invitation["id"], NOBODY, "x"):
            answer = await desk.web.post(f"/auth/invitations/{invitation_id}/{verb}", headers=cyd.headers())
            bodies.add((answer.status_code, answer.content))
    for verb in ("cancel", "reinvite"):
        for invitation_id in (invitation["id"], NOBODY, "x"):
            path = f"/organizations/invitations/{invitation_id}/{verb}"
            answer = await desk.web.post(path, headers=cyd.headers())
            bodies.add((answer.status_code, answer.content))
    assert len(bodies) == 1
    assert next(iter(bodies))[0] == 404
    assert await answered(desk, bea, invitation["id"]) == 200


async def test_a_declined_invitation_is_over(desk: Desk) -> None:
    bea = await desk.newcomer("bea")
    invitation = await invited(desk, bea.email)
    assert await answered(desk, bea, invitation["id"], "reject") == 200
    assert await answered(desk, bea, invitation["id"]) == 410
    assert await answered(desk, bea, invitation["id"], "reject") == 410


async def test_an_invitation_ends_after_seven_days_and_can_be_sent_again(desk: Desk) -> None:
    bea = await desk.newcomer("bea")
    invitation = await invited(desk, bea.email)
    desk.clock.advance(days=7)
    assert (await desk.web.get("/auth/invitations/my", headers=bea.headers())).json()["total_count"] == 0
    assert await answered(desk, bea, invitation["id"]) == 410
    path = f"/organizations/invitations/{invitation['id']}/reinvite"
    again = await desk.web.post(path, headers=desk.owner.headers())
    assert again.status_code == 200
    assert again.json()["invitation"]["token"] != invitation["token"]
    assert await answered(desk, bea, invitation["id"]) == 200


async def test_inviting_anew_after_the_end_makes_a_new_invitation(desk: Desk) -> None:
    first = await invited(desk, "bea@example.com")
    assert (await desk.invite(desk.owner, "bea@example.com")).status_code == 409
    desk.clock.advance(days=8)
    second = await invited(desk, "bea@example.com")
    assert second["id"] != first["id"]
    old = await desk.web.post(f"/organizations/invitations/{first['id']}/reinvite", headers=desk.owner.headers())
    assert old.status_code == 409


async def test_a_cancelled_invitation_and_its_link_are_void(desk: Desk) -> None:
    bea = await desk.newcomer("bea")
    invitation = await invited(desk, bea.email)
    path = f"/organizations/invitations/{invitation['id']}/cancel"
    cancelled = await desk.web.post(path, headers=desk.owner.headers())
    assert (cancelled.status_code, cancelled.json()["success"]) == (200, True)
    assert (await desk.web.post(path, headers=desk.owner.headers())).status_code == 409
    assert await answered(desk, bea, invitation["id"]) == 410
    opened = await desk.web.post("/auth/invitations/open", json={"token": invitation["token"]})
    assert opened.status_code == 410
    again = await desk.web.post(f"/organizations/invitations/{invitation['id']}/reinvite", headers=desk.owner.headers())
    assert again.status_code == 200
    assert await answered(desk, bea, invitation["id"]) == 200


async def test_whoever_is_in_already_cannot_be_invited(desk: Desk) -> None:
    bea = await desk.colleague("bea", of=desk.owner)
    assert (await desk.invite(desk.owner, bea.email)).status_code == 409
    assert (await desk.invite(desk.owner, desk.owner.email)).status_code == 409


async def test_sending_an_accepted_invitation_again_is_409(desk: Desk) -> None:
    bea = await desk.newcomer("bea")
    invitation = await invited(desk, bea.email)
    assert await answered(desk, bea, invitation["id"]) == 200
    path = f"/organizations/invitations/{invitation['id']}"
    assert (await desk.web.post(f"{path}/reinvite", headers=desk.owner.headers())).status_code == 409
    assert (await desk.web.post(f"{path}/cancel", headers=desk.owner.headers())).status_code == 409


async def test_admins_see_the_open_invitations_of_their_organization_only(desk: Desk) -> None:
    bea = await desk.newcomer("bea")
    mine = await invited(desk, "x@example.com")
    await invited(desk, "y@example.com", by=bea)
    listed = (await desk.web.get("/organizations/invitations", headers=desk.owner.headers())).json()
    assert [each["id"] for each in listed["invitations"]] == [mine["id"]]
    assert "token" not in listed["invitations"][0]


async def test_seats_are_counted_when_inviting_and_when_joining(desk: Desk) -> None:
    bea = await desk.newcomer("bea")
    cyd = await desk.newcomer("cyd")
    first = await invited(desk, bea.email)
    second = await invited(desk, cyd.email)
    desk.seats[desk.owner.organization_id] = 2
    full = await desk.invite(desk.owner, "dan@example.com")
    assert full.status_code == 403
    assert set(full.json()) == {"detail"}
    assert await answered(desk, bea, first["id"]) == 200
    assert await answered(desk, cyd, second["id"]) == 403
    desk.seats[desk.owner.organization_id] = 3
    assert await answered(desk, cyd, second["id"]) == 200


async def test_the_preview_of_a_seat_says_that_there_is_no_subscription(still: Desk) -> None:
    answer = await still.web.post("/organizations/invite/preview", headers=still.owner.headers())
    assert answer.status_code == 200
    assert answer.json() == {"preview_available": False, "reason": "no_active_subscription"}


async def test_of_two_who_accept_one_invitation_at_once_one_joins(desk: Desk) -> None:
    for number in range(5):
        person = await desk.newcomer(f"p{number}")
        invitation = await invited(desk, person.email)
        statuses: list[int] = []

        async def accept(person: Person, invitation_id: str, statuses: list[int]) -> None:
            statuses.append(await answered(desk, person, invitation_id))

        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(accept(person, invitation["id"], statuses))
        assert sorted(statuses) == [200, 409, 409, 409]


async def test_of_two_who_want_the_last_seat_one_gets_it(desk: Desk) -> None:
    people = [await desk.newcomer(name) for name in ("bea", "cyd")]
    waiting = [await invited(desk, person.email) for person in people]
    desk.seats[desk.owner.organization_id] = 2
    statuses: list[int] = []

    async def accept(person: Person, invitation_id: str) -> None:
        statuses.append(await answered(desk, person, invitation_id))

    async with asyncio.TaskGroup() as group:
        for person, invitation in zip(people, waiting, strict=True):
            group.create_task(accept(person, invitation["id"]))
    assert sorted(statuses) == [200, 403]


class TestLinks:
    async def test_a_link_tells_what_it_is_for(self, desk: Desk) -> None:
        invitation = await invited(desk, "bea@example.com")
        opened = await desk.web.post("/auth/invitations/open", json={"token": invitation["token"]})
        assert opened.status_code == 200
        assert (opened.json()["email"], opened.json()["has_account"]) == ("bea@example.com", False)
        assert opened.json()["invitation"]["organization"]["id"] == desk.owner.organization_id
        assert (await desk.web.post("/auth/invitations/open", json={"token": "x"})).status_code == 404
        assert (await desk.web.post("/auth/invitations/open", json={})).status_code == 422

    async def test_a_link_opens_an_account_for_an_address_that_has_none(self, desk: Desk) -> None:
        invitation = await invited(desk, "bea@example.com")
        async with desk.browser() as page:
            way = {"invitation_token": invitation["token"], "username": "Bea", "password": PASSWORD}
            opened = await page.post("/auth/session", json=way)
            assert opened.status_code == 200
            assert opened.json()["user"]["username"] == "Bea"
            assert [each["role"] for each in opened.json()["organizations"]] == ["admin"]
            mine = await page.get("/probe/admin", headers={"X-Organization-ID": desk.owner.organization_id})
            assert mine.json()["role"] == "admin"
        async with desk.browser() as page:
            assert (await page.post("/auth/session", json=way)).status_code == 409
            by_password = {"email": "BEA@example.com", "password": PASSWORD}
            assert (await page.post("/auth/session", json=by_password)).status_code == 200

    async def test_a_link_never_opens_an_account_that_is_there(self, desk: Desk) -> None:
        bea = await desk.newcomer("bea")
        invitation = await invited(desk, bea.email)
        opened = await desk.web.post("/auth/invitations/open", json={"token": invitation["token"]})
        assert opened.json()["has_account"] is True
        async with desk.browser() as page:
            way = {"invitation_token": invitation["token"], "username": "Mallory"}
            answer = await page.post("/auth/session", json=way)
            assert answer.status_code == 409
            assert "set-cookie" not in answer.headers

    async def test_an_old_link_is_void_once_the_invitation_was_sent_again(self, desk: Desk) -> None:
        invitation = await invited(desk, "bea@example.com")
        path = f"/organizations/invitations/{invitation['id']}/reinvite"
        assert (await desk.web.post(path, headers=desk.owner.headers())).status_code == 200
        assert (await desk.web.post("/auth/invitations/open", json={"token": invitation["token"]})).status_code == 404

    async def test_of_two_who_open_one_link_at_once_one_makes_the_account(self, desk: Desk) -> None:
        invitation = await invited(desk, "bea@example.com")
        statuses: list[int] = []

        async def follow() -> None:
            async with desk.browser() as page:
                way = {"invitation_token": invitation["token"], "username": "Bea"}
                statuses.append((await page.post("/auth/session", json=way)).status_code)

        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(follow())
        assert sorted(statuses) == [200, 409, 409, 409]
        found = await desk.store.read(
            lambda tx: tx.execute(select(users.c.id).where(users.c.email == "bea@example.com")).all()
        )
        assert len(found) == 1

    async def test_two_links_for_one_address_make_one_account(self, desk: Desk) -> None:
        cyd = await desk.newcomer("cyd")
        tokens = [(await invited(desk, "bea@example.com", by=by))["token"] for by in (desk.owner, cyd)]
        statuses: list[int] = []

        async def follow(token: str) -> None:
            async with desk.browser() as page:
                way = {"invitation_token": token, "username": "Bea"}
                statuses.append((await page.post("/auth/session", json=way)).status_code)

        async with asyncio.TaskGroup() as group:
            for token in tokens:
                group.create_task(follow(token))
        assert sorted(statuses) == [200, 409]

"""Signing in from a browser, and what other sites cannot do with that (trust T24)."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from parley.storage import Store
from parley.storage.tables.accounts import sessions, users
from tests.accounts.desk import PASSWORD, Desk, open_desk

OTHER = "https://evil.example"


@pytest.fixture
async def page(desk: Desk) -> AsyncIterator[httpx.AsyncClient]:
    """A browser on which the owner signed in with the first-start link."""
    async with desk.browser() as browser:
        answer = await browser.post("/auth/session", json={"sign_in_token": link_token(desk)})
        assert answer.status_code == 200, answer.text
        yield browser


def link_token(desk: Desk) -> str:
    return desk.first.sign_in_link.partition("#sign-in=")[2]


async def test_the_first_start_link_works_once(desk: Desk, page: httpx.AsyncClient) -> None:
    shown = (await page.get("/auth/session")).json()
    assert shown["user"]["id"] == desk.owner.user_id
    assert [each["id"] for each in shown["organizations"]] == [desk.owner.organization_id]
    async with desk.browser() as second:
        again = await second.post("/auth/session", json={"sign_in_token": link_token(desk)})
        assert again.status_code == 401
        assert "set-cookie" not in again.headers


async def test_a_link_is_over_after_a_day(desk: Desk) -> None:
    desk.clock.advance(days=1)
    async with desk.browser() as browser:
        assert (await browser.post("/auth/session", json={"sign_in_token": link_token(desk)})).status_code == 401


async def test_an_operator_can_make_another_link(desk: Desk) -> None:
    token = await desk.accounts.sessions.make_link(desk.owner.email)
    async with desk.browser() as browser:
        assert (await browser.post("/auth/session", json={"sign_in_token": token})).status_code == 200


async def test_the_cookie_on_this_machine_is_plain_http_only_and_lax(desk: Desk) -> None:
    async with desk.browser() as browser:
        answer = await browser.post("/auth/session", json={"api_key": desk.owner.key})
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("parley-session=")
    assert {"HttpOnly", "Path=/", "SameSite=lax", "Max-Age=604800"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert "Domain" not in cookie


async def test_behind_https_the_cookie_is_a_host_cookie_and_the_plain_one_is_ignored(store: Store) -> None:
    async with open_desk(store, public_url="https://parley.example") as desk, desk.browser() as browser:
        answer = await browser.post("/auth/session", json={"api_key": desk.owner.key})
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-parley=")
        assert {"Secure", "HttpOnly", "Path=/", "SameSite=lax"} <= set(cookie.split("; "))
        assert "Domain" not in cookie
        token = cookie.partition("=")[2].partition(";")[0]
        for name, expected in (("__Host-parley", 200), ("parley-session", 401)):
            answer = await desk.web.get("/auth/session", headers={"Cookie": f"{name}={token}"})
            assert answer.status_code == expected


async def test_over_plain_http_nobody_signs_in_from_another_machine(desk: Desk) -> None:
    for host, expected in (("parley.lan:8000", 403), ("192.168.1.5", 403), ("localhost:8000", 200), ("[::1]:1", 200)):
        async with desk.browser(Host=host) as browser:
            answer = await browser.post("/auth/session", json={"api_key": desk.owner.key})
            assert answer.status_code == expected, host
            assert ("set-cookie" in answer.headers) == (expected == 200)


async def test_over_plain_http_the_operators_own_address_is_trusted(store: Store) -> None:
    address = "http://parley.lan:8000"
    async with open_desk(store, public_url=address) as desk, desk.browser(Host="parley.lan:8000") as browser:
        assert (await browser.post("/auth/session", json={"api_key": desk.owner.key})).status_code == 200


@pytest.mark.parametrize(
    "way",
    [
        {},
        {"email": "owner@example.com"},
        {"password": PASSWORD},
        {"api_key": "k", "sign_in_token": "t"},
        {"invitation_token": "t"},
        {"invitation_token": "t", "username": "b", "password": "short"},
        {"api_key": ""},
    ],
)
async def test_a_sign_in_that_is_not_one_way_is_422_and_repeats_nothing_of_it(still: Desk, way: dict[str, str]) -> None:
    answer = await still.web.post("/auth/session", json=way)
    assert answer.status_code == 422
    assert PASSWORD not in answer.text


async def test_signing_out_ends_the_session_for_good(page: httpx.AsyncClient) -> None:
    cookie = page.cookies["parley-session"]
    out = await page.delete("/auth/session")
    assert (out.status_code, out.json()["success"]) == (200, True)
    assert "parley-session" not in page.cookies
    assert (await page.get("/auth/session")).status_code == 401
    assert (await page.get("/auth/session", headers={"Cookie": f"parley-session={cookie}"})).status_code == 401


async def test_signing_in_again_ends_the_session_before(desk: Desk, page: httpx.AsyncClient) -> None:
    before = page.cookies["parley-session"]
    assert (await page.post("/auth/session", json={"api_key": desk.owner.key})).status_code == 200
    assert page.cookies["parley-session"] != before
    old = await desk.web.get("/auth/session", headers={"Cookie": f"parley-session={before}"})
    assert old.status_code == 401


async def test_a_session_ends_after_twelve_idle_hours(desk: Desk, page: httpx.AsyncClient) -> None:
    desk.clock.advance(seconds=11 * 3600)
    assert (await page.get("/auth/session")).status_code == 200
    await desk.accounts.callers.uses.write_down()
    desk.accounts.callers.forget_user(desk.owner.user_id)
    desk.clock.advance(seconds=11 * 3600)
    assert (await page.get("/auth/session")).status_code == 200
    desk.clock.advance(seconds=13 * 3600)
    assert (await page.get("/auth/session")).status_code == 401


async def test_a_session_ends_after_seven_days_however_busy(desk: Desk, page: httpx.AsyncClient) -> None:
    statuses: list[int] = []
    for _ in range(7 * 24 // 8 + 1):
        statuses.append((await page.get("/auth/session")).status_code)
        await desk.accounts.callers.uses.write_down()
        desk.accounts.callers.forget_user(desk.owner.user_id)
        desk.clock.advance(seconds=8 * 3600)
    assert statuses == [200] * 21 + [401]


async def test_ended_sessions_are_cleared_away_at_the_next_sign_in(desk: Desk, page: httpx.AsyncClient) -> None:
    desk.clock.advance(days=8)
    await page.post("/auth/session", json={"api_key": desk.owner.key})
    rows = await desk.store.read(lambda tx: tx.execute(select(sessions.c.created_at)).all())
    assert len(rows) == 1


class TestKeySessions:
    async def sign_in(self, desk: Desk, browser: httpx.AsyncClient, **wish: Any) -> str:
        made = await desk.web.post("/api-keys", json={"name": "n", **wish}, headers=desk.owner.headers())
        assert (await browser.post("/auth/session", json={"api_key": made.json()["key"]})).status_code == 200
        return made.json()["id"]

    async def test_one_ends_with_its_key(self, desk: Desk) -> None:
        async with desk.browser() as browser:
            key_id = await self.sign_in(desk, browser)
            assert (await browser.get("/auth/session")).status_code == 200
            await desk.web.delete(f"/api-keys/{key_id}", headers=desk.owner.headers())
            assert (await browser.get("/auth/session")).status_code == 401

    async def test_one_reaches_no_further_than_its_key(self, desk: Desk) -> None:
        made = await desk.web.post("/organizations", json={"name": "Second"}, headers=desk.owner.headers())
        second = made.json()["organization"]["id"]
        async with desk.browser() as browser:
            await self.sign_in(desk, browser, organization_id=second)
            for organization_id, expected in ((second, 200), (desk.owner.organization_id, 403)):
                answer = await browser.get("/probe/admin", headers={"X-Organization-ID": organization_id})
                assert answer.status_code == expected

    async def test_one_is_not_held_to_the_rate_of_its_key(self, desk: Desk) -> None:
        async with desk.browser() as browser:
            await self.sign_in(desk, browser, rate_limit_per_minute=1)
            assert {(await browser.get("/auth/session")).status_code for _ in range(5)} == {200}

    async def test_one_cannot_set_the_password(self, desk: Desk) -> None:
        async with desk.browser() as browser:
            await self.sign_in(desk, browser)
            answer = await browser.put("/auth/password", json={"new_password": PASSWORD})
            assert answer.status_code == 403
        by_key = await desk.web.put("/auth/password", json={"new_password": PASSWORD}, headers=desk.owner.headers())
        assert by_key.status_code == 403

    async def test_a_bad_key_opens_none(self, desk: Desk) -> None:
        async with desk.browser() as browser:
            answer = await browser.post("/auth/session", json={"api_key": "mx_live_" + "0" * 32})
            assert (answer.status_code, answer.json()) == (401, {"detail": "Invalid API key"})


class TestPasswords:
    async def test_the_first_needs_no_present_one_and_the_next_does(self, page: httpx.AsyncClient) -> None:
        assert (await page.put("/auth/password", json={"new_password": PASSWORD})).status_code == 200
        following = f"next {PASSWORD}"
        assert (await page.put("/auth/password", json={"new_password": following})).status_code == 401
        wrong = {"new_password": following, "current_password": "wrong"}
        assert (await page.put("/auth/password", json=wrong)).status_code == 401
        right = {"new_password": following, "current_password": PASSWORD}
        assert (await page.put("/auth/password", json=right)).status_code == 200
        for password, expected in ((PASSWORD, 401), (following, 200)):
            way = {"email": "owner@example.com", "password": password}
            assert (await page.post("/auth/session", json=way)).status_code == expected

    async def test_a_stored_one_is_argon2_with_the_parameters_we_chose(
        self, desk: Desk, page: httpx.AsyncClient
    ) -> None:
        assert (await page.put("/auth/password", json={"new_password": PASSWORD})).status_code == 200
        one = select(users.c.password_hash).where(users.c.email == "owner@example.com")
        stored: str = await desk.store.read(lambda tx: tx.execute(one).scalar_one())
        assert stored.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
        assert PASSWORD not in stored

    async def test_a_new_one_ends_the_other_sessions_and_keeps_this(self, desk: Desk, page: httpx.AsyncClient) -> None:
        async with desk.browser() as other:
            token = await desk.accounts.sessions.make_link(desk.owner.email)
            await other.post("/auth/session", json={"sign_in_token": token})
            assert (await other.get("/auth/session")).status_code == 200
            await page.put("/auth/password", json={"new_password": PASSWORD})
            assert (await other.get("/auth/session")).status_code == 401
            assert (await page.get("/auth/session")).status_code == 200

    @pytest.mark.parametrize("password", ["xyzzy", "p" * 301])
    async def test_too_short_or_long_is_422_and_not_repeated(self, page: httpx.AsyncClient, password: str) -> None:
        answer = await page.put("/auth/password", json={"new_password": password})
        assert answer.status_code == 422
        assert password not in answer.text

    async def test_unknown_address_no_password_and_wrong_password_answer_alike(self, desk: Desk) -> None:
        await desk.newcomer("bea", PASSWORD)
        answers = [
            await desk.web.post("/auth/session", json={"email": email, "password": "not the password"})
            for email in ("nobody@example.com", desk.owner.email, "bea@example.com")
        ]
        assert {(answer.status_code, answer.content) for answer in answers} == {(401, answers[0].content)}

    async def test_guessing_at_one_account_is_stopped_even_for_the_right_password(self, desk: Desk) -> None:
        await desk.newcomer("bea", PASSWORD)

        async def attempt(password: str) -> httpx.Response:
            return await desk.web.post("/auth/session", json={"email": "bea@example.com", "password": password})

        assert [(await attempt("wrong guess")).status_code for _ in range(10)] == [401] * 10
        stopped = await attempt(PASSWORD)
        assert stopped.status_code == 429
        assert int(stopped.headers["Retry-After"]) > 0
        desk.clock.advance(seconds=15 * 60)
        assert (await attempt(PASSWORD)).status_code == 200

    async def test_guessing_at_many_accounts_from_one_address_is_stopped(self, desk: Desk) -> None:
        statuses = [
            (await desk.web.post("/auth/session", json={"sign_in_token": f"guess{number}"})).status_code
            for number in range(101)
        ]
        assert statuses == [401] * 100 + [429]


class TestForeignPages:
    async def test_their_unsafe_requests_are_refused_and_change_nothing(
        self, desk: Desk, page: httpx.AsyncClient
    ) -> None:
        cookie = {"Cookie": f"parley-session={page.cookies['parley-session']}"}
        body = {"name": "Forged", "new_password": PASSWORD}
        signs: list[dict[str, str]] = [
            {"Sec-Fetch-Site": "cross-site", "Origin": OTHER},
            {"Sec-Fetch-Site": "same-site", "Origin": "http://sub.127.0.0.1"},
            {"Sec-Fetch-Site": "none"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Origin": OTHER},
            {"Origin": "null"},
            {"Origin": "http://127.0.0.1:1"},
            {},
        ]
        for sign in signs:
            for method, path in (("POST", "/organizations"), ("PUT", "/auth/password"), ("DELETE", "/auth/session")):
                answer = await desk.web.request(method, path, json=body, headers={**cookie, **sign})
                assert answer.status_code == 403, (sign, method, path)
        assert (await page.get("/auth/me/organizations")).json()["total"] == 1

    async def test_a_form_is_refused_whatever_it_says(self, desk: Desk, page: httpx.AsyncClient) -> None:
        cookie = {"Cookie": f"parley-session={page.cookies['parley-session']}", "Sec-Fetch-Site": "cross-site"}
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
            answer = await desk.web.post(
                "/organizations", content=b'{"name":"Forged"}', headers={**cookie, "Content-Type": kind}
            )
            assert answer.status_code == 403
        own = {**cookie, "Sec-Fetch-Site": "same-origin", "Content-Type": "text/plain"}
        assert (await desk.web.post("/organizations", content=b'{"name":"Forged"}', headers=own)).status_code == 422

    async def test_our_own_pages_pass_by_either_sign(self, desk: Desk, page: httpx.AsyncClient) -> None:
        cookie = {"Cookie": f"parley-session={page.cookies['parley-session']}"}
        for number, sign in enumerate(({"Sec-Fetch-Site": "same-origin"}, {"Origin": desk.url})):
            answer = await desk.web.post("/organizations", json={"name": f"Mine {number}"}, headers={**cookie, **sign})
            assert answer.status_code == 200

    async def test_behind_https_the_public_address_is_ours_and_its_plain_http_is_not(self, store: Store) -> None:
        async with open_desk(store, public_url="https://parley.example") as desk, desk.browser() as browser:
            opened = await browser.post("/auth/session", json={"api_key": desk.owner.key})
            cookie = {"Cookie": opened.headers["set-cookie"].partition(";")[0]}
            for origin, expected in (("https://parley.example", 200), ("http://parley.example", 403)):
                answer = await desk.web.post(
                    "/organizations", json={"name": "Mine"}, headers={**cookie, "Origin": origin}
                )
                assert answer.status_code == expected

    async def test_they_cannot_sign_a_visitor_in(self, desk: Desk) -> None:
        for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": OTHER}, {"Origin": "http://["}):
            answer = await desk.web.post("/auth/session", json={"api_key": desk.owner.key}, headers=headers)
            assert answer.status_code == 403
            assert "set-cookie" not in answer.headers

    async def test_a_key_beside_a_cookie_makes_the_cookie_count_for_nothing(
        self, desk: Desk, page: httpx.AsyncClient
    ) -> None:
        bea = await desk.newcomer("bea")
        cookie = {"Cookie": f"parley-session={page.cookies['parley-session']}"}
        mine = await desk.web.get("/auth/me", headers={**cookie, "X-API-KEY": bea.key})
        assert mine.json()["id"] == bea.user_id
        for header in ({"Authorization": "Bearer mx_live_wrong"}, {"X-API-KEY": "mx_live_wrong"}):
            assert (await desk.web.get("/auth/me", headers={**cookie, **header})).status_code == 401
        foreign = {"Sec-Fetch-Site": "cross-site", "Origin": OTHER, "X-API-KEY": bea.key}
        made = await desk.web.post("/organizations", json={"name": "By key"}, headers={**cookie, **foreign})
        assert made.status_code == 200

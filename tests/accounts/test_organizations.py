"""Organizations, their people and their preferences over HTTP (contract §1.1, §1.3)."""

import asyncio
from functools import partial
from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import select, update

from parley.accounts import Organization
from parley.accounts.organizations import establish
from parley.http.routes.organizations import LlmCredential, LlmProvider
from parley.storage import Store, WriteTx
from parley.storage.tables.accounts import audit_log, memberships
from tests.accounts.desk import Desk, Models, Person, open_desk

NOBODY = str(uuid4())


async def test_the_maker_of_an_organization_owns_it(desk: Desk) -> None:
    answer = await desk.web.post("/organizations", json={"name": " Ärger & Söhne "}, headers=desk.owner.headers())
    assert answer.status_code == 200
    made = answer.json()["organization"]
    assert set(made) == {"id", "name", "slug", "domain", "is_active", "created_at"}
    assert (made["name"], made["slug"], made["is_active"]) == ("Ärger & Söhne", "arger-sohne", True)
    mine = (await desk.web.get("/auth/me/organizations", headers=desk.owner.headers())).json()
    assert mine["total"] == 2
    assert [(each["role"], each["is_default"]) for each in mine["organizations"]] == [("owner", True), ("owner", False)]
    assert (await desk.web.get("/probe/owner", headers=desk.owner.headers(made["id"]))).status_code == 200


@pytest.mark.parametrize(
    "wish",
    [
        {},
        {"name": "x"},
        {"name": "   x   "},
        {"name": "x" * 41},
        {"name": "Acme", "slug": "a"},
        {"name": "Acme", "slug": "Acme"},
        {"name": "Acme", "slug": "a--b"},
        {"name": "Acme", "slug": "-ab"},
        {"name": "Acme", "slug": "ab\n"},
        {"name": "Acme", "slug": "a" * 51},
    ],
)
async def test_a_name_or_slug_that_does_not_fit_is_422(still: Desk, wish: dict[str, Any]) -> None:
    assert (await still.web.post("/organizations", json=wish, headers=still.owner.headers())).status_code == 422


async def test_a_chosen_slug_is_unique_and_a_made_one_finds_its_own_way(desk: Desk) -> None:
    async def make(**wish: str) -> int | str:
        answer = await desk.web.post("/organizations", json=wish, headers=desk.owner.headers())
        return answer.json()["organization"]["slug"] if answer.status_code == 200 else answer.status_code

    assert await make(name="Acme", slug="acme") == "acme"
    assert await make(name="Other", slug="acme") == 409
    again = await make(name="Acme")
    assert isinstance(again, str)
    assert again.startswith("acme-")
    unwritable = await make(name="日本語")
    assert isinstance(unwritable, str)
    assert unwritable.startswith("org-")


async def test_of_many_who_want_one_slug_at_once_one_gets_it(desk: Desk) -> None:
    statuses: list[int] = []

    async def make() -> None:
        wish = {"name": "Acme", "slug": "acme"}
        statuses.append((await desk.web.post("/organizations", json=wish, headers=desk.owner.headers())).status_code)

    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(make())
    assert sorted(statuses) == [200] + [409] * 7


async def test_only_the_operator_may_own_more_than_a_hundred(desk: Desk) -> None:
    bea = await desk.newcomer("bea")
    now = desk.clock.now()

    def give(tx: WriteTx, user_id: str) -> None:
        for number in range(100):
            organization = Organization(
                str(uuid4()), "Many", f"{user_id}-{number}", None, is_active=True, created_at=now
            )
            establish(tx, organization, user_id)

    for person, expected in ((bea, 409), (desk.owner, 200)):
        await desk.store.write(partial(give, user_id=person.user_id))
        answer = await desk.web.post("/organizations", json={"name": "One more"}, headers=person.headers())
        assert answer.status_code == expected


async def test_my_organizations_can_be_narrowed_by_role(desk: Desk) -> None:
    bea = await desk.colleague("bea", of=desk.owner)
    totals = {}
    for role in ("owner", "admin", "member"):
        found = await desk.web.get(f"/auth/me/organizations?role={role}", headers=bea.headers())
        totals[role] = found.json()["total"]
    assert totals == {"owner": 1, "admin": 1, "member": 0}
    assert (await desk.web.get("/auth/me/organizations?role=king", headers=bea.headers())).status_code == 422


async def test_the_profile_shows_the_person(desk: Desk) -> None:
    bea = await desk.newcomer("bea")
    me = (await desk.web.get("/auth/me", headers={"X-API-KEY": bea.key})).json()
    assert me == {
        "id": bea.user_id,
        "email": "bea@example.com",
        "username": "bea",
        "role": "USER",
        "is_active": True,
        "organization_ids": [bea.organization_id],
        "primary_organization_id": bea.organization_id,
    }


async def test_an_admin_may_leave_and_is_out_at_once(desk: Desk) -> None:
    bea = await desk.colleague("bea", of=desk.owner)
    key = await desk.web.post(
        "/api-keys", json={"name": "n", "organization_id": desk.owner.organization_id}, headers=bea.headers()
    )
    left = await desk.web.post("/auth/organizations/leave", headers=bea.headers(desk.owner.organization_id))
    assert left.status_code == 200
    assert left.json()["left_organization"]["id"] == desk.owner.organization_id
    assert [each["id"] for each in left.json()["remaining_organizations"]] == [bea.organization_id]
    assert left.json()["total_remaining"] == 1
    again = await desk.web.post("/auth/organizations/leave", headers=bea.headers(desk.owner.organization_id))
    assert again.status_code == 403
    assert (await desk.web.get("/auth/me", headers={"X-API-KEY": key.json()["key"]})).status_code == 401


async def test_an_owner_may_not_leave(desk: Desk) -> None:
    answer = await desk.web.post("/auth/organizations/leave", headers=desk.owner.headers())
    assert answer.status_code == 403
    assert (await desk.web.get("/probe/owner", headers=desk.owner.headers())).status_code == 200


async def test_leaving_needs_an_organization_named(still: Desk) -> None:
    assert (
        await still.web.post("/auth/organizations/leave", headers={"X-API-KEY": still.owner.key})
    ).status_code == 400


class TestMembers:
    async def put(self, desk: Desk, by: Person, user_id: str, role: str = "admin", *, of: str | None = None) -> int:
        organization_id = of or desk.owner.organization_id
        answer = await desk.web.put(
            f"/organizations/{organization_id}/users/{user_id}/role",
            json={"role": role},
            headers=by.headers(desk.owner.organization_id),
        )
        return answer.status_code

    async def test_a_role_can_only_become_admin(self, desk: Desk) -> None:
        bea = await desk.colleague("bea", of=desk.owner)
        answer = await desk.web.put(
            f"/organizations/{desk.owner.organization_id}/users/{bea.user_id}/role",
            json={"role": "admin"},
            headers=desk.owner.headers(),
        )
        assert answer.status_code == 200
        assert answer.json() == {
            "success": True,
            "message": "The member is an admin.",
            "user_id": bea.user_id,
            "organization_id": desk.owner.organization_id,
            "new_role": "admin",
        }
        for role in ("member", "owner", "king"):
            assert await self.put(desk, desk.owner, bea.user_id, role) == 422

    async def test_the_last_owner_stays_owner(self, desk: Desk) -> None:
        bea = await desk.colleague("bea", of=desk.owner)
        assert await self.put(desk, bea, desk.owner.user_id) == 403
        assert await self.put(desk, desk.owner, desk.owner.user_id) == 409
        assert (await desk.web.get("/probe/owner", headers=desk.owner.headers())).status_code == 200

    async def test_one_of_two_owners_can_become_admin(self, desk: Desk) -> None:
        bea = await desk.colleague("bea", of=desk.owner)
        await desk.store.write(
            lambda tx: tx.execute(update(memberships).where(memberships.c.user_id == bea.user_id).values(role="owner"))
        )
        assert await self.put(desk, desk.owner, bea.user_id) == 200
        assert (await desk.web.get("/probe/owner", headers=bea.headers(desk.owner.organization_id))).status_code == 403

    async def test_a_stranger_a_foreign_organization_and_nobody_are_the_same_404(self, desk: Desk) -> None:
        cyd = await desk.newcomer("cyd")
        paths = [
            f"/organizations/{desk.owner.organization_id}/users/{cyd.user_id}",
            f"/organizations/{desk.owner.organization_id}/users/{NOBODY}",
            f"/organizations/{cyd.organization_id}/users/{cyd.user_id}",
            f"/organizations/{NOBODY}/users/{cyd.user_id}",
        ]
        answers = [await desk.web.delete(path, headers=desk.owner.headers()) for path in paths]
        answers += [
            await desk.web.put(f"{path}/role", json={"role": "admin"}, headers=desk.owner.headers()) for path in paths
        ]
        assert {(answer.status_code, answer.content) for answer in answers} == {(404, answers[0].content)}
        assert (await desk.web.get("/probe/owner", headers=cyd.headers())).status_code == 200

    async def test_only_the_owner_removes_and_the_removed_is_out_at_once(self, desk: Desk) -> None:
        bea = await desk.colleague("bea", of=desk.owner)
        cyd = await desk.colleague("cyd", of=desk.owner)
        path = f"/organizations/{desk.owner.organization_id}/users/{cyd.user_id}"
        inside = cyd.headers(desk.owner.organization_id)
        assert (await desk.web.get("/probe/admin", headers=inside)).status_code == 200
        assert (await desk.web.delete(path, headers=bea.headers(desk.owner.organization_id))).status_code == 403
        removed = await desk.web.delete(path, headers=desk.owner.headers())
        assert (removed.status_code, removed.json()["success"]) == (200, True)
        assert (await desk.web.get("/probe/admin", headers=inside)).status_code == 403
        assert (await desk.web.delete(path, headers=desk.owner.headers())).status_code == 404

    async def test_the_owner_cannot_remove_themselves(self, desk: Desk) -> None:
        path = f"/organizations/{desk.owner.organization_id}/users/{desk.owner.user_id}"
        assert (await desk.web.delete(path, headers=desk.owner.headers())).status_code == 409

    async def test_what_happens_to_members_is_audited(self, desk: Desk) -> None:
        bea = await desk.colleague("bea", of=desk.owner)
        await desk.web.delete(
            f"/organizations/{desk.owner.organization_id}/users/{bea.user_id}", headers=desk.owner.headers()
        )
        operations = await desk.store.read(
            lambda tx: (
                tx.execute(
                    select(audit_log.c.operation)
                    .where(
                        audit_log.c.organization_id == desk.owner.organization_id, audit_log.c.category == "MEMBERSHIP"
                    )
                    .order_by(audit_log.c.created_at)
                )
                .scalars()
                .all()
            )
        )
        # She came and left once before, to get an account.
        assert operations == [
            "invitation_sent",
            "invitation_accepted",
            "member_left",
            "invitation_sent",
            "invitation_accepted",
            "member_removed",
        ]


class TestPreferences:
    async def test_they_begin_empty(self, desk: Desk) -> None:
        answer = await desk.web.get("/organizations/settings", headers=desk.owner.headers())
        assert answer.status_code == 200
        assert answer.json() == {
            "llm_model_visibility": {},
            "composer_llm": None,
            "approval_policy": None,
            "operator_approval_policy": "catalog",
            "fallback_llm": None,
            "chat_retention_days": None,
        }

    async def test_a_policy_of_its_own_can_be_chosen_and_dropped(self, desk: Desk) -> None:
        async def put(policy: str | None) -> httpx.Response:
            return await desk.web.put(
                "/organizations/settings/approval-policy",
                json={"approval_policy": policy},
                headers=desk.owner.headers(),
            )

        assert (await put("strict")).json() == {"approval_policy": "strict"}
        kept = await desk.accounts.organizations.settings(desk.owner.organization_id)
        assert kept.approval_policy == "strict"
        assert (await put("none")).status_code == 422
        assert (await put(None)).json() == {"approval_policy": None}

    async def test_only_an_owner_says_how_long_chats_are_kept(self, desk: Desk) -> None:
        member = await desk.colleague("bea", of=desk.owner)
        path, body = "/organizations/settings/retention", {"chat_retention_days": 30}
        refused = await desk.web.put(path, json=body, headers=member.headers(desk.owner.organization_id))
        assert refused.status_code == 403
        assert (await desk.accounts.organizations.settings(desk.owner.organization_id)).chat_retention_days is None
        assert (await desk.web.put(path, json=body, headers=desk.owner.headers())).json() == body

    async def test_shown_models_are_replaced_whole_and_an_empty_list_resets(self, desk: Desk) -> None:
        async def put(integration_name: str, *models: dict[str, str]) -> Any:
            body = {"integration_name": integration_name, "models": list(models)}
            path = "/organizations/settings/llm-model-visibility"
            answer = await desk.web.put(path, json=body, headers=desk.owner.headers())
            assert answer.status_code == 200
            return answer.json()

        await put("openai", {"id": "a"}, {"id": "b", "display_name": "Bee"})
        both = await put("xai", {"id": "g"})
        assert both == {
            "llm_model_visibility": {
                "openai": [{"id": "a", "display_name": None}, {"id": "b", "display_name": "Bee"}],
                "xai": [{"id": "g", "display_name": None}],
            }
        }
        assert set((await put("openai"))["llm_model_visibility"]) == {"xai"}
        settings = (await desk.web.get("/organizations/settings", headers=desk.owner.headers())).json()
        assert set(settings["llm_model_visibility"]) == {"xai"}

    async def test_changes_made_at_once_are_all_kept(self, desk: Desk) -> None:
        async def put(number: int) -> None:
            body = {"integration_name": f"p{number}", "models": [{"id": "m"}]}
            path = "/organizations/settings/llm-model-visibility"
            assert (await desk.web.put(path, json=body, headers=desk.owner.headers())).status_code == 200

        async with asyncio.TaskGroup() as group:
            for number in range(10):
                group.create_task(put(number))
        settings = (await desk.web.get("/organizations/settings", headers=desk.owner.headers())).json()
        assert set(settings["llm_model_visibility"]) == {f"p{number}" for number in range(10)}

    async def test_the_default_model_is_kept(self, desk: Desk) -> None:
        llm = {"integration_name": "openai", "provider_id": "openai", "model_id": "m"}
        chosen = await desk.web.put("/organizations/settings/composer-llm", json=llm, headers=desk.owner.headers())
        assert (chosen.status_code, chosen.json()) == (200, {"composer_llm": {**llm, "credential_id": None}})
        settings = (await desk.web.get("/organizations/settings", headers=desk.owner.headers())).json()
        assert settings["composer_llm"] == {**llm, "credential_id": None}
        kept = await desk.accounts.organizations.settings(desk.owner.organization_id)
        assert kept.default_llm is not None
        assert kept.default_llm.model_id == "m"

    async def test_the_fallback_model_is_kept_and_can_be_taken_back(self, desk: Desk) -> None:
        path, headers = "/organizations/settings/fallback-llm", desk.owner.headers()
        llm = {"integration_name": "anthropic", "provider_id": "anthropic", "model_id": "m"}
        before = (await desk.web.get("/organizations/settings", headers=headers)).json()
        assert before["fallback_llm"] is None
        chosen = await desk.web.put(path, json={"fallback_llm": llm}, headers=headers)
        kept = {"fallback_llm": {**llm, "credential_id": None}}
        assert (chosen.status_code, chosen.json()) == (200, kept)
        foreign = {**llm, "credential_id": NOBODY}
        assert (await desk.web.put(path, json={"fallback_llm": foreign}, headers=headers)).status_code == 400
        assert (await desk.web.put(path, json={"fallback_llm": {}}, headers=headers)).status_code == 422
        assert (await desk.web.put(path, json={}, headers=headers)).status_code == 422
        settings = (await desk.web.get("/organizations/settings", headers=headers)).json()
        assert settings == {**before, **kept}
        taken_back = await desk.web.put(path, json={"fallback_llm": None}, headers=headers)
        assert (taken_back.status_code, taken_back.json()) == (200, {"fallback_llm": None})
        assert (await desk.web.get("/organizations/settings", headers=headers)).json() == before

    @pytest.mark.parametrize("body", [{}, {"integration_name": "openai"}, {"integration_name": "", "models": []}])
    async def test_a_malformed_preference_is_422(self, still: Desk, body: dict[str, Any]) -> None:
        for path in ("llm-model-visibility", "composer-llm"):
            answer = await still.web.put(f"/organizations/settings/{path}", json=body, headers=still.owner.headers())
            assert answer.status_code == 422

    async def test_each_organization_has_its_own(self, desk: Desk) -> None:
        bea = await desk.newcomer("bea")
        llm = {"integration_name": "openai", "provider_id": "openai", "model_id": "m"}
        await desk.web.put("/organizations/settings/composer-llm", json=llm, headers=desk.owner.headers())
        hers = (await desk.web.get("/organizations/settings", headers=bea.headers())).json()
        assert hers["composer_llm"] is None
        foreign = await desk.web.get("/organizations/settings", headers=bea.headers(desk.owner.organization_id))
        assert foreign.status_code == 403


async def test_the_model_list_tells_what_can_be_used_from_what_needs_a_credential(store: Store) -> None:
    models = Models(
        providers=(
            LlmProvider("openai", "OpenAI", [{"id": "o1", "context_length": 10}, {"id": "o2"}]),
            LlmProvider("xai", "xAI", [{"id": "x1"}]),
            LlmProvider("demo", "Demo", [{"id": "d1"}], ready=True),
        )
    )
    async with open_desk(store, models) as desk:
        held = [
            LlmCredential(str(uuid4()), "openai", "Second", is_default=False),
            LlmCredential(str(uuid4()), "openai", "First", is_default=True),
        ]
        models.credentials[desk.owner.organization_id] = held
        answer = (await desk.web.get("/organizations/llms", headers=desk.owner.headers())).json()
        assert (answer["total"], answer["active_llm_total"], answer["inactive_llm_total"]) == (4, 3, 1)
        assert answer["active_llms"][0] == {
            "id": "o1",
            "context_length": 10,
            "integration_name": "openai",
            "integration_display_name": "OpenAI",
            "default_credential_display_name": "First",
        }
        assert [each["id"] for each in answer["active_llms"]] == ["o1", "o2", "d1"]
        assert [each["id"] for each in answer["inactive_llms"]] == ["x1"]

        def choice(name: str, credential_id: str) -> dict[str, str]:
            return {"integration_name": name, "provider_id": name, "model_id": "m", "credential_id": credential_id}

        tries = {
            "own": choice("openai", held[0].credential_id),
            "other integration": choice("xai", held[0].credential_id),
            "unknown": choice("openai", NOBODY),
        }
        statuses = {}
        for name, body in tries.items():
            put = await desk.web.put("/organizations/settings/composer-llm", json=body, headers=desk.owner.headers())
            statuses[name] = put.status_code
        assert statuses == {"own": 200, "other integration": 400, "unknown": 400}

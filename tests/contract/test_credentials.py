"""``/credentials`` over HTTP, on both stores: every route and status of contract §7, and the published client."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from modulex import Modulex
from modulex.types.credentials import CredentialDetailResponse, CredentialResponse

from parley.testing.fake_github import FakeGitHub
from parley.testing.provider_proxy import ProviderProxy
from tests.stage import Answer, Client, Stage, caller

TOKEN = {"integration_name": "github", "auth_data": {"token": f"ghp_{uuid4().hex}"}}
ROW = {
    "credential_id",
    "integration_name",
    "integration_type",
    "display_name",
    "auth_type",
    "is_default",
    "created_at",
    "updated_at",
    "last_used_at",
    "expires_at",
    "credentials_metadata",
}


async def connect(client: Client, **body: Any) -> str:
    answer = await client.post("/credentials", {**TOKEN, **body})
    assert answer.status == 201, answer.body
    return answer.body["credential_id"]


@asynccontextmanager
async def stranger(stage: Stage) -> AsyncGenerator[Client]:
    """The same key in an organization of its own."""
    async with caller(stage.client.base_url, stage.client.key, stage.client.organization_id) as other:
        made = await other.post("/organizations", {"name": f"Other {uuid4().hex[:8]}"})
        other.organization_id = made.body["organization"]["id"]
        yield other


def routes_of(credential_id: str) -> list[tuple[str, str, Any]]:
    """Every route that names a credential."""
    return [
        ("GET", f"/credentials/{credential_id}", None),
        ("GET", f"/credentials/{credential_id}?include_masked=true", None),
        ("PUT", f"/credentials/{credential_id}", {"display_name": "x"}),
        ("POST", f"/credentials/{credential_id}/set-default", None),
        ("POST", f"/credentials/{credential_id}/test", None),
        ("GET", f"/credentials/{credential_id}/usage", None),
        ("GET", f"/credentials/{credential_id}/audit", None),
        ("POST", f"/credentials/{credential_id}/oauth2/refresh", None),
        ("DELETE", f"/credentials/{credential_id}", None),
    ]


EVERYTHING = [
    *routes_of("00000000-0000-4000-8000-000000000000"),
    ("GET", "/credentials", None),
    ("POST", "/credentials", TOKEN),
    ("POST", "/credentials/test-temporary", {**TOKEN, "auth_type": "bearer_token"}),
    ("POST", "/credentials/bulk-modulex-keys/stream", None),
    ("POST", "/credentials/oauth2/initiate", {"integration_name": "github", "redirect_uri": "https://x.test"}),
]


# ── who may ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("method", "path", "body"), EVERYTHING)
async def test_every_route_asks_who_is_calling_and_for_whom(stage: Stage, method: str, path: str, body: Any) -> None:
    client = stage.client
    async with caller(client.base_url, "mx_live_nobody", client.organization_id) as nobody:
        assert (await nobody.call(method, path, body)).status == 401
    async with caller(client.base_url, client.key, "") as nowhere:
        assert (await nowhere.call(method, path, body)).status == 400
    async with caller(client.base_url, client.key, str(uuid4())) as elsewhere:
        assert (await elsewhere.call(method, path, body)).status == 403


async def test_another_organizations_credential_answers_like_a_missing_one(stage: Stage) -> None:
    mine = await connect(stage.client)
    async with stranger(stage) as other:
        for foreign, missing in zip(routes_of(mine), routes_of(str(uuid4())), strict=True):
            answers: list[Answer] = [await other.call(*foreign), await other.call(*missing)]
            assert [(answer.status, answer.body) for answer in answers] == [
                (404, {"detail": "Credential not found"})
            ] * 2, foreign
        assert (await other.get("/credentials")).body["total_credentials"] == 0
    assert (await stage.client.get(f"/credentials/{mine}")).status == 200


@pytest.mark.parametrize("credential_id", ["not-a-uuid", "..%2Fadmin", "x" * 300])
async def test_an_id_that_is_none_is_a_missing_one(stage: Stage, credential_id: str) -> None:
    assert (await stage.client.get(f"/credentials/{credential_id}")).status == 404


# ── making ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_new_credential_is_201_with_its_row_and_never_its_secret(stage: Stage) -> None:
    secret = f"ghp_{uuid4().hex}"
    body = {
        "integration_name": "github",
        "auth_data": {"token": secret},
        "display_name": "Team",
        "metadata": {"owner": "ops"},
        "make_default": True,
        "expires_at": "2100-01-01T00:00:00Z",
    }
    answer = await stage.client.post("/credentials", body)
    assert answer.status == 201 and set(answer.body) >= ROW
    row = answer.body
    assert (row["auth_type"], row["integration_type"], row["is_default"]) == ("bearer_token", "tool", True)
    assert (row["display_name"], row["credentials_metadata"]) == ("Team", {"owner": "ops"})
    assert row["expires_at"] == "2100-01-01T00:00:00+00:00"
    detail = (await stage.client.get(f"/credentials/{row['credential_id']}?include_masked=true")).body
    assert detail["auth_data_masked"].startswith("ghp_") and "..." in detail["auth_data_masked"]
    assert detail["organization_id"] == stage.client.organization_id and "@" in detail["created_by_email"]
    plain = (await stage.client.get(f"/credentials/{row['credential_id']}")).body
    assert plain["auth_data_masked"] is None
    everything = [row, detail, plain, (await stage.client.get("/credentials")).body]
    assert secret not in repr(everything)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"integration_name": ""}, 422),
        ({"integration_name": "github", "auth_data": "text"}, 422),
        ({**TOKEN, "display_name": ""}, 422),
        ({**TOKEN, "display_name": "x" * 256}, 422),
        ({**TOKEN, "expires_at": "tomorrow"}, 422),
        ({**TOKEN, "expires_at": "0001-01-01T00:00:00+14:00"}, 422),
        ({**TOKEN, "make_default": "maybe"}, 422),
        ({**TOKEN, "metadata": {"x": "y" * 20_000}}, 422),
        ({"integration_name": "nowhere", "auth_data": {"api_key": "k"}}, 404),
        ({"integration_name": "github"}, 400),
        ({"integration_name": "github", "auth_data": {"api_key": "k"}, "auth_type": "api_key"}, 400),
        ({"integration_name": "freshdesk", "auth_data": {"api_key": "k"}}, 400),
        ({"integration_name": "freshdesk", "auth_data": {"api_key": "k", "domain": "evil.example/"}}, 400),
        ({"integration_name": "openai", "auth_data": {"api_key": "nonsense"}}, 400),
        ({"integration_name": "exa", "auth_type": "modulex_key"}, 400),
    ],
)
async def test_what_cannot_be_stored_is_refused_without_repeating_it(
    stage: Stage, body: dict[str, Any], status: int
) -> None:
    canary = f"canary{uuid4().hex}"
    marked = (
        {**body, "auth_data": {**body["auth_data"], "note": canary}}
        if isinstance(body.get("auth_data"), dict)
        else body
    )
    answer = await stage.client.post("/credentials", marked)
    assert answer.status == status, answer.body
    assert set(answer.body) == {"detail"} and canary not in repr(answer.body)


async def test_a_managed_credential_of_a_public_service_needs_no_key_and_comes_once(stage: Stage) -> None:
    body = {"integration_name": "arxiv", "auth_type": "modulex_key"}
    assert (await stage.client.post("/credentials", body)).status == 201
    assert (await stage.client.post("/credentials", body)).status == 409


# ── listing, changing, deleting ─────────────────────────────────────────────────────────────────


async def test_the_list_has_two_shapes(stage: Stage) -> None:
    first = await connect(stage.client)
    second = await connect(stage.client)
    grouped = (await stage.client.get("/credentials")).body
    assert set(grouped) == {"integrations", "total_credentials", "total_integrations", "filters"}
    assert (grouped["total_credentials"], grouped["total_integrations"]) == (3, 2), "the stage has a model key"
    group = grouped["integrations"]["github"]
    assert set(group) == {"integration_name", "integration_type", "total_count", "auth_types", "credentials"}
    assert (group["total_count"], group["auth_types"]) == (2, ["bearer_token"])
    flat = (await stage.client.get("/credentials?integration_name=github&limit=1&offset=1")).body
    assert set(flat) == {"credentials", "total_count", "integration_name", "filters"}
    assert (flat["total_count"], len(flat["credentials"])) == (2, 1)
    assert {row["credential_id"] for row in group["credentials"]} == {first, second}
    nothing = (await stage.client.get("/credentials?integration_name=slack")).body
    assert (nothing["credentials"], nothing["total_count"]) == ([], 0)
    filtered = (await stage.client.get("/credentials?auth_type=api_key")).body
    assert list(filtered["integrations"]) == ["openai"]


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "limit=x", "offset=-1", "include_masked=maybe"])
async def test_a_query_out_of_range_is_422(stage: Stage, query: str) -> None:
    path = f"/credentials/{uuid4()}" if "masked" in query else "/credentials"
    assert (await stage.client.get(f"{path}?{query}")).status == 422


async def test_names_change_and_secrets_do_not(stage: Stage) -> None:
    credential_id = await connect(stage.client)
    changed = await stage.client.call("PUT", f"/credentials/{credential_id}", {"display_name": "New", "metadata": {}})
    assert (changed.status, changed.body["display_name"]) == (200, "New")
    untouched = await stage.client.call("PUT", f"/credentials/{credential_id}")
    assert (untouched.status, untouched.body["display_name"]) == (200, "New")
    refused = await stage.client.call("PUT", f"/credentials/{credential_id}", {"auth_data": {"token": "x"}})
    assert refused.status == 400 and "new credential" in refused.detail


async def test_delete_is_204_without_a_body_and_final(stage: Stage) -> None:
    credential_id = await connect(stage.client)
    answer = await stage.client.call("DELETE", f"/credentials/{credential_id}")
    assert (answer.status, answer.body) == (204, None)
    assert (await stage.client.call("DELETE", f"/credentials/{credential_id}")).status == 404


async def test_set_default_moves_the_default(stage: Stage) -> None:
    first = await connect(stage.client, make_default=True)
    second = await connect(stage.client)
    answer = await stage.client.post(f"/credentials/{second}/set-default")
    assert (answer.status, answer.body["is_default"]) == (200, True)
    assert (await stage.client.get(f"/credentials/{first}")).body["is_default"] is False


async def test_the_audit_is_a_bare_list_with_where_it_came_from(stage: Stage) -> None:
    credential_id = await connect(stage.client)
    await stage.client.post(f"/credentials/{credential_id}/set-default", User_Agent="tester/1")
    entries = (await stage.client.get(f"/credentials/{credential_id}/audit")).body
    assert [entry["event_type"] for entry in entries] == ["set_default", "created"]
    assert set(entries[0]) == {
        "id",
        "credential_id",
        "event_type",
        "user_id",
        "changes",
        "ip_address",
        "user_agent",
        "timestamp",
    }
    assert (entries[0]["ip_address"], entries[0]["user_agent"]) == ("127.0.0.1", "tester/1")
    assert (await stage.client.get(f"/credentials/{credential_id}/audit?limit=1&offset=1")).body == entries[1:]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 200),
        ("?start_date=2026-06-01&end_date=2026-06-19", 200),
        ("?start_date=2026-06-01T00:00:00Z", 200),
        ("?start_date=soon", 400),
        ("?end_date=99999-01-01", 400),
    ],
)
async def test_usage_takes_dates_and_times(stage: Stage, query: str, status: int) -> None:
    credential_id = await connect(stage.client)
    answer = await stage.client.get(f"/credentials/{credential_id}/usage{query}")
    assert answer.status == status
    if status == 200:
        assert (answer.body["total_calls"], answer.body["success_rate"]) == (0, 0)
        assert answer.body["action_breakdown"] == {}


# ── testing ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_stored_credential_is_tested_at_its_service(stage: Stage, github: FakeGitHub) -> None:
    good = await connect(stage.client, auth_data={"token": github.token})
    bad = await connect(stage.client)
    accepted = (await stage.client.post(f"/credentials/{good}/test")).body
    assert (accepted["is_valid"], accepted["error_code"], accepted["credential_id"]) == (True, None, good)
    refused = (await stage.client.post(f"/credentials/{bad}/test")).body
    assert (refused["is_valid"], refused["error_code"]) == (False, "invalid_credentials")
    assert refused["tested_at"].endswith("+00:00")
    assert (await stage.client.get(f"/credentials/{bad}")).body["is_valid"] is False


async def test_values_are_tested_without_being_stored(stage: Stage, github: FakeGitHub) -> None:
    body = {"integration_name": "github", "auth_type": "bearer_token", "auth_data": {"token": github.token}}
    good = await stage.client.post("/credentials/test-temporary", body)
    assert good.status == 200 and good.body["is_valid"] is True
    assert (good.body["test_method"], good.body["status_code"]) == ("api_call", 200)
    assert good.body["test_endpoint"] == "https://api.github.com/user"
    bad = await stage.client.post("/credentials/test-temporary", {**body, "auth_data": {"token": "ghp_wrong"}})
    assert (bad.status, bad.body["is_valid"], bad.body["status_code"]) == (200, False, 401)
    assert (await stage.client.get("/credentials?integration_name=github")).body["total_count"] == 0


async def test_a_service_that_cannot_be_reached_says_nothing_against_the_key(
    stage: Stage, proxy: ProviderProxy
) -> None:
    body = {"integration_name": "airtable", "auth_type": "api_key", "auth_data": {"api_key": "pat.fake"}}
    answer = (await stage.client.post("/credentials/test-temporary", body)).body
    assert (answer["is_valid"], answer["error_code"], answer["status_code"]) == (False, "network_error", None)
    assert "api.airtable.com" in proxy.refused


async def test_a_model_key_is_tested_at_its_base_url(stage: Stage) -> None:
    data = {"api_key": stage.model_key, "base_url": stage.model.openai_url}
    body = {"integration_name": "openai", "auth_type": "api_key", "auth_data": data}
    answer = await stage.client.post("/credentials/test-temporary", body)
    assert (answer.status, answer.body["error_code"]) == (200, None), answer.body


# ── the published client ────────────────────────────────────────────────────────────────────────


async def test_the_published_client_does_a_whole_life(stage: Stage, github: FakeGitHub) -> None:
    client = stage.client
    async with Modulex(client.key, organization_id=client.organization_id, base_url=client.base_url) as published:
        credentials = published.credentials
        made = await credentials.create("github", auth_data={"token": github.token}, expires_at="2100-01-01T00:00:00Z")
        assert isinstance(made, CredentialResponse) and made.auth_type == "bearer_token"
        detail = await credentials.get(made.credential_id, include_masked=True)
        assert isinstance(detail, CredentialDetailResponse) and "..." in (detail.auth_data_masked or "")
        assert (await credentials.test(made.credential_id)).is_valid
        assert (await credentials.test_temporary("github", "bearer_token", {"token": "ghp_x"})).is_valid is False
        assert (await credentials.update(made.credential_id, display_name="Renamed")).display_name == "Renamed"
        assert (await credentials.update(made.credential_id)).display_name == "Renamed"
        assert (await credentials.set_default(made.credential_id)).is_default
        assert (await credentials.usage(made.credential_id, start_date="2026-01-01")).total_calls == 0
        events = [entry.event_type for entry in await credentials.audit(made.credential_id)]
        assert events == ["set_default", "updated", "tested", "created"]
        assert (await credentials.list())["total_integrations"] == 2
        assert (await credentials.list(integration_name="github"))["total_count"] == 1
        await credentials.delete(made.credential_id)
        assert (await credentials.list(integration_name="github"))["credentials"] == []


async def test_the_published_client_makes_every_managed_credential(stage: Stage) -> None:
    client = stage.client
    async with Modulex(client.key, organization_id=client.organization_id, base_url=client.base_url) as published:
        async with published.credentials.bulk_modulex_keys_stream() as stream:
            first = [event.data async for event in stream]
        async with published.credentials.bulk_modulex_keys_stream() as stream:
            again = [event.data async for event in stream]
    assert [frame["phase"] for frame in (first[0], first[1], first[-1])] == ["initial_status", "creating", "completed"]
    offered = {entry["integration_name"]: entry["has_modulex_key_credential"] for entry in first[0]["integrations"]}
    assert {"arxiv", "hackernews", "wikipedia"} <= set(offered) and not any(offered.values())
    created = [name for frame in first[1:-1] for name in frame["just_created"]]
    assert sorted(created) == sorted(offered)
    assert first[-1]["summary"] == {"total": len(offered), "created": len(offered), "already_existed": 0}
    assert [frame["phase"] for frame in again] == ["initial_status", "completed"]
    assert again[-1]["summary"]["already_existed"] == len(offered)

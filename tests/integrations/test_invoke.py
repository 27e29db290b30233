"""Running real integrations against provider APIs on this machine."""

import asyncio
import base64
import gzip
import inspect
import logging
import secrets
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from httpx._transports import default as private_transports

from parley.integrations import ActionFailed, Catalog, Secret, invoke
from parley.integrations.index import FORMAT, Action, Index, Integration, summarized
from parley.testing.fake_github import FakeGitHub
from parley.testing.provider_proxy import Answer, Asked, Provider, ProviderProxy, json_answer
from parley.turn.model import JsonObject, JsonValue

transports: Any = private_transports
SECONDS = 20.0
MAX_BYTES = 1_000_000
MIB = 1024 * 1024


async def run(
    catalog: Catalog, path: str, arguments: JsonObject, secret: Secret, *, seconds: float = SECONDS
) -> JsonValue:
    name, _, action = path.partition(".")
    done = await invoke(catalog, name, action, arguments, secret, seconds=seconds, max_bytes=MAX_BYTES)
    assert done.succeeded, done.value
    return done.value


async def failure(
    catalog: Catalog, path: str, arguments: JsonObject, secret: Secret, *, seconds: float = SECONDS
) -> ActionFailed:
    with pytest.raises(ActionFailed) as failed:
        await run(catalog, path, arguments, secret, seconds=seconds)
    return failed.value


# ── GitHub ──────────────────────────────────────────────────────────────────────────────────────


async def test_repositories_are_listed(catalog: Catalog, token: Secret, proxy: ProviderProxy) -> None:
    value = await run(catalog, "github.list_repositories", {"per_page": 5}, token)
    assert isinstance(value, dict)
    assert value["success"] is True
    assert [repository["name"] for repository in objects(value["repositories"])] == ["hello-world"]
    assert proxy.asked[0].query["per_page"] == "5"


async def test_an_issue_is_created_and_read_back(catalog: Catalog, token: Secret, github: FakeGitHub) -> None:
    made = await run(
        catalog, "github.create_issue", {"owner": "octocat", "repo": "hello-world", "title": "Fix it"}, token
    )
    assert isinstance(made, dict)
    assert github.created[0]["title"] == "Fix it"
    read = await run(catalog, "github.get_issue", {"owner": "octocat", "repo": "hello-world", "issue_number": 1}, token)
    assert "Fix it" in str(read)


async def test_a_repository_is_deleted_once(catalog: Catalog, token: Secret, github: FakeGitHub) -> None:
    await run(catalog, "github.delete_repository", {"owner": "octocat", "repo": "hello-world"}, token)
    assert github.deleted == ["hello-world"]
    failed = await failure(catalog, "github.delete_repository", {"owner": "octocat", "repo": "hello-world"}, token)
    assert failed.public == 'GitHub answered 404: {"message":"Not Found"}'
    assert failed.attempted
    assert not failed.unauthorized


async def test_a_wrong_token_is_recognised(catalog: Catalog, github: FakeGitHub) -> None:
    failed = await failure(catalog, "github.list_repositories", {}, Secret("bearer_token", {"token": "revoked-token"}))
    assert failed.unauthorized
    assert failed.public.startswith("GitHub answered 401")


async def test_a_failing_provider_is_a_failure_with_its_words(
    catalog: Catalog, token: Secret, proxy: ProviderProxy
) -> None:
    proxy.answer("api.github.com", always(json_answer({"message": "We are down"}, 500)))
    failed = await failure(catalog, "github.list_repositories", {}, token)
    assert failed.public == 'GitHub answered 500: {"message":"We are down"}'


async def test_a_provider_that_hangs_meets_the_deadline(catalog: Catalog, token: Secret, proxy: ProviderProxy) -> None:
    asked = asyncio.Event()

    async def hang(_asked: Asked) -> Answer:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    await run(catalog, "github.list_repositories", {}, token)  # so that loading is not what is late
    proxy.answer("api.github.com", hang)
    failed = await failure(catalog, "github.list_repositories", {}, token, seconds=1.0)
    assert asked.is_set()
    assert failed.public == (
        "GitHub gave no answer within 1 s. It may have happened all the same: look before trying again."
    )
    assert failed.attempted


async def test_a_cancelled_call_stops_at_once(catalog: Catalog, token: Secret, proxy: ProviderProxy) -> None:
    asked = asyncio.Event()

    async def hang(_asked: Asked) -> Answer:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    proxy.answer("api.github.com", hang)
    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as group:
        task = group.create_task(run(catalog, "github.list_repositories", {}, token))
        await asked.wait()
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled()


async def test_a_flood_of_bytes_is_stopped_early(catalog: Catalog, token: Secret, proxy: ProviderProxy) -> None:
    sent = 0

    async def flood() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(50):
            sent += MIB
            yield b" " * MIB

    proxy.answer("api.github.com", always(Answer(200, flood())))
    failed = await failure(catalog, "github.list_repositories", {}, token)
    assert failed.public.startswith("GitHub answered with more than 1,000,000 bytes.")
    assert sent < 50 * MIB


async def test_compressed_bytes_count_as_what_they_become(
    catalog: Catalog, token: Secret, proxy: ProviderProxy
) -> None:
    small = gzip.compress(b" " * (30 * MIB))
    proxy.answer("api.github.com", always(Answer(200, small, {"Content-Encoding": "gzip"})))
    failed = await failure(catalog, "github.list_repositories", {}, token)
    assert failed.public.startswith("GitHub answered with more than")


# ── what the model sends ────────────────────────────────────────────────────────────────────────


async def test_nothing_the_model_adds_reaches_the_provider(
    catalog: Catalog, token: Secret, github: FakeGitHub, proxy: ProviderProxy
) -> None:
    added: JsonObject = {
        "auth_type": "oauth2",
        "auth_data": {"token": "evil", "access_token": "evil"},
        "base_url": "https://evil.example",
        "api_key": "evil",
        "whatever": "evil",
    }
    await run(catalog, "github.list_repositories", added, token)
    assert proxy.refused == []
    assert "evil" not in str(proxy.asked)
    assert proxy.asked[0].headers["authorization"] == f"Bearer {github.token}"


@pytest.mark.parametrize(
    ("path", "arguments", "data", "host"),
    [
        ("grafana.list_dashboards", {}, {"base_url": "https://grafana.acme.test"}, "grafana.acme.test"),
        ("freshdesk.get_ticket", {"ticket_id": 1}, {"domain": "acme"}, "acme.freshdesk.com"),
        ("datadog.search_logs", {"query": "a"}, {"region": "datadoghq.eu"}, "api.datadoghq.eu"),
        ("posthog.get_dashboards", {"project_id": "1"}, {"base_url": "https://eu.posthog.com"}, "eu.posthog.com"),
    ],
)
async def test_only_the_credential_chooses_where_it_is_sent(
    catalog: Catalog, proxy: ProviderProxy, path: str, arguments: JsonObject, data: JsonObject, host: str
) -> None:
    proxy.answer("*", always(json_answer({})))
    key = secrets.token_hex(16)
    secret = Secret("api_key", {"api_key": key, "application_key": key, **data})
    sent: JsonObject = {**arguments, "base_url": "https://evil.example", "domain": "evil.example/", "region": "evil"}
    name, _, action = path.partition(".")
    await invoke(catalog, name, action, sent, secret, seconds=SECONDS, max_bytes=MAX_BYTES)
    assert {asked.host for asked in proxy.asked} == {host}
    assert "evil" not in str(proxy.asked)


async def test_a_wrong_parameter_is_refused_before_anything_is_sent(
    catalog: Catalog, token: Secret, proxy: ProviderProxy
) -> None:
    failed = await failure(catalog, "github.create_issue", {"owner": "octocat", "labels": "bug"}, token)
    for named in ("repo is required", "title is required", "labels: input should be a valid list"):
        assert named in failed.public
    assert not failed.attempted
    assert proxy.asked == []


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("gitlub.list", "Integration 'gitlub' not found"),
        ("github.lst", "Action 'lst' not found in github"),
        ("microsoft_onedrive.download_file", "switched off on this server"),
    ],
)
async def test_what_is_not_there_or_off_is_a_failure_that_was_not_attempted(
    catalog: Catalog, path: str, said: str
) -> None:
    failed = await failure(catalog, path, {}, Secret("oauth2", {}))
    assert said in failed.public
    assert not failed.attempted


async def test_an_integration_whose_driver_is_missing_says_who_can_mend_it() -> None:
    integration = Integration("example", "Example", "For tests", actions=(Action("look", "Looks"),))
    catalog = Catalog(Index(FORMAT, "0", {}, (summarized(integration, ("no_such_driver",)),)))
    failed = await failure(catalog, "example.look", {}, Secret("custom", {}))
    assert failed.public == (
        "Example does not load on this server: needs no_such_driver, which is not installed. "
        "The operator of Parley can mend it; `parley doctor` says how."
    )


async def test_code_that_does_not_import_is_a_failure_and_is_reported_from_then_on() -> None:
    integration = Integration("not_in_the_package", "Example", "For tests", actions=(Action("look", "Looks"),))
    catalog = Catalog(Index(FORMAT, "0", {}, (summarized(integration, ()),)))
    failed = await failure(catalog, "not_in_the_package.look", {}, Secret("custom", {}))
    assert not failed.attempted
    assert "ModuleNotFoundError" in catalog.failures()["not_in_the_package"]


# ── what comes back ─────────────────────────────────────────────────────────────────────────────


async def test_a_failure_the_integration_reports_itself_is_a_result_that_did_not_succeed(
    catalog: Catalog, proxy: ProviderProxy
) -> None:
    proxy.answer("hacker-news.firebaseio.com", always(Answer(503, b"later")))
    done = await invoke(
        catalog,
        "hackernews",
        "get_item",
        {"item_id": 1},
        Secret("modulex_key", {}),
        seconds=SECONDS,
        max_bytes=MAX_BYTES,
    )
    assert not done.succeeded
    assert not done.unauthorized
    assert isinstance(done.value, dict)
    assert done.value["success"] is False


async def test_a_401_that_the_integration_hides_in_its_result_is_recognised(
    catalog: Catalog, proxy: ProviderProxy
) -> None:
    proxy.answer("api.stripe.com", always(json_answer({"error": {"message": "Invalid API Key"}}, 401)))
    done = await invoke(
        catalog,
        "stripe",
        "list_customers",
        {},
        Secret("api_key", {"api_key": f"sk_test_{secrets.token_hex(12)}"}),
        seconds=SECONDS,
        max_bytes=MAX_BYTES,
    )
    assert not done.succeeded
    assert done.unauthorized


async def test_an_action_that_asks_nobody_comes_through_the_same_way(catalog: Catalog) -> None:
    secret = Secret(
        "api_key", {"app_secret_key": "shpss_0123456789", "organization_id": "1", "api_key": "shppa_1234567"}
    )
    done = await invoke(
        catalog,
        "shopify_partner",
        "verify_webhook",
        {"shopify_hmac": base64.b64encode(b"x" * 32).decode(), "body": "{}"},
        secret,
        seconds=SECONDS,
        max_bytes=MAX_BYTES,
    )
    assert isinstance(done.value, dict)
    assert "shpss_0123456789" not in str(done.value)


PLAIN: JsonObject = {"store_url": "https://shop.acme.test", "account_sid": "AC0123"}


async def test_a_blocking_driver_is_led_through_the_proxy_as_well(catalog: Catalog, proxy: ProviderProxy) -> None:
    person: JsonObject = {"id": "7", "properties": {"email": "ada@acme.test"}, "createdAt": WHEN, "updatedAt": WHEN}
    proxy.answer("api.hubapi.com", always(json_answer({"results": [person]})))
    secret = Secret("bearer_token", {"token": f"pat-{secrets.token_hex(12)}"})
    value = await run(catalog, "hubspot.get_recent_contacts", {"limit": 1}, secret)
    assert "ada@acme.test" in str(value)
    assert proxy.asked[0].headers["authorization"] == f"Bearer {secret.auth_data['token']}"


async def test_a_401_from_a_driver_of_its_own_is_recognised_too(catalog: Catalog, proxy: ProviderProxy) -> None:
    proxy.answer("api.hubapi.com", always(json_answer({"message": "expired"}, 401)))
    secret = Secret("oauth2", {"access_token": f"at-{secrets.token_hex(12)}"})
    done = await invoke(catalog, "hubspot", "get_recent_contacts", {}, secret, seconds=SECONDS, max_bytes=MAX_BYTES)
    assert not done.succeeded
    assert done.unauthorized


WHEN = "2026-06-20T10:00:00Z"
CANARIES: dict[str, tuple[JsonObject, tuple[str, ...]]] = {
    "github.list_repositories": ({}, ("token",)),
    "hunter.domain_search": ({"domain": "acme.test"}, ("api_key",)),
    "mailgun.list_domains": ({}, ("api_key",)),
    "semrush.domain_overview": ({"domain": "acme.test"}, ("api_key",)),
    "segment.track": ({"event": "e", "user_id": "u"}, ("write_key",)),
    "stripe.list_customers": ({}, ("api_key",)),
    "telegram.get_updates": ({}, ("api_key",)),
    "twilio.list_messages": ({}, ("auth_token",)),
    "woocommerce.list_orders": ({}, ("consumer_key", "consumer_secret")),
    "youtube.video_details": ({"video_id": "v"}, ("api_key",)),
}


@pytest.mark.parametrize("status", [200, 401, 500])
@pytest.mark.parametrize("path", CANARIES)
async def test_a_provider_that_echoes_everything_reveals_no_secret(
    catalog: Catalog, proxy: ProviderProxy, caplog: pytest.LogCaptureFixture, path: str, status: int
) -> None:
    caplog.set_level(logging.DEBUG)
    arguments, keys = CANARIES[path]
    canaries = {key: f"c4n/+{secrets.token_hex(12)}" for key in keys}
    auth_type = "bearer_token" if "token" in keys else "api_key" if "api_key" in keys else "custom"

    async def echo(asked: Asked) -> Answer:
        said = f"{asked.method} https://{asked.host}{asked.path} {dict(asked.query)} {dict(asked.headers)}"
        said += asked.body.decode()
        return json_answer({"message": said, "error": said, "headers": dict(asked.headers)}, status)

    proxy.answer("*", echo)
    secret = Secret(auth_type, {**PLAIN, **canaries})
    name, _, action = path.partition(".")
    seen = await outcome(catalog, name, action, arguments, secret)
    assert proxy.asked
    sent = str(proxy.asked)
    for canary in canaries.values():
        telling = canary.partition("+")[2]
        encoded = base64.b64encode(f":{canary}".encode()).decode()[4:20]
        assert telling not in seen
        assert encoded not in seen
        assert telling not in "\n".join(record.getMessage() for record in caplog.records if record.name != "asyncio")
    assert any(canary.partition("+")[2] in sent for canary in canaries.values()) or "basic " in sent.lower()


async def outcome(catalog: Catalog, name: str, action: str, arguments: JsonObject, secret: Secret) -> str:
    """The text a model would see, whichever way it ends."""
    try:
        return str((await invoke(catalog, name, action, arguments, secret, seconds=SECONDS, max_bytes=MAX_BYTES)).value)
    except ActionFailed as failed:
        return failed.public


# ── the client underneath ───────────────────────────────────────────────────────────────────────


async def test_clients_share_one_tls_context_for_the_same_settings(
    catalog: Catalog, token: Secret, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(catalog, "github.list_repositories", {}, token)
    here = transports.create_ssl_context()
    assert transports.create_ssl_context() is here
    assert transports.create_ssl_context(verify=False) is not here
    monkeypatch.delenv("SSL_CERT_FILE")
    assert transports.create_ssl_context() is not here


async def test_what_an_egress_guard_undoes_is_changed_again(
    catalog: Catalog, token: Secret, proxy: ProviderProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(catalog, "github.list_repositories", {}, token)
    plain = inspect.getclosurevars(httpx.Response.aiter_bytes).nonlocals["read_async"]
    monkeypatch.setattr(httpx.Response, "aiter_bytes", plain)
    proxy.answer("api.github.com", always(Answer(200, b" " * (2 * MIB))))
    assert "more than" in (await failure(catalog, "github.list_repositories", {}, token)).public


async def test_requests_are_not_logged(catalog: Catalog, token: Secret) -> None:
    await run(catalog, "github.list_repositories", {}, token)
    assert logging.getLogger("httpx").getEffectiveLevel() >= logging.WARNING
    assert logging.getLogger("httpcore").getEffectiveLevel() >= logging.WARNING


def always(answer: Answer) -> Provider:
    async def provider(_asked: Asked) -> Answer:
        return answer

    return provider


def objects(value: JsonValue) -> list[JsonObject]:
    assert isinstance(value, list)
    return [item for item in value if isinstance(item, dict)]

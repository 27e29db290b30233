"""Imported APIs: looking, importing, connecting, what reaches the model and the API, what asks first (issue 9, 3)."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from parley.testing.provider_proxy import Answer as Reply
from parley.testing.provider_proxy import Asked, ProviderProxy, json_answer
from tests.contract.conftest import ORGANIZATION
from tests.stage import Json, Stage, calls, executes, output_of, says

SAMPLE = (Path(__file__).parents[2] / "docs" / "samples" / "tasks.yaml").read_text(encoding="utf-8")
HOST = "eu.tasks.example"
KEY = "tasks-key-of-the-vault-0001"


class TasksApi:
    """The API that the sample describes."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.reply: Reply | None = None
        self.replies: list[Reply] = []

    async def __call__(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        if self.replies:
            return self.replies.pop(0)
        if self.reply is not None:
            return self.reply
        if asked.path != "/v2/health" and asked.headers.get("x-tasks-key") != KEY:
            return json_answer({"message": f"wrong key {asked.headers.get('x-tasks-key')}"}, 401)
        return json_answer({"did": f"{asked.method} {asked.path}"})

    @property
    def last(self) -> Asked:
        return self.asked[-1]


@pytest.fixture
async def tasks(proxy: ProviderProxy) -> TasksApi:
    api = TasksApi()
    proxy.answer(HOST, api)
    return api


async def look(stage: Stage, spec: Any = SAMPLE, **more: Any) -> Json:
    looked = await stage.client.post("/integrations/openapi", {"spec": spec, **more})
    assert looked.status == 200, looked.body
    return looked.body


async def bring(stage: Stage, spec: Any = SAMPLE, **more: Any) -> Json:
    """Look, then import what was seen."""
    seen = await look(stage, spec, **{name: value for name, value in more.items() if name != "effects"})
    made = await stage.client.post("/integrations/openapi", {"spec": spec, "digest": seen["digest"], **more})
    assert made.status == 201, made.body
    return made.body


async def connect(stage: Stage, name: str = "api_tasks", **auth_data: str) -> str:
    body = {"integration_name": name, "auth_data": auth_data or {"api_key": KEY}}
    made = await stage.client.post("/credentials", body)
    assert made.status == 201, made.body
    return made.body["credential_id"]


async def run(stage: Stage, action: str, parameters: Json | None = None, name: str = "api_tasks") -> Any:
    return output_of(await stage.turn(executes(action, parameters, integration=name), says("Ok.")))


def spec_of(*, servers: Any = "https://api.plain.example", **more: Any) -> Json:
    """A small document around some paths."""
    listed = [{"url": servers}] if isinstance(servers, str) else servers
    return {"openapi": "3.0.3", "info": {"title": "Plain", "version": "1"}, "servers": listed, "paths": {}, **more}


# ── looking and importing ───────────────────────────────────────────────────────────────────────


async def test_a_document_is_shown_first_and_nothing_is_stored(stage: Stage) -> None:
    seen = await look(stage)
    assert (seen["display_name"], seen["base_url"], seen["version"]) == ("Tasks", f"https://{HOST}/v2", "2.1")
    assert {action["name"]: action["proposed_effect"] for action in seen["actions"]} == {
        "list_tasks": "read", "add_task": "write", "get_task": "read", "replace_task": "write",
        "remove_task": "destructive", "health": "read",
    }  # fmt: skip
    (way,) = seen["connect_by"]
    assert (way["auth_type"], way["fields"][0]["key"]) == ("api_key", "api_key")
    assert way["sent_as"][0] | {"scopes": []} == {
        "scheme": "key", "kind": "api_key", "place": "header", "name": "X-Tasks-Key", "auth_url": "", "token_url": "",
        "scopes": [],
    }  # fmt: skip
    assert (await stage.client.get("/integrations/openapi")).body == {"integrations": [], "total_count": 0}


async def test_each_verb_proposes_an_effect(stage: Stage) -> None:
    effects = {
        "get": "read", "head": "read", "post": "write", "put": "write", "patch": "write", "delete": "destructive",
        "options": "destructive", "trace": "destructive",
    }  # fmt: skip
    seen = await look(stage, spec_of(paths={"/x": {verb: {"operationId": f"{verb}_x"} for verb in effects}}))
    assert {each["name"].partition("_")[0]: each["proposed_effect"] for each in seen["actions"]} == effects


async def test_what_was_seen_is_imported_with_the_reviewers_word_and_the_audit_says_so(stage: Stage) -> None:
    made = await bring(stage, effects={"get_task": "egress", "remove_task": "write"})
    effects = {action["name"]: action["effect"] for action in made["actions"]}
    assert (effects["get_task"], effects["remove_task"], effects["list_tasks"]) == ("egress", "write", "read")
    assert all(action["reviewed"] and action["reviewed_by"] for action in made["actions"])
    shown = await stage.client.get("/integrations/openapi/api_tasks")
    assert shown.body == made
    listed = await stage.client.get("/integrations/openapi")
    assert [(each["integration_name"], each["unreviewed"]) for each in listed.body["integrations"]] == [
        ("api_tasks", 0)
    ]
    logs = (await stage.client.get("/dashboard/logs")).body
    assert "imported the API Tasks" in json.dumps(logs)


@pytest.mark.parametrize(
    "more", [{"effects": {"no_such": "read"}}, {"digest": "0" * 64}, {"server_url": "https://other.example"}]
)
async def test_what_was_not_seen_is_not_imported(stage: Stage, more: Json) -> None:
    seen = await look(stage)
    refused = await stage.client.post("/integrations/openapi", {"spec": SAMPLE, "digest": seen["digest"], **more})
    assert refused.status in (400, 409), refused.body
    assert (await stage.client.get("/integrations/openapi")).body["total_count"] == 0


async def test_the_same_idempotency_key_imports_once_and_a_second_one_must_be_asked_for(stage: Stage) -> None:
    seen = await look(stage)
    body = {"spec": SAMPLE, "digest": seen["digest"]}
    first = await stage.client.post("/integrations/openapi", body, Idempotency_Key="once")
    again = await stage.client.post("/integrations/openapi", body, Idempotency_Key="once")
    assert first.status == again.status == 201
    assert first.body == again.body
    refused = await stage.client.post("/integrations/openapi", body)
    assert (refused.status, "already as api_tasks: refresh" in refused.body["detail"]) == (409, True)
    assert (await stage.client.get("/integrations/openapi")).body["total_count"] == 1
    assert (await bring(stage, display_name="Tasks"))["integration_name"] == "api_tasks_2"


async def test_two_who_import_the_same_at_once_make_one(stage: Stage) -> None:
    body = {"spec": SAMPLE, "digest": (await look(stage))["digest"]}
    async with asyncio.TaskGroup() as group:
        both = [group.create_task(stage.client.post("/integrations/openapi", body)) for _ in range(2)]
    assert sorted(each.result().status for each in both) == [201, 409]


async def test_a_document_is_fetched_through_the_guard_and_its_address_makes_servers_whole(
    stage: Stage, proxy: ProviderProxy
) -> None:
    async def site(asked: Asked) -> Reply:
        document = spec_of(servers="/v1", paths={"/x": {"get": {}}})
        return json_answer(document) if asked.path == "/docs/openapi.json" else Reply(404)

    proxy.answer("docs.site.example", site)
    url = "https://docs.site.example/docs/openapi.json"
    seen = (await stage.client.post("/integrations/openapi", {"url": url})).body
    assert seen["base_url"] == "https://docs.site.example/v1"
    made = await stage.client.post("/integrations/openapi", {"url": url, "digest": seen["digest"]})
    assert (made.status, made.body["document_url"]) == (201, url)
    again = await stage.client.post("/integrations/openapi/api_plain/refresh", {})
    assert again.body["changes"] == {"added": [], "removed": [], "changed": [], "rejected": {}}
    missing = await stage.client.post("/integrations/openapi", {"url": "https://docs.site.example/no"})
    assert "answered 404" in missing.detail


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/spec", "http://10.0.0.8/spec", "file:///etc/passwd", "https://u:p@x.example/s"]
)
async def test_a_document_is_not_fetched_from_where_parley_does_not_go(stage: Stage, url: str) -> None:
    refused = await stage.client.post("/integrations/openapi", {"url": url})
    assert refused.status == 400, refused.body


# ── connecting and running ──────────────────────────────────────────────────────────────────────


async def test_a_model_finds_and_runs_an_imported_action_with_the_key_of_the_vault(
    stage: Stage, tasks: TasksApi
) -> None:
    await bring(stage)
    await connect(stage)
    turn = await stage.turn(
        calls("get_available_integrations", {"query": "tasks", "integration_type": "tools"}, id="c1"),
        calls("get_integration_details", {"integration_name": "api_tasks", "action_name": "list_tasks"}, id="c2"),
        executes("list_tasks", {"state": "no", "label": ["a b", "c&d"]}, integration="api_tasks", id="c3"),
        says("Found."),
    )
    available, details, result = (each["output"] for each in turn.every("tool_result"))
    assert available["tools"][0]["name"] == "api_tasks"
    assert [each["name"] for each in details["actions"][0]["parameters"]] == ["state", "label", "limit"]
    assert details["actions"][0]["parameters"][0]["enum"] == ["open", "done", "no"]
    assert result["result"] == {"status_code": 200, "body": {"did": "GET /v2/tasks"}}
    assert tasks.last.headers["x-tasks-key"] == KEY
    assert tasks.last.query == {"state": "no", "label": "c&d"}
    assert KEY not in str(turn.events)


async def test_without_a_credential_the_model_is_told_how_to_connect_and_a_person_can(
    stage: Stage, tasks: TasksApi
) -> None:
    await bring(stage)
    needs = await run(stage, "list_tasks")
    assert needs["status"] == "needs_credential"
    assert needs["auth_options"][0]["auth_type"] == "api_key"
    assert (await run(stage, "health"))["result"]["status_code"] == 200
    asking = {
        "integration_name": "api_tasks",
        "integration_display_name": "Tasks",
        "auth_options": [{"auth_type": "api_key", "display_name": "Key"}],
    }
    turn = await stage.turn(calls("request_credential", asking))
    assert turn.question["auth_options"][0]["fields"][0]["key"] == "api_key"
    assert tasks.last.path == "/v2/health"
    assert "x-tasks-key" not in tasks.last.headers


async def test_an_error_status_is_a_value_and_a_key_that_is_echoed_is_scrubbed(stage: Stage, tasks: TasksApi) -> None:
    await bring(stage)
    await connect(stage, api_key="another-secret-key-77")
    refused = await run(stage, "list_tasks")
    assert refused["result"]["success"] is False
    assert refused["result"]["status_code"] == 401
    assert "another-secret-key-77" not in json.dumps(refused)
    held = (await stage.client.get("/credentials?integration_name=api_tasks")).body["credentials"]
    assert [each["is_valid"] for each in held] == [False]


async def test_every_effect_asks_as_its_review_says(stage: Stage, tasks: TasksApi) -> None:
    await bring(stage)
    await connect(stage)
    added = await run(stage, "add_task", {"body": {"title": "Write"}})
    assert added["status"] == "ok"
    assert tasks.last.json == {"title": "Write"}
    asked = await stage.turn(executes("remove_task", {"id": "7"}, integration="api_tasks"))
    assert asked.question["context"]["effect"] == "destructive"
    assert tasks.last.method == "POST"
    await stage.script(says("Gone."))
    after = await stage.follow((await stage.resume(asked, {"kind": "yes_no", "answer": True})).body)
    assert output_of(after)["status"] == "ok"
    assert (tasks.last.method, tasks.last.path) == ("DELETE", "/v2/tasks/7")


async def test_a_post_carries_a_key_for_repeats_only_where_the_document_declares_one(
    stage: Stage, tasks: TasksApi
) -> None:
    await bring(stage)
    await connect(stage)
    await run(stage, "add_task", {"body": {"title": "Once"}})
    assert len(tasks.last.headers["idempotency-key"]) == 36
    await run(stage, "replace_task", {"id": "7", "body": {"title": "Twice"}})
    assert "idempotency-key" not in tasks.last.headers


async def test_a_path_parameter_stays_one_segment(stage: Stage, tasks: TasksApi) -> None:
    await bring(stage)
    await connect(stage)
    bad = ["../admin", "a/b", "..", "%2e%2e%2fx", "x?y=1", "x#y", "a\\b", "", " "]
    tries = [executes("get_task", {"id": text}, integration="api_tasks", id=f"c{n}") for n, text in enumerate(bad)]
    turn = await stage.turn(*tries, says("Ok."))
    assert [each["output"]["status"] for each in turn.every("tool_result")] == ["error"] * len(bad)
    assert tasks.asked == []


async def test_what_belongs_to_the_credential_never_comes_from_the_model(stage: Stage, proxy: ProviderProxy) -> None:
    api = TasksApi()
    api.reply = json_answer({})
    proxy.answer("api.plain.example", api)
    parameters = [
        {"name": "key", "in": "query", "schema": {"type": "string"}},
        {"name": "Authorization", "in": "header", "schema": {"type": "string"}},
        {"name": "Host", "in": "header", "schema": {"type": "string"}},
        {"name": "filter", "in": "query", "schema": {"type": "object"}},
    ]
    schemes = {"q": {"type": "apiKey", "in": "query", "name": "key"}}
    document = spec_of(
        paths={"/x": {"get": {"operationId": "x", "parameters": parameters}}},
        components={"securitySchemes": schemes},
        security=[{"q": []}],
    )
    made = await bring(stage, document)
    assert list(made["actions"][0]["input_schema"]["properties"]) == ["filter"]
    await connect(stage, "api_plain", api_key="the&real=key/1")
    mine = {"key": "mine", "Authorization": "mine", "Host": "evil.example", "base_url": "https://evil.example"}
    await run(stage, "x", {**mine, "filter": {"a": "1"}}, "api_plain")
    assert api.last.query == {"a": "1", "key": "the&real=key/1"}
    assert api.last.host == "api.plain.example"
    assert "authorization" not in api.last.headers
    refused = await run(stage, "x", {"filter": {"KEY": "mine"}}, "api_plain")
    assert "no argument may fill" in refused["error"]
    assert len(api.asked) == 1


# ── signing in ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("scheme", "auth_data", "header", "value"),
    [
        ({"type": "http", "scheme": "Bearer"}, {"token": "tok-123456"}, "authorization", "Bearer tok-123456"),
        (
            {"type": "http", "scheme": "basic"}, {"username": "sk_live_1", "password": ""}, "authorization",
            f"Basic {base64.b64encode(b'sk_live_1:').decode()}",
        ),
        ({"type": "apiKey", "in": "cookie", "name": "sid"}, {"api_key": "a=b;c"}, "cookie", "sid=a%3Db%3Bc"),
    ],
)  # fmt: skip
async def test_each_kind_of_key_goes_where_the_document_says(
    stage: Stage, proxy: ProviderProxy, scheme: Json, auth_data: Json, header: str, value: str
) -> None:
    api = TasksApi()
    api.reply = json_answer({})
    proxy.answer("api.plain.example", api)
    document = spec_of(
        paths={"/x": {"get": {"operationId": "x"}}}, components={"securitySchemes": {"s": scheme}}, security=[{"s": []}]
    )
    await bring(stage, document)
    auth_type = {"Bearer": "bearer_token", "basic": "custom"}.get(scheme.get("scheme", ""), "api_key")
    body = {"integration_name": "api_plain", "auth_type": auth_type, "auth_data": auth_data}
    made = await stage.client.post("/credentials", body)
    assert made.status == 201, made.body
    await run(stage, "x", None, "api_plain")
    assert api.last.headers[header] == value


async def test_two_keys_together_are_one_credential(stage: Stage, proxy: ProviderProxy) -> None:
    api = TasksApi()
    api.reply = json_answer({})
    proxy.answer("api.plain.example", api)
    schemes = {
        "app": {"type": "apiKey", "in": "header", "name": "X-App"},
        "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
    }
    document = spec_of(
        paths={"/x": {"get": {"operationId": "x"}}},
        components={"securitySchemes": schemes},
        security=[{"app": [], "key": []}],
    )
    made = await bring(stage, document)
    (way,) = made["connect_by"]
    fields = [each["key"] for each in way["fields"]]
    body = {"integration_name": "api_plain", "auth_type": "custom", "auth_data": dict.fromkeys(fields, "v-123456")}
    assert (await stage.client.post("/credentials", body)).status == 201
    await run(stage, "x", None, "api_plain")
    assert (api.last.headers["x-app"], api.last.headers["x-key"]) == ("v-123456", "v-123456")


async def test_client_credentials_fetch_a_token_keep_it_and_fetch_anew_when_it_ends(
    stage: Stage, proxy: ProviderProxy
) -> None:
    tokens: list[Asked] = []
    live = ["t1-secret-token"]

    async def sign_in(asked: Asked) -> Reply:
        tokens.append(asked)
        return json_answer({"access_token": live[-1], "expires_in": 3600})

    api = TasksApi()

    async def answer(asked: Asked) -> Reply:
        await api(asked)
        good = asked.headers.get("authorization") == f"Bearer {live[-1]}"
        return json_answer({"echo": asked.headers.get("authorization")}, 200 if good else 401)

    proxy.answer("login.plain.example", sign_in)
    proxy.answer("api.plain.example", answer)
    flow = {"clientCredentials": {"tokenUrl": "https://login.plain.example/token", "scopes": {"read": ""}}}
    document = spec_of(
        paths={"/x": {"get": {"operationId": "x", "security": [{"o": ["read"]}]}}},
        components={"securitySchemes": {"o": {"type": "oauth2", "flows": flow}}},
    )
    await bring(stage, document)
    values = {"client_id": "me", "client_secret": "s3cret-of-client"}
    body = {"integration_name": "api_plain", "auth_type": "custom", "auth_data": values}
    assert (await stage.client.post("/credentials", body)).status == 201
    first = await run(stage, "x", None, "api_plain")
    assert "t1-secret-token" not in json.dumps(first)
    await run(stage, "x", None, "api_plain")
    assert len(tokens) == 1
    assert b"scope=read" in tokens[0].body
    live.append("t2-secret-token")
    assert (await run(stage, "x", None, "api_plain"))["result"]["status_code"] == 200
    assert len(tokens) == 2


async def test_a_token_of_other_scopes_than_the_document_names_now_is_not_used(
    stage: Stage, proxy: ProviderProxy
) -> None:
    tokens: list[Asked] = []

    async def sign_in(asked: Asked) -> Reply:
        tokens.append(asked)
        return json_answer({"access_token": f"secret-token-{len(tokens)}", "expires_in": 3600})

    api = TasksApi()
    api.reply = json_answer({})
    proxy.answer("login.plain.example", sign_in)
    proxy.answer("api.plain.example", api)

    def wanting(*scopes: str) -> Json:
        flow = {"clientCredentials": {"tokenUrl": "https://login.plain.example/token", "scopes": {}}}
        return spec_of(
            paths={"/x": {"get": {"operationId": "x", "security": [{"o": list(scopes)}]}}},
            components={"securitySchemes": {"o": {"type": "oauth2", "flows": flow}}},
        )

    await bring(stage, wanting("read"))
    values = {"client_id": "me", "client_secret": "s3cret-of-client"}
    body = {"integration_name": "api_plain", "auth_type": "custom", "auth_data": values}
    assert (await stage.client.post("/credentials", body)).status == 201
    await run(stage, "x", None, "api_plain")
    path, wish = "/integrations/openapi/api_plain/refresh", {"spec": wanting("read", "write")}
    seen = (await stage.client.post(path, wish)).body
    assert (await stage.client.post(path, {**wish, "digest": seen["digest"]})).status == 200
    for _ in range(2):
        await run(stage, "x", None, "api_plain")
    assert [b"write" in asked.body for asked in tokens] == [False, True]
    assert api.last.headers["authorization"] == "Bearer secret-token-2"


async def test_a_sign_in_with_a_code_uses_the_organizations_own_app(stage: Stage) -> None:
    flow = {
        "authorizationCode": {
            "authorizationUrl": "https://login.plain.example/authorize",
            "tokenUrl": "https://login.plain.example/token",
            "scopes": {"read": "", "write": ""},
        }
    }
    document = spec_of(
        paths={"/x": {"get": {"operationId": "x"}}},
        components={"securitySchemes": {"o": {"type": "oauth2", "flows": flow}}},
        security=[{"o": ["read"]}],
    )
    await bring(stage, document)
    wish = {"integration_name": "api_plain", "redirect_uri": "https://parley.example/credentials/oauth2/callback"}
    refused = await stage.client.post("/credentials/oauth2/initiate", wish)
    assert (refused.status, "Bring your own" in refused.detail) == (400, True)
    app = {"client_id": "mine", "client_secret": "app-secret-1"}
    started = await stage.client.post(
        "/credentials/oauth2/initiate", {**wish, "use_modulex_oauth": False, "custom_oauth_config": app}
    )
    assert started.status == 200, started.body
    url = started.body["authorization_url"]
    assert url.startswith("https://login.plain.example/authorize?")
    assert "scope=read&" in f"{url}&"


async def test_a_sign_in_that_parley_does_not_do_is_refused_with_a_sentence(stage: Stage) -> None:
    schemes = {
        "oidc": {"type": "openIdConnect", "openIdConnectUrl": "https://x.example/.well-known"},
        "digest": {"type": "http", "scheme": "digest"},
        "implicit": {"type": "oauth2", "flows": {"implicit": {"authorizationUrl": "https://x.example", "scopes": {}}}},
        "header": {"type": "apiKey", "in": "header", "name": "Host"},
    }
    paths = {f"/{name}": {"get": {"operationId": name, "security": [{name: []}]}} for name in schemes}
    seen = await look(stage, spec_of(paths=paths, components={"securitySchemes": schemes}))
    assert seen["actions"] == []
    assert set(seen["rejected"]) == set(schemes)
    assert "OpenID Connect" in seen["rejected"]["oidc"]


# ── looking again, deleting, whose it is ────────────────────────────────────────────────────────


async def test_what_changed_loses_its_review_and_asks_until_it_is_looked_at(stage: Stage, tasks: TasksApi) -> None:
    await bring(stage)
    await connect(stage)
    changed = SAMPLE.replace("Read one task.", "Read one task and everything in it.").replace("removeTask", "dropTask")
    changed = changed.replace("  /health:", "  /labels:\n    get: {operationId: listLabels}\n  /health:")
    path = "/integrations/openapi/api_tasks"
    seen = (await stage.client.post(f"{path}/refresh", {"spec": changed})).body
    assert seen["changes"] == {"added": ["list_labels"], "removed": [], "changed": ["get_task"], "rejected": {}}
    assert (await run(stage, "get_task", {"id": "1"}))["status"] == "ok"
    taken = await stage.client.post(f"{path}/refresh", {"spec": changed, "digest": seen["digest"]})
    assert taken.status == 200, taken.body
    stale = await stage.client.post(f"{path}/refresh", {"spec": changed, "digest": seen["digest"]})
    assert stale.status == 409
    asked = await stage.turn(executes("get_task", {"id": "1"}, integration="api_tasks"))
    assert "has not reviewed" in asked.question["message"]
    shown = {each["name"]: each for each in (await stage.client.get(path)).body["actions"]}
    assert (shown["get_task"]["effect"], shown["remove_task"]["effect"]) == (None, "destructive")
    assert {name: each["fingerprint"] for name, each in shown.items()} == {
        each["name"]: each["fingerprint"] for each in seen["actions"]
    }
    await bring(stage, display_name="Other tasks")
    listed = (await stage.client.get("/integrations/openapi")).body["integrations"]
    assert [(each["integration_name"], each["total_actions"], each["unreviewed"]) for each in listed] == [
        ("api_other_tasks", 6, 0), ("api_tasks", 7, 2),
    ]  # fmt: skip
    mark = shown["get_task"]["fingerprint"]
    for fingerprint, status in (("f" * 64, 409), (mark, 200)):
        reviews = [{"name": "get_task", "fingerprint": fingerprint, "effect": "read"}]
        assert (await stage.client.call("PUT", f"{path}/actions", {"reviews": reviews})).status == status
    assert (await run(stage, "get_task", {"id": "1"}))["status"] == "ok"


@pytest.mark.parametrize(
    "wish",
    [
        {"spec": SAMPLE.replace("Remove a task.", "Remove a task and all its parts.")},
        {"spec": SAMPLE, "server_url": "https://other.tasks.example/v2"},
    ],
    ids=["described otherwise", "at another address"],
)
async def test_an_approval_of_an_action_that_changed_since_runs_nothing(
    stage: Stage, tasks: TasksApi, wish: dict[str, str]
) -> None:
    await bring(stage)
    await connect(stage)
    asked = await stage.turn(executes("remove_task", {"id": "7"}, integration="api_tasks"))
    path = "/integrations/openapi/api_tasks/refresh"
    seen = (await stage.client.post(path, wish)).body
    assert (await stage.client.post(path, {**wish, "digest": seen["digest"]})).status == 200
    await stage.script(says("Changed."))
    after = await stage.follow((await stage.resume(asked, {"kind": "yes_no", "answer": True})).body)
    assert "has changed since" in output_of(after)["reason"]
    assert tasks.asked == []


async def test_the_address_stays_whatever_a_later_document_says(stage: Stage, tasks: TasksApi) -> None:
    await bring(stage)
    await connect(stage)
    moved = SAMPLE.replace("https://{region}.tasks.example/v2", "https://{region}.evil.example/v2")
    path = "/integrations/openapi/api_tasks/refresh"
    seen = (await stage.client.post(path, {"spec": moved})).body
    assert seen["base_url"] == f"https://{HOST}/v2"
    assert any("names other servers" in note for note in seen["notes"])
    assert (await stage.client.post(path, {"spec": moved, "digest": seen["digest"]})).status == 200
    await run(stage, "list_tasks")
    assert tasks.last.host == HOST


async def test_deleting_takes_actions_and_credentials_along(stage: Stage) -> None:
    await bring(stage)
    credential = await connect(stage)
    assert (await stage.client.call("DELETE", "/integrations/openapi/api_tasks")).status == 204
    assert (await stage.client.get(f"/credentials/{credential}")).status == 404
    assert (await run(stage, "list_tasks"))["error"] == "Integration 'api_tasks' not found"
    assert (await stage.client.call("DELETE", "/integrations/openapi/api_tasks")).status == 404


async def test_another_organizations_api_is_like_a_missing_one(stage: Stage) -> None:
    await bring(stage)
    mine, stage.client.organization_id = stage.client.organization_id, ORGANIZATION
    reviews = {"reviews": [{"name": "health", "fingerprint": "f", "effect": "read"}]}
    for method, path, body in (
        ("GET", "", None), ("POST", "/refresh", {"spec": SAMPLE}), ("PUT", "/actions", reviews), ("DELETE", "", None)
    ):  # fmt: skip
        foreign = await stage.client.call(method, f"/integrations/openapi/api_tasks{path}", body)
        missing = await stage.client.call(method, f"/integrations/openapi/api_nothing{path}", body)
        assert (foreign.status, foreign.body) == (missing.status, missing.body)
        assert foreign.status == 404
    made = await stage.client.post("/credentials", {"integration_name": "api_tasks", "auth_data": {"api_key": KEY}})
    assert made.status == 404
    stage.client.organization_id = mine


async def test_actions_that_are_left_out_stay_out(stage: Stage) -> None:
    seen = await look(stage, leave_out=["remove_task"])
    body = {"spec": SAMPLE, "leave_out": ["remove_task"], "digest": seen["digest"]}
    made = await stage.client.post("/integrations/openapi", body)
    assert "remove_task" not in [action["name"] for action in made.body["actions"]]
    again = (await stage.client.post("/integrations/openapi/api_tasks/refresh", {"spec": SAMPLE})).body
    assert again["changes"]["added"] == []


# ── answers ─────────────────────────────────────────────────────────────────────────────────────


ANSWERS = [
    (Reply(204), {"status_code": 204}),
    (Reply(200, b"plain", {"Content-Type": "text/plain"}), {"status_code": 200, "body": "plain"}),
    (
        Reply(200, b"\x89PNG", {"Content-Type": "image/png"}),
        {"status_code": 200, "content_type": "image/png", "size_bytes": 4, "base64": "iVBORw=="},
    ),
    (
        Reply(201, b'{"id":1}', {"Content-Type": "application/hal+json", "Location": "/v2/tasks/1"}),
        {"status_code": 201, "location": "/v2/tasks/1", "body": {"id": 1}},
    ),
    (Reply(200, b"{no", {"Content-Type": "application/json"}), {"status_code": 200, "body": "{no"}),
    (
        Reply(503, b"later", {"Content-Type": "text/plain", "Retry-After": "7"}),
        {"success": False, "status_code": 503, "retry-after": "7", "error": "later"},
    ),
]


async def test_every_kind_of_answer_becomes_a_value(stage: Stage, tasks: TasksApi) -> None:
    await bring(stage)
    replies = [reply for reply, _ in ANSWERS]
    tasks.replies = list(replies)
    asks = [executes("health", integration="api_tasks", id=f"c{n}") for n in range(len(replies))]
    turn = await stage.turn(*asks, says("Ok."))
    assert [each["output"]["result"] for each in turn.every("tool_result")] == [told for _, told in ANSWERS]


async def test_an_answer_that_is_too_large_is_an_error_value(stage: Stage, tasks: TasksApi) -> None:
    tasks.reply = Reply(200, b"x" * (5 << 20), {"Content-Type": "text/plain"})
    await bring(stage)
    assert "larger than" in (await run(stage, "health"))["error"]

"""Signing in over HTTP with the real catalog: initiate, callback page, refresh, and the chat that goes on by itself."""

import base64
import hashlib
import secrets
from dataclasses import dataclass, field
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit
from uuid import uuid4

import pytest
from modulex import ConflictError, Modulex
from modulex.types.credentials import CredentialResponse, OAuth2InitiateResponse

from parley.testing.fake_github import FakeGitHub
from parley.testing.provider_proxy import Answer as Said
from parley.testing.provider_proxy import Asked, ProviderProxy, json_answer
from tests.stage import Answer, Json, Stage, calls, executes, says

CALLBACK = "/credentials/oauth2/callback"


@dataclass
class SignInServer:
    """A provider's token endpoint: checks the app, PKCE and redirect; refresh tokens are good once."""

    client_id: str = field(default_factory=lambda: f"app-{uuid4().hex[:8]}")
    client_secret: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    access_token: str = field(default_factory=lambda: f"gho_{uuid4().hex}")
    refresh_token: str = ""
    expires_in: int | None = None
    codes: dict[str, Json] = field(default_factory=dict[str, Json])

    @property
    def app(self) -> Json:
        return {
            "use_modulex_oauth": False,
            "custom_oauth_config": {"client_id": self.client_id, "client_secret": self.client_secret},
        }

    def consent(self, authorization_url: str) -> str:
        """The query the browser comes back with."""
        asked = dict(parse_qsl(urlsplit(authorization_url).query))
        code = secrets.token_urlsafe(8)
        self.codes[code] = asked
        return urlencode({"code": code, "state": asked["state"]})

    async def __call__(self, asked: Asked) -> Said:
        form = {name: values[0] for name, values in parse_qs(asked.body.decode()).items()}
        if (form.get("client_id"), form.get("client_secret")) != (self.client_id, self.client_secret):
            return json_answer({"error": "invalid_client"}, 401)
        if form["grant_type"] == "refresh_token":
            if form["refresh_token"] != self.refresh_token:
                return json_answer({"error": "invalid_grant"}, 400)
            self.access_token = f"glo_{uuid4().hex}"
            return self._grant()
        began = self.codes.pop(form["code"], None)
        if began is None or began["redirect_uri"] != form["redirect_uri"] or not _proved(began, form):
            return json_answer({"error": "bad_verification_code"})
        return self._grant()

    def _grant(self) -> Said:
        answer: Json = {"access_token": self.access_token, "token_type": "bearer", "scope": "repo"}
        if self.expires_in is not None:
            self.refresh_token = f"glr_{uuid4().hex}"
            answer |= {"expires_in": self.expires_in, "refresh_token": self.refresh_token}
        return json_answer(answer)


def _proved(began: Json, form: dict[str, str]) -> bool:
    digest = hashlib.sha256(form["code_verifier"].encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == began["code_challenge"]


@pytest.fixture
def sign_ins(proxy: ProviderProxy, github: FakeGitHub) -> SignInServer:
    """GitHub's and GitLab's sign-in, which grant the token that the fake GitHub accepts."""
    server = SignInServer(access_token=github.token)
    proxy.answer("github.com", server)
    proxy.answer("gitlab.com", server)
    return server


async def initiate(stage: Stage, sign_ins: SignInServer, **more: object) -> Json:
    body = {"integration_name": "github", "redirect_uri": f"{stage.client.base_url}{CALLBACK}", **sign_ins.app, **more}
    answer = await stage.client.post("/credentials/oauth2/initiate", body)
    assert answer.status == 200, answer.body
    return answer.body


async def browse(stage: Stage, query: str, path: str = CALLBACK, **headers: str) -> tuple[int, str, dict[str, str]]:
    """What a browser without any key gets."""
    url = f"{stage.client.base_url}{path}?{query}"
    async with stage.client.session.get(url, headers=headers) as response:
        return response.status, await response.text(), dict(response.headers)


async def asks_for_github(stage: Stage, *then: object) -> tuple[str, str, str]:
    """A chat that waits for GitHub: its id, its run and its question."""
    options = [{"auth_type": "oauth2", "display_name": "Sign in", "oauth_initiate_endpoint": "x"}]
    arguments = {"integration_name": "github", "integration_display_name": "GitHub", "auth_options": options}
    turn = await stage.turn(calls("request_credential", arguments), *then)  # pyright: ignore[reportArgumentType]
    return turn.chat_id, turn.run_id, turn.question["request_id"]


async def resumed_run(stage: Stage, chat_id: str, run_id: str) -> list[Json]:
    """Every event of the run that took the place of a paused one."""
    paused = await stage.client.listen(chat_id, run_id)
    [resumed] = await stage.client.listen(chat_id, run_id, after=paused[-1]["_id"])
    assert resumed["type"] == "run_resumed"
    return await stage.client.listen(chat_id, resumed["data"]["new_run_id"])


# ── the page ────────────────────────────────────────────────────────────────────────────────────


async def test_a_sign_in_ends_on_a_page_that_tells_its_opener_an_id_and_a_status(
    stage: Stage, sign_ins: SignInServer
) -> None:
    request_id = str(uuid4())
    started = await initiate(stage, sign_ins, composer_request_id=request_id, composer_chat_id=str(uuid4()))
    assert started["authorization_url"].startswith("https://github.com/login/oauth/authorize?")
    status, page, headers = await browse(stage, sign_ins.consent(started["authorization_url"]))
    assert status == 200
    assert f'data-request-id="{request_id}"' in page and 'data-status="connected"' in page
    assert sign_ins.access_token not in page and started["state"] not in page
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe-inline" not in policy
    assert "<script>" not in page and "style=" not in page
    assert (headers["Cache-Control"], headers["Referrer-Policy"]) == ("no-store", "no-referrer")
    for name, kind in (("page.js", "text/javascript"), ("page.css", "text/css")):
        assert f"/credentials/oauth2/{name}" in page
        fetched, text, sent = await browse(stage, "", f"/credentials/oauth2/{name}")
        assert fetched == 200 and text and sent["Content-Type"].startswith(kind)
        assert sent["X-Content-Type-Options"] == "nosniff"
    listed = (await stage.client.get("/credentials?integration_name=github")).body["credentials"]
    assert [row["auth_type"] for row in listed] == ["oauth2"]


async def test_a_foreign_state_gets_a_page_and_nothing_else(stage: Stage) -> None:
    for query in ("", "state=x&code=y", "state=x&error=access_denied", f"state={'x' * 5000}&code=y"):
        status, page, _ = await browse(stage, query)
        assert status == 400 and 'data-close="no"' in page and 'data-request-id=""' in page
    assert (await stage.client.get("/credentials?integration_name=github")).body["total_count"] == 0


async def test_the_page_says_nothing_that_the_browser_brought(stage: Stage, sign_ins: SignInServer) -> None:
    started = await initiate(stage, sign_ins)
    evil = "<script>alert(1)</script>"
    query = urlencode({"state": started["state"], "error": evil, "error_description": evil})
    status, page, _ = await browse(stage, query)
    assert status == 200 and 'data-status="failed"' in page and "alert" not in page


async def test_the_integrations_own_callback_serves_only_that_integration(stage: Stage, sign_ins: SignInServer) -> None:
    started = await initiate(stage, sign_ins)
    own = f"{started['redirect_uri']}/github"
    again = await initiate(stage, sign_ins, redirect_uri=own)
    assert again["redirect_uri"] == own
    query = sign_ins.consent(again["authorization_url"])
    assert (await browse(stage, query, f"{CALLBACK}/gitlab"))[0] == 400
    third = await initiate(stage, sign_ins, redirect_uri=own)
    query = sign_ins.consent(third["authorization_url"])
    assert (await browse(stage, query, f"{CALLBACK}/github"))[0] == 200


async def test_a_page_of_this_server_binds_the_sign_in_to_its_browser(stage: Stage, sign_ins: SignInServer) -> None:
    host = urlsplit((await initiate(stage, sign_ins))["redirect_uri"]).netloc

    async def from_a_page() -> Answer:
        body = {"integration_name": "github", "redirect_uri": "https://x.test", **sign_ins.app}
        return await stage.client.call(
            "POST", "/credentials/oauth2/initiate", body, Sec_Fetch_Site="same-origin", Host=host
        )

    began = await from_a_page()
    cookie = began.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Path=/credentials/oauth2" in cookie
    query = sign_ins.consent(began.body["authorization_url"])
    assert (await browse(stage, query, Cookie="parley-oauth=other"))[0] == 400
    began = await from_a_page()
    query = sign_ins.consent(began.body["authorization_url"])
    assert (await browse(stage, query, Cookie=began.headers["Set-Cookie"].partition(";")[0]))[0] == 200


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"redirect_uri": None}, 422),
        ({"integration_name": "nowhere"}, 404),
        ({"integration_name": "airtable"}, 400),
        ({"use_modulex_oauth": True}, 400),
        ({"custom_oauth_config": {"client_id": "c"}}, 400),
        ({"custom_oauth_config": None}, 400),
        ({"redirect_uri": "javascript:alert(1)"}, 400),
        ({"integration_name": "servicenow"}, 400),
        ({"integration_name": "servicenow", "env_var_values": {"SERVICENOW_INSTANCE_NAME": "evil.example/"}}, 400),
        ({"integration_name": "servicenow", "env_var_values": {"SERVICENOW_INSTANCE_NAME": "dev1"}}, 200),
        ({"redirect_uri": "http://["}, 400),
        ({"integration_name": "netlify"}, 200),
    ],
)
async def test_initiate_has_every_status(stage: Stage, sign_ins: SignInServer, change: Json, status: int) -> None:
    body = {"integration_name": "github", "redirect_uri": "https://x.test/cb", **sign_ins.app, **change}
    answer = await stage.client.post("/credentials/oauth2/initiate", body)
    assert answer.status == status, answer.body
    assert sign_ins.client_secret not in repr(answer.body)


# ── the published client ────────────────────────────────────────────────────────────────────────


async def test_the_published_client_signs_in_and_refreshes(stage: Stage, sign_ins: SignInServer) -> None:
    client = stage.client
    sign_ins.expires_in = 7200
    async with Modulex(client.key, organization_id=client.organization_id, base_url=client.base_url) as published:
        credentials = published.credentials
        started = await credentials.initiate_oauth2(
            "gitlab",
            redirect_uri=f"{client.base_url}{CALLBACK}",
            use_modulex_oauth=False,
            custom_oauth_config=sign_ins.app["custom_oauth_config"],
        )
        assert isinstance(started, OAuth2InitiateResponse) and started.state
        assert (await browse(stage, sign_ins.consent(started.authorization_url or "")))[0] == 200
        [row] = (await credentials.list(integration_name="gitlab"))["credentials"]
        before = sign_ins.access_token
        renewed = await credentials.refresh_oauth2(row["credential_id"])
        assert isinstance(renewed, CredentialResponse) and renewed.credential_id == row["credential_id"]
        assert sign_ins.access_token != before
        sign_ins.refresh_token = "revoked"
        with pytest.raises(ConflictError):
            await credentials.refresh_oauth2(row["credential_id"])
        assert (await credentials.get(row["credential_id"], include_masked=True)).auth_data_masked == "OAuth2"


# ── the chat goes on ────────────────────────────────────────────────────────────────────────────


async def test_the_callback_resumes_the_chat_that_waits(
    stage: Stage, sign_ins: SignInServer, github: FakeGitHub
) -> None:
    chat_id, run_id, request_id = await asks_for_github(
        stage, executes("list_repositories", id="call_2"), says("You have hello-world.")
    )
    started = await initiate(stage, sign_ins, composer_chat_id=chat_id, composer_request_id=request_id)
    status, page, _ = await browse(stage, sign_ins.consent(started["authorization_url"]))
    assert status == 200 and f'data-request-id="{request_id}"' in page
    new = await resumed_run(stage, chat_id, run_id)
    results = [event["data"]["output"] for event in new if event["type"] == "tool_result"]
    assert "credential_added" in repr(results[0]) and github.owner in repr(results[1])
    assert new[-1]["type"] == "done" and "hello-world" in new[-1]["data"]["response"]


@pytest.mark.parametrize(
    ("how", "code"), [("denied", "oauth_denied"), ("late", "timeout"), ("broken", "oauth_provider_error")]
)
async def test_a_failed_sign_in_resumes_the_chat_with_the_reason(
    stage: Stage, sign_ins: SignInServer, how: str, code: str
) -> None:
    chat_id, run_id, request_id = await asks_for_github(stage, says("Then not."))
    started = await initiate(stage, sign_ins, composer_chat_id=chat_id, composer_request_id=request_id)
    query = sign_ins.consent(started["authorization_url"])
    if how == "denied":
        query = urlencode({"state": started["state"], "error": "access_denied"})
    elif how == "late":
        stage.clock.advance(seconds=601)
    else:
        sign_ins.codes.clear()
    await browse(stage, query)
    new = await resumed_run(stage, chat_id, run_id)
    [result] = [event["data"]["output"] for event in new if event["type"] == "tool_result"]
    assert "credential_failed" in repr(result) and code in repr(result)
    assert (await stage.client.get("/credentials?integration_name=github")).body["total_count"] == 0

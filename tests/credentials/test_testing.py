"""Does a credential work: asked through the guard, judged by the manifest, told apart from trouble."""

import base64

import pytest
from aiohttp import web

from parley.credentials import Secrets
from parley.credentials.offers import Offer
from parley.credentials.probe import Prober
from parley.egress import Egress
from parley.integrations import AuthSchema, Probe
from parley.integrations.index import BasicAuth
from parley.llm import Models, Sessions, shipped_catalogue
from tests.credentials.site import Page, pages
from tests.credentials.world import HERE, World, fake_key


async def test_a_live_token_is_accepted_and_remembered(world: World) -> None:
    credential = await world.connect("hub", {"token": world.server.grant()[0]})
    await world.set_columns(credential, is_valid=False)
    tested = await world.credentials.test(world.mine, credential.credential_id, HERE)
    assert tested.is_valid and tested.verdict.outcome == "valid"
    assert (await world.credentials.get(world.mine.organization_id, credential.credential_id))[0].is_valid


async def test_a_refused_token_is_invalid_and_remembered(world: World) -> None:
    credential = await world.connect("hub")
    tested = await world.credentials.test(world.mine, credential.credential_id, HERE)
    assert not tested.is_valid and tested.verdict.status_code == 401
    assert not (await world.credentials.get(world.mine.organization_id, credential.credential_id))[0].is_valid


async def test_trouble_on_the_way_leaves_the_credential_as_it_is(world: World) -> None:
    credential = await world.connect("desk", {"domain": "acme", "api_key": fake_key()})
    tested = await world.credentials.test(world.mine, credential.credential_id, HERE)
    assert tested.is_valid and tested.verdict.outcome == "unknown"
    assert "acme.desk.test" in tested.verdict.message


async def test_a_test_that_would_prove_nothing_is_skipped(world: World) -> None:
    values = Secrets({"host": "db.example.com", "password": fake_key()})
    tested = await world.credentials.test_temporary(world.mine.organization_id, "vault_db", "custom", values)
    assert tested.is_valid and tested.verdict.method == "skipped"


async def test_a_sign_in_is_renewed_before_it_is_tested(world: World) -> None:
    credential = await world.sign_in(lives=60)
    tested = await world.credentials.test(world.mine, credential.credential_id, HERE)
    assert tested.verdict.outcome == "valid" and world.server.refreshes == 1


async def test_a_revoked_sign_in_is_invalid(world: World) -> None:
    credential = await world.sign_in(lives=60)
    world.server.revoke_all()
    tested = await world.credentials.test(world.mine, credential.credential_id, HERE)
    assert not tested.is_valid and "again" in tested.verdict.message


async def test_values_can_be_tested_without_being_stored(world: World) -> None:
    values = Secrets({"token": world.server.grant()[0]})
    good = await world.credentials.test_temporary(world.mine.organization_id, "hub", "bearer_token", values)
    bad = await world.credentials.test_temporary(
        world.mine.organization_id, "hub", "bearer_token", Secrets({"token": fake_key()})
    )
    assert (good.is_valid, bad.is_valid) == (True, False)
    assert await world.credentials.list(world.mine.organization_id) == []


async def test_a_model_key_of_the_wrong_format_is_invalid_without_asking(world: World) -> None:
    tested = await world.credentials.test_temporary(
        world.mine.organization_id, "openai", "api_key", Secrets({"api_key": "nonsense"})
    )
    assert not tested.is_valid and tested.verdict.method == "format"


async def test_a_public_service_is_tested_by_reaching_it(world: World) -> None:
    tested = await world.credentials.test_temporary(world.mine.organization_id, "library", "modulex_key", Secrets())
    assert tested.verdict.method == "skipped"


# ── the request ─────────────────────────────────────────────────────────────────────────────────


async def probed(page: Page, test: Probe, values: dict[str, str]) -> tuple[str, list[web.Request]]:
    async with pages(page) as site:
        schema = AuthSchema("custom", "x", "", test_endpoint=test)
        egress = Egress((site.place,), {})
        models = Models(shipped_catalogue(), {}, Sessions(egress.tenant_session(), egress.session()))
        try:
            offer = Offer("x", "X", "tool", (schema,))
            verdict = await Prober(egress, models).probe(offer, schema, Secrets({**values, "base": site.origin}))
        finally:
            await egress.close()
        return verdict.outcome, site.seen


async def test_placeholders_are_filled_in_everywhere() -> None:
    test = Probe(
        url="{base}/{account}/x",
        method="POST",
        headers={"X-Key": "Key {api_key}", "X-Optional": "{missing}"},
        params={"q": "{api_key}"},
        body={"query": "{ me { id } }", "nested": [{"token": "{api_key}"}]},
    )
    outcome, [request] = await probed(Page(), test, {"api_key": "k/1?&", "account": "a/../b?x#y"})
    assert outcome == "valid"
    assert request.path_qs.startswith("/a%2F..%2Fb%3Fx%23y/x?q=")
    assert request.query["q"] == "k/1?&"
    assert request.headers["X-Key"] == "Key k/1?&" and "X-Optional" not in request.headers
    assert await request.json() == {"query": "{ me { id } }", "nested": [{"token": "k/1?&"}]}


async def test_basic_halves_are_values_or_literal_words() -> None:
    test = Probe(url="{base}/x", auth=BasicAuth("api", "KEY"))
    _, [request] = await probed(Page(), test, {"KEY": "k1"})
    assert request.headers["Authorization"] == f"Basic {base64.b64encode(b'api:k1').decode()}"


@pytest.mark.parametrize(
    ("page", "outcome"),
    [
        (Page(200, '{"data":{"id":1}}'), "valid"),
        (Page(200, '{"data":{}}'), "invalid"),
        (Page(200, '{"data":{"id":false}}'), "invalid"),
        (Page(200, "not json"), "invalid"),
        (Page(401, "{}"), "invalid"),
        (Page(403, "{}"), "invalid"),
        (Page(404, "{}"), "invalid"),
        (Page(429, "{}"), "unknown"),
        (Page(500, "{}"), "unknown"),
        (Page(503, "{}"), "unknown"),
    ],
)
async def test_answers_are_judged_by_status_and_promised_fields(page: Page, outcome: str) -> None:
    test = Probe(url="{base}/x", headers={"X": "{base}"}, response_fields=("data.id",))
    assert (await probed(page, test, {}))[0] == outcome


async def test_a_url_that_lacks_a_value_is_not_asked() -> None:
    outcome, seen = await probed(Page(), Probe(url="{base}/{missing}"), {})
    assert (outcome, seen) == ("skipped", [])


# ── model providers ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("page", "outcome", "is_valid"),
    [
        (Page(200, '{"data":[{"id":"m"}]}'), "valid", True),
        (Page(401, '{"error":{"message":"Incorrect API key"}}'), "invalid", False),
        (Page(503, "{}"), "unknown", False),
    ],
)
async def test_a_model_key_is_tested_by_listing_models(
    world: World, page: Page, outcome: str, *, is_valid: bool
) -> None:
    key = fake_key()
    async with pages(page) as site:
        egress = Egress((site.place,), {})
        models = Models(shipped_catalogue(), {}, Sessions(egress.tenant_session(), egress.session()))
        offer = world.offers.find("openai")
        try:
            verdict = await Prober(egress, models).probe(
                offer, offer.schemas[0], Secrets({"api_key": key, "base_url": f"{site.origin}/v1"})
            )
        finally:
            await egress.close()
        assert verdict.outcome == outcome
        assert [request.path for request in site.seen] == ["/v1/models"]
        assert site.seen[0].headers["Authorization"] == f"Bearer {key}"
        assert key not in verdict.message
    assert is_valid == (outcome == "valid")


async def test_a_list_that_is_open_to_all_proves_no_key(world: World) -> None:
    values = Secrets({"api_key": fake_key("sk-or-")})
    tested = await world.credentials.test_temporary(world.mine.organization_id, "openrouter", "api_key", values)
    assert tested.verdict.method == "skipped"


async def test_a_private_place_is_refused_by_the_guard_and_nothing_is_asked(world: World) -> None:
    values = Secrets({"api_key": "k", "base_url": "http://169.254.169.254/v1"})
    tested = await world.credentials.test_temporary(world.mine.organization_id, "openai", "api_key", values)
    assert tested.verdict.outcome == "unknown" and not tested.is_valid

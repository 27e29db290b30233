"""Every integration of the shipped catalog can be connected the way its manifest says."""

import re

import pytest

from parley.credentials import Secrets
from parley.credentials.fields import belongs_to_app, spread, typed_in
from parley.credentials.grants import PLACEHOLDER, filled_in
from parley.credentials.offers import Offer, checked
from parley.credentials.probe import request_of
from parley.integrations import AuthSchema, Catalog, CredentialField
from parley.integrations.index import SHIPPED, read_index

CATALOG = Catalog(read_index(SHIPPED))
WAYS = [
    (integration.name, schema)
    for integration in CATALOG.integrations()
    for schema in integration.auth_schemas
    if schema.auth_type != "modulex_key"
]
SAMPLES = {"host": "db.example.com", "port": "3306", "connection_string": "mongodb+srv://u:p@cluster.example.net"}


def offer_of(name: str, schema: AuthSchema) -> Offer:
    return Offer(name, name, "tool", (schema,))


def sample(field: CredentialField) -> str:
    """A value of the shape the manifest asks for."""
    if field.key in SAMPLES:
        return SAMPLES[field.key]
    shown = field.sample_format or ""
    if field.sensitive or not shown or " " in shown or "…" in shown:
        return "https://service.example.com" if field.key.endswith("url") else "fake1234"
    return re.sub(r"[<>]", "", shown)


def values_of(schema: AuthSchema) -> dict[str, str]:
    values = {field.name: sample(field) for field in typed_in(schema)}
    return values | ({"access_token": "fake-access"} if schema.auth_type == "oauth2" else {})


@pytest.mark.parametrize(("name", "schema"), WAYS, ids=[f"{name}-{schema.auth_type}" for name, schema in WAYS])
def test_a_credential_made_of_the_manifests_fields_is_accepted(name: str, schema: AuthSchema) -> None:
    oauth_config = Secrets({"client_id": "c"}) if schema.auth_type == "oauth2" else None
    form = checked(offer_of(name, schema), None, Secrets(values_of(schema)), oauth_config)
    assert form.schema is schema
    assert form.secret or schema.auth_type in {"oauth2", "custom"}
    for field in typed_in(schema):
        assert form.opened.auth_data.text(field.key), field.key


@pytest.mark.parametrize(("name", "schema"), WAYS, ids=[f"{name}-{schema.auth_type}" for name, schema in WAYS])
def test_its_test_endpoint_finds_every_value_it_needs(name: str, schema: AuthSchema) -> None:
    test = schema.test_endpoint
    if test is None:
        return
    oauth_config = Secrets({"client_id": "c"}) if schema.auth_type == "oauth2" else None
    form = checked(offer_of(name, schema), None, Secrets(values_of(schema)), oauth_config)
    request = request_of(test, spread(schema, form.opened.auth_data))
    assert request is not None, test.url
    assert not PLACEHOLDER.search(request.url), request.url
    assert set(request.headers) >= set(test.headers), "every header's value is there"
    assert set(request.params) == set(test.params)


OAUTH = [(name, schema) for name, schema in WAYS if schema.auth_type == "oauth2"]


@pytest.mark.parametrize(("name", "schema"), OAUTH, ids=[name for name, _ in OAUTH])
def test_its_sign_in_has_an_app_and_whole_addresses(name: str, schema: AuthSchema) -> None:
    assert schema.oauth_config is not None
    app = [field.name for field in schema.fields if belongs_to_app(schema, field)]
    assert any(field.endswith("CLIENT_ID") for field in app), name
    assert any(field.endswith("CLIENT_SECRET") for field in app), name
    values = Secrets({field.key: sample(field) for field in typed_in(schema)})
    config = filled_in(schema.oauth_config, values)
    assert config.auth_url.startswith("https://") and config.token_url.startswith("https://")
    assert "{" not in config.auth_url + config.token_url

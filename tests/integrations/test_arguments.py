"""Arguments: the model's are filtered, the credential's are set from the credential alone."""

import pytest
from pydantic import BaseModel, Field

from parley.integrations import (
    Action,
    ActionFailed,
    AuthSchema,
    Catalog,
    CredentialField,
    Integration,
    Secret,
    secret_values,
    shown_fields,
)
from parley.integrations.arguments import call_arguments, model_arguments
from parley.integrations.index import Parameter
from parley.turn.model import JsonObject


class LookUp(BaseModel):
    api_key: str
    domain: str
    ticket: int
    from_: int = Field(default=0, alias="from")
    note: str | None = None
    page: int = 1


LOOK_UP = Action(
    name="look_up",
    description="Looks something up",
    parameters=(
        Parameter("ticket", "integer", required=True, schema={"type": "integer"}),
        Parameter("from", "integer", schema={"type": "integer"}),
        Parameter("note", "string", schema={"anyOf": [{"type": "string"}, {"type": "null"}]}),
        Parameter("page", "integer", schema={"type": "integer"}),
    ),
    bound=("api_key", "domain"),
    aliases={"start": "from"},
)
DESK = Integration(name="desk", display_name="Desk", description="A help desk", actions=(LOOK_UP,))
SECRET = Secret("api_key", {"api_key": "real-key-1234", "domain": "acme"})


def filled(arguments: JsonObject, secret: Secret = SECRET) -> dict[str, object]:
    return call_arguments(DESK, LOOK_UP, LookUp, arguments, secret)


def test_the_credential_fills_what_belongs_to_it() -> None:
    assert filled({"ticket": 7}) == {
        "api_key": "real-key-1234", "domain": "acme", "ticket": 7, "from_": 0, "note": None, "page": 1,
    }  # fmt: skip


def test_nothing_the_model_sends_changes_what_belongs_to_the_credential() -> None:
    sent: JsonObject = {
        "ticket": 7,
        "api_key": "stolen",
        "domain": "evil.example/",
        "auth_data": {"token": "x"},
        "base_url": "https://evil.example",
    }
    assert filled(sent) == filled({"ticket": 7})


def test_unknown_parameters_are_dropped() -> None:
    assert model_arguments(LOOK_UP, {"ticket": 7, "colour": "red"}) == {"ticket": 7}


def test_a_published_name_reaches_the_parameter_it_stands_for() -> None:
    assert filled({"ticket": 7, "start": 5})["from_"] == 5
    assert filled({"ticket": 7, "start": 5, "from": 6})["from_"] == 6


def test_null_for_an_optional_parameter_means_leaving_it_out() -> None:
    assert filled({"ticket": 7, "page": None, "note": None})["page"] == 1


def test_missing_and_wrong_parameters_are_named_in_one_sentence() -> None:
    with pytest.raises(ActionFailed) as refused:
        filled({"page": "many"})
    assert refused.value.public == (
        "Wrong parameters for desk.look_up: ticket is required; "
        "page: input should be a valid integer, unable to parse string as an integer. "
        "It takes: ticket (required), from, note, page."
    )
    assert not refused.value.attempted


def test_a_credential_without_a_needed_field_says_which_and_not_its_values() -> None:
    with pytest.raises(ActionFailed) as refused:
        filled({"ticket": 7}, Secret("api_key", {"api_key": "real-key-1234", "domain": ""}))
    assert refused.value.public == ("The Desk credential has no usable domain. Connect Desk again with it.")


def test_an_access_token_serves_where_the_function_asks_for_a_key() -> None:
    assert filled({"ticket": 7}, Secret("oauth2", {"access_token": "at-1", "domain": "acme"}))["api_key"] == "at-1"


def test_a_secret_does_not_show_itself() -> None:
    assert "real-key-1234" not in repr(SECRET)


@pytest.mark.parametrize(
    ("name", "sent", "passed"),
    [("", None, "verify"), ("skip_verification", "skip_verification", "verify"), ("disabled", "disabled", "disabled")],
)
def test_a_database_certificate_is_checked_unless_encryption_is_off(
    catalog: Catalog, name: str, sent: str | None, passed: str
) -> None:
    integration = catalog.find("mysql")
    assert integration is not None
    action = catalog.action(integration, "list_tables")
    assert action is not None
    data: JsonObject = {"host": "db.example.com", "password": "swordfish-1", **({"ssl_mode": sent} if sent else {})}
    call = call_arguments(integration, action, AuthOnly, {}, Secret("custom", data))
    assert call["auth_data"]["ssl_mode"] == passed


class AuthOnly(BaseModel):
    auth_type: str
    auth_data: dict[str, object]


def test_a_project_is_taken_from_the_credential_where_the_model_leaves_it_out(catalog: Catalog) -> None:
    posthog = catalog.find("posthog")
    assert posthog is not None
    action = catalog.action(posthog, "get_dashboards")
    assert action is not None
    assert not next(one for one in action.parameters if one.name == "project_id").required
    secret = Secret("custom", {"api_key": "phx_1234567", "project_id": "42", "base_url": "https://eu.posthog.com"})
    assert call_arguments(posthog, action, Project, {}, secret)["project_id"] == "42"
    assert call_arguments(posthog, action, Project, {"project_id": "7"}, secret)["project_id"] == "7"


class Project(BaseModel):
    api_key: str
    project_id: str
    base_url: str


def test_the_secrets_of_a_credential_are_all_but_its_plain_fields(catalog: Catalog) -> None:
    freshdesk = catalog.find("freshdesk")
    assert freshdesk is not None
    data: JsonObject = {
        "api_key": "fd-key-1", "FRESHDESK_API_KEY": "fd-key-1", "domain": "acme", "FRESHDESK_DOMAIN": "acme",
        "refresh_token": "rt-1", "token_type": "Bearer", "extra": {"nested": ["deep-1"]},
    }  # fmt: skip
    assert secret_values(freshdesk, Secret("api_key", data)) == {"fd-key-1", "rt-1", "deep-1"}


def test_what_one_way_to_connect_declares_sensitive_is_never_shown() -> None:
    def way(name: str, *, sensitive: bool) -> AuthSchema:
        return AuthSchema(name, name, "", fields=(CredentialField("SITE", "site", "Site", "", sensitive=sensitive),))

    plain, secret = way("custom", sensitive=False), way("api_key", sensitive=True)
    assert {"site", "SITE", "scope"} <= shown_fields([plain])
    assert shown_fields([plain, secret]).isdisjoint({"site", "SITE"})
    guarded = AuthSchema("custom", "", "", fields=(CredentialField("SCOPE", "scope", "Scope", "", sensitive=True),))
    assert "scope" not in shown_fields([guarded])


def test_secrets_inside_documents_and_urls_count_by_themselves(catalog: Catalog) -> None:
    google, mongo = catalog.find("google_cloud"), catalog.find("mongodb_atlas")
    assert google is not None
    assert mongo is not None
    document = '{"type": "service_account", "private_key": "pk-line"}'
    assert "pk-line" in secret_values(google, Secret("custom", {"key_json": document}))
    url = "mongodb+srv://reader:p%40ss-word@cluster.example.net/db"
    assert {"p%40ss-word", "p@ss-word"} <= secret_values(mongo, Secret("custom", {"connection_string": url}))

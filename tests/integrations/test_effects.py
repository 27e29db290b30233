"""The effect table: whole, in step with the package, and with every action that was found by hand."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest

from parley.integrations import Catalog
from parley.integrations.effects import Effect, all_effects, effect_of, schema_hash
from parley.integrations.effects.raising import GRAVITY
from parley.integrations.effects.review.corrections import Reviewed, ReviewError, check_names, read_reviewed
from parley.integrations.effects.review.make import lines_of, make
from parley.integrations.effects.table import TABLE
from parley.turn.model import JsonObject

ACTIONS = 2140
APPENDIX: dict[str, list[str]] = tomllib.loads((Path(__file__).parent / "effects_appendix_a.toml").read_text())
EFFECTS = all_effects()
SPREAD = ["github", "google_sheets", "npm", "snowflake"]


def schemas(catalog: Catalog) -> dict[str, JsonObject]:
    return {
        f"{integration.name}.{action.name}": action.argument_schema
        for integration in catalog.integrations()
        for action in integration.actions
    }


# ── whole, and in step with the package ─────────────────────────────────────────────────────────


def test_every_action_of_the_catalog_is_in_the_table_and_no_other(catalog: Catalog) -> None:
    assert list(EFFECTS) == list(schemas(catalog))
    assert len(EFFECTS) == ACTIONS


def test_every_action_has_the_arguments_that_were_reviewed(catalog: Catalog) -> None:
    changed = [name for name, schema in schemas(catalog).items() if EFFECTS[name].schema != schema_hash(schema)]
    assert changed == []


def test_what_belongs_to_the_credential_is_what_the_catalog_binds(catalog: Catalog) -> None:
    bound = {
        f"{integration.name}.{action.name}": action.bound
        for integration in catalog.integrations()
        for action in integration.actions
    }
    assert {name: effect.bound for name, effect in EFFECTS.items()} == bound


def test_parameters_actions_and_predicates_of_a_row_exist(catalog: Catalog) -> None:
    for name, schema in schemas(catalog).items():
        effect, parameters = EFFECTS[name], schema["properties"]
        assert isinstance(parameters, dict)
        used = {
            *(effect.paths + effect.slashed_paths + effect.escaped_paths + effect.hosts),
            *(effect.urls + effect.fetched + effect.identifiers),
            *(one.parameter.split(".")[0] for one in effect.raises),
        }
        assert used <= set(parameters), name
        siblings = {f"{name.split('.')[0]}.{other}" for other in (effect.inverse, effect.settled_by) if other}
        assert siblings <= set(EFFECTS), name
        assert effect.idempotency_key is None or effect.idempotency_key in parameters, name


def test_an_outcome_is_only_ever_settled_by_a_read() -> None:
    for name, effect in EFFECTS.items():
        if effect.settled_by is not None:
            settling = EFFECTS[f"{name.split('.')[0]}.{effect.settled_by}"]
            assert (effect.effect != "read", settling.effect) == (True, "read"), name


def test_what_needs_a_person_is_never_repeated_by_itself_but_where_the_provider_keeps_count() -> None:
    for name, effect in EFFECTS.items():
        if effect.effect not in ("read", "write"):
            assert not effect.idempotent or effect.idempotency_key, name


def test_a_raise_is_graver_than_the_action_itself() -> None:
    for name, effect in EFFECTS.items():
        for one in effect.raises:
            assert GRAVITY.index(one.to) > GRAVITY.index(effect.effect), name


def test_the_file_has_one_line_for_each_action() -> None:
    text = TABLE.read_bytes()
    assert text.count(b"\n") == ACTIONS + 2
    assert text == lines_of(EFFECTS)


# ── what was found by hand ──────────────────────────────────────────────────────────────────────


def test_the_lists_found_by_hand_are_complete() -> None:
    counts = {kind: len(names) for kind, names in APPENDIX.items()}
    assert counts == {
        "destructive": 31,
        "money": 73,
        "exec": 29,
        "identity": 31,
        "infra": 39,
        "overwrite": 31,
        "egress": 71,
    }


@pytest.mark.parametrize("kind", [kind for kind in APPENDIX if kind != "overwrite"])
def test_every_action_found_by_hand_has_its_class(kind: str) -> None:
    assert {name: EFFECTS[name].effect for name in APPENDIX[kind]} == dict.fromkeys(APPENDIX[kind], kind)


def test_every_overwriting_action_found_by_hand_says_that_data_is_lost() -> None:
    for name in APPENDIX["overwrite"]:
        effect = EFFECTS[name]
        assert (effect.effect, effect.overwrites, effect.reversible) == ("write", True, False), name


@pytest.mark.parametrize(
    ("name", "settled_by"),
    [
        ("github.create_issue", "list_issues"),
        ("slack.post_message", "get_channel_history"),
        ("linear.create_issue", "search_issues"),
        ("stripe.create_charge", "list_charges"),
        ("notion.create_page", "search"),
        ("google_calendar.create_event", "list_events"),
    ],
)
def test_a_write_names_the_read_that_settles_it(name: str, settled_by: str) -> None:
    assert EFFECTS[name].settled_by == settled_by


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("incidentio.incidents_create", "idempotency_key"),
        ("incidentio.escalations_create", "idempotency_key"),
        ("kalshi.create_order", "client_order_id"),
        ("amplitude.send_event", "insert_id"),
        ("pagerduty.trigger_incident", "incident_key"),
        ("weaviate.insert_object", "object_id"),
    ],
)
def test_a_parameter_that_the_provider_deduplicates_on_is_known(name: str, key: str) -> None:
    assert (EFFECTS[name].idempotent, EFFECTS[name].idempotency_key) == (True, key)


def test_undoing_names_the_action_and_what_it_is_told() -> None:
    assert EFFECTS["clickup.add_tag_to_task"].inverse == "remove_tag_from_task"
    closing = EFFECTS["github.create_issue"]
    assert (closing.inverse, closing.inverse_arguments) == ("update_issue", {"state": "closed"})


@pytest.mark.parametrize(
    ("name", "use", "parameters"),
    [
        ("stripe.cancel_subscription", "paths", {"id"}),
        ("microsoft_entra_id.remove_member_from_group", "paths", {"group_id", "user_id"}),
        ("github.get_file_content", "slashed_paths", {"path"}),
        ("azure_storage.upload_blob", "slashed_paths", {"blob_name"}),
        ("obsidian.get_note", "slashed_paths", {"filename"}),
        ("google_search_console.retrieve_site_performance_data", "escaped_paths", {"site_url"}),
        ("ses.send_email", "hosts", {"region"}),
        ("jira.add_attachment_to_issue", "fetched", {"file"}),
        ("fal_ai.add_request_to_queue", "urls", {"webhook_url"}),
        ("postgresql.find_row", "identifiers", {"table", "schema_name", "column"}),
        ("freshdesk.get_ticket", "bound", {"api_key", "domain"}),
    ],
)
def test_parameters_are_known_by_their_use(name: str, use: str, parameters: set[str]) -> None:
    assert set(getattr(EFFECTS[name], use)) == parameters


# ── what is not known ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["github.explode_repository", "mcp_server.get_weather", "nobody.list_things"])
def test_an_action_that_was_not_reviewed_counts_as_destructive(name: str) -> None:
    integration, _, action = name.partition(".")
    effect = effect_of(integration, action)
    assert (effect.effect, effect.reversible, effect.idempotent, effect.known) == ("destructive", False, False, False)


def test_an_action_whose_arguments_changed_counts_as_destructive(catalog: Catalog) -> None:
    schema = schemas(catalog)["github.list_issues"]
    assert effect_of("github", "list_issues", schema).effect == "read"
    properties = schema["properties"]
    assert isinstance(properties, dict)
    grown: JsonObject = {**schema, "properties": {**properties, "delete_after": {"type": "boolean"}}}
    assert effect_of("github", "list_issues", grown).effect == "destructive"
    assert effect_of("github", "list_issues", {**schema, "required": ["owner"]}).effect == "destructive"


def test_other_words_for_the_same_arguments_change_nothing(catalog: Catalog) -> None:
    text = msgspec.json.encode(schemas(catalog)["github.list_issues"])
    reworded = re.sub(rb'"description":"[^"]*"', b'"description":"Other words"', text)
    assert reworded != text
    assert effect_of("github", "list_issues", msgspec.json.decode(reworded)).effect == "read"


def test_a_parameter_called_title_or_description_counts() -> None:
    with_it = schema_hash({"properties": {"title": {"type": "string"}}})
    assert with_it != schema_hash({"properties": {}})


# ── how it is made ──────────────────────────────────────────────────────────────────────────────


async def test_the_table_is_what_the_review_makes(catalog: Catalog) -> None:
    chosen = [integration for integration in catalog.integrations() if integration.name in SPREAD]
    made = await make(chosen, read_reviewed())
    assert made == {name: effect for name, effect in EFFECTS.items() if name.split(".")[0] in SPREAD}


@pytest.mark.parametrize(
    "wrong",
    [
        {"actions": {"github": {"explode_repository": "money"}}},
        {"actions": {"github": {"create_issue": {"settled_by": "list_bugs"}}}},
        {"actions": {"github": {"create_issue": {"inverse": "update_issue", "inverse_arguments": {"mood": "bad"}}}}},
        {"actions": {"github": {"create_issue": {"idempotency_key": "nonce"}}}},
        {
            "actions": {
                "github": {"create_issue": {"raises": [{"parameter": "mood.x", "to": "money", "because": "charge"}]}}
            }
        },
        {"parameters": {"github": {"slashed": ["file_path"]}}},
        {"parameters": {"github": {"slashed": ["create_issue.path"]}}},
    ],
)
def test_a_review_of_what_is_not_there_is_refused(catalog: Catalog, wrong: JsonObject) -> None:
    reviewed = msgspec.convert({"actions": {}, "parameters": {}, **wrong}, Reviewed)
    github = catalog.find("github")
    assert github is not None
    with pytest.raises(ReviewError, match="github"):
        check_names(github, reviewed)


def test_the_server_imports_nothing_of_the_review() -> None:
    program = (
        "import sys; from parley.integrations.effects import effect_of; effect_of('github', 'create_issue');"
        "sys.exit(any('effects.review' in name or name.startswith(('httpx', 'langchain')) for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_row_reads_back_as_it_was_written() -> None:
    effect = EFFECTS["pipedrive.update_deal"]
    assert msgspec.json.decode(msgspec.json.encode(effect), type=Effect) == effect

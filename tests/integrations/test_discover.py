"""What the model is told of the catalog: shapes, truncations, and hits that are never lost."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.integrations import Catalog, Integration, available, details
from parley.integrations.index import FORMAT, SHIPPED, Index, read_index, summarized
from parley.turn.model import JsonObject, JsonValue

CATALOG = Catalog(read_index(SHIPPED))
TYPES = {"string", "integer", "number", "boolean", "array", "object"}
MODELS: list[JsonObject] = [
    {
        "name": "acme_ai",
        "display_name": "Acme AI",
        "description": "Models " * 40,
        "categories": ["AI Models"],
        "integration_type": "llm_provider",
        "models": [{"id": "acme-1", "display_name": "Acme One", "max_output_tokens": 64_000, "context_length": 9}],
        "auth_schemas": [],
    }
]


def listed(value: JsonValue) -> list[JsonObject]:
    assert isinstance(value, list)
    return [item for item in value if isinstance(item, dict)]


def names(value: JsonValue) -> set[str]:
    return {str(item["name"]) for item in listed(value)}


def test_everything_is_told_in_three_segments() -> None:
    told = available(CATALOG, llm_providers=MODELS)
    assert list(told) == ["tools", "llm_providers", "knowledge_providers"]
    assert len(listed(told["tools"])) == 194
    assert names(told["knowledge_providers"]) == {"modulexdb", "qdrant", "pinecone", "mongodb_atlas", "weaviate"}


def test_a_tool_is_told_by_names_only() -> None:
    for tool in listed(available(CATALOG, "tools")["tools"]):
        assert list(tool) == ["name", "display_name", "description", "categories", "actions"]
        integration = CATALOG.find(str(tool["name"]))
        assert integration is not None
        assert tool["description"] == integration.description[:100]
        assert tool["categories"] == list(integration.categories)
        assert tool["actions"] == [action.name for action in integration.actions]


def test_a_description_of_more_than_100_characters_is_cut() -> None:
    cut = [integration for integration in CATALOG.integrations() if len(integration.description) > 100]
    assert len(cut) > 100
    assert max(len(str(tool["description"])) for tool in listed(available(CATALOG)["tools"])) == 100


def test_a_model_provider_is_told_with_its_models() -> None:
    assert listed(available(CATALOG, "llm_providers", llm_providers=MODELS)["llm_providers"]) == [
        {
            "name": "acme_ai",
            "display_name": "Acme AI",
            "description": ("Models " * 40)[:100],
            "categories": ["AI Models"],
            "models": [{"id": "acme-1", "display_name": "Acme One", "max_output_tokens": 64_000}],
        }
    ]


def test_a_knowledge_provider_is_told_without_more() -> None:
    for provider in listed(available(CATALOG, "knowledge_providers")["knowledge_providers"]):
        assert list(provider) == ["name", "display_name", "description", "categories"]


@pytest.mark.parametrize("kind", ["tools", "llm_providers", "knowledge_providers"])
def test_one_segment_is_told_when_one_is_asked_for(kind: str) -> None:
    assert list(available(CATALOG, kind)) == [kind]


def test_an_unknown_kind_is_an_error_value() -> None:
    assert available(CATALOG, "gadgets") == {
        "error": "Unknown integration_type 'gadgets'. Use one of: tools, llm_providers, knowledge_providers, all"
    }


def test_a_query_narrows_every_segment() -> None:
    told = available(CATALOG, "all", "vector", llm_providers=MODELS)
    assert {"pinecone", "qdrant"} <= names(told["tools"])
    assert "modulexdb" in names(told["knowledge_providers"])
    assert told["llm_providers"] == []
    assert names(available(CATALOG, "llm_providers", "ACME-1", MODELS)["llm_providers"]) == {"acme_ai"}


@given(st.data())
def test_a_query_never_drops_a_hit(data: st.DataObject) -> None:
    """Any piece of any searched text, in any case, finds the integration it was taken from."""
    integration = data.draw(st.sampled_from(CATALOG.integrations()))
    texts = [
        integration.name,
        integration.display_name,
        integration.description,
        *integration.categories,
        *(action.name for action in integration.actions),
    ]
    text = data.draw(st.sampled_from(texts))
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    piece = data.draw(st.sampled_from([text, text[start:end], text[start:end].upper()]))
    assert integration.name in names(available(CATALOG, "tools", piece)["tools"])


def test_details_of_one_action_are_as_documented() -> None:
    assert details(CATALOG, "github", "get_repository") == {
        "name": "github",
        "integration_type": "tool",
        "actions": [
            {
                "name": "get_repository",
                "description": "Get repository details",
                "parameters": [
                    {"name": "owner", "type": "string", "required": True, "description": "Repository owner"},
                    {"name": "repo", "type": "string", "required": True, "description": "Repository name"},
                ],
            }
        ],
    }


def test_details_of_every_integration_have_the_documented_shape() -> None:
    for integration in CATALOG.integrations():
        told = details(CATALOG, integration.name)
        assert (told["name"], told["integration_type"]) == (integration.name, "tool")
        actions = listed(told["actions"])
        assert len(actions) == len(integration.actions)
        for action in actions:
            assert list(action) == ["name", "description", "parameters"]
            assert len(str(action["description"])) <= 300
            for parameter in listed(action["parameters"]):
                assert {"name", "type", "required", "description"} <= set(parameter)
                assert set(parameter) <= {"name", "type", "required", "description", "enum", "default"}
                assert parameter["type"] in TYPES
                assert isinstance(parameter["required"], bool)
        msgspec.json.encode(told)


def test_a_description_of_more_than_300_characters_is_cut() -> None:
    longest = [
        (integration.name, action.name)
        for integration in CATALOG.integrations()
        for action in integration.actions
        if len(action.description) > 300
    ]
    assert longest
    for name, action in longest:
        assert len(str(listed(details(CATALOG, name, action)["actions"])[0]["description"])) == 300


def test_an_enum_and_a_default_are_told() -> None:
    parameters = listed(listed(details(CATALOG, "linear", "search_issues")["actions"])[0]["parameters"])
    assert next(one for one in parameters if one["name"] == "order_by")["enum"] == ["createdAt", "updatedAt"]
    repositories = listed(listed(details(CATALOG, "github", "list_repositories")["actions"])[0]["parameters"])
    assert next(one for one in repositories if one["name"] == "per_page")["default"] == 30


def test_what_is_not_found_is_an_error_value() -> None:
    assert details(CATALOG, "gitlub") == {"error": "Integration 'gitlub' not found"}
    assert details(CATALOG, "github", "lst") == {"error": "Action 'lst' not found in github"}


def test_an_action_that_is_switched_off_says_so_first() -> None:
    told = listed(details(CATALOG, "microsoft_onedrive", "download_file")["actions"])[0]
    assert str(told["description"]).startswith("Switched off on this server. ")


def test_an_integration_that_does_not_load_says_so() -> None:
    broken = Integration("example", "Example", "For tests")
    catalog = Catalog(Index(FORMAT, "0", {}, (summarized(broken, ("no_such_driver",)),)))
    assert details(catalog, "example")["unavailable"] == "needs no_such_driver, which is not installed"


def test_providers_of_other_kinds_have_details_too() -> None:
    assert details(CATALOG, "acme_ai", llm_providers=MODELS) == {
        "name": "acme_ai",
        "integration_type": "llm_provider",
        "models": [{"id": "acme-1", "display_name": "Acme One", "max_output_tokens": 64_000}],
    }
    assert details(CATALOG, "modulexdb")["integration_type"] == "knowledge_provider"

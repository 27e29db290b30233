"""What the discovery tools tell the model, in exactly the shapes of contract §6.

Pure functions. ``llm_providers`` are model providers in their wire form (contract §11), because
language models are another package's part.
"""

from collections.abc import Iterable, Sequence

from parley.integrations.catalog import Catalog
from parley.integrations.index import Action, KnowledgeProvider, Parameter, Summary
from parley.turn.model import JsonObject

SHORT_CHARACTERS = 100
LONG_CHARACTERS = 300
KINDS = ("tools", "llm_providers", "knowledge_providers")
EVERYTHING = "all"
OFF = "Switched off on this server. "


def available(
    catalog: Catalog, kind: str = EVERYTHING, query: str | None = None, llm_providers: Sequence[JsonObject] = ()
) -> JsonObject:
    """The compact catalogue: ``{tools, llm_providers, knowledge_providers}``, or the one segment asked for.

    Tools carry action names only. ``query`` is a substring, whatever its case, of the name, display
    name, whole description, a category or an action name; what matches is never left out. An
    unknown kind is ``{error}``.
    """
    if kind not in (*KINDS, EVERYTHING):
        return {"error": f"Unknown integration_type '{kind}'. Use one of: {', '.join((*KINDS, EVERYTHING))}"}
    wanted = (query or "").strip().lower()
    found: JsonObject = {}
    if kind in ("tools", EVERYTHING):
        found["tools"] = [_tool(summary) for summary in catalog.search(wanted)]
    if kind in ("llm_providers", EVERYTHING):
        found["llm_providers"] = [_llm_provider(one) for one in llm_providers if wanted in _llm_texts(one)]
    if kind in ("knowledge_providers", EVERYTHING):
        found["knowledge_providers"] = [
            _knowledge_provider(one) for one in catalog.knowledge_providers if wanted in one.text
        ]
    return found


def details(
    catalog: Catalog, name: str, action: str | None = None, llm_providers: Sequence[JsonObject] = ()
) -> JsonObject:
    """The parameters of an integration's actions, or of one: ``{name, integration_type, actions}``.

    Of a model provider its models, of a knowledge provider its description. What is not found is
    ``{error}``. An integration that does not load here says so in ``unavailable``.
    """
    integration = catalog.find(name)
    if integration is None:
        return _other(catalog, name, llm_providers)
    chosen = integration.actions if action is None else tuple(filter(None, (catalog.action(integration, action),)))
    if action is not None and not chosen:
        return {"error": f"Action '{action}' not found in {name}"}
    told: JsonObject = {
        "name": name,
        "integration_type": "tool",
        "actions": [_action(one) for one in chosen],
    }
    broken = catalog.failures().get(name)
    return told if broken is None else {**told, "unavailable": broken}


def _tool(summary: Summary) -> JsonObject:
    return {
        "name": summary.name,
        "display_name": summary.display_name,
        "description": summary.description[:SHORT_CHARACTERS],
        "categories": list(summary.categories),
        "actions": list(summary.actions),
    }


def _action(action: Action) -> JsonObject:
    off = f"{OFF}{action.switched_off} " if action.switched_off else ""
    return {
        "name": action.name,
        "description": f"{off}{action.description}"[:LONG_CHARACTERS],
        "parameters": [told_parameter(parameter) for parameter in action.parameters],
    }


def told_parameter(parameter: Parameter) -> JsonObject:
    """One parameter of an action, as the model is told of it."""
    told: JsonObject = {
        "name": parameter.name,
        "type": parameter.type,
        "required": parameter.required,
        "description": parameter.description,
    }
    if parameter.enum is not None:
        told["enum"] = list(parameter.enum)
    if parameter.default is not None:
        told["default"] = parameter.default
    return told


def _knowledge_provider(provider: KnowledgeProvider) -> JsonObject:
    return {
        "name": provider.name,
        "display_name": provider.display_name,
        "description": provider.description[:SHORT_CHARACTERS],
        "categories": list(provider.categories),
    }


def _llm_provider(provider: JsonObject) -> JsonObject:
    return {
        "name": provider["name"],
        "display_name": provider["display_name"],
        "description": str(provider["description"])[:SHORT_CHARACTERS],
        "categories": provider["categories"],
        "models": [
            {"id": model["id"], "display_name": model["display_name"], "max_output_tokens": model["max_output_tokens"]}
            for model in _models(provider)
        ],
    }


def _models(provider: JsonObject) -> list[JsonObject]:
    models = provider["models"]
    return [model for model in models if isinstance(model, dict)] if isinstance(models, list) else []


# ── searching ───────────────────────────────────────────────────────────────────────────────────


def _llm_texts(provider: JsonObject) -> str:
    """A model stands where a tool has an action."""
    categories = provider["categories"]
    return _joined(
        (
            *(provider[key] for key in ("name", "display_name", "description")),
            *(categories if isinstance(categories, list) else ()),
            *(model[key] for model in _models(provider) for key in ("id", "display_name")),
        )
    )


def _joined(texts: Iterable[object]) -> str:
    return "\n".join(map(str, texts)).lower()


# ── what is no tool ─────────────────────────────────────────────────────────────────────────────


def _other(catalog: Catalog, name: str, llm_providers: Sequence[JsonObject]) -> JsonObject:
    for provider in llm_providers:
        if provider["name"] == name:
            return {"name": name, "integration_type": "llm_provider", "models": _llm_provider(provider)["models"]}
    for provider in catalog.knowledge_providers:
        if provider.name == name:
            return {**_knowledge_provider(provider), "integration_type": "knowledge_provider"}
    return {"error": f"Integration '{name}' not found"}

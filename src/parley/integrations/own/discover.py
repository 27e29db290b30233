"""What the discovery tools tell the model of own integrations, in the catalog's shapes (contract §6)."""

from collections.abc import Mapping, Sequence

from parley.integrations.discover import SHORT_CHARACTERS, told_parameter
from parley.integrations.index import Parameter
from parley.integrations.own.model import OwnAction, OwnIntegration
from parley.turn.model import JsonObject

# Longer than the catalog's: a stranger's tool explains itself here and nowhere else.
LONG_CHARACTERS = 1_000


def own_available(
    integrations: Sequence[OwnIntegration], names: Mapping[str, Sequence[str]], query: str | None
) -> list[JsonObject]:
    """The own integrations that match, as entries of ``tools``. ``names`` are action names by integration id."""
    wanted = (query or "").strip().lower()
    found: list[JsonObject] = []
    for own in integrations:
        actions = names.get(own.id, ())
        searched = "\n".join((own.name, own.display_name, own.description, own.kind, *actions)).lower()
        if wanted in searched:
            found.append(
                {
                    "name": own.name,
                    "display_name": own.display_name,
                    "description": own.description[:SHORT_CHARACTERS],
                    "categories": [own.kind],
                    "actions": list(actions),
                }
            )
    return found


def own_details(own: OwnIntegration, actions: Sequence[OwnAction], wanted: str | None) -> JsonObject:
    """The parameters of its actions, or of one; what is not found is ``{error}``."""
    chosen = [action for action in actions if wanted in (None, action.found.name)]
    if wanted is not None and not chosen:
        return {"error": f"Action '{wanted}' not found in {own.name}"}
    return {"name": own.name, "integration_type": "tool", "actions": [_told(action) for action in chosen]}


def _told(action: OwnAction) -> JsonObject:
    plain = action.action()
    return {
        "name": plain.name,
        "description": plain.description[:LONG_CHARACTERS],
        "parameters": [_parameter(parameter) for parameter in plain.parameters],
    }


def _parameter(parameter: Parameter) -> JsonObject:
    told = told_parameter(parameter)
    if parameter.type in ("array", "object"):
        told["schema"] = dict(parameter.schema)
    return told

"""The rows of the effect table: what was observed and proposed, corrected by what people decided."""

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

import msgspec
from langchain_core.tools import StructuredTool

from parley.integrations.effects.review.corrections import Correction, Reviewed, Use, action_parameters, check_names
from parley.integrations.effects.review.observe import Casting, Seen, observe
from parley.integrations.effects.review.propose import inverse_of, propose, settling, url_parameters
from parley.integrations.effects.review.rehearse import Stage, offline
from parley.integrations.effects.table import Effect, schema_hash
from parley.integrations.index import Action, Integration
from parley.integrations.loading import PREFIX

# These speak other protocols than HTTP, or through clients that a rehearsal cannot stand in for.
ONLY_READ = frozenset(
    ["aws", "hubspot", "microsoft_sql_server", "mongodb_atlas", "mysql", "nasdaq", "postgresql", "snowflake"]
)


async def make(integrations: Iterable[Integration], reviewed: Reviewed) -> dict[str, Effect]:
    """The rows of these integrations, as ``integration.action``. Raises ReviewError."""
    made: dict[str, Effect] = {}
    with offline() as stage:
        for integration in integrations:
            check_names(integration, reviewed)
            seen = await _observe(None if integration.name in ONLY_READ else stage, integration)
            made |= _rows(integration, reviewed, seen)
    return made


async def _observe(stage: Stage | None, integration: Integration) -> dict[str, Seen]:
    module: Any = import_module(f"{PREFIX}{integration.name}")
    tools: Sequence[StructuredTool] = module.TOOLS
    credential = {
        field.key: _pretended(field.key) for schema in integration.auth_schemas for field in schema.fields
    } | dict.fromkeys(("access_token", "token", "api_key", "bearer_token"), "credential")
    auth_types = [schema.auth_type for schema in integration.auth_schemas]
    return {tool.name: await observe(stage, Casting(tool, credential, auth_types or ["api_key"])) for tool in tools}


def _pretended(key: str) -> str:
    if "url" in key or "uri" in key:
        return "https://credential.example"
    return "credential.example" if "domain" in key or "host" in key or "instance" in key else "credential"


def _rows(integration: Integration, reviewed: Reviewed, seen: Mapping[str, Seen]) -> dict[str, Effect]:
    corrections = {
        name: found if isinstance(found, Correction) else Correction(effect=found)
        for name, found in reviewed.actions.get(integration.name, {}).items()
    }
    judged = {
        action.name: _judged(action, seen[action.name], corrections.get(action.name, Correction()))
        for action in integration.actions
    }
    reads = [name for name, effect in judged.items() if effect.effect == "read"]
    use = reviewed.parameters.get(integration.name, Use())
    return {
        f"{integration.name}.{action.name}": msgspec.structs.replace(
            judged[action.name],
            **_relations(action.name, judged, reads, corrections.get(action.name, Correction())),
            **_parameters(action, seen[action.name], use),
            schema=schema_hash(action.argument_schema),
        )
        for action in integration.actions
    }


def _judged(action: Action, seen: Seen, correction: Correction) -> Effect:
    proposed = propose(action.name, seen.methods)
    kind = correction.effect or proposed.effect
    same = kind == proposed.effect
    reversible = kind == "read" or (same and proposed.reversible and not correction.overwrites)
    idempotent = kind == "read" or (same and proposed.idempotent) or bool(correction.idempotency_key)
    return Effect(
        kind,
        reversible=reversible if correction.reversible is None else correction.reversible,
        idempotent=idempotent if correction.idempotent is None else correction.idempotent,
        idempotency_key=correction.idempotency_key,
        overwrites=correction.overwrites,
        raises=correction.raises,
    )


def _relations(name: str, judged: Mapping[str, Effect], reads: Sequence[str], correction: Correction) -> dict[str, Any]:
    if judged[name].effect == "read":
        return {}
    inverse = inverse_of(name, judged) if correction.inverse is None else correction.inverse
    settled_by = settling(name, reads) if correction.settled_by is None else correction.settled_by
    return {
        "inverse": inverse or None,
        "inverse_arguments": correction.inverse_arguments,
        "settled_by": settled_by or None,
    }


def _parameters(action: Action, seen: Seen, use: Use) -> dict[str, tuple[str, ...]]:
    decided: dict[str, set[str]] = {
        key: {name for name in action_parameters(action) if {name, f"{action.name}.{name}"}.intersection(names)}
        for key, names in msgspec.structs.asdict(use).items()
    }
    raw, escaped = seen.raw - decided["plain"], seen.escaped - decided["plain"]
    slashed = (raw | escaped) & decided["slashed"]
    fetched = seen.fetched | decided["fetched"]
    uses = {
        "paths": raw - slashed,
        "slashed_paths": slashed,
        "escaped_paths": escaped - slashed,
        "hosts": seen.hosts | decided["hosts"],
        "urls": fetched.union(decided["urls"], url_parameters(action)),
        "fetched": fetched,
        "identifiers": decided["identifiers"],
    }
    kept = {key: tuple(name for name in action_parameters(action) if name in found) for key, found in uses.items()}
    return {**kept, "bound": action.bound}


def lines_of(rows: Mapping[str, Effect]) -> bytes:
    """The table as text: one line an action, in the order of the catalog."""
    lines = (b"%s: %s" % (msgspec.json.encode(name), msgspec.json.encode(effect)) for name, effect in rows.items())
    return b"{\n" + b",\n".join(lines) + b"\n}\n"

"""``python -m parley.integrations.house.checking FOLDER --output FILE``: one folder, read, imported and checked.

A process of its own: whatever the folder's code does on import ends with it. The report is what the
server starts from and what ``parley integrations check`` says.
"""

import argparse
import json
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import msgspec
from pydantic import PydanticUserError, ValidationError

from parley.integrations.build import CREDENTIAL_ITSELF, NOTHING_REVIEWED, field_key, integration_of
from parley.integrations.effects.table import Effect, schema_hash
from parley.integrations.house.folders import (
    ACTIONS,
    MANIFEST,
    Report,
    UnfitFolder,
    arguments_model,
    content_hash,
    found_functions,
    import_actions,
    name_problem,
)
from parley.integrations.index import Action

# What a house manifest has beside the catalog's schema.
OURS = ("effects", "blocking")
# Of an effect, what names parameters of the action.
NAMING = ("paths", "slashed_paths", "escaped_paths", "hosts", "urls", "fetched", "identifiers")
SET_BY_PARLEY = ("schema", "because", "bound")
EFFECTS = "read, write, egress, infra, identity, exec, money or destructive"


def check(folder: Path) -> Report:
    """Everything there is to say of one folder."""
    report = Report()
    try:
        report.hash = content_hash(folder)
        manifest = _manifest(folder, report)
        if manifest is not None:
            _check_code(folder, manifest, report)
    except UnfitFolder as unfit:
        report.problems.append(str(unfit))
    if report.problems:
        report.integration = None
    return report


# ── the manifest ────────────────────────────────────────────────────────────────────────────────


def _manifest(folder: Path, report: Report) -> dict[str, Any] | None:
    """The manifest as plain values with Parley's own keys; None where it is none."""
    from modulex_integrations.schema import IntegrationManifest  # noqa: PLC0415 - half a second, for checks only

    path = folder / MANIFEST
    try:
        raw: object = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise UnfitFolder(
            f"There is no {MANIFEST} in {folder.name}. `parley integrations new NAME` makes one."
        ) from None
    except ValueError as error:
        raise UnfitFolder(f"{MANIFEST} is no JSON: {error}.") from None
    if not isinstance(raw, dict):
        raise UnfitFolder(f"{MANIFEST} is no JSON object.")
    given = cast("dict[str, Any]", raw)
    ours = {key: given[key] for key in OURS if key in given}
    try:
        checked = IntegrationManifest.model_validate({key: given[key] for key in given if key not in OURS})
    except ValidationError as error:
        report.problems += [f"{MANIFEST}: {_where(each['loc'])}: {each['msg']}." for each in error.errors()]
        return None
    manifest: dict[str, Any] = {**checked.model_dump(), **ours}
    name = manifest["name"]
    if name != folder.name:
        report.problems.append(f"{MANIFEST} calls it {name!r} and its folder is called {folder.name!r}. Use one name.")
    if problem := name_problem(name):
        report.problems.append(problem)
    return manifest


def _where(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location)) or "the whole"


# ── the code ────────────────────────────────────────────────────────────────────────────────────


def _check_code(folder: Path, manifest: dict[str, Any], report: Report) -> None:
    module = _imported(folder, report)
    if module is None:
        return
    functions = found_functions(module)
    bound = {*CREDENTIAL_ITSELF, *_fields(manifest)}
    accepted: dict[str, dict[str, Any]] = {}
    for published in manifest["actions"]:
        schema = _accepted(published["name"], functions, report)
        if schema is None:
            continue
        accepted[published["name"]] = schema
        report.problems += _signature_problems(published["name"], published["parameters"], schema, bound)
        if not manifest["auth_schemas"] and not bound.isdisjoint(schema["properties"]):
            report.problems.append(
                f"{published['name']} takes a credential, and {MANIFEST} has no auth_schemas to make one."
            )
    published_names = {published["name"] for published in manifest["actions"]}
    if not published_names:
        report.problems.append(f"{MANIFEST} has no actions.")
    for name in sorted(set(functions) - published_names):
        report.notes.append(f"{ACTIONS} has `async def {name}`, which {MANIFEST} does not name: nobody can call it.")
    if not report.problems:
        _described(manifest, accepted, bound, report)


def _accepted(name: str, functions: Mapping[str, Any], report: Report) -> dict[str, Any] | None:
    """The JSON Schema of what the function of an action takes; None where there is no such function."""
    if name not in functions:
        report.problems.append(f"{MANIFEST} has the action {name!r}, and {ACTIONS} has no `async def {name}`.")
        return None
    try:
        schema = arguments_model(name, functions[name]).model_json_schema()
    except (PydanticUserError, NameError, TypeError) as error:
        report.problems.append(f"{name}: the type of a parameter cannot be used: {_line(error)}")
        return None
    return {"properties": {}, **schema}


def _imported(folder: Path, report: Report) -> ModuleType | None:
    if not (folder / ACTIONS).is_file():
        report.problems.append(f"There is no {ACTIONS} in {folder.name}.")
        return None
    try:
        return import_actions(folder)
    except (Exception, SystemExit) as error:  # whatever the operator's code raises
        frames = [
            frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(str(folder))
        ]
        line = error.lineno if isinstance(error, SyntaxError) else frames[-1].lineno if frames else None
        at = f", line {line}" if line else ""
        report.problems.append(f"{ACTIONS} cannot be imported{at}: {_line(error).replace(str(folder), folder.name)}")
        return None


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _signature_problems(
    name: str, told: Mapping[str, Mapping[str, Any]], schema: Mapping[str, Any], bound: set[str]
) -> Iterator[str]:
    """Where what the manifest tells the model and what the function takes differ."""
    taken: Mapping[str, Mapping[str, Any]] = schema["properties"]
    required = set(schema.get("required", ()))
    for each in sorted(set(told) & bound):
        yield f"{name}: {each!r} comes from the credential, so {MANIFEST} must not list it as a parameter."
    for each in sorted(set(told) - set(taken) - bound):
        yield f"{name}: {MANIFEST} lists the parameter {each!r}, which the function does not take."
    for each in sorted(set(taken) - set(told) - bound):
        yield f"{name}: the function takes {each!r}, which {MANIFEST} does not list."
    for each in sorted(set(told) & set(taken) - bound):
        if told[each]["required"] != (each in required):
            has = "no default" if each in required else "a default"
            yield f'{name}: {each!r} has {has} in the function; say "required": {str(each in required).lower()}.'
        kinds = _types(taken[each])
        if kinds and told[each]["type"] not in kinds:
            taking = " or ".join(sorted(kinds))
            yield f"{name}: {each!r} is {taking} in the function, {told[each]['type']} in {MANIFEST}."


def _types(schema: Mapping[str, Any]) -> set[str]:
    """The JSON types a parameter accepts; empty where it takes anything."""
    variants: list[Mapping[str, Any]] = schema.get("anyOf", [schema])
    kinds = {str(variant["type"]) for variant in variants if "type" in variant} - {"null"}
    return kinds | {"integer"} if "number" in kinds else kinds


def _fields(manifest: Mapping[str, Any]) -> set[str]:
    """The names under which the credential's fields reach a function."""
    names = [each["name"] for schema in manifest["auth_schemas"] for each in schema["setup_environment_variables"]]
    return {key for name in names if (key := field_key(manifest["name"], name))}


# ── what comes of it ────────────────────────────────────────────────────────────────────────────


def _described(manifest: dict[str, Any], accepted: Mapping[str, Any], bound: set[str], report: Report) -> None:
    integration = integration_of(manifest, accepted, NOTHING_REVIEWED, bound=tuple(sorted(bound)))
    effects = manifest.get("effects", {})
    if not isinstance(effects, dict):
        report.problems.append(f"{MANIFEST}: effects must be an object with one entry for each action.")
        return
    declared = cast("dict[str, Any]", effects)
    names = {action.name for action in integration.actions}
    report.problems += [f"effects: there is no action {name!r}." for name in sorted(set(declared) - names)]
    actions = tuple(_with_effect(action, declared, names, report) for action in integration.actions)
    report.integration = msgspec.structs.replace(
        integration,
        actions=actions,
        public=not integration.auth_schemas,
        blocking=manifest.get("blocking") is True,
        house=report.hash,
    )


def _with_effect(action: Action, declared: Mapping[str, Any], names: set[str], report: Report) -> Action:
    given = declared.get(action.name)
    if given is None:
        report.notes.append(f"{action.name} declares no effect, so it counts as destructive and asks first.")
        return action
    said: Any = {"effect": given} if isinstance(given, str) else given
    try:
        effect = msgspec.convert(said, Effect)
    except msgspec.ValidationError as error:
        report.problems.append(f"effects.{action.name}: {error}. An effect is one of {EFFECTS}.")
        return action
    report.problems += _effect_problems(action, effect, names)
    return msgspec.structs.replace(
        action, effect=msgspec.structs.replace(effect, schema=schema_hash(action.argument_schema))
    )


def _effect_problems(action: Action, effect: Effect, names: set[str]) -> Iterator[str]:
    parameters = {parameter.name for parameter in action.parameters}
    for key in SET_BY_PARLEY:
        if getattr(effect, key):
            yield f"effects.{action.name}: {key!r} is Parley's to set. Leave it out."
    keys = [effect.idempotency_key] if effect.idempotency_key else []
    for name in {*keys, *(name for key in NAMING for name in getattr(effect, key))} - parameters:
        yield f"effects.{action.name}: there is no parameter {name!r}."
    for name in {effect.inverse, effect.settled_by} - {None} - names:
        yield f"effects.{action.name}: there is no action {name!r}."


def main() -> None:
    """Check one folder and write the report."""
    options = argparse.ArgumentParser(prog="python -m parley.integrations.house.checking", description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--output", type=Path, required=True)
    given = options.parse_args()
    sys.dont_write_bytecode = True
    given.output.write_bytes(msgspec.json.encode(check(given.folder.resolve())))


if __name__ == "__main__":
    main()

"""Makes the catalog index from the installed package and ``data/review.toml``.

``python -m parley.integrations.build`` writes the shipped file; ``--output FILE`` writes elsewhere.
It imports every integration, which takes about ten seconds and 200 MB, so nothing else imports
this module: the server runs it as a child process when the package's version is not the index's.
"""

import argparse
import ast
import importlib
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoint, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from parley.integrations.index import (
    FORMAT,
    SHIPPED,
    Action,
    AuthSchema,
    BasicAuth,
    CredentialField,
    Index,
    Integration,
    OAuthConfig,
    Parameter,
    Probe,
    Summary,
    summarized,
    write_index,
)

PACKAGE = "modulex-integrations"
GROUP = "modulex.tools"
REVIEW = Path(__file__).parent / "data" / "review.toml"
CREDENTIAL_ITSELF = ("auth_type", "auth_data")
# Comes with the package itself; everything else an integration imports is a driver that may be missing.
COMES_WITH_IT = {"modulex_integrations", "httpx", "pydantic", "langchain_core", "typing_extensions"}


class ReviewError(Exception):
    """The review names something the package does not have; the message says what."""


class Running(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which integrations run differently from the others."""

    public: tuple[str, ...]
    blocking: tuple[str, ...]
    alone: tuple[str, ...]


class Review(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``data/review.toml``, table by table."""

    switched_off: dict[str, str]
    notes: dict[str, tuple[str, ...]]
    running: Running
    keys: dict[str, str]
    replaced: dict[str, dict[str, dict[str, str]]]
    fields: dict[str, tuple[CredentialField, ...]]
    aliases: dict[str, dict[str, str]]
    defaulted: dict[str, tuple[str, ...]]
    bound: dict[str, tuple[str, ...]]


NOTHING_REVIEWED = Review({}, {}, Running((), (), ()), {}, {}, {}, {}, {}, {})


def read_review(path: Path = REVIEW) -> Review:
    """What people decided about the catalog. Raises msgspec.ValidationError for a table of the wrong shape."""
    return msgspec.toml.decode(path.read_bytes(), type=Review)


def build(report: Callable[[str], None]) -> Index:
    """The index of the installed package; ``report`` is told of each integration by its name.

    One that cannot be imported is recorded with its reason and left out. Raises ReviewError.
    """
    review = read_review()
    package = distribution(PACKAGE)
    failures: dict[str, str] = {}
    summaries: list[Summary] = []
    for entry in sorted(package.entry_points.select(group=GROUP), key=lambda found: found.name):
        report(entry.name)
        try:
            summaries.append(_summary(entry, review))
        except ReviewError:
            raise
        except Exception as error:  # whatever a vendor's import raises must not hide the other integrations
            failures[entry.name] = f"{type(error).__name__}: {error}"
    _check_names(review, summaries, failures)
    return Index(FORMAT, package.version, failures, tuple(summaries))


def _summary(entry: EntryPoint, review: Review) -> Summary:
    module = entry.load()
    manifest: dict[str, Any] = module.manifest.model_dump()
    tools: Mapping[str, Any] = {tool.name: tool for tool in module.TOOLS}
    accepted = {
        published["name"]: tools[published["name"]].args_schema.model_json_schema() for published in manifest["actions"]
    }
    bound = (*CREDENTIAL_ITSELF, *review.bound.get(entry.name, ()))
    integration = integration_of(manifest, accepted, review, bound=bound)
    return summarized(integration, tuple(sorted(_drivers(entry.value))))


def integration_of(
    manifest: Mapping[str, Any], accepted: Mapping[str, Mapping[str, Any]], review: Review, *, bound: tuple[str, ...]
) -> Integration:
    """The integration that a manifest describes.

    ``accepted`` is the JSON Schema of each action's arguments, ``bound`` the arguments that come from the credential.
    """
    name: str = manifest["name"]
    return Integration(
        name=name,
        display_name=_clean(manifest["display_name"]),
        description=_clean(manifest["description"]),
        version=manifest["version"],
        logo=manifest["logo"],
        app_url=manifest["app_url"],
        categories=tuple(manifest["categories"]),
        actions=tuple(
            _action(name, published, accepted[published["name"]], review, bound) for published in manifest["actions"]
        ),
        auth_schemas=tuple(_auth_schema(name, schema, review) for schema in manifest["auth_schemas"]),
        notes=review.notes.get(name, ()),
        replaced=review.replaced.get(name, {}),
        public=name in review.running.public,
        blocking=name in review.running.blocking,
        alone=name in review.running.alone,
    )


# ── actions ─────────────────────────────────────────────────────────────────────────────────────


def _action(
    integration: str,
    published: Mapping[str, Any],
    accepted: Mapping[str, Any],
    review: Review,
    credential: tuple[str, ...],
) -> Action:
    arguments: Mapping[str, Mapping[str, Any]] = accepted["properties"]
    bound = tuple(name for name in credential if name in arguments)
    defaulted = tuple(name for name in review.defaulted.get(integration, ()) if name in arguments)
    aliases = review.aliases.get(f"{integration}.{published['name']}", {})
    told = {aliases.get(name, name): described for name, described in published["parameters"].items()}
    required = set(accepted.get("required", ())) - set(defaulted)
    return Action(
        name=published["name"],
        description=_clean(published["description"]),
        parameters=tuple(
            _parameter(name, argument, told.get(name), required=name in required)
            for name, argument in arguments.items()
            if name not in bound
        ),
        bound=bound,
        defaulted=defaulted,
        aliases=aliases,
        switched_off=review.switched_off.get(f"{integration}.{published['name']}", ""),
    )


def _parameter(
    name: str, argument: Mapping[str, Any], published: Mapping[str, Any] | None, *, required: bool
) -> Parameter:
    schema = {key: value for key, value in argument.items() if key not in ("title", "description", "default")}
    description = (published or {}).get("description") or argument.get("description") or ""
    return Parameter(
        name=name,
        type=_type(schema),
        required=required,
        description=_clean(description),
        enum=_enum(schema),
        default=argument.get("default"),
        schema=schema,
    )


def _variants(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for variant in schema.get("anyOf", (schema,)):
        if variant.get("type") != "null":
            yield variant


def _type(schema: Mapping[str, Any]) -> str:
    """The first type that is not null; a value of any type is shown as a string."""
    return next((variant["type"] for variant in _variants(schema) if "type" in variant), "string")


def _enum(schema: Mapping[str, Any]) -> tuple[str, ...] | None:
    return next((tuple(variant["enum"]) for variant in _variants(schema) if "enum" in variant), None)


# ── credentials ─────────────────────────────────────────────────────────────────────────────────


def _auth_schema(integration: str, schema: Mapping[str, Any], review: Review) -> AuthSchema:
    probe, oauth = schema["test_endpoint"], schema.get("oauth_config")
    return AuthSchema(
        auth_type=schema["auth_type"],
        display_name=_clean(schema["display_name"]),
        description=_clean(schema["description"]),
        setup_instructions=tuple(_clean(step) for step in schema["setup_instructions"] or ()),
        fields=(
            *(_field(integration, variable, review) for variable in schema["setup_environment_variables"]),
            *review.fields.get(integration, ()),
        ),
        test_endpoint=None if probe is None else _probe(probe),
        oauth_config=None if oauth is None else msgspec.convert(oauth, OAuthConfig),
    )


def _field(integration: str, variable: Mapping[str, Any], review: Review) -> CredentialField:
    name: str = variable["name"]
    texts = {key: _clean(variable[key]) for key in ("display_name", "description")}
    return msgspec.convert(
        {
            **variable,
            **texts,
            "key": review.keys.get(name, field_key(integration, name)),
            "inject_into_auth_data": variable["inject_into_auth_data"] or name in review.keys,
        },
        CredentialField,
    )


def field_key(integration: str, name: str) -> str:
    """What an integration reads a credential's field as: ``shop_id`` of ``SHOPIFY_SHOP_ID``."""
    prefix = f"{integration.upper()}_"
    stripped = name.removeprefix(prefix) if name.startswith(prefix) else name.partition("_")[2]
    return stripped.lower()


def _probe(probe: Mapping[str, Any]) -> Probe:
    auth, indicators = probe["auth"], probe["success_indicators"]
    return Probe(
        url=probe["url"],
        method=probe["method"],
        headers=probe["headers"],
        params=probe["params"],
        body=probe["body"],
        auth=None if auth is None else BasicAuth(auth["username_placeholder"], auth["password_placeholder"]),
        status_codes=tuple(indicators["status_codes"]),
        response_fields=tuple(indicators["response_fields"] or ()),
        cost_level=probe["cost_level"],
        description=probe["description"],
    )


# ── around it ───────────────────────────────────────────────────────────────────────────────────


def _clean(text: str) -> str:
    """One line without control, formatting and private characters, which can hide orders to a model."""
    visible = "".join(char if unicodedata.category(char)[0] != "C" else " " for char in text)
    return " ".join(visible.split())


def _drivers(module: str) -> set[str]:
    """The top-level modules that the integration's own files import and that do not come with the package."""
    spec = find_spec(module)
    folders = spec.submodule_search_locations if spec is not None else None
    found: set[str] = set()
    for folder in folders or ():
        for path in Path(folder).glob("*.py"):
            found.update(_imported(ast.parse(path.read_bytes())))
    return found - COMES_WITH_IT - set(sys.stdlib_module_names)


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]


def _check_names(review: Review, summaries: list[Summary], failures: Mapping[str, str]) -> None:
    """Refuse a review that speaks of what is not there: a misspelt name would silently protect nothing."""
    actions = {f"{summary.name}.{action}" for summary in summaries for action in summary.actions}
    integrations = {summary.name for summary in summaries} | set(failures)
    named = {
        *review.notes,
        *review.fields,
        *review.replaced,
        *review.defaulted,
        *review.bound,
        *review.running.public,
        *review.running.blocking,
        *review.running.alone,
    }
    unknown = sorted((named - integrations) | ({*review.switched_off, *review.aliases} - actions))
    if unknown and not failures:
        raise ReviewError(f"data/review.toml names what the package does not have: {', '.join(unknown)}")


def main() -> None:
    """Write the index; one line of progress for each integration on standard output."""
    options = argparse.ArgumentParser(prog="python -m parley.integrations.build", description=__doc__)
    options.add_argument("--output", type=Path, default=SHIPPED)
    path: Path = options.parse_args().output
    importlib.invalidate_caches()
    write_index(build(lambda name: print(name, flush=True)), path)  # noqa: T201 - the progress is the output


if __name__ == "__main__":
    main()

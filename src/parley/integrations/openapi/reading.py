"""From a document to a description: where the API is, what it can do, and what of it is not offered."""

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

from msgspec.structs import replace

from parley.integrations.openapi.document import Unreadable, read_document
from parley.integrations.openapi.model import (
    Description,
    Reached,
    Request,
    Scheme,
    kept_body,
    request_of,
)
from parley.integrations.openapi.parameters import read_inputs
from parley.integrations.openapi.schemas import Document
from parley.integrations.openapi.security import alternatives, read_schemes, read_ways, wanted_scopes
from parley.integrations.own import FoundAction, TooComplex, clean_text, plain_name
from parley.integrations.own.schemas import plain_schema
from parley.turn.model import JsonObject, JsonValue

METHODS = ("get", "head", "options", "post", "put", "patch", "delete", "trace")
MOST_OPERATIONS = 500
MOST_REJECTED = 100
MOST_SERVERS = 20
NAME_CHARACTERS = 64
TITLE_CHARACTERS = 100
TEXT_CHARACTERS = 1_000
DESCRIPTION_CHARACTERS = 2_000
MOST_PATH_CHARACTERS = 1_000
VERSION = re.compile(r"3\.[01](\.[0-9]+)?")
VARIABLE = re.compile(r"\{([^{}/]{1,100})\}")
PATH = re.compile(r"/[A-Za-z0-9\-._~!$&'()*+,;=:@/{}%]*")
HOST_VALUE = re.compile(r"[A-Za-z0-9._:/-]{0,200}")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the reviewer chose: which server, its variables, and the actions that are left out."""

    server_url: str = ""
    variables: Mapping[str, str] | None = None
    left_out: Collection[str] = ()


type Known = Mapping[tuple[str, str], str]
"""The names that actions have had so far, by method and path: they keep them."""


def known_names(actions: Sequence[FoundAction]) -> dict[tuple[str, str], str]:
    """The names of stored actions, for the next reading."""
    found: dict[tuple[str, str], str] = {}
    for action in actions:
        request = request_of(action)
        found[request.method, request.path] = action.name
    return found


def read_api(text: str, document_url: str, wanted: Wanted, known: Known) -> Description:
    """What a document describes. Raises Unreadable.

    ``document_url`` is where it came from, empty where it was sent. Takes seconds for the largest, so
    call it in a thread. What cannot be offered is named with the reason and the rest stays.
    """
    root = read_document(text)
    _check_version(root)
    document = Document(root)
    servers = _servers(root.get("servers"), document_url, wanted)
    base_url = (wanted.server_url or next(iter(servers), "")).rstrip("/")
    if not base_url:
        raise Unreadable("The document does not say where the API is. Send its address as server_url.")
    schemes, refused = read_schemes(document, base_url)
    operations, rejected = _operations(document, base_url, document_url, wanted, known)
    security = root.get("security")
    said = [each.said.get("security", security) for each in operations]
    scopes = wanted_scopes(said)
    schemes = {name: replace(scheme, scopes=tuple(scopes.get(name, ()))) for name, scheme in schemes.items()}
    actions: list[FoundAction] = []
    used: Counter[tuple[str, ...]] = Counter()
    for operation, wants in zip(operations, said, strict=True):
        try:
            action = _found(document, operation, schemes, refused, wants)
        except TooComplex as reason:
            _reject(rejected, operation.name, reason)
            continue
        actions.append(action)
        used.update(request_of(action).security)
    ways, notes = read_ways(schemes, used)
    if base_url.startswith("http://"):
        notes.append("The API is reached without encryption: whoever is on the way can read keys and data.")
    info = document.resolved(root.get("info"))
    kept = {name: schemes[name] for name in sorted({name for way in ways for name in way.schemes})}
    return Description(
        title=clean_text(str(info.get("title") or urlsplit(base_url).hostname), TITLE_CHARACTERS),
        text=clean_text(str(info.get("description") or info.get("summary") or ""), TEXT_CHARACTERS),
        reached=Reached(
            base_url=base_url,
            version=clean_text(str(info.get("version", "")), 40),
            document_url="" if "?" in document_url else document_url,
            schemes=kept,
            ways=ways,
            left_out=tuple(sorted(wanted.left_out)),
            public=not ways and all(request_of(action).is_open for action in actions),
        ),
        servers=servers,
        actions=actions,
        rejected={clean_text(name, 150): reason for name, reason in {**refused, **rejected}.items()},
        notes=notes,
    )


def _check_version(root: JsonObject) -> None:
    if isinstance(root.get("swagger"), str):
        raise Unreadable("This is a Swagger 2.0 document. Convert it to OpenAPI 3 first.")
    version = root.get("openapi")
    if not isinstance(version, str) or not VERSION.fullmatch(version):
        raise Unreadable("This is no OpenAPI document of version 3.0 or 3.1.")
    if not isinstance(root.get("paths"), dict):
        raise Unreadable("The document has no paths, so there is nothing to import.")


# ── where ───────────────────────────────────────────────────────────────────────────────────────


def _servers(declared: JsonValue, document_url: str, wanted: Wanted) -> list[str]:
    """The addresses that a list of servers names, with its variables put in; those that are none are left out."""
    found: dict[str, None] = {}
    # Where a document names none, OpenAPI means the place that it came from.
    listed: list[JsonValue] = declared if isinstance(declared, list) and declared else [{"url": "/"}]
    for each in listed[:MOST_SERVERS]:
        url = _server(each if isinstance(each, dict) else {}, document_url, wanted.variables or {})
        if url:
            found[url] = None
    return list(found)


def _server(server: JsonObject, document_url: str, chosen: Mapping[str, str]) -> str:
    variables = server.get("variables")
    declared = variables if isinstance(variables, dict) else {}

    def value(match: re.Match[str]) -> str:
        described = declared.get(match[1])
        told = described if isinstance(described, dict) else {}
        text = str(chosen.get(match[1], told.get("default", "")))
        allowed = told.get("enum")
        if not HOST_VALUE.fullmatch(text) or (isinstance(allowed, list) and text not in map(str, allowed)):
            raise Unreadable(f"The server's {clean_text(match[1], 40)!r} cannot be {clean_text(text, 40)!r}.")
        return text

    url = VARIABLE.sub(value, str(server.get("url", "")))
    try:
        whole = urljoin(document_url, url) if document_url else url
        parts = urlsplit(whole)
        plain = parts.scheme in ("http", "https") and parts.hostname and parts.username is None
    except ValueError:
        return ""
    usable = plain and not parts.query and not parts.fragment and whole.isascii() and whole.isprintable()
    return whole.rstrip("/") if usable and " " not in whole and "\\" not in whole else ""


# ── operations ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Operation:
    """One operation under the name that its action has, with the parameters of its path."""

    name: str
    method: str
    path: str
    said: JsonObject
    parameters: Sequence[JsonObject]


def _operations(
    document: Document, base_url: str, document_url: str, wanted: Wanted, known: Known
) -> tuple[list[_Operation], dict[str, str]]:
    """The operations that are wanted, each with its name, and of the others why not."""
    rejected: dict[str, str] = {}
    found: list[tuple[str, str, JsonObject, JsonObject]] = []
    for path, item in _items(document.root.get("paths")):
        try:
            described = document.resolved(item)
        except TooComplex as reason:
            _reject(rejected, path, reason)
            continue
        found += [
            (method, path, described, said) for method in METHODS if isinstance(said := described.get(method), dict)
        ]
    names = _names([(method, path, said) for method, path, _, said in found], known)
    operations: list[_Operation] = []
    for method, path, item, said in found:
        name = names[method, path]
        if name in wanted.left_out:
            continue
        try:
            if len(operations) >= MOST_OPERATIONS:
                raise TooComplex(f"the document has more than {MOST_OPERATIONS} operations")
            _check_path(path)
            _check_server(said.get("servers", item.get("servers")), base_url, document_url, wanted)
            operations.append(_Operation(name, method, path, said, _parameters(document, item, said)))
        except (TooComplex, Unreadable) as reason:
            _reject(rejected, name, reason)
    return operations, rejected


def _items(paths: JsonValue) -> Iterator[tuple[str, JsonValue]]:
    for path, item in paths.items() if isinstance(paths, dict) else ():
        if path.startswith("/"):  # anything else is an extension
            yield path, item


def _reject(rejected: dict[str, str], name: str, reason: Exception) -> None:
    if len(rejected) < MOST_REJECTED:
        rejected[name] = str(reason)


def _check_path(path: str) -> None:
    segments = VARIABLE.sub("x", path).split("/")
    if len(path) > MOST_PATH_CHARACTERS or not PATH.fullmatch(path) or not {".", ".."}.isdisjoint(segments):
        raise TooComplex("its path is none that a request can have")
    if "%2e" in path.lower() or "%2f" in path.lower() or "%5c" in path.lower():
        raise TooComplex("its path is none that a request can have")


def _check_server(declared: JsonValue, base_url: str, document_url: str, wanted: Wanted) -> None:
    """An operation on another server than the API's would take the credential there."""
    if declared is None or declared == []:
        return
    if base_url not in _servers(declared, document_url, wanted):
        raise TooComplex("it is on another server than the rest of the API")


def _parameters(document: Document, item: JsonObject, said: JsonObject) -> Sequence[JsonObject]:
    """The path's own parameters, with the operation's in place of those of the same name and place."""
    merged: dict[tuple[str, str], JsonObject] = {}
    for source in (item.get("parameters"), said.get("parameters")):
        for each in source if isinstance(source, list) else ():
            declared = document.resolved(each)
            merged[str(declared.get("name")), str(declared.get("in"))] = declared
    return list(merged.values())


def _found(
    document: Document,
    operation: _Operation,
    schemes: Mapping[str, Scheme],
    refused: Mapping[str, str],
    wants: JsonValue,
) -> FoundAction:
    document.begin_operation()
    security = _usable(alternatives(wants), schemes, refused)
    keys = {(scheme.place, scheme.name.lower()) for scheme in schemes.values()}
    inputs = read_inputs(document, operation.parameters, document.resolved(operation.said.get("requestBody")), keys)
    _check_variables(operation.path, [each.name for each in inputs.parameters if each.place == "path"])
    request = Request(
        method=operation.method,
        path=operation.path,
        parameters=tuple(inputs.parameters),
        body=inputs.body,
        security=security,
        idempotency_key=inputs.idempotency_key if operation.method in ("post", "patch") else None,
        urls=tuple(inputs.urls),
    )
    return FoundAction(operation.name, _described(operation), kept_body(request, plain_schema(inputs.schema)))


def _usable(
    wanted: Sequence[tuple[str, ...]], schemes: Mapping[str, Scheme], refused: Mapping[str, str]
) -> tuple[tuple[str, ...], ...]:
    """The combinations that can be fulfilled. Raises TooComplex where an operation takes no other."""
    usable = tuple(each for each in wanted if all(name in schemes for name in each))
    if not usable:
        reasons = sorted({refused.get(name, "the document does not say how") for each in wanted for name in each})
        raise TooComplex(f"it wants a sign-in that is not offered: {clean_text(' '.join(reasons), 200)}")
    return usable


def _check_variables(path: str, described: Sequence[str]) -> None:
    """Raises TooComplex where what is in braces and what is described are not the same."""
    named = VARIABLE.findall(path)
    if set(named) != set(described) or len(named) != len(set(named)) or set("{}") & set(VARIABLE.sub("", path)):
        raise TooComplex("its path and its parameters do not fit together")


def _described(operation: _Operation) -> str:
    said = operation.said
    parts = [str(said[key]) for key in ("summary", "description") if isinstance(said.get(key), str) and said[key]]
    if len(parts) == 2 and parts[1].startswith(parts[0]):
        parts = parts[1:]
    line = f"{operation.method.upper()} {operation.path}"
    text = "\n".join(parts) or line
    return clean_text(f"Deprecated. {text}" if said.get("deprecated") is True else text, DESCRIPTION_CHARACTERS)


# ── names ───────────────────────────────────────────────────────────────────────────────────────


def _names(operations: Sequence[tuple[str, str, JsonObject]], known: Known) -> dict[tuple[str, str], str]:
    """A name for each method and path: the one it has had, else its operation's; of twins each gets a mark.

    The mark comes from method and path, so the order of a document changes no name.
    """
    names = {(method, path): known[method, path] for method, path, _ in operations if (method, path) in known}
    fresh = {
        (method, path): _name(method, path, said) for method, path, said in operations if (method, path) not in names
    }
    taken = Counter((*names.values(), *fresh.values()))
    for (method, path), name in fresh.items():
        names[method, path] = name if taken[name] == 1 else f"{name[: NAME_CHARACTERS - 7]}_{_mark(method, path)}"
    return names


def _name(method: str, path: str, said: JsonObject) -> str:
    given = said.get("operationId")
    if isinstance(given, str) and (name := _slug(given)):
        return name
    return _slug(f"{method} {VARIABLE.sub(lambda found: f'by {found[1]}', path)}") or method


def _slug(text: str) -> str:
    spread = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", text[:300])
    return plain_name(spread, NAME_CHARACTERS)


def _mark(method: str, path: str) -> str:
    return hashlib.sha256(f"{method} {path}".encode(errors="replace")).hexdigest()[:6]

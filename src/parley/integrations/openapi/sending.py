"""One request of an imported API: from arguments and a credential to method, address, headers and body.

Pure. Whatever the arguments are, the request goes to the path of its action at the API's own address:
a segment is one segment, a value is encoded, and what belongs to a credential is put in last.
"""

import base64
import binascii
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

import msgspec

from parley.integrations.openapi.model import OTHER_METHOD, Body, Part, Placed, Reached, Request, Scheme
from parley.integrations.results import ActionFailed
from parley.turn.model import JsonObject, JsonValue

ACCEPT = "application/json, */*;q=0.5"
DELIMITERS = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}
MOST_URL_CHARACTERS = 16_000


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request as it leaves."""

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(repr=False)


@dataclass(slots=True)
class _Draft:
    path: str
    query: list[str] = field(default_factory=list[str])
    headers: dict[str, str] = field(default_factory=dict[str, str])
    cookies: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class Presented:
    """The parts of a credential by scheme, such as ``{"basic": {"username": …, "password": …}}``."""

    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]], repr=False)


def prepare(reached: Reached, request: Request, arguments: Mapping[str, JsonValue], shown: Presented) -> Prepared:
    """The request. Raises ActionFailed, not attempted, for arguments that cannot be sent."""
    draft, keys = _Draft(request.path), _keys(reached)
    for parameter in request.parameters:
        value = arguments.get(parameter.argument)
        if value is None:
            if parameter.required:
                raise _unsent(f"It needs the parameter {parameter.argument}.")
            continue
        _place(draft, parameter, value, keys)
    body = _body(draft, request.body, arguments)
    for name, parts in shown.values.items():
        _present(draft, reached.schemes[name], parts)
    draft.headers.setdefault("Accept", ACCEPT)
    if draft.cookies:
        draft.headers["Cookie"] = "; ".join(draft.cookies)
    url = f"{reached.base_url.rstrip('/')}{draft.path}" + (f"?{'&'.join(draft.query)}" if draft.query else "")
    if len(url) > MOST_URL_CHARACTERS:
        raise _unsent("The parameters make an address that is too long. Send less.")
    _check(reached, url)
    return Prepared(request.method.upper(), url, draft.headers, body)


def _check(reached: Reached, url: str) -> None:
    """What is built must be at the API's own address, whatever went into it."""
    base, made = urlsplit(reached.base_url), urlsplit(url)
    inside = made.path.startswith(f"{base.path.rstrip('/')}/") and not {".", ".."} & set(made.path.split("/"))
    if (made.scheme, made.netloc) != (base.scheme, base.netloc) or made.fragment or not inside:
        raise _unsent("With these parameters the request would go somewhere else.")


def _keys(reached: Reached) -> frozenset[str]:
    """The names in the query that no argument may fill: a credential's, and the one that stands for a verb."""
    held = {scheme.name.lower() for scheme in reached.schemes.values() if scheme.place == "query"}
    return frozenset(held | {OTHER_METHOD})


def _unsent(sentence: str) -> ActionFailed:
    return ActionFailed(sentence, attempted=False)


# ── parameters ──────────────────────────────────────────────────────────────────────────────────


def _place(draft: _Draft, parameter: Placed, value: JsonValue, keys: frozenset[str]) -> None:
    match parameter.place:
        case "path":
            made = _in_path(parameter, value)
            if not made or made in (".", ".."):
                raise _unsent(f"The parameter {parameter.argument} cannot be empty or lead elsewhere.")
            draft.path = draft.path.replace(f"{{{parameter.name}}}", made)
        case "query":
            pairs = list(_pairs(parameter.name, parameter, value))
            if any(name.lower() in keys for name, _ in pairs):
                raise _unsent(f"The parameter {parameter.argument} names what no argument may fill.")
            draft.query += [f"{_encoded(name)}={made}" for name, made in pairs]
        case "header":
            draft.headers[parameter.name] = _header(parameter, value)
        case "cookie":
            draft.cookies += [f"{_encoded(name)}={made}" for name, made in _pairs(parameter.name, parameter, value)]


def _in_path(parameter: Placed, value: JsonValue) -> str:
    """A value as one segment, in the style that the document asks for."""
    if parameter.json or not isinstance(value, list | dict):
        return _prefixed(parameter, _encoded(_text(value, as_json=parameter.json)))
    prefix, between = {"label": (".", "."), "matrix": (";", ";")}.get(parameter.style, ("", ","))
    if isinstance(value, list):
        items = [_encoded(_text(item)) for item in value]
        if parameter.style == "matrix":
            name = _encoded(parameter.name)
            return "".join(f";{name}={item}" for item in items) if parameter.explode else f";{name}={','.join(items)}"
        return prefix + (between if parameter.explode else ",").join(items)
    members = [(_encoded(name), _encoded(_text(item))) for name, item in value.items()]
    if parameter.explode:
        return prefix + between.join(f"{name}={item}" for name, item in members)
    flat = ",".join(part for member in members for part in member)
    return f";{_encoded(parameter.name)}={flat}" if parameter.style == "matrix" else prefix + flat


def _prefixed(parameter: Placed, text: str) -> str:
    match parameter.style:
        case "label":
            return f".{text}"
        case "matrix":
            return f";{_encoded(parameter.name)}={text}" if text else f";{_encoded(parameter.name)}"
        case _:
            return text


def _pairs(name: str, sent: Placed | Part, value: JsonValue) -> Iterator[tuple[str, str]]:
    """Names and encoded values of one parameter in a query, a cookie or a form."""
    if isinstance(sent, Placed) and sent.json:
        yield name, _encoded(_text(value, as_json=True))
    elif isinstance(value, list):
        if sent.explode and sent.style != "deepObject":
            yield from ((name, _encoded(_text(item))) for item in value)
        elif sent.style == "deepObject":
            yield from ((f"{name}[]", _encoded(_text(item))) for item in value)
        else:
            yield name, DELIMITERS[sent.style].join(_encoded(_text(item)) for item in value)
    elif isinstance(value, dict):
        yield from _object_pairs(name, sent, value)
    else:
        yield name, _encoded(_text(value))


def _object_pairs(name: str, sent: Placed | Part, value: JsonObject) -> Iterator[tuple[str, str]]:
    if sent.style == "deepObject":
        for key, item in value.items():
            inner = f"{name}[{key}]"
            if isinstance(item, dict | list):
                yield from _pairs(inner, sent, item)
            else:
                yield inner, _encoded(_text(item))
    elif isinstance(sent, Part):
        yield name, _encoded(_text(value))
    elif sent.explode:
        yield from ((key, _encoded(_text(item))) for key, item in value.items())
    else:
        members = (_encoded(_text(part)) for member in value.items() for part in member)
        yield name, DELIMITERS[sent.style].join(members)


def _header(parameter: Placed, value: JsonValue) -> str:
    if parameter.json or not isinstance(value, list | dict):
        text = _text(value, as_json=parameter.json)
    elif isinstance(value, list):
        text = ",".join(map(_text, value))
    else:
        joint = "=" if parameter.explode else ","
        text = ",".join(f"{name}{joint}{_text(item)}" for name, item in value.items())
    if not text.isascii() or not text.isprintable():
        raise _unsent(f"The parameter {parameter.argument} is a header: it can have plain characters only.")
    return text


def _text(value: JsonValue, *, as_json: bool = False) -> str:
    """A single value as text; what has an inside is JSON."""
    if as_json or isinstance(value, list | dict | bool) or value is None:
        return msgspec.json.encode(value).decode()
    return str(value)


def _encoded(text: str) -> str:
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise _unsent("A parameter holds half a character. Send plain text.") from None


# ── bodies ──────────────────────────────────────────────────────────────────────────────────────


def _body(draft: _Draft, body: Body | None, arguments: Mapping[str, JsonValue]) -> bytes | None:
    if body is None:
        return None
    value = arguments.get(body.argument)
    if value is None:
        if body.required:
            raise _unsent(f"It needs the parameter {body.argument}.")
        return None
    options, made = _content(body, value)
    draft.headers["Content-Type"] = f"{body.media_type}{options}"
    return made


def _content(body: Body, value: JsonValue) -> tuple[str, bytes]:
    """What is added to the media type, and the bytes."""
    match body.kind:
        case "json":
            return "", msgspec.json.encode(value)
        case "form":
            return "", _form(body, _members(body, value))
        case "multipart":
            boundary = secrets.token_hex(16)
            return f"; boundary={boundary}", _multipart(body, _members(body, value), boundary.encode())
        case "text":
            return "; charset=utf-8", _text(value).encode(errors="replace")
        case "bytes":
            return "", _file(body.argument, value)[1]


def _members(body: Body, value: JsonValue) -> JsonObject:
    if not isinstance(value, dict):
        raise _unsent(f"The parameter {body.argument} must be an object.")
    if OTHER_METHOD in value:
        raise _unsent(f"The parameter {body.argument} names what no argument may fill.")
    return {name: item for name, item in value.items() if item is not None}


def _form(body: Body, members: JsonObject) -> bytes:
    pairs = [
        f"{_encoded(key)}={made}"
        for name, item in members.items()
        for key, made in _pairs(name, body.parts.get(name, Part()), item)
    ]
    return "&".join(pairs).encode()


def _multipart(body: Body, members: JsonObject, boundary: bytes) -> bytes:
    made = bytearray()
    for name, item in members.items():
        part = body.parts.get(name, Part())
        for filename, media_type, content in _files(name, part, item):
            disposition = f'form-data; name="{_quoted(name)}"'
            if filename is not None:
                disposition += f'; filename="{_quoted(filename)}"'
            kind = f"\r\nContent-Type: {media_type}" if media_type else ""
            made += b"--" + boundary + f"\r\nContent-Disposition: {disposition}{kind}\r\n\r\n".encode()
            made += content + b"\r\n"
    return bytes(made + b"--" + boundary + b"--\r\n")


def _files(name: str, part: Part, value: JsonValue) -> Iterable[tuple[str | None, str, bytes]]:
    """The parts that one property becomes: name of the file, media type, content."""
    for item in value if isinstance(value, list) else [value]:
        if part.binary:
            filename, content = _file(name, item)
            yield filename, part.media_type or "application/octet-stream", content
        elif isinstance(item, dict | list):
            yield None, part.media_type or "application/json", msgspec.json.encode(item)
        else:
            yield None, part.media_type, _text(item).encode(errors="replace")


def _file(name: str, value: JsonValue) -> tuple[str, bytes]:
    """A file's name and bytes, from text or ``{text | base64, filename}``."""
    if not isinstance(value, dict):
        return name, _text(value).encode(errors="replace")
    filename = str(value.get("filename") or name)
    coded = value.get("base64")
    if not isinstance(coded, str):
        return filename, str(value.get("text") or "").encode(errors="replace")
    try:
        return filename, base64.b64decode(coded, validate=True)
    except (binascii.Error, ValueError):
        raise _unsent(f"The base64 of {name} is none.") from None


def _quoted(text: str) -> str:
    """A name inside a header of a part, as browsers write it."""
    plain = text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
    return plain.encode(errors="replace").decode()


# ── the credential ──────────────────────────────────────────────────────────────────────────────


def _present(draft: _Draft, scheme: Scheme, parts: Mapping[str, str]) -> None:
    """Put a credential where its scheme wants it; nothing that was there before stays."""
    if scheme.kind == "basic":
        pair = f"{parts.get('username', '')}:{parts.get('password', '')}".encode()
        draft.headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        return
    value = parts.get("value", "")
    if scheme.kind != "api_key":
        draft.headers["Authorization"] = f"Bearer {value}"
        return
    match scheme.place:
        case "header":
            for name in [name for name in draft.headers if name.lower() == scheme.name.lower()]:
                del draft.headers[name]
            draft.headers[scheme.name] = value
        case "query":
            draft.query.append(f"{_encoded(scheme.name)}={_encoded(value)}")
        case "cookie":
            draft.cookies.append(f"{scheme.name}={quote(value, safe='')}")

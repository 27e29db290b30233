"""Reading OpenAPI documents of every shape, hostile ones too, and making requests of them (issue 9, 3)."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from parley.integrations import ActionFailed
from parley.integrations.effects import refuse_dangerous
from parley.integrations.openapi import (
    Description,
    Presented,
    Unreadable,
    Wanted,
    effect_of_own,
    known_names,
    read_api,
    request_of,
)
from parley.integrations.openapi.sending import Prepared, prepare
from parley.integrations.own import OwnAction
from parley.turn.model import JsonValue

type Json = dict[str, Any]
HIDDEN = "\u200b\u202e\U000e0041"


def document(paths: Json, **more: Any) -> Json:
    return {
        "openapi": "3.0.3",
        "info": {"title": "T", "version": "1"},
        "servers": [{"url": "https://api.t.example/v1"}],
        "paths": paths,
        **more,
    }


def read(value: Json | str, known: Mapping[tuple[str, str], str] | None = None, **wanted: Any) -> Description:
    text = value if isinstance(value, str) else json.dumps(value)
    return read_api(text, "", Wanted(**wanted), known or {})


def one(operation: Json, path: str = "/x", method: str = "get", **more: Any) -> Description:
    return read(document({path: {method: {"operationId": "one", **operation}}}, **more))


def sent(description: Description, arguments: Mapping[str, JsonValue]) -> Prepared:
    return prepare(description.reached, request_of(description.actions[0]), arguments, Presented())


def parameter(place: str, schema: Json, **more: Any) -> Json:
    return {"parameters": [{"name": "p", "in": place, "schema": schema, "required": place == "path", **more}]}


# ── documents ───────────────────────────────────────────────────────────────────────────────────


def test_yaml_and_json_of_one_document_read_the_same() -> None:
    text = """
openapi: 3.0.3
info: {title: T, version: "1"}
servers: [{url: https://api.t.example/v1}]
paths:
  /x:
    get:
      operationId: one
      responses: {200: {description: ok}}
      parameters:
        - {name: country, in: query, schema: {type: string, enum: [no, on, "2024-01-01", 1e3, ~]}}
"""
    (found,) = read(text).actions
    assert found.input_schema["properties"] == {
        "country": {"type": "string", "enum": ["no", "on", "2024-01-01", 1000.0, None]}
    }


def laughs() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (laughs(), "parts"),
        ("a: &a [*a]", "itself"),
        ("[" * 200_000, "neither JSON nor YAML"),
        ("- " * 400 + "x", "nested"),
        ('{"a":' * 100_000, "neither JSON nor YAML"),
        ("!!python/object/apply:os.system [id]", "tag"),
        ("a: !include /etc/passwd", "tag"),
        ("--- {a: 1}\n--- {b: 2}", "more than one"),
        pytest.param('{"a": [' + "{}, " * 300_000 + "{}]}", "more than 500,000 parts", id="many objects"),
        pytest.param('{"\\"": [' + '"\\"", ' * 500_000 + '"\\""]}', "more than 500,000 parts", id="many texts"),
        ("? [a]\n: b", "no text"),
        ("just words", "no object"),
        ("", "no object"),
        ('{"openapi": "3.0.0"', "neither JSON nor YAML"),
        pytest.param("x" * (9 << 20), "larger than", id="large"),
        ("a: b\n" * 700_000, "may have 3 MiB"),
        ('swagger: "2.0"\npaths: {}', "Swagger 2.0"),
        ("openapi: 3.2.0\npaths: {}", "3.0 or 3.1"),
        ("openapi: 3.0.0", "no paths"),
        ("openapi: 3.0.0\npaths: {}", "server_url"),
    ],
)  # fmt: skip
def test_what_is_no_document_is_refused_in_words(text: str, word: str) -> None:
    with pytest.raises(Unreadable, match=word):
        read(text)


def test_what_looks_like_parts_inside_the_texts_of_json_is_not_counted() -> None:
    marks = '{[:,"\\' * 100_000
    found = read(document({"/x": {"get": {"operationId": "one"}}}, info={"title": "T", "description": marks}))
    assert [action.name for action in found.actions] == ["one"]


@settings(max_examples=60, deadline=None)
@given(some.text(max_size=300) | some.binary(max_size=300).map(lambda raw: raw.decode(errors="replace")))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read(f"openapi: 3.0.0\nservers: [{{url: 'https://a.example'}}]\npaths:\n  /x: {text}")
    except Unreadable:
        pass


@settings(max_examples=60, deadline=None)
@given(
    some.recursive(
        some.none() | some.booleans() | some.integers() | some.text(max_size=20),
        lambda inner: some.lists(inner, max_size=4)
        | some.dictionaries(
            some.sampled_from(
                ["get", "post", "parameters", "name", "in", "schema", "$ref", "content", "security", "requestBody",
                 "properties", "type", "servers", "url", "application/json", "oneOf", "query", "path", "#/paths"]
            ),
            inner,
            max_size=5,
        ),
        max_leaves=30,
    )
)  # fmt: skip
def test_any_operation_is_offered_or_named_with_a_reason(value: Any) -> None:
    found = read(
        document({"/x": {"get": value, "parameters": value}, "/y": value, "/z": {"post": {"requestBody": value}}})
    )
    assert all(action.input_schema["type"] == "object" for action in found.actions)


def test_references_are_followed_inside_the_document_and_nowhere_else() -> None:
    schemas: Json = {
        "Node": {
            "type": "object",
            "properties": {"next": {"$ref": "#/components/schemas/Node"}, "n": {"type": "integer"}},
        },
        "A": {"$ref": "#/components/schemas/B"},
        "B": {"$ref": "#/components/schemas/A"},
    }

    def body(reference: str) -> Json:
        return {"requestBody": {"content": {"application/json": {"schema": {"$ref": reference}}}}}

    paths = {
        "/node": {"post": {"operationId": "node", **body("#/components/schemas/Node")}},
        "/loop": {"post": {"operationId": "loop", **body("#/components/schemas/A")}},
        "/away": {"post": {"operationId": "away", **body("http://169.254.169.254/latest#/x")}},
        "/file": {"post": {"operationId": "file", **body("file:///etc/passwd")}},
        "/gone": {"post": {"operationId": "gone", **body("#/components/schemas/Nothing")}},
        "/self": {"$ref": "#/paths/~1self"},
    }
    found = read(document(paths, components={"schemas": schemas}))
    assert [action.name for action in found.actions] == ["node", "loop"]
    assert set(found.rejected) == {"away", "file", "gone", "/self"}
    assert "does not fetch" in found.rejected["away"]
    schema: Any = found.actions[0].input_schema
    assert schema["properties"]["body"]["properties"]["next"] == {
        "type": "object",
        "description": "The same as what it is a part of.",
    }


def test_the_words_of_three_zero_become_those_of_json_schema() -> None:
    schema = {
        "type": "object",
        "required": ["id", "size"],
        "properties": {
            "id": {"type": "string", "readOnly": True},
            "size": {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "nullable": True},
        },
    }
    found = one({"requestBody": {"content": {"application/json": {"schema": schema}}}}, method="post")
    made: Any = found.actions[0].input_schema
    assert made["properties"]["body"] == {
        "type": "object",
        "required": ["size"],
        "properties": {"size": {"type": ["integer", "null"], "exclusiveMinimum": 0}},
    }


def test_a_body_without_end_is_cut_and_an_enormous_one_stays_small() -> None:
    schemas: Json = {"L0": {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(90)}}}
    for level in range(1, 8):
        inner = {"$ref": f"#/components/schemas/L{level - 1}"}
        schemas[f"L{level}"] = {"type": "object", "properties": {f"q{n}": inner for n in range(20)}}
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/L7"}}}
    found = one({"requestBody": {"content": content}}, method="post", components={"schemas": schemas})
    assert len(json.dumps(found.actions[0].body)) < 100_000


def test_what_cannot_be_seen_is_taken_out_of_words_and_refused_in_names() -> None:
    found = read(
        document(
            {
                "/x": {"get": {"operationId": f"one{HIDDEN}", "summary": f"Reads.{HIDDEN}", **parameter("query", {})}},
                "/y": {"get": {"operationId": "two", "parameters": [{"name": f"a{HIDDEN}", "in": "query"}]}},
            },
            info={"title": f"T{HIDDEN}", "version": "1", "description": HIDDEN},
        )
    )
    assert (found.title, found.text) == ("T", "")
    assert [(action.name, action.description) for action in found.actions] == [("one", "Reads.")]
    assert list(found.rejected) == ["two"]
    assert HIDDEN[0] not in repr(found)


def test_more_operations_than_anyone_can_look_at_are_left_out() -> None:
    found = read(document({f"/x{number}": {"get": {}} for number in range(620)}))
    assert (len(found.actions), len(found.rejected)) == (500, 100)


@pytest.mark.parametrize("path", ["/a/../b", "/a?x=1", "/a#b", "/a/./b", "/%2e%2e/b", "/a b", "/ä", "/a\\b", "/{p"])
def test_a_path_that_leads_elsewhere_is_rejected(path: str) -> None:
    found = one({}, path=path)
    assert found.actions == []


def test_a_path_and_its_parameters_must_fit() -> None:
    assert one({}, path="/x/{id}").actions == []
    assert one(parameter("path", {"type": "string"}), path="/x").actions == []


def test_an_operation_on_another_server_is_left_out() -> None:
    found = read(
        document(
            {
                "/a": {"get": {"operationId": "a", "servers": [{"url": "https://evil.example"}]}},
                "/b": {"get": {"operationId": "b"}, "servers": [{"url": "https://api.t.example/v1/"}]},
            }
        )
    )
    assert [action.name for action in found.actions] == ["b"]
    assert "another server" in found.rejected["a"]


@pytest.mark.parametrize(("value", "good"), [("us", True), ("evil.example/", False), ("", False)])
def test_a_variable_of_the_server_takes_what_the_document_allows(value: str, good: bool) -> None:
    servers = [{"url": "https://{r}.t.example", "variables": {"r": {"default": "eu", "enum": ["eu", "us"]}}}]
    text = document({"/x": {"get": {}}}, servers=servers)
    if good:
        assert read(text, variables={"r": value}).reached.base_url == f"https://{value}.t.example"
        assert read(text).reached.base_url == "https://eu.t.example"
    else:
        with pytest.raises(Unreadable):
            read(text, variables={"r": value})


# ── names ───────────────────────────────────────────────────────────────────────────────────────


def test_names_are_unique_whatever_the_order_and_stay_when_others_come() -> None:
    operations = {
        "/a": {"get": {"operationId": "list"}},
        "/b": {"get": {"operationId": "List"}},
        "/c/{id}": {"get": {}},
    }
    operations["/c/{id}"]["get"] = parameter("path", {"type": "string"}, name="id")
    first = read(document(operations))
    turned = read(document(dict(reversed(operations.items()))))
    names = {request_of(action).path: action.name for action in first.actions}
    assert len(set(names.values())) == 3
    assert names["/c/{id}"] == "get_c_by_id"
    assert names == {request_of(action).path: action.name for action in turned.actions}
    more = {"/0": {"get": {"operationId": "getCById"}}, **operations}
    later = read(document(more), known_names(first.actions))
    assert names.items() <= {request_of(action).path: action.name for action in later.actions}.items()
    assert len({action.name for action in later.actions}) == 4


# ── requests ────────────────────────────────────────────────────────────────────────────────────

LIST: list[JsonValue] = ["a", "b,c"]
THING: dict[str, JsonValue] = {"k": 1, "m": "x y"}


@pytest.mark.parametrize(
    ("place", "style", "explode", "value", "made"),
    [
        ("path", "simple", False, LIST, "/x/a,b%2Cc"),
        ("path", "simple", True, THING, "/x/k=1,m=x%20y"),
        ("path", "simple", False, THING, "/x/k,1,m,x%20y"),
        ("path", "label", False, "a", "/x/.a"),
        ("path", "label", True, LIST, "/x/.a.b%2Cc"),
        ("path", "matrix", False, "a", "/x/;p=a"),
        ("path", "matrix", True, LIST, "/x/;p=a;p=b%2Cc"),
        ("path", "matrix", False, THING, "/x/;p=k,1,m,x%20y"),
        ("query", "form", True, LIST, "/x?p=a&p=b%2Cc"),
        ("query", "form", False, LIST, "/x?p=a,b%2Cc"),
        ("query", "form", True, THING, "/x?k=1&m=x%20y"),
        ("query", "form", False, THING, "/x?p=k,1,m,x%20y"),
        ("query", "spaceDelimited", False, LIST, "/x?p=a%20b%2Cc"),
        ("query", "pipeDelimited", False, LIST, "/x?p=a%7Cb%2Cc"),
        ("query", "deepObject", True, {"k": {"n": 1}, "l": [2]}, "/x?p%5Bk%5D%5Bn%5D=1&p%5Bl%5D%5B%5D=2"),
        ("query", "form", True, True, "/x?p=true"),
        ("query", "form", True, 1.5, "/x?p=1.5"),
        ("query", "form", True, "a&b=c#d?e+f", "/x?p=a%26b%3Dc%23d%3Fe%2Bf"),
    ],
)  # fmt: skip
def test_every_style_is_sent_as_the_standard_says(
    place: str, style: str, explode: bool, value: JsonValue, made: str
) -> None:
    description = one(parameter(place, {}, style=style, explode=explode), path="/x/{p}" if place == "path" else "/x")
    assert sent(description, {"p": value}).url == f"https://api.t.example/v1{made}"


@pytest.mark.parametrize(
    ("place", "value", "name", "made"),
    [
        ("header", ["a", "b"], "p", "a,b"),
        ("header", {"k": 1}, "p", "k,1"),
        ("cookie", "a;b=c", "Cookie", "p=a%3Bb%3Dc"),
    ],
)
def test_headers_and_cookies_are_sent(place: str, value: JsonValue, name: str, made: str) -> None:
    assert sent(one(parameter(place, {})), {"p": value}).headers[name] == made


@pytest.mark.parametrize("value", ["a\r\nHost: evil", "a\nb", "ä", "\x00"])
def test_a_header_cannot_become_two(value: str) -> None:
    with pytest.raises(ActionFailed):
        sent(one(parameter("header", {})), {"p": value})


def test_no_argument_turns_one_verb_into_another() -> None:
    names = [("X-HTTP-Method-Override", "header"), ("_method", "query"), ("X-Original-URL", "header"), ("o", "query")]
    declared = [{"name": name, "in": place, "schema": {}} for name, place in names]
    description = one({"parameters": declared}, method="post")
    assert [each.name for each in OwnAction(description.actions[0], "").action().parameters] == ["o"]
    with pytest.raises(ActionFailed):
        sent(description, {"o": {"_method": "DELETE"}})
    with pytest.raises(ActionFailed):
        sent(body_of("application/x-www-form-urlencoded", {"type": "object"}), {"body": {"_method": "DELETE"}})


def body_of(media_type: str, schema: Json, **more: Any) -> Description:
    return one({"requestBody": {"required": True, "content": {media_type: {"schema": schema, **more}}}}, method="post")


def test_bodies_of_every_kind() -> None:
    thing: Json = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "f": {"type": "string", "format": "binary"}},
    }
    assert sent(body_of("application/json", thing), {"body": {"a": "ä"}}).body == '{"a":"ä"}'.encode()
    form = body_of(
        "application/x-www-form-urlencoded", thing, encoding={"deep": {"style": "deepObject", "explode": True}}
    )
    assert sent(form, {"body": {"a": ["1", "2"], "o": {"k": 1}}}).body == b"a=1&a=2&o=%7B%22k%22%3A1%7D"
    parts = sent(
        body_of("multipart/form-data", thing),
        {"body": {"a": "x", "f": {"base64": "AAEC", "filename": 'q"\r\n.bin'}}},
    )
    assert parts.body is not None
    boundary = parts.headers["Content-Type"].partition("boundary=")[2].encode()
    assert parts.body.split(b"--" + boundary)[1] == b'\r\nContent-Disposition: form-data; name="a"\r\n\r\nx\r\n'
    assert b'filename="q%22%0D%0A.bin"\r\nContent-Type: application/octet-stream\r\n\r\n\x00\x01\x02\r\n' in parts.body
    assert sent(body_of("text/csv", {"type": "string"}), {"body": "a,b"}).body == b"a,b"
    assert sent(body_of("application/pdf", {}), {"body": {"base64": "JVBERg=="}}).body == b"%PDF"
    refused: list[dict[str, JsonValue]] = [{}, {"body": None}, {"body": {"f": {"base64": "!"}}}]
    for bad in refused:
        with pytest.raises(ActionFailed):
            sent(body_of("multipart/form-data", thing), bad)


ANYTHING = some.recursive(
    some.none() | some.booleans() | some.integers() | some.text(max_size=12)
    | some.sampled_from(["..", "../..", "%2e%2e", "//evil.example", "@evil.example", "?a", "#", "\\", "key", "KEY"]),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(some.tuples(ANYTHING, ANYTHING, ANYTHING, ANYTHING, ANYTHING), some.sampled_from(["simple", "label", "matrix"]))
def test_no_argument_changes_where_a_request_and_its_key_go(values: tuple[Any, ...], style: str) -> None:
    places = ("path", "query", "header", "cookie")
    declared = [
        {
            "name": place,
            "in": place,
            "required": place == "path",
            "schema": {},
            "style": style if place == "path" else None,
        }
        for place in places
    ]
    declared = [{key: value for key, value in each.items() if value is not None} for each in declared]
    description = one(
        {"parameters": declared, "requestBody": {"content": {"application/json": {"schema": {}}}}},
        path="/x/{path}/y",
        method="post",
        components={"securitySchemes": {"k": {"type": "apiKey", "in": "query", "name": "key"}}},
        security=[{"k": []}],
    )
    (action,) = description.actions
    arguments: dict[str, JsonValue] = dict(zip((*places, "body"), values, strict=True))
    shown = Presented({"k": {"value": "the-key"}})
    if refuse_dangerous(arguments, effect_of_own(OwnAction(action, ""))):
        return
    try:
        made = prepare(description.reached, request_of(action), arguments, shown)
    except ActionFailed:
        return
    parts = urlsplit(made.url)
    assert (parts.scheme, parts.netloc, parts.fragment) == ("https", "api.t.example", "")
    segments = parts.path.split("/")
    assert (segments[:3], segments[4:]) == (["", "v1", "x"], ["y"])
    assert segments[3] not in ("", ".", "..")
    assert [pair for pair in parts.query.split("&") if pair.lower().startswith("key=")] == ["key=the-key"]
    assert made.method == "POST"

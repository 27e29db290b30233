"""What an action does with its arguments, seen by running it offline and by reading its source.

Every text argument is a mark of its own; where the mark turns up in the requests says what the
parameter is for. What a run does not reach, the f-strings of the source show.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from langchain_core.tools import StructuredTool

from parley.integrations.effects.review.rehearse import Answers, Sent, Stage, rehearse

MARK = re.compile(r"zq(\d+)x", re.IGNORECASE)
MARKED = "{mark}"
# An action that escapes a path parameter keeps the slashes and the question mark of this inside it.
TRAVERSAL = "{mark}/../{mark}?{mark}"
ADDRESS = "https://{mark}.example/path"
# Tried for the other texts where marks alone do not get an action as far as a request.
FILLINGS = (
    "1",
    "2026-01-01",
    "2026-01-01T00:00:00Z",
    '{{"a": {{"id": "1"}}}}',
    '[{{"a": "1", "email": "a@b.example"}}]',
)


@dataclass(slots=True)
class Seen:
    """What was seen of one action, by parameter name.

    ``raw`` parameters reach the path of a URL as they are, ``escaped`` ones encoded; ``hosts`` are
    part of a host name; ``fetched`` are URLs that are requested.
    """

    methods: set[str] = field(default_factory=set[str])
    raw: set[str] = field(default_factory=set[str])
    escaped: set[str] = field(default_factory=set[str])
    hosts: set[str] = field(default_factory=set[str])
    fetched: set[str] = field(default_factory=set[str])


@dataclass(frozen=True)
class Casting:
    """An action and what it is called with: the pretended credential, in each kind that connects it."""

    tool: StructuredTool
    credential: Mapping[str, object]
    auth_types: Sequence[str]

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema of what the function accepts."""
        model: Any = self.tool.args_schema
        return {"properties": {}, **model.model_json_schema()}

    @cached_property
    def names(self) -> list[str]:
        """The parameters, in the order that numbers their marks."""
        return list(self.schema["properties"])

    def mark(self, name: str) -> str:
        """The text that stands for a parameter."""
        return f"zq{self.names.index(name)}x"

    def sample(self, name: str, filling: str) -> object:
        """A value for a parameter, its texts filled."""
        described = self.schema["properties"][name]
        return _sample(described, self.schema.get("$defs", {}), self.mark(name), filling)

    def is_text(self, name: str) -> bool:
        """Whether any text may be sent for the parameter, alone or in a list or object."""
        return self.mark(name) in str(self.sample(name, MARKED))

    def arguments(self, names: Iterable[str], filling: str, auth_type: str | None = None) -> dict[str, object]:
        """A call with these parameters."""
        chosen = {name: self.sample(name, filling) for name in names}
        if "auth_data" in self.schema["properties"]:
            chosen |= {"auth_type": auth_type or self.auth_types[0], "auth_data": dict(self.credential)}
        return chosen


async def observe(stage: Stage | None, casting: Casting) -> Seen:
    """Run the action every way that could show something new, and read its source for the rest.

    Without a stage only the source is read, as it must be where a driver does not speak HTTP.
    """
    seen = Seen()
    if stage is None:
        _note_source(casting, seen)
        return seen
    await _follow_marks(stage, casting, seen)
    _note_source(casting, seen)
    for name in sorted(seen.raw):
        await _try_to_break_out(stage, casting, seen, name)
    for name in filter(casting.is_text, casting.names):
        stage.answers = Answers.OBJECT
        address = {name: casting.sample(name, ADDRESS)}
        for sent in await rehearse(stage, casting.tool, casting.arguments(casting.names, MARKED) | address):
            if sent.host == f"{casting.mark(name)}.example":
                seen.fetched.add(name)
    seen.raw -= seen.hosts | seen.fetched
    return seen


async def _follow_marks(stage: Stage, casting: Casting, seen: Seen) -> None:
    """Note where each mark goes. Where marks alone get no request out, mark one text at a time among plausible ones."""
    await _watch(stage, casting, seen, MARKED, {})
    for filling in FILLINGS:
        if seen.methods:
            return
        await _watch(stage, casting, seen, filling, {})
        for name in filter(casting.is_text, casting.names if seen.methods else ()):
            await _watch(stage, casting, seen, filling, {name: casting.sample(name, MARKED)})


async def _watch(stage: Stage, casting: Casting, seen: Seen, filling: str, fixed: Mapping[str, object]) -> None:
    """Run with all parameters and with the required ones only, and note what was sent."""
    required: Sequence[str] = casting.schema.get("required", ())
    for stage.answers in Answers:
        for names in (casting.names, required):
            for auth_type in casting.auth_types:
                arguments = casting.arguments(names, filling, auth_type)
                arguments |= {name: value for name, value in fixed.items() if name in names}
                for sent in await rehearse(stage, casting.tool, arguments):
                    _note(seen, casting.names, sent)


def _note(seen: Seen, names: Sequence[str], sent: Sent) -> None:
    seen.methods.add(sent.method)
    seen.hosts |= {names[int(number)] for number in MARK.findall(sent.host)}
    seen.raw |= {names[int(number)] for number in MARK.findall(unquote(sent.path))}


async def _try_to_break_out(stage: Stage, casting: Casting, seen: Seen, name: str) -> None:
    """Move a path parameter to ``escaped`` where its slashes and question mark stay inside it, encoded."""
    mark, paths = casting.mark(name), list[str]()
    required: Sequence[str] = casting.schema.get("required", ())
    for stage.answers in (Answers.OBJECT, Answers.TEXT, Answers.EMPTY):
        for names in (casting.names, required):
            arguments = casting.arguments({*names, name}, MARKED) | {name: casting.sample(name, TRAVERSAL)}
            paths += [sent.path.lower() for sent in await rehearse(stage, casting.tool, arguments)]
    reached = [path for path in paths if mark in path]
    if reached and all(f"{mark}%2f..%2f{mark}%3f{mark}" in path for path in reached):
        seen.raw.discard(name)
        seen.escaped.add(name)


# ── what an action is called with ───────────────────────────────────────────────────────────────


def _sample(described: Mapping[str, Any], shared: Mapping[str, Any], mark: str, filling: str) -> object:
    schema = _resolved(described, shared)
    if schema.get("enum"):
        return schema["enum"][0]
    match schema.get("type"):
        case "integer" | "number":
            return max(1, schema.get("minimum", 1))
        case "boolean":
            return True
        case "array":
            return [_sample(schema.get("items", {}), shared, mark, filling)]
        case "object":
            inner: Mapping[str, Any] = schema.get("properties", {})
            extra = schema.get("additionalProperties")
            if inner or not isinstance(extra, dict):
                return {name: _sample(inner[name], shared, mark, filling) for name in inner} or {mark: mark}
            return {mark: _sample(extra, shared, mark, filling)}
        case _:
            return filling.format(mark=mark)


def _resolved(described: Mapping[str, Any], shared: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema behind a reference or a choice; of choices the first that is not null."""
    if "$ref" in described:
        return _resolved(shared[described["$ref"].rpartition("/")[2]], shared)
    variants = [variant for variant in described.get("anyOf", ()) if variant.get("type") != "null"]
    return _resolved(variants[0], shared) if variants else described


# ── what the source says ────────────────────────────────────────────────────────────────────────


def _note_source(casting: Casting, seen: Seen) -> None:
    for name, escaped in _read(casting).items():
        if name not in seen.raw | seen.hosts:
            (seen.escaped if escaped else seen.raw).add(name)


def _read(casting: Casting) -> dict[str, bool]:
    """The text parameters in f-strings that look like a path; whether each is escaped everywhere."""
    function: Any = casting.tool.coroutine
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    sources = _flows(tree, casting.names)
    found: dict[str, bool] = {}
    for text in ast.walk(tree):
        if not isinstance(text, ast.JoinedStr):
            continue
        for expression in _path_parts(text):
            escaped = "quote" in ast.dump(expression)
            for name in set().union(*(sources.get(used, set()) for used in _names(expression))):
                if casting.is_text(name):
                    found[name] = escaped and found.get(name, True)
    return found


def _flows(tree: ast.AST, parameters: Iterable[str]) -> dict[str, set[str]]:
    """The parameters that each local name is made from."""
    flows: dict[str, set[str]] = {name: {name} for name in parameters}
    for _ in range(3):  # names made from names made from parameters
        for node in ast.walk(tree):
            match node:
                case ast.Assign(targets=[ast.Name(id=target)], value=value):
                    pass
                case (
                    ast.For(target=ast.Name(id=target), iter=value)
                    | ast.comprehension(target=ast.Name(id=target), iter=value)
                ):
                    pass
                case _:
                    continue
            for used in _names(value):
                flows.setdefault(target, set()).update(flows.get(used, set()))
    return flows


def _names(expression: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}


def _path_parts(text: ast.JoinedStr) -> Iterator[ast.expr]:
    """The placeholders behind a slash and before a question mark, in a text without spaces."""
    constants = [str(part.value) for part in text.values if isinstance(part, ast.Constant)]
    if " " in "".join(constants):
        return
    before = ""
    for part in text.values:
        if isinstance(part, ast.Constant):
            before += str(part.value)
        elif isinstance(part, ast.FormattedValue) and "/" in before and "?" not in before:
            yield part.value

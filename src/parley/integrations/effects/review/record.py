"""``python -m parley.integrations.effects.review.record`` makes ``data/pins.json`` again.

Every action is run offline with marked arguments and a marked credential, in every variation that may
lead elsewhere; the requests it makes, with the marks taken out, are what it may send from then on.
"""

import argparse
import ast
import asyncio
import base64
import inspect
import json
import logging
import re
import sys
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from parley.integrations.effects.review.make import ONLY_READ
from parley.integrations.effects.review.observe import ADDRESS, FILLINGS, MARKED, Casting
from parley.integrations.effects.review.rehearse import OFFLINE_HOST, Answers, Sent, Stage, offline, rehearse
from parley.integrations.effects.table import Effect, all_effects
from parley.integrations.index import SHIPPED, Integration, read_index, whole
from parley.integrations.loading import PREFIX
from parley.integrations.pins import ANSWERED, FETCHED, PINS, Pinned, all_pins

SECRET = "crd7x-crd7x"  # noqa: S105 - a mark; Mailchimp reads its host behind the hyphen
PLAIN_SECRET = "crd7x"  # noqa: S105 - the same without a hyphen
SITE = "crd7x.example"
BASE = f"https://{SITE}/crd7xbase"
NUMBER = 4_815_160_000  # the first of the numbers that mark identifiers
NUMBERED = ("id", "ids", "number", "num", "no", "index", "version", "key")
REGIONS = ("us", "eu")
FROM_CREDENTIAL = re.compile(r"crd7x(?:-crd7x)*(\.example)?(/crd7xbase)?", re.IGNORECASE)
MARK = re.compile(r"zq(\d+)x", re.IGNORECASE)
VARYING = re.compile(
    rf"{NUMBER // 10_000}\d{{4}}|anything|\b[0-9a-f]{{32,}}\b|[0-9a-f]{{8}}-[0-9a-f-]{{27}}"
    r"|\b\d{4}-\d\d-\d\d[^/]*|(?<=/)[01](?=/|$)",
    re.IGNORECASE,
)
HOST = re.compile(r"https?://([^/?#\s\"']+)")
MOST_CHOICES = 60
MOST_CHARACTERS = 60
type Values = Mapping[str, object]


def pretended(keys: Iterable[str], region: str, secret: str = SECRET) -> dict[str, object]:
    """A credential in which every value is marked, and those that must be of a certain make are."""
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    account = {
        "type": "service_account", "client_email": f"{SECRET}@x.example", "private_key": pem, "project_id": SECRET,
        "token_uri": "https://oauth2.googleapis.com/token", "private_key_id": "1", "client_id": "1",
    }  # fmt: skip
    made: dict[str, object] = {"private_key": pem, "key_json": json.dumps(account), "region": region}
    made["api_secret"] = base64.b64encode(bytes(64)).decode()  # Coinbase signs with it
    made |= dict.fromkeys(("access_token", "token", "api_key", "bearer_token"), secret)
    for name in keys:
        if "url" in name or "uri" in name or name == "api_domain":
            made.setdefault(name, BASE)
        elif "domain" in name or "host" in name:
            made.setdefault(name, SITE)
        else:
            made.setdefault(name, SECRET)
    return made


class Recorder:
    """Runs one action's variations and keeps what it sent, marks taken out."""

    def __init__(self, stage: Stage, casting: Casting, effect: Effect) -> None:
        self.requests: set[str] = set()
        self.hosts: set[str] = set()
        self._stage = stage
        self._casting = casting
        self._slashed = {casting.names.index(name) for name in effect.slashed_paths if name in casting.names}
        self._own = [name for name in casting.names if name not in effect.bound]
        self._bound = effect.bound
        self._addresses = {*effect.urls, *effect.fetched}
        self._words = words_of(casting)

    async def record(self) -> None:
        """Run every variation with every kind of answer; plausible texts only where marks get no request out."""
        for filling in (MARKED, *FILLINGS):
            if self.requests:
                return
            for arguments in self._variations(filling):
                for self._stage.answers in Answers:
                    for sent in await rehearse(self._stage, self._casting.tool, arguments):
                        self._note(sent)

    def _variations(self, filling: str) -> Iterator[dict[str, object]]:
        required: Sequence[str] = [name for name in self._casting.schema.get("required", ()) if name in self._own]
        whole = {name: self._value(name, filling) for name in self._own}
        least = {name: whole[name] for name in required}
        for auth_type in self._casting.auth_types:
            bound = {name: self._casting.credential[name] for name in self._bound if name in self._casting.credential}
            if "auth_data" in self._bound:
                bound |= {"auth_type": auth_type, "auth_data": dict(self._casting.credential)}
            yield whole | bound
            yield least | bound
            for name in self._own:
                if name not in least:
                    yield least | {name: whole[name]} | bound
                for choice in self._choices(name):
                    yield whole | {name: choice} | bound
                    yield least | {name: choice} | bound

    def _value(self, name: str, filling: str) -> object:
        if name in self._addresses:
            return self._casting.sample(name, ADDRESS)
        value = self._casting.sample(name, filling)
        described = str(self._casting.schema["properties"][name])
        if type(value) is int and "maximum" not in described and name.lower().split("_")[-1].endswith(NUMBERED):
            return NUMBER + self._casting.names.index(name)
        return value

    def _choices(self, name: str) -> list[object]:
        described = self._casting.schema["properties"][name]
        for variant in (described, *described.get("anyOf", ())):
            if variant.get("type") == "boolean":
                return [False]
            if variant.get("enum"):
                return list(variant["enum"])[1:MOST_CHOICES]
        return [*sorted(self._words.get(name, ()))[:MOST_CHOICES]]

    def _note(self, sent: Sent) -> None:
        if sent.path.startswith("//"):  # an answer that is a whole address, put behind one
            return
        if sent.host == OFFLINE_HOST:
            self.requests.add(f"{sent.method} {ANSWERED}/**")
        elif MARK.fullmatch(sent.host.removesuffix(".example")):
            self.requests.add(f"{sent.method} {FETCHED}/**")
        else:
            host = FROM_CREDENTIAL.sub("{}", VARYING.sub("*", MARK.sub("*", sent.host)))
            if host == "*":  # an answer named it
                self.requests.add(f"{sent.method} {ANSWERED}{self._template(sent.path)}")
            else:
                self.hosts.add(host)
                self.requests.add(f"{sent.method} {self._template(sent.path)}")

    def _template(self, path: str) -> str:
        head, base = ("{}", path.removeprefix("/crd7xbase")) if path.startswith("/crd7xbase") else ("", path)
        marked = MARK.sub(lambda found: "**" if int(found[1]) in self._slashed else "*", base)
        marked = re.sub(r"https(://|%3A%2F%2F)\*\.example(/|%2F)path", "*", marked, flags=re.IGNORECASE)
        found = re.sub(r"(?<!\*)\*(\*\*)+|\*\*\*+", "**", VARYING.sub("*", FROM_CREDENTIAL.sub("{}", marked)))
        return f"{head}{found}" if head.startswith("/") else f"/{head}{found[1:]}" if not head else f"{head}{found}"


def words_of(casting: Casting) -> dict[str, set[str]]:
    """The texts that the source compares each parameter with, or looks up by it, helpers of the module included."""
    function: Any = inspect.unwrap(casting.tool.coroutine)  # pyright: ignore[reportArgumentType]
    found: dict[str, set[str]] = {}
    _read_words(function, {name: name for name in casting.names}, found, depth=2)
    return found


def _read_words(function: Any, names: Mapping[str, str], found: dict[str, set[str]], *, depth: int) -> None:
    """``names`` says which parameter a local name stands for."""
    tree, known = ast.parse(textwrap.dedent(inspect.getsource(function))), function.__globals__
    for node in ast.walk(tree):
        for key, table in _looked_up(node):
            for used in ast.walk(key):
                if isinstance(used, ast.Name) and used.id in names:
                    found.setdefault(names[used.id], set()).update(_texts_in(table, known))
        match node:
            case ast.Call(func=ast.Name(id=called), args=given) if depth and inspect.isfunction(known.get(called)):
                helper = known[called]
                inner = zip(inspect.signature(helper).parameters, given, strict=False)
                passed = {name: names[one.id] for name, one in inner if isinstance(one, ast.Name) and one.id in names}
                if passed and helper.__module__ == function.__module__:
                    _read_words(helper, passed, found, depth=depth - 1)
            case _:
                continue


def _looked_up(node: ast.AST) -> list[tuple[ast.AST, ast.AST]]:
    """What is looked for, and where: comparisons both ways, subscripts, ``get``."""
    match node:
        case ast.Compare(left=left, comparators=[right]):
            return [(left, right), (right, left)]
        case (
            ast.Subscript(value=table, slice=key)
            | ast.Call(func=ast.Attribute(value=table, attr="get"), args=[key, *_])
        ):
            return [(key, table)]
        case _:
            return []


def _texts_in(expression: ast.AST, known: Mapping[str, object]) -> set[str]:
    """The texts that an expression spells, or that a table of the module has as members or keys."""
    found: set[str] = set()
    for node in ast.walk(expression):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        if isinstance(node, ast.Name) and isinstance(known.get(node.id), dict | set | frozenset | tuple | list):
            found.update(one for one in cast("Iterable[object]", known[node.id]) if isinstance(one, str))
    return {text for text in found if 0 < len(text) < MOST_CHARACTERS}


def source_hosts(integration: str) -> set[str]:
    """The hosts that the integration's source spells, a placeholder being one label."""
    tree = ast.parse(inspect.getsource(import_module(f"{PREFIX}{integration}.tools")))
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values)
        else:
            continue
        found.update(host.lower().partition(":")[0] for host in HOST.findall(text) if not host.startswith(("*", "{")))
    return {host for host in found if re.fullmatch(r"[a-z0-9.*-]+\.[a-z]{2,}", host) and "example" not in host}


async def record(integration: Integration, effects: Mapping[str, Effect]) -> Pinned:
    """The pins of one integration."""
    module: Any = import_module(f"{PREFIX}{integration.name}")
    keys = [field.key for schema in integration.auth_schemas for field in schema.fields]
    regions = ("crd7x", *REGIONS) if "region" in keys else ("crd7x",)
    auth_types = list(dict.fromkeys(schema.auth_type for schema in integration.auth_schemas)) or ["api_key"]
    hosts, actions = source_hosts(integration.name), dict[str, tuple[str, ...]]()
    with offline() as stage:
        for tool in module.TOOLS:
            found: set[str] = set()
            variants = [pretended(keys, region) for region in regions]
            if not actions:  # a secret of another make may lead to a host of its own
                variants.append(pretended(keys, regions[0], PLAIN_SECRET))
            for credential in variants:
                casting = Casting(tool, credential, auth_types)
                recorder = Recorder(stage, casting, effects[f"{integration.name}.{tool.name}"])
                await recorder.record()
                found |= recorder.requests
                hosts |= recorder.hosts
            actions[tool.name] = tuple(sorted(found))
    return Pinned(tuple(sorted(hosts)), actions)


def lines_of(pins: Mapping[str, Pinned]) -> bytes:
    """The file as text: one line an action."""
    blocks = []
    for name, pinned in pins.items():
        rows = (f"  {json.dumps(action)}: {json.dumps(list(sent))}" for action, sent in pinned.actions.items())
        body = ",\n".join(rows)
        blocks.append(f' {json.dumps(name)}: {{"hosts": {json.dumps(list(pinned.hosts))}, "actions": {{\n{body}\n }}}}')
    return ("{\n" + ",\n".join(blocks) + "\n}\n").encode()


def main() -> None:
    """Make the file, whole or for the integrations named; ``--output FILE`` writes elsewhere."""
    options = argparse.ArgumentParser(prog="python -m parley.integrations.effects.review.record", description=__doc__)
    options.add_argument("--output", default=str(PINS))
    options.add_argument("names", nargs="*", help="only these integrations")
    chosen = options.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    effects = all_effects()
    pins = dict(all_pins()) if PINS.exists() else {}
    catalog = [whole(summary) for summary in read_index(SHIPPED).integrations]
    for integration in catalog:
        if integration.name in ONLY_READ or (chosen.names and integration.name not in chosen.names):
            continue
        pins[integration.name] = asyncio.run(record(integration, effects))
        sys.stdout.write(f"{integration.name}: {len(pins[integration.name].actions)}\n")
        sys.stdout.flush()
    Path(chosen.output).write_bytes(lines_of({name: pins[name] for name in sorted(pins)}))


if __name__ == "__main__":
    main()

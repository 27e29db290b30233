"""Drift alarm: what the installed package does on this machine and with certificates, read from its source (T7, T8).

A new version that opens a file, starts a process or skips a certificate check turns one of these red, until
somebody has looked at it and wrapped it or switched it off.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from parley.egress import Guard, Refused
from parley.integrations import Catalog

CALLS = {
    "open", "eval", "exec", "compile", "__import__", "mkstemp", "mkdtemp", "mktemp", "NamedTemporaryFile",
    "TemporaryFile", "TemporaryDirectory", "SpooledTemporaryFile", "unlink", "remove", "rmtree", "copyfile", "system",
    "popen", "Popen", "check_output", "write_text", "write_bytes", "read_text", "read_bytes", "getenv", "expanduser",
    "load_cert_chain", "load_verify_locations", "create_subprocess_exec", "create_subprocess_shell",
}  # fmt: skip
WORDS = re.compile(rf"\b(?:{'|'.join(sorted(CALLS))})\(|/tmp/|verify\s*=|CERT_NONE|_create_unverified")
# Where the package does such a thing, and what keeps it harmless.
REVIEWED = {
    "microsoft_onedrive": {"open"},  # switched off: one folder for all organizations
    "elevenlabs": {"NamedTemporaryFile", "unlink"},  # a private file of its own, removed after the call
}
UNVERIFIED = {
    "obsidian": {"verify=False"},  # the guard refuses it but at places the operator opened
    "mysql": {"CERT_NONE"},  # skip_verification is replaced by verify
    "postgresql": {"CERT_NONE"},  # likewise
}


@cache
def read() -> list[tuple[str, ast.AST]]:
    return list(sources())


def sources() -> Iterator[tuple[str, ast.AST]]:
    """Every module of the package that runs, with the integration it belongs to."""
    spec = find_spec("modulex_integrations")
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    for path in sorted(root.rglob("*.py")):
        inside: list[str] = list(path.relative_to(root).parts)
        text = path.read_text(encoding="utf-8")
        if "tests" not in inside and WORDS.search(text):  # parsing all of it takes half a minute
            yield (inside[1] if inside[0] == "tools" and len(inside) > 2 else inside[0]), ast.parse(text)


def called(node: ast.AST) -> str:
    match node:
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
            return name
        case _:
            return ""


def test_every_reach_for_this_machine_is_known() -> None:
    found: dict[str, set[str]] = {}
    for name, tree in read():
        for node in ast.walk(tree):
            text = called(node)
            literal = isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("/tmp/")
            if text in CALLS and not (text in ("compile", "remove") and "re" in ast.dump(node)[:80]):
                found.setdefault(name, set()).add(text)
            if literal and name not in REVIEWED:
                found.setdefault(name, set()).add("/tmp")
    assert {name: calls for name, calls in found.items() if not name.startswith("_")} == REVIEWED


def test_every_skipped_certificate_check_is_known() -> None:
    found: dict[str, set[str]] = {}
    for name, tree in read():
        for node in ast.walk(tree):
            match node:
                case ast.keyword(arg="verify", value=ast.Constant(value=False)):
                    found.setdefault(name, set()).add("verify=False")
                case ast.Attribute(attr="CERT_NONE" | "_create_unverified_context" as said):
                    found.setdefault(name, set()).add(said)
                case _:
                    continue
    assert found == UNVERIFIED


def test_each_of_them_is_wrapped_or_off(catalog: Catalog) -> None:
    onedrive, mysql, postgresql = (catalog.find(name) for name in ("microsoft_onedrive", "mysql", "postgresql"))
    assert onedrive is not None
    assert mysql is not None
    assert postgresql is not None
    download = catalog.action(onedrive, "download_file")
    assert download is not None
    assert download.switched_off
    for database in (mysql, postgresql):
        assert database.replaced["ssl_mode"]["skip_verification"] == "verify"
    with pytest.raises(Refused, match="with a certificate that it can check"):
        Guard().check_url("https", "notes.example.com", 443, verified=False)
    Guard(["notes.example.com"]).check_url("https", "notes.example.com", 443, verified=False)

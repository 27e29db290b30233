"""Whatever schemathesis thinks of, the server answers as its OpenAPI says (issue 5).

Every operation gets requests that fit its schema and requests that do not. An answer must have a
declared status, media type and body; none is a bug's 500, and none is given without a key where one is
asked for. ``make schemathesis`` asks far more often, at random and on both stores.
"""

import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests
import schemathesis
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import Case
from schemathesis.checks import CheckContext
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok, Result
from schemathesis.core.transport import Response
from schemathesis.generation import GenerationMode
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from tests.conftest import STORES, fresh_database
from tests.contract.conftest import ORGANIZATION
from tests.fuzzing import bounded

type Operation = APIOperation[Any, Any, Any, Any]

EXAMPLES = int(os.environ.get("PARLEY_SCHEMA_EXAMPLES", "3"))
FULL = "PARLEY_SCHEMA_EXAMPLES" in os.environ
START_SECONDS = 60.0
ANSWER_SECONDS = 30.0
# These need no key: what they tell is public, or what they are sent is itself the proof.
OPEN = {
    "GET /system/health",
    "GET /knowledge-bases/info/supported-file-types",
    "GET /app/logos/{name}",
    "POST /auth/invitations/open",
    "POST /auth/session",
    "DELETE /auth/session",
    "POST /subscriptions/webhook",
}
CHECKS = [
    allow_header_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
]


@dataclass(frozen=True, slots=True)
class Desk:
    """A server process, a key to it, and an id of each kind that it has."""

    base_url: str
    headers: Mapping[str, str]
    ids: Mapping[str, str]
    log: Path


@pytest.fixture(scope="module", params=STORES if FULL else STORES[:1])
async def store_at(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres_template: str | None
) -> Any:
    async with fresh_database(str(request.param), tmp_path_factory.mktemp("store"), postgres_template) as url:
        yield url


@pytest.fixture(scope="module")
def desk(store_at: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("desk")
    key, log = f"mx_live_{uuid4().hex}", folder / "log"
    nowhere = dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"), "http://127.0.0.1:9")
    environment = {
        **os.environ,
        **nowhere,
        "PARLEY_PORT": "0",
        "PARLEY_DATA_DIR": str(folder / "data"),
        "PARLEY_DATABASE_URL": store_at,
        "PARLEY_BOOTSTRAP_API_KEY": key,
        "PARLEY_BOOTSTRAP_ORGANIZATION_ID": ORGANIZATION,
        "PARLEY_ALLOW_PRIVATE_HOSTS": "127.0.0.1",
        "OLLAMA_HOST": "http://127.0.0.1:9",
        "PYTHONUNBUFFERED": "1",
    }
    command = [sys.executable, "-m", "parley", "serve"]
    with log.open("wb") as out, subprocess.Popen(command, env=environment, stdout=out, stderr=out) as process:
        try:
            base_url = _where(process, log)
            headers = {"Authorization": f"Bearer {key}", "X-Organization-ID": ORGANIZATION}
            yield Desk(base_url, headers, _possessions(base_url, headers), log)
        finally:
            process.kill()


def _where(process: "subprocess.Popen[bytes]", log: Path) -> str:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text()
        for line in log.read_text().splitlines():
            if "Parley answers on " in line:
                return line.partition("Parley answers on ")[2].strip()
        time.sleep(0.05)
    pytest.fail(f"it did not start: {log.read_text()}")


def _possessions(base_url: str, headers: Mapping[str, str]) -> dict[str, str]:
    """One id of each kind, so that requests get behind the first 404."""

    def made(path: str, **request: Any) -> Any:
        answer = requests.post(base_url + path, headers=headers, timeout=ANSWER_SECONDS, **request)
        assert answer.ok, (path, answer.text)
        return answer.json()

    turn = made("/assistant/chat", json={"message": "Hello"})
    base = made("/knowledge-bases", json={"name": "Papers"})["id"]
    document = made(f"/knowledge-bases/{base}/documents", files={"file": ("a.txt", io.BytesIO(b"Words."))})["id"]
    github = {"integration_name": "github", "auth_type": "bearer_token", "auth_data": {"token": "ghp_x"}}
    me = requests.get(f"{base_url}/auth/me", headers=headers, timeout=ANSWER_SECONDS).json()
    return {
        "chat_id": turn["chat_id"],
        "run_id": turn["run_id"],
        "base_id": base,
        "document_id": document,
        "credential_id": made("/credentials", json=github)["credential_id"],
        "invitation_id": made("/organizations/invite", json={"invited_email": "a@example.com"})["invitation"]["id"],
        "key_id": made("/api-keys", json={"name": "other"})["id"],
        "user_id": str(me.get("id") or me["user"]["id"]),
        "organization_id": ORGANIZATION,
        "name": "github",
    }


@pytest.fixture(scope="module")
def operations(desk: Desk) -> list[Operation]:
    schema = schemathesis.openapi.from_url(f"{desk.base_url}/openapi.json")
    return [_described(found) for found in schema.get_all_operations()]


def _described(found: Result[Operation, Any]) -> Operation:
    assert isinstance(found, Ok), found
    return found.ok()


@pytest.mark.timeout(7_200 if FULL else 300)
async def test_every_answer_is_as_the_openapi_says(desk: Desk, operations: list[Operation]) -> None:
    told = dict[str, str]()
    with requests.Session() as session:
        for operation in operations:
            for mode in GenerationMode:
                # An operation that takes nothing can be given nothing wrong.
                with suppress(Unsatisfiable):
                    _ask(desk, session, operation, mode, told)
    assert told == {}, "\n\n".join(f"{name}\n{fault}" for name, fault in told.items())
    assert "Traceback" not in desk.log.read_text()


def _ask(
    desk: Desk,
    session: requests.Session,
    operation: Operation,
    mode: GenerationMode,
    told: dict[str, str],
) -> None:
    """Send one operation that many requests; the first fault of each make goes into ``told``."""

    @bounded(EXAMPLES, at_random=FULL)
    @given(case=operation.as_strategy(generation_mode=mode), ours=st.booleans())
    def ask(case: Case[Any], ours: bool) -> None:
        if ours and operation.method != "delete":  # what other requests need stays
            case.path_parameters |= {name: desk.ids[name] for name in case.path_parameters if name in desk.ids}
        headers = {**desk.headers}
        answer = case.call(base_url=desk.base_url, session=session, headers=headers, timeout=ANSWER_SECONDS)
        try:
            case.validate_response(answer, checks=[no_bug, *CHECKS], headers=headers)
        except FailureGroup as group:
            for fault in group.exceptions:
                told.setdefault(
                    f"{operation.label} {mode.value} {type(fault).__name__}", _in_words(case, answer, fault)
                )

    ask()


def no_bug(_context: CheckContext, answer: Response, _case: Case[Any]) -> None:
    """503 is a refusal ("not possible right now") and must be declared; any other 5xx is a bug."""
    assert answer.status_code < 500 or answer.status_code == 503, answer.text


def _in_words(case: Case[Any], answer: Response, fault: BaseException) -> str:
    return f"{case.as_curl_command()[:600]}\n→ {answer.status_code} {answer.text[:300]}\n{str(fault)[:600]}"


async def test_every_operation_asks_for_a_key_and_says_so(desk: Desk, operations: list[Operation]) -> None:
    said = {each.label for each in operations if not each.definition.raw.get("security")}
    assert said == OPEN
    for operation in operations:
        if operation.label in OPEN:
            continue
        path = operation.path.format_map(dict.fromkeys(_names(operation), str(uuid4())))
        for wrong in ({}, {"Authorization": f"Bearer mx_live_{uuid4().hex}"}, {"Authorization": "Basic eA=="}):
            headers = {"X-Organization-ID": ORGANIZATION, **wrong}
            answer = requests.request(
                operation.method, desk.base_url + path, headers=headers, json={}, timeout=ANSWER_SECONDS
            )
            assert answer.status_code == 401, (operation.label, answer.text)


def _names(operation: Operation) -> list[str]:
    return [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]


async def test_every_success_is_described(operations: list[Operation]) -> None:
    """A body without a shape could be anything, and no answer would ever breach it."""
    unsaid = set[str]()
    for operation in operations:
        for status, response in operation.definition.raw["responses"].items():
            if status in ("202", "204"):
                continue
            media = response.get("content", {})
            shaped = [kind for kind, each in media.items() if each.get("schema") or not kind.endswith("json")]
            if not media or len(shaped) != len(media):
                unsaid.add(f"{operation.label} {status}")
    assert unsaid == set()

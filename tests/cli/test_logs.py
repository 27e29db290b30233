"""T22: one record is one line, whatever is in it."""

import asyncio
import io
import json
import logging
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parley.base.settings import SettingsError, read_settings
from parley.cli.logs import JsonLine, TextLine
from parley.storage.acting import acting_for
from parley.testing.scripted_model import ScriptedModel
from parley.testing.scripted_wire import ScriptedReply
from parley.testing.server import server_process
from tests.contract.conftest import ORGANIZATION
from tests.stage import caller, new_model_key

FORGED = 'x\r\n{"time": "2026", "level": "CRITICAL", "message": "forged"}\n\x1b[2J\u202e\u2028\x85\x00\x7f'


def _written(formatter: logging.Formatter, message: str, failed: bool = False) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    record = logging.LogRecord("parley.test", logging.INFO, __file__, 1, "said %s", (message,), None)
    if failed:
        try:
            raise ValueError(message)
        except ValueError:
            record.exc_info = sys.exc_info()
    handler.handle(record)
    return stream.getvalue()


@given(st.text())
@example(FORGED)
@example("\ud800")
def test_T22_a_record_is_one_parseable_line_of_json(message: str) -> None:
    for failed in (False, True):
        line = _written(JsonLine(), message, failed)
        assert line.isascii() and line.endswith("\n") and line.count("\n") == 1
        assert all(" " <= each <= "~" for each in line[:-1])
        assert json.loads(line)["message"] == f"said {message}"


@given(st.text())
@example(FORGED)
def test_T22_no_message_begins_a_line_of_text_or_moves_the_terminal(message: str) -> None:
    line, *rest = _written(TextLine(), message, failed=True).rstrip("\n").split("\n")
    assert line.isprintable()
    for each in rest:
        assert each.startswith("    | ") and each.isprintable()


def test_T22_a_line_says_for_which_organization_and_run() -> None:
    with acting_for("an-organization"):
        assert json.loads(_written(JsonLine(), "x"))["organization"] == "an-organization"
        assert " org=an-organization " in _written(TextLine(), "x")
    assert "organization" not in json.loads(_written(JsonLine(), "x"))


async def test_T22_what_a_server_logs_in_a_turn_names_its_organization_and_run(
    model: ScriptedModel, tmp_path: Path
) -> None:
    key, model_key = f"mx_live_{uuid4().hex}", new_model_key()
    environment = {
        "PARLEY_DATA_DIR": str(tmp_path),
        "PARLEY_LOG_FORMAT": "json",
        "PARLEY_BOOTSTRAP_API_KEY": key,
        "PARLEY_BOOTSTRAP_ORGANIZATION_ID": ORGANIZATION,
        "PARLEY_ALLOW_PRIVATE_HOSTS": "127.0.0.1",
        "OLLAMA_HOST": "http://127.0.0.1:9",
    }
    await model.script(model_key, ScriptedReply(status=401))
    async with server_process(environment) as server, caller(server.base_url, key, ORGANIZATION) as client:
        auth = {"api_key": model_key, "base_url": model.openai_url}
        assert (await client.post("/credentials", {"integration_name": "openai", "auth_data": auth})).status == 201
        llm = {"integration_name": "openai", "provider_id": "openai", "model_id": "gpt-4o"}
        started = (await client.post("/assistant/chat", {"message": "Hi", "llm": llm})).body
        await client.listen(started["chat_id"], started["run_id"])
        async with asyncio.timeout(20):
            while not (told := [line for line in server.output if "answered 401" in line]):
                await asyncio.sleep(0.01)
        line = json.loads(told[0])
        assert (line["organization"], line["run"]) == (ORGANIZATION, started["run_id"])
        assert line["level"] == "WARNING"


def test_the_form_of_the_log_is_the_operators_choice() -> None:
    assert read_settings({"PARLEY_LOG_FORMAT": "json"}).log_format == "json"
    assert read_settings({}).log_format is None
    with pytest.raises(SettingsError, match="PARLEY_LOG_FORMAT must be json or text"):
        read_settings({"PARLEY_LOG_FORMAT": "xml"})

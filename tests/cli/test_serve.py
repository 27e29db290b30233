"""``parley serve``: where it says it is; where it cannot be, one sentence, and nothing made or left behind."""

import socket
from pathlib import Path

from parley.testing.server import server_process
from tests.cli.conftest import command


async def test_a_port_that_is_taken_is_told_before_anything_is_made(tmp_path: Path) -> None:
    data = tmp_path / "var"
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        ended = await command("serve", environment={"PARLEY_DATA_DIR": str(data), "PARLEY_PORT": str(port)})
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == f"parley: Port {port} on 127.0.0.1 is taken; choose another with PARLEY_PORT.\n"
    assert not data.exists()


async def test_an_address_of_another_machine_is_told_before_anything_is_made(tmp_path: Path) -> None:
    data = tmp_path / "var"
    variables = {"PARLEY_DATA_DIR": str(data), "PARLEY_HOST": "192.0.2.1", "PARLEY_PORT": "0"}
    ended = await command("serve", environment=variables)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("parley: Nothing can listen on 192.0.2.1:0: ")
    assert ended.err.endswith("Correct PARLEY_HOST.\n")
    assert not data.exists()


async def test_the_first_link_leads_to_the_port_that_the_system_chose(tmp_path: Path) -> None:
    variables = {"PARLEY_DATA_DIR": str(tmp_path / "var"), "PARLEY_PORT": "0", "OLLAMA_HOST": "http://127.0.0.1:9"}
    async with server_process(variables) as server:
        printed = next(line for line in server.output if "Sign in" in line)
        assert f"{server.base_url}/app/#sign-in=" in printed

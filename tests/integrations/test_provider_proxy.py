"""The proxy in front of provider APIs: it answers for registered hosts and nobody else."""

import asyncio
import os
import secrets
import ssl
import sys
from collections.abc import AsyncIterator

import aiohttp
import httpx
import pytest

from parley.testing.fake_github import FakeGitHub
from parley.testing.provider_proxy import Answer, Asked, ProviderProxy, json_answer


async def test_a_registered_host_answers_over_tls_and_is_written_down(proxy: ProviderProxy) -> None:
    async def provider(asked: Asked) -> Answer:
        return json_answer({"you": asked.json})

    proxy.answer("api.acme.test", provider)
    async with httpx.AsyncClient() as client:
        response = await client.post("https://api.acme.test/v1/things?limit=2", json={"a": 1})
    assert response.json() == {"you": {"a": 1}}
    asked = proxy.asked[0]
    assert (asked.method, asked.host, asked.path, asked.query) == (
        "POST",
        "api.acme.test",
        "/v1/things",
        {"limit": "2"},
    )


async def test_a_connection_serves_several_requests(proxy: ProviderProxy) -> None:
    async def provider(asked: Asked) -> Answer:
        return Answer(200, asked.path.encode())

    proxy.answer("api.acme.test", provider)
    async with httpx.AsyncClient() as client:
        answers = [(await client.get(f"https://api.acme.test/{number}")).text for number in range(3)]
    assert answers == ["/0", "/1", "/2"]


async def test_an_unknown_host_is_refused_and_written_down(proxy: ProviderProxy) -> None:
    async with httpx.AsyncClient() as client:
        with pytest.raises(httpx.ProxyError):
            await client.get("https://elsewhere.test/")
        assert (await client.get("http://plain.test/")).status_code == 502
    assert proxy.refused == ["elsewhere.test", "plain.test"]


async def test_a_body_can_come_in_pieces_in_both_directions(proxy: ProviderProxy) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b"one ", b"two"):
            yield piece

    async def provider(asked: Asked) -> Answer:
        assert asked.body == b"one two"
        return Answer(200, pieces())

    proxy.answer("api.acme.test", provider)
    async with httpx.AsyncClient() as client:
        assert (await client.post("https://api.acme.test/", content=pieces())).text == "one two"


async def test_another_process_is_led_here_by_the_environment(proxy: ProviderProxy) -> None:
    fake = FakeGitHub(secrets.token_hex(8))
    proxy.answer("api.github.com", fake)
    script = (
        "import httpx, sys\n"
        "headers = {'Authorization': f'Bearer {sys.argv[1]}'}\n"
        "print(httpx.get('https://api.github.com/user', headers=headers).json()['login'])"
    )
    environment = {**os.environ, **proxy.environment}
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, fake.token, stdout=asyncio.subprocess.PIPE, env=environment
    )
    async with asyncio.timeout(30):
        said, _ = await child.communicate()
    assert said.decode().strip() == "octocat"


async def test_aiohttp_is_led_here_too(proxy: ProviderProxy) -> None:
    fake = FakeGitHub(secrets.token_hex(8))
    proxy.answer("api.github.com", fake)
    url, trusted = "https://api.github.com/user", ssl.create_default_context()
    async with aiohttp.ClientSession(trust_env=True) as session, session.get(url, ssl=trusted) as response:
        assert response.status == 401
    assert fake.created == []

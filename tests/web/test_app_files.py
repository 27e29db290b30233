"""How the build is served: what answers with the app, what is missing, what may be kept."""

import gzip
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from parley.http import app_files
from parley.http.errors import install_errors

PAGE = b"<!doctype html><title>Parley</title>"
SCRIPT = b"export const answer = 42;\n" * 100


@pytest.fixture
def build(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_bytes(PAGE)
    (tmp_path / "assets" / "index-abc.js").write_bytes(SCRIPT)
    (tmp_path / "assets" / "index-abc.js.gz").write_bytes(gzip.compress(SCRIPT))
    (tmp_path / "assets" / "index-abc.js.br").write_bytes(b"not really brotli")
    (tmp_path / "build.json").write_text("{}")
    return tmp_path


@asynccontextmanager
async def asking(directory: Path) -> AsyncGenerator[httpx.AsyncClient]:
    app = FastAPI()
    app.include_router(app_files.routes(directory))
    install_errors(app)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://parley.test") as client:
        client.headers["accept-encoding"] = "identity"
        yield client


@pytest.fixture
async def client(build: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(build) as each:
        yield each


@pytest.mark.parametrize("path", ["/", "/app"])
async def test_the_way_in_leads_to_the_app(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert (answer.status_code, answer.headers["location"]) == (307, "/app/")


@pytest.mark.parametrize("path", ["/app/", "/app/c/1234", "/app/settings/keys"])
async def test_a_pages_address_answers_with_the_app_and_its_policy(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert (answer.status_code, answer.content) == (200, PAGE)
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin-allow-popups"
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert {"default-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} <= set(
        policy.split("; ")
    )


async def test_a_file_with_a_hash_in_its_name_is_kept_for_ever(client: httpx.AsyncClient) -> None:
    answer = await client.get("/app/assets/index-abc.js")
    assert (answer.status_code, answer.content) == (200, SCRIPT)
    assert "javascript" in answer.headers["content-type"]
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"


@pytest.mark.parametrize(
    "path", ["/app/assets/gone-123.js", "/app/gone.js", "/app/build.json", "/app/../app_files.py", "/app/logos/x"]
)
@pytest.mark.parametrize("accept", ["*/*", "text/html"])
async def test_a_missing_file_is_404_in_json_whatever_is_accepted(
    client: httpx.AsyncClient, path: str, accept: str
) -> None:
    answer = await client.get(path, headers={"accept": accept})
    assert answer.status_code == 404
    assert answer.json() == {"detail": "Not found"}
    assert "immutable" not in answer.headers.get("cache-control", "")


async def test_an_unknown_api_path_is_not_answered_with_the_app(client: httpx.AsyncClient) -> None:
    answer = await client.get("/assistant/nope", headers={"accept": "text/html"})
    assert (answer.status_code, answer.json()) == (404, {"detail": "Not found"})


@pytest.mark.parametrize(
    ("accepted", "sent"),
    [("gzip, deflate, br", "br"), ("gzip", "gzip"), ("gzip;q=1.0, br;q=0", "gzip"), ("identity", None), ("", None)],
)
async def test_the_smallest_copy_a_client_takes_is_sent(
    client: httpx.AsyncClient, accepted: str, sent: str | None
) -> None:
    request = client.build_request("GET", "/app/assets/index-abc.js", headers={"accept-encoding": accepted})
    answer = await client.send(request, stream=True)
    assert answer.headers.get("content-encoding") == sent
    assert answer.headers["vary"] == "Accept-Encoding"
    await answer.aclose()


async def test_a_page_that_has_not_changed_is_not_sent_again(client: httpx.AsyncClient) -> None:
    etag = (await client.get("/app/")).headers["etag"]
    again = await client.get("/app/c/77", headers={"if-none-match": etag})
    assert (again.status_code, again.content) == (304, b"")


async def test_head_tells_the_size_and_sends_nothing(client: httpx.AsyncClient) -> None:
    answer = await client.head("/app/")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-length"] == str(len(PAGE))


async def test_without_a_build_the_app_says_so(tmp_path: Path) -> None:
    async with asking(tmp_path) as client:
        answer = await client.get("/app/")
        assert answer.status_code == 503
        assert "npm run build" in answer.json()["detail"]

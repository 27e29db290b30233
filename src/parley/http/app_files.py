"""The web app under ``/app/``: the committed build, served from memory.

The build is about 600 KB, so all of it is read once, with the compressed copies the build made.
``web/`` holds its sources; ``static/build.json`` ties the two together.
"""

import hashlib
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from parley.base.errors import NotFound, Unavailable

STATIC = Path(__file__).parent / "static"
INDEX = "index.html"
STAMP = "build.json"
# Best first; the name on the wire and the ending of the file.
ENCODINGS = {"br": ".br", "gzip": ".gz"}

FOREVER = "public, max-age=31536000, immutable"
ASK_AGAIN = "no-cache"

POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
# Sign-in windows of providers must keep their hold on the page that opened them.
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin-allow-popups",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class NotBuilt(Unavailable):
    """The web app is not part of this installation. Run `npm ci && npm run build` in web/, or use the API."""


class NoSuchFile(NotFound):
    """Not found"""


@dataclass(frozen=True, slots=True)
class AppFile:
    """One file of the build. ``encoded`` holds its compressed copies by the name of their encoding."""

    body: bytes
    encoded: Mapping[str, bytes]
    media_type: str
    etag: str


def read_build(directory: Path) -> Mapping[str, AppFile]:
    """The files of a build by their path below it; empty where there is none."""
    if not (directory / INDEX).is_file():
        return {}
    hidden = {STAMP, *(f"{STAMP}{ending}" for ending in ENCODINGS.values())}
    paths = [path for path in sorted(directory.rglob("*")) if path.is_file() and path.name not in hidden]
    return {
        path.relative_to(directory).as_posix(): _read(path) for path in paths if path.suffix not in ENCODINGS.values()
    }


def routes(directory: Path = STATIC) -> APIRouter:
    """``/``, ``/app`` and all under ``/app/``. Include it last: it answers whatever nothing else under ``/app/`` does.

    A page's address answers with the app itself, so that it can be opened and reloaded; a missing
    file is 404, so that a stale page never takes HTML for a script. Without a build: 503.
    """
    files = read_build(directory)
    router = APIRouter(include_in_schema=False)

    @router.api_route("/", methods=["GET", "HEAD"])
    @router.api_route("/app", methods=["GET", "HEAD"])
    async def entry() -> Response:
        return RedirectResponse("/app/", status_code=307)

    @router.api_route("/app/{path:path}", methods=["GET", "HEAD"])
    async def app_file(request: Request, path: str) -> Response:
        if not files:
            raise NotBuilt
        name = path if path in files else _page(path)
        return _answer(request, files[name], FOREVER if name.startswith("assets/") else ASK_AGAIN)

    return router


def _page(path: str) -> str:
    """The file that stands for a page's address. Raises NoSuchFile for what looks like a file."""
    if path.startswith(("assets/", "logos/")) or "." in path.rpartition("/")[2]:
        raise NoSuchFile
    return INDEX


def _read(path: Path) -> AppFile:
    body = path.read_bytes()
    copies = {name: path.with_name(path.name + ending) for name, ending in ENCODINGS.items()}
    return AppFile(
        body=body,
        encoded={name: copy.read_bytes() for name, copy in copies.items() if copy.is_file()},
        media_type=mimetypes.guess_type(path.name)[0] or "application/octet-stream",
        etag=f'"{hashlib.sha256(body).hexdigest()[:32]}"',
    )


def _answer(request: Request, file: AppFile, cache: str) -> Response:
    headers = {**HEADERS, "Cache-Control": cache, "ETag": file.etag, "Vary": "Accept-Encoding"}
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    encoding = _encoding(request.headers.get("accept-encoding", ""), file)
    if encoding is not None:
        headers["Content-Encoding"] = encoding
    body = file.body if encoding is None else file.encoded[encoding]
    return Response(body, media_type=file.media_type, headers=headers)


def _encoding(accepted: str, file: AppFile) -> str | None:
    """The best compressed copy the client takes; None for the plain file."""
    wanted: set[str] = set()
    for part in accepted.lower().split(","):
        name, _, parameters = part.strip().partition(";")
        if parameters.replace(" ", "") not in {"q=0", "q=0.0"}:
            wanted.add(name.strip())
    return next((name for name in ENCODINGS if name in wanted and name in file.encoded), None)

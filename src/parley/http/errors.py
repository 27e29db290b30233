"""The only place where a "no" becomes a response (contract §10)."""

import logging
from collections.abc import Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parley.base.errors import Refusal, Unavailable
from parley.base.ids import new_id
from parley.billing import Denial
from parley.storage import StoreAway

BUG = "Something went wrong in Parley. Try again; if it stays, give the error_id to whoever runs this installation."
SENTENCES = {404: "Not found", 405: "This address does not take that method"}

log = logging.getLogger(__name__)


class StoreUnavailable(Unavailable):
    """The database does not answer, so it is not known whether this was done. Look, or send it again in a moment."""


def install_errors(app: FastAPI) -> None:
    """Render refusals, denials, malformed requests, unknown routes and bugs as the contract has them.

    Refusal → its status and ``{"detail": sentence}``; Denial → the flat envelope; a request that does
    not fit the schema → 422 with ``{"detail": [{loc, msg, type}]}``; a bug → 500 with a fixed sentence
    and an id that is in the log beside the traceback.
    """
    app.add_exception_handler(Refusal, _refusal)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _framework)
    app.add_exception_handler(StoreAway, _store_away)
    app.add_middleware(_Bugs)


def refusal_response(refusal: Refusal) -> Response:
    """A refusal as a response, for handlers outside the framework's routes."""
    headers = dict(refusal.headers)
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(refusal, Denial):
        return JSONResponse(refusal.envelope, refusal.status, headers)
    return JSONResponse({"detail": refusal.detail}, refusal.status, headers)


async def _refusal(_request: Request, error: Exception) -> Response:
    if not isinstance(error, Refusal):
        raise TypeError("registered for refusals only")
    return refusal_response(error)


async def _store_away(request: Request, error: Exception) -> Response:
    log.warning("the store is away in %s %s: %s", request.method, request.url.path, error)
    return refusal_response(StoreUnavailable())


async def _malformed(_request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise TypeError("registered for validation errors only")
    detail = [{"loc": list(each["loc"]), "msg": _message(each), "type": each["type"]} for each in error.errors()]
    return JSONResponse({"detail": detail}, 422)


def _message(fault: Mapping[str, object]) -> str:
    # Never what was sent: it may be a secret in the wrong field, and a parser may have quoted it.
    message, sent = str(fault["msg"]), fault.get("input")
    return message.replace(sent, "…") if isinstance(sent, str) and sent else message


async def _framework(_request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise TypeError("registered for the framework's own errors only")
    headers: Mapping[str, str] = error.headers or {}
    return JSONResponse({"detail": SENTENCES.get(error.status_code, error.detail)}, error.status_code, headers)


class _Bugs:
    """Answers for whatever was raised and is not a refusal; the traceback goes to the log."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except ClientDisconnect:
            return
        except Exception:  # the one place where a bug becomes an answer
            error_id = new_id()
            log.exception("error %s in %s %s", error_id, scope["method"], scope["path"])
            if started:
                raise
            response = JSONResponse({"detail": BUG, "error_id": error_id}, 500)
            await response(scope, receive, send)

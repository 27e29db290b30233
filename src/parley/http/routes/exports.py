"""``GET /assistant/chat/{chat_id}/export``: a chat as one document (issue 9, sentence 6)."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends
from starlette.responses import StreamingResponse

from parley.accounts import Caller
from parley.chats import Chats
from parley.chats.keeping import export_json, export_markdown, open_export
from parley.http.identity import Identity
from parley.http.schemas import NOT_FOUND
from parley.tools import ASSISTANT

DOCUMENT = {
    "description": "The chat as one document",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["format", "exported_at", "chat", "messages"],
                "properties": {
                    "format": {"type": "string"},
                    "exported_at": {"type": "string", "format": "date-time"},
                    "chat": {"type": "object"},
                    "messages": {"type": "array", "items": {"type": "object"}},
                },
            }
        },
        "text/markdown": {"schema": {"type": "string"}},
    },
}
MEDIA = {"markdown": ("text/markdown; charset=utf-8", "md"), "json": ("application/json", "json")}


def routes(identity: Identity, chats: Chats) -> APIRouter:
    """The one route; a chat is exported by whoever may read it."""
    router = APIRouter(prefix="/assistant", tags=["assistant"])

    @router.get("/chat/{chat_id}/export", responses={200: DOCUMENT, **NOT_FOUND}, response_class=StreamingResponse)
    async def export(
        chat_id: str,
        caller: Annotated[Caller, Depends(identity.admin)],
        format: Literal["markdown", "json"] = "json",  # noqa: A002 - the name on the wire
    ) -> StreamingResponse:
        """The whole chat to keep: what was said, done, asked and answered, without any of the organization's secrets.

        ``json`` has whole results; ``markdown`` is to read and cuts long ones. A transfer that breaks off is no
        valid document: ask again.
        """
        opened = await open_export(chats, caller, ASSISTANT, chat_id)
        media, ending = MEDIA[format]
        pieces = export_markdown(opened) if format == "markdown" else export_json(opened)
        headers = {
            "Content-Disposition": f'attachment; filename="chat-{opened.chat.id}.{ending}"',
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }
        return StreamingResponse(pieces, media_type=media, headers=headers)

    return router

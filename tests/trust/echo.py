"""A provider that says back everything it was told."""

import base64
import json

from parley.testing.provider_proxy import Answer, Asked, json_answer
from parley.turn.model import JsonObject


class Echo:
    """A provider that says back everything it was told, in every form it knows."""

    def __init__(self, status: int) -> None:
        self.status = status

    async def __call__(self, asked: Asked) -> Answer:
        told = f"{asked.method} https://{asked.host}{asked.path} {dict(asked.query)} {dict(asked.headers)} "
        told += asked.body.decode("utf-8", "replace")
        coded = base64.b64encode(told.encode()).decode()
        row: JsonObject = {"id": "1", "name": told, "url": f"https://{asked.host}{asked.path}", "coded": coded}
        answer: JsonObject = {
            **row,
            "message": told,
            "error": told,
            "errors": [{"message": told}],
            "headers": dict(asked.headers),
            "query": dict(asked.query),
            "escaped": json.dumps(json.dumps(told)),
            "data": [row],
            "results": [row],
            "items": [row],
            "access_token": "provider-made-this",
        }
        return json_answer(answer, self.status)

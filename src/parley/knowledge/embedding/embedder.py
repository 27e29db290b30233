"""Making vectors of texts: by the model that comes with Parley, or by the base's own (contract §12)."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from parley.credentials import Credentials
from parley.egress import Egress, Refused, Unreachable
from parley.knowledge.embedding.weights import NAME
from parley.knowledge.model import BadConfig, Embedding, EmbeddingUnavailable
from parley.llm import find_provider

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from parley.knowledge.embedding.static_model import StaticModel

BATCH = 64
SECONDS = 60.0


class _Row(msgspec.Struct):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct):
    data: list[_Row]


@dataclass(frozen=True, slots=True)
class _Endpoint:
    url: str
    headers: dict[str, str]
    name: str


class Embedder:
    """Every base's way to vectors; the built-in model is loaded by the first text that needs it."""

    def __init__(self, credentials: Credentials, egress: Egress) -> None:
        self._credentials = credentials
        self._egress = egress
        self._static: StaticModel | None = None
        self._loading = asyncio.Lock()

    async def embed(self, organization_id: str, model: Embedding, texts: Sequence[str]) -> "NDArray[np.float32]":
        """One row of length one for each text.

        Raises EmbeddingUnavailable, or BadConfig where the base's model or credential cannot be used.
        """
        if not model.own:
            static = await self._built_in()
            return await asyncio.to_thread(static.embed, texts)
        return await self._remote(organization_id, model, texts)

    async def check(self, organization_id: str, model: Embedding) -> None:
        """Whether a base may have this model. Raises BadConfig with what to change."""
        if model.own:
            await self._endpoint(organization_id, model)
        elif (model.model_id is not None or model.credential_id is not None) and not _built_in_name(model):
            raise BadConfig("embedding_config needs integration_name, model_id and a credential of yours.")

    async def _built_in(self) -> "StaticModel":
        async with self._loading:
            if self._static is None:
                from parley.knowledge.embedding.static_model import StaticModel  # noqa: PLC0415 - numpy, on first use

                self._static = await asyncio.to_thread(StaticModel)
            return self._static

    async def _endpoint(self, organization_id: str, model: Embedding) -> _Endpoint:
        name = model.integration_name or ""
        provider = find_provider(name)
        if provider is None or provider.wire != "openai":
            raise BadConfig(f"{name!r} has no embedding models that Parley can use. Choose an OpenAI-compatible one.")
        usable = await self._credentials.resolve(organization_id, name, model.credential_id)
        if usable is None or usable.managed:
            raise BadConfig(
                f"There is no {provider.display_name} credential for this base. Add one under Integrations."
            )
        address = (usable.auth_data.text("base_url") or provider.base_url).rstrip("/")
        if not address:
            raise BadConfig(f"The {provider.display_name} credential needs a base_url for embeddings.")
        key = usable.auth_data.text("api_key")
        header = {"api-key": key} if "api_key_header" in provider.quirks else {"Authorization": f"Bearer {key}"}
        return _Endpoint(f"{address}/embeddings", header, usable.display_name)

    async def _remote(self, organization_id: str, model: Embedding, texts: Sequence[str]) -> "NDArray[np.float32]":
        import numpy as np  # noqa: PLC0415 - no part of start-up

        from parley.knowledge.embedding.static_model import unit_rows  # noqa: PLC0415

        endpoint = await self._endpoint(organization_id, model)
        rows: list[list[float]] = []
        for start in range(0, len(texts), BATCH):
            rows += await self._batch(endpoint, model, texts[start : start + BATCH])
        if len({len(row) for row in rows}) > 1:
            raise EmbeddingUnavailable(f"The embedding model of {endpoint.name!r} gave vectors of different sizes.")
        return unit_rows(np.array(rows, np.float32).reshape(len(rows), -1))

    async def _batch(self, endpoint: _Endpoint, model: Embedding, texts: Sequence[str]) -> list[list[float]]:
        # An empty text is refused by most of them.
        body: dict[str, object] = {"model": model.model_id, "input": [text or " " for text in texts]}
        if model.dimension is not None:
            body["dimensions"] = model.dimension
        try:
            response = await self._egress.request(
                "POST", endpoint.url, headers=endpoint.headers, json=body, seconds=SECONDS
            )
        except (Refused, Unreachable) as error:
            raise EmbeddingUnavailable(f"The embedding model cannot be reached: {error}") from error
        if response.status != 200:
            raise EmbeddingUnavailable(
                f"The embedding model of {endpoint.name!r} answered {response.status}. Check the credential and model."
            )
        try:
            answer = msgspec.json.decode(response.body, type=_Answer)
        except msgspec.MsgspecError:
            raise EmbeddingUnavailable(f"The embedding model of {endpoint.name!r} gave no vectors.") from None
        if len(answer.data) != len(texts):
            raise EmbeddingUnavailable(f"The embedding model of {endpoint.name!r} gave too few vectors.")
        return [row.embedding for row in sorted(answer.data, key=lambda row: row.index)]


def _built_in_name(model: Embedding) -> bool:
    """Whether a configuration without an integration still means the built-in model, as shown by ``GET``."""
    return model.credential_id is None and model.model_id == NAME

"""The published Python client's knowledge calls, unchanged (contract §12)."""

from pathlib import Path

import pytest
from modulex import BadRequestError, Modulex, NotFoundError

from tests.knowledge.shelf import ended
from tests.stage import Stage


async def test_the_published_client_works_with_knowledge(stage: Stage, tmp_path: Path) -> None:
    client = stage.client
    async with Modulex(
        api_key=client.key, organization_id=client.organization_id, base_url=client.base_url, max_retries=0
    ) as sdk:
        types = await sdk.knowledge.supported_file_types()
        assert (types.max_file_size_mb, "pptx" in types.supported_types) == (50, True)
        base = await sdk.knowledge.create("Docs", description="All of it", chunking_config={"chunk_size": 64})
        assert (base.status, base.document_count, base.chunking_config["chunk_size"]) == ("active", 0, 64)
        path = tmp_path / "rules.md"
        path.write_text("# Rules\n\nThe office dog is called Kafka.\n")
        document = await sdk.knowledge.upload_document(base.id, file_path=str(path), metadata={"team": "people"})
        assert document.status in {"pending", "processing", "completed"}
        await ended(client, base.id, document.id)
        status = await sdk.knowledge.document_status(base.id, document.id)
        assert (status.status, status.chunk_count, status.error) == ("completed", 1, None)
        assert (await sdk.knowledge.get_document(base.id, document.id)).file_type == "md"
        assert [one.id for one in await sdk.knowledge.list_documents(base.id, status="completed")] == [document.id]
        chunks = await sdk.knowledge.document_chunks(base.id, document.id)
        assert chunks.count == 1
        first = chunks.chunks[0]
        assert (first.has_embedding, first.start_char) == (True, 0)
        found = await sdk.knowledge.search(base.id, "What is the name of the dog?", top_k=3)
        assert (found.total_matches, found.matches[0].chunk_id) == (1, first.id)
        both = await sdk.knowledge.hybrid_search(base.id, "dog name")
        assert (both.search_type, both.weights) == ("hybrid", {"keyword": 0.3, "semantic": 0.7})
        assert both.matches[0].keyword_score == 1.0
        several = await sdk.knowledge.multi_search([base.id], "dog")
        assert several.knowledge_bases_searched == 1
        context = await sdk.knowledge.retrieve_context(base.id, "office dog")
        assert "Kafka" in (context.context or "")
        assert (await sdk.knowledge.update(base.id, name="Renamed")).name == "Renamed"
        assert (await sdk.knowledge.stats()).total_documents == 1
        with pytest.raises(BadRequestError):
            await sdk.knowledge.upload_document(base.id, file=b"x", filename="x.exe")
        with pytest.raises(NotFoundError):
            await sdk.knowledge.get(document.id)
        assert [one.id for one in await sdk.knowledge.list()] == [base.id]
        await sdk.knowledge.delete_document(base.id, document.id)
        assert (await sdk.knowledge.archive(base.id)).status == "archived"
        await sdk.knowledge.delete(base.id)
        assert await sdk.knowledge.list() == []

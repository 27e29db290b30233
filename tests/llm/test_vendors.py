"""The optional adapter over any-llm: the same conformance tests as far as the library goes, and its own refusals."""

import asyncio
import sys
from contextlib import aclosing

import aiohttp
import pytest

from parley.llm import CredentialNeeded, LlmConfig, LlmCredential, Models, Sessions, UnknownModel, shipped_catalogue
from parley.llm.providers import PROVIDERS, VENDORS, credential_problem, find_provider
from parley.llm.vendors import KEYED_VENDORS, VendorModel
from parley.testing.scripted_model import ScriptedModel, ScriptedReply
from parley.turn.model import TextDelta
from tests.llm.test_conformance import (
    test_a_reply_cut_by_its_length_limit_is_still_a_reply,
    test_a_tool_call_arrives_whole_however_many_pieces_it_came_in,
    test_blank_arguments_become_an_empty_object,
    test_malformed_arguments_are_kept_as_they_came,
    test_missing_and_repeated_call_ids_become_unique,
    test_one_model_serves_one_reply_after_another,
    test_several_calls_at_once_are_all_in_the_reply,
    test_text_streams_and_the_reply_has_all_of_it,
    test_the_request_is_the_same_bytes_each_time,
    test_the_tools_the_system_prompt_and_the_conversation_are_sent,
    test_thinking_is_streamed_apart_from_the_text,
)
from tests.llm.wired import Wired, impatient, outcome, prompt

pytest.importorskip("any_llm", reason="any-llm is not installed: pip install 'parley[vendors]' to test other vendors")

__all__ = [
    "test_a_reply_cut_by_its_length_limit_is_still_a_reply",
    "test_a_tool_call_arrives_whole_however_many_pieces_it_came_in",
    "test_blank_arguments_become_an_empty_object",
    "test_malformed_arguments_are_kept_as_they_came",
    "test_missing_and_repeated_call_ids_become_unique",
    "test_one_model_serves_one_reply_after_another",
    "test_several_calls_at_once_are_all_in_the_reply",
    "test_text_streams_and_the_reply_has_all_of_it",
    "test_the_request_is_the_same_bytes_each_time",
    "test_the_tools_the_system_prompt_and_the_conversation_are_sent",
    "test_thinking_is_streamed_apart_from_the_text",
]
PATIENT = impatient(idle_seconds=10, reply_seconds=60)


@pytest.fixture
async def wired(provider: ScriptedModel, session: aiohttp.ClientSession) -> Wired:
    warm = Wired(VENDORS, provider, session)
    (await warm.ask(ScriptedReply(text=["Ready."]), limits=PATIENT)).whole()  # the library's first reply takes seconds
    return Wired(VENDORS, provider, session)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, b'{"error":{"message":"SECRET","code":"invalid_api_key"}}', "auth"),
        (404, b'{"error":{"message":"SECRET"}}', "request"),
        (400, b'{"error":{"message":"maximum context length exceeded","code":"context_length_exceeded"}}', "context"),
        (429, b'{"error":{"message":"SECRET"}}', "rate"),
        (500, b"<html>SECRET</html>", "down"),
    ],
)
async def test_a_refusal_is_a_clear_class_of_error(wired: Wired, status: int, body: bytes, kind: str) -> None:
    faulty = ScriptedReply(status=status, raw=body, headers={"retry-after": "0.01"})
    failure = (await wired.ask(*[faulty] * 5, limits=PATIENT)).failure()
    assert failure.kind == kind
    assert "SECRET" not in failure.public
    assert wired.key not in str(failure)


async def test_silence_ends_within_the_idle_limit(wired: Wired) -> None:
    failure = (await wired.ask(ScriptedReply(hang_at=-1), limits=impatient(idle_seconds=1.5))).failure()
    assert failure.kind == "down"


async def test_a_broken_stream_keeps_its_text_and_its_tokens(wired: Wired) -> None:
    seen = await wired.ask(ScriptedReply(text=["Half an ", "answer"], unfinished=True), limits=PATIENT)
    assert seen.text == seen.failure().text == "Half an answer"
    assert seen.failure().usage.output > 0


async def test_an_endless_reply_is_stopped(wired: Wired) -> None:
    seen = await wired.ask(ScriptedReply(text=["go"], unfinished=True, endless="text"), limits=PATIENT)
    assert seen.failure().kind == "garbled"
    assert (await wired.provider.dropped(wired.key))[0].dropped


async def test_closing_the_stream_drops_the_connection(wired: Wired) -> None:
    await wired.script(ScriptedReply(text=["one ", "two ", "three"], barrier="never", barrier_after=3))
    model = wired.model(PATIENT)
    async with asyncio.timeout(20), aclosing(model.reply(prompt())) as stream:
        assert isinstance(await anext(stream), TextDelta)
    assert (await wired.provider.dropped(wired.key))[0].dropped
    assert model.partial_usage().output > 0


async def test_a_vendor_whose_package_is_missing_says_which(wired: Wired) -> None:
    model = VendorModel(wired.endpoint(), "cohere/command-a", limits=PATIENT)
    if "cohere" in sys.modules:
        pytest.skip("the package of cohere is installed")
    failure = (await outcome(model, prompt())).failure()
    assert "any-llm-sdk[cohere]" in failure.public


async def test_only_vendors_whose_access_is_a_key_can_be_chosen_and_never_without_one(
    session: aiohttp.ClientSession,
) -> None:
    models = Models(shipped_catalogue(), {}, Sessions(session, session))
    key = LlmCredential("k" * 20)
    assert VENDORS in {provider.name for provider in PROVIDERS}
    assert isinstance(models.open(LlmConfig(VENDORS, VENDORS, "cohere/command-a"), key), VendorModel)
    assert not KEYED_VENDORS & {"bedrock", "sagemaker", "vertexai", "vertexaianthropic", "azure", "ollama"}
    for model_id in ("bedrock/claude", "cohere", "cohere/", "nobody/x"):
        with pytest.raises(UnknownModel, match="vendor/model"):
            models.open(LlmConfig(VENDORS, VENDORS, model_id), key)
    for none in (None, LlmCredential(" "), LlmCredential("", "http://127.0.0.1:9/v1")):
        with pytest.raises(CredentialNeeded):
            models.open(LlmConfig(VENDORS, VENDORS, "cohere/command-a"), none)
    provider = find_provider(VENDORS)
    assert provider is not None
    assert credential_problem(provider, "k", None) is None
    assert credential_problem(provider, "", None)

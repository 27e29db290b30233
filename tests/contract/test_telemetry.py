"""Traces and metrics as a collector and Prometheus get them, over HTTP (issue 9, sentence 4)."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client import generate_latest

from parley.base.settings import SettingsError, read_settings
from parley.telemetry import names
from parley.telemetry.meters import MOST_MODELS, Meters
from parley.testing.fake_github import FakeGitHub
from parley.testing.provider_proxy import ProviderProxy
from parley.testing.scripted_model import ScriptedModel
from parley.testing.scripted_wire import ScriptedReply
from tests.conftest import ROOT, fresh_database
from tests.contract.conftest import ORGANIZATION, furnish, open_house
from tests.stage import Stage, caller, calls, executes, says

HEADERS = {"Accept": "application/openmetrics-text; version=1.0.0"}


@dataclass(slots=True)
class Got:
    """One span as the collector got it."""

    name: str
    trace: str
    id: str
    parent: str
    status: int
    attributes: dict[str, Any]


@dataclass(slots=True)
class Receiver:
    """A collector: OTLP over HTTP in protobuf, with a key."""

    url: str = ""
    spans: list[Got] = field(default_factory=list[Got])
    refuses: bool = False

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        if self.refuses:
            return web.Response(status=503)
        assert request.headers["Content-Type"] == "application/x-protobuf"
        assert request.headers["api-key"] == "the key"
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.spans += [read_span(span) for span in scope.spans]
        return web.Response()


def read_span(span: Any) -> Got:
    attributes = {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}
    ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
    return Got(span.name, *ids, span.status.code, attributes)


@dataclass(slots=True)
class Watched:
    """A stage whose server is traced and scraped."""

    stage: Stage
    receiver: Receiver

    async def spans(self, run_id: str) -> list[Got]:
        """Every span of the trace of a run, once the run's own has arrived."""
        watching = self.stage.parley.watching
        assert watching is not None
        assert watching.spans is not None
        async with asyncio.timeout(20):
            while True:
                await watching.spans.send()
                roots = [span for span in self.receiver.spans if span.attributes.get(names.RUN) == run_id]
                if roots:
                    return [span for span in self.receiver.spans if span.trace == roots[0].trace]
                await asyncio.sleep(0.05)

    async def scrape(self, **headers: str) -> str:
        watching = self.stage.parley.watching
        assert watching is not None
        assert watching.scrape is not None
        url = f"http://127.0.0.1:{watching.scrape.port}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as response:
            assert response.status == 200
            return await response.text()


@pytest.fixture(params=["", "1"], ids=["without content", "with content"])
async def watched(
    request: pytest.FixtureRequest, tmp_path: Path, proxy: ProviderProxy, model: ScriptedModel
) -> AsyncIterator[Watched]:
    receiver = Receiver()
    async with AsyncExitStack() as stack:
        app = web.Application()
        app.router.add_post("/v1/traces", receiver.take)
        runner = web.AppRunner(app)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        url = await stack.enter_async_context(fresh_database("sqlite", tmp_path, None))
        extra = {
            "PARLEY_METRICS_BIND": "127.0.0.1:0",
            "PARLEY_TRACE_CONTENT": str(request.param),
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_EXPORTER_OTLP_HEADERS": "api-key=the%20key",
        }
        house = await open_house(stack, url, tmp_path, proxy, extra)
        client = await stack.enter_async_context(caller(house.base_url, house.key, ORGANIZATION))
        yield Watched(await furnish(house, client, model), receiver)


async def test_a_turn_is_a_tree_of_steps_with_a_model_call_and_an_action_each(
    watched: Watched, github: FakeGitHub
) -> None:
    word = f"canary{uuid4().hex}"
    await watched.stage.connect_github(github.token)
    create = {"owner": "octocat", "repo": "hello-world", "title": f"{word} and {github.token}"}
    turn = await watched.stage.turn(
        executes("create_issue", create), says(f"{word} done"), message=f"{word} {watched.stage.model_key}"
    )
    spans = await watched.spans(turn.run_id)
    (root,) = [span for span in spans if span.name == "invoke_agent Parley"]
    steps = [span for span in spans if span.name == "step"]
    models = [span for span in spans if span.name == "chat gpt-4o"]
    (tool,) = [span for span in spans if span.name == "execute_tool execute_integration_tool"]
    assert (root.parent, len(steps), len(models), len(spans)) == ("", 2, 2, 6)
    assert {step.parent for step in steps} == {root.id}
    assert [span.parent for span in models] == [step.id for step in steps]
    assert tool.parent == steps[0].id

    assert root.attributes[names.CONVERSATION] == turn.chat_id
    assert root.attributes[names.ORGANIZATION] == watched.stage.client.organization_id
    assert root.attributes[names.OUTCOME] == "completed"
    asked = models[0].attributes
    assert (asked[names.OPERATION], asked[names.PROVIDER], asked[names.REQUEST_MODEL]) == ("chat", "openai", "gpt-4o")
    assert (asked[names.INPUT_TOKENS], asked[names.OUTPUT_TOKENS]) == (10, 5)
    assert tool.attributes[names.INTEGRATION] == "github"
    assert tool.attributes[names.ACTION] == "create_issue"
    assert (tool.attributes[names.TOOL_CALL], tool.attributes[names.OUTCOME]) == ("call_1", "done")

    everything = json.dumps([span.attributes for span in spans])
    assert watched.stage.model_key not in everything
    assert github.token not in everything
    content = {names.INPUT_MESSAGES, names.OUTPUT_MESSAGES, names.SYSTEM, names.TOOL_ARGUMENTS, names.TOOL_RESULT}
    told = {name for span in spans for name in span.attributes} & content
    settings = watched.stage.parley.settings
    assert told == (content if settings.trace_content else set())
    assert (word in everything) == settings.trace_content


async def test_a_resumed_run_joins_the_trace_of_the_one_that_paused(watched: Watched) -> None:
    paused = await watched.stage.turn(calls("ask_user_yes_no", {"message": "?"}))
    await watched.stage.script(says("Then."))
    resumed = await watched.stage.resume(paused, {"kind": "yes_no", "answer": True})
    turn = await watched.stage.follow(resumed.body)
    first, second = await watched.spans(paused.run_id), await watched.spans(turn.run_id)
    assert first[0].trace == second[0].trace
    outcomes = [span.attributes[names.OUTCOME] for span in second if span.parent == ""]
    assert outcomes == ["paused", "completed"]


async def test_a_model_that_fails_is_an_error_in_the_trace_and_in_the_metrics(watched: Watched) -> None:
    turn = await watched.stage.turn(ScriptedReply(status=401))
    spans = await watched.spans(turn.run_id)
    failed = {span.name: span.attributes.get(names.ERROR) for span in spans if span.status == 2}
    assert failed == {"chat gpt-4o": "auth", "invoke_agent Parley": "model_auth"}
    scraped = await watched.scrape(**HEADERS)
    assert 'parley_turns_total{outcome="failed"} 1.0' in scraped
    assert 'error_type="auth"' in scraped


async def test_a_collector_that_is_away_costs_spans_and_nothing_else(watched: Watched) -> None:
    watched.receiver.refuses = True
    turn = await watched.stage.turn(says("Fine."))
    assert turn.text == "Fine."
    watching = watched.stage.parley.watching
    assert watching is not None
    assert watching.spans is not None
    await watching.spans.send()
    watched.receiver.refuses = False
    later = await watched.stage.turn(says("Fine."))
    assert len(await watched.spans(later.run_id)) == 3


async def test_what_is_scraped_leads_to_the_trace(watched: Watched, github: FakeGitHub) -> None:
    await watched.stage.connect_github(github.token)
    turn = await watched.stage.turn(executes("list_repositories"), says("One."))
    trace = (await watched.spans(turn.run_id))[0].trace
    scraped = await watched.scrape(**HEADERS)
    for metric in ("parley_turn_seconds_bucket", "gen_ai_client_token_usage_bucket", "parley_action_seconds_bucket"):
        (line, *_) = [line for line in scraped.splitlines() if line.startswith(metric) and "# {" in line]
        assert f'trace_id="{trace}"' in line
    assert "# {" not in await watched.scrape(Accept="text/plain")


async def test_metrics_stand_at_their_own_address_and_not_at_the_servers(watched: Watched) -> None:
    assert "parley_runs_running" in await watched.scrape()
    assert (await watched.stage.client.get("/metrics")).status == 404
    assert not [path for path in (await watched.stage.client.get("/openapi.json")).body["paths"] if "metrics" in path]


async def test_a_tool_that_a_model_made_up_is_no_label(watched: Watched) -> None:
    await watched.stage.turn(calls("made_up_by_a_model", {}), says("There is none."))
    scraped = await watched.scrape()
    assert 'parley_action_seconds_count{integration="",outcome="failed",tool=""} 1.0' in scraped
    assert "made_up_by_a_model" not in scraped


def test_no_number_of_model_names_makes_more_series_than_a_server_can_keep() -> None:
    meters = Meters("1")
    for number in range(MOST_MODELS + 50):
        meters.first_token.labels(*meters.model_labels("openai", f"model-{number}")).observe(1)
    scraped = generate_latest(meters.registry).decode().splitlines()
    counts = [line for line in scraped if line.startswith("parley_time_to_first_token_seconds_count")]
    assert len(counts) == MOST_MODELS + 1
    assert (
        'parley_time_to_first_token_seconds_count{gen_ai_provider_name="",gen_ai_request_model="other"} 50.0' in counts
    )
    # A model that has its own goes on having it.
    assert meters.model_labels("openai", "model-0") == ("openai", "model-0")


async def test_every_metric_of_the_dashboard_is_there(watched: Watched, github: FakeGitHub) -> None:
    await watched.stage.connect_github(github.token)
    await watched.stage.turn(executes("list_repositories"), says("One."))
    scraped = await watched.scrape()
    present = {re.split(r"[{ ]", line, maxsplit=1)[0] for line in scraped.splitlines() if not line.startswith("#")}
    labels = set(re.findall(r'(\w+)="', scraped))
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "parley.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert queries
    for query in queries:
        used = set(re.findall(r"\b((?:parley|gen_ai_client|process)_\w+)", query))
        assert used, query
        assert used <= present, query
        grouped = set(re.findall(r"by \(([^)]*)\)", query))
        named = {name.strip() for group in grouped for name in group.split(",")}
        assert named <= labels, query


def test_nothing_of_it_is_imported_where_nobody_collects() -> None:
    code = (
        "import sys, parley.wiring, parley.cli.serve\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter', "
        "'prometheus_client'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("value", ["9464x", "127.0.0.1", "127.0.0.1:99999", ":", "127.0.0.1:-1"])
def test_an_address_for_metrics_that_is_none_is_named(value: str) -> None:
    with pytest.raises(SettingsError, match="PARLEY_METRICS_BIND"):
        read_settings({"PARLEY_METRICS_BIND": value})


def test_settings_of_telemetry_are_read() -> None:
    assert read_settings({}).metrics_bind is None
    assert read_settings({"PARLEY_METRICS_BIND": "0.0.0.0:9464"}).metrics_bind == ("0.0.0.0", 9464)
    assert read_settings({"PARLEY_METRICS_BIND": "[::1]:9464"}).metrics_bind == ("::1", 9464)
    assert read_settings({"PARLEY_METRICS_BIND": ":9464"}).metrics_bind == ("127.0.0.1", 9464)
    assert not read_settings({}).trace_content
    assert read_settings({"PARLEY_TRACE_CONTENT": "1"}).trace_content
    with pytest.raises(SettingsError, match="PARLEY_TRACE_CONTENT"):
        read_settings({"PARLEY_TRACE_CONTENT": "yes"})

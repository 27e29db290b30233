"""What is counted and timed, as Prometheus collects it: on an address of its own, in OpenMetrics with exemplars."""

from threading import Thread
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, start_http_server

SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKENS = tuple(4**power for power in range(14))
MODEL = ("gen_ai_provider_name", "gen_ai_request_model")
# Series are kept until the process ends, and a model behind an organization's own address has any name at all.
MOST_MODELS = 500
OTHER_MODEL = ("", "other")

type Exemplar = dict[str, str] | None


class Meters:
    """Every metric of this process. An exemplar names the trace of the turn that was measured."""

    def __init__(self, version: str) -> None:
        self.registry = CollectorRegistry()
        self._models: set[tuple[str, str]] = set()
        ProcessCollector(registry=self.registry)
        Info("parley", "This Parley.", registry=self.registry).info({"version": version})
        self.turns = Counter("parley_turns", "Runs that ended or paused, by how.", ("outcome",), registry=self.registry)
        self.turn_seconds = Histogram(
            "parley_turn_seconds",
            "From the claim of a run to its end or pause.",
            ("outcome",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.first_token = Histogram(
            "parley_time_to_first_token_seconds",
            "From a model request to the first piece of its answer.",
            MODEL,
            buckets=SECONDS,
            registry=self.registry,
        )
        self.model_seconds = Histogram(
            "gen_ai_client_operation_duration_seconds",
            "Model requests, to their last piece.",
            (*MODEL, "error_type"),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.tokens = Histogram(
            "gen_ai_client_token_usage",
            "Tokens of a model request; input includes cached ones.",
            (*MODEL, "gen_ai_token_type"),
            buckets=TOKENS,
            registry=self.registry,
        )
        self.action_seconds = Histogram(
            "parley_action_seconds",
            "Tools and the actions they ran; integration: empty for Parley's own tools, mcp or api for a tenant's own.",
            ("tool", "integration", "outcome"),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.waiting = Gauge("parley_runs_waiting", "Runs that no process has taken yet.", registry=self.registry)
        self.running = Gauge("parley_runs_running", "Runs that this process executes now.", registry=self.registry)

    def model_labels(self, provider: str, model: str) -> tuple[str, str]:
        """The labels of a model, in the order of ``MODEL``; those past the first MOST_MODELS share one pair."""
        named = (provider, model)
        if named not in self._models:
            if len(self._models) >= MOST_MODELS:
                return OTHER_MODEL
            self._models.add(named)
        return named


class Scrape:
    """The listener that answers Prometheus, in a thread of its own."""

    def __init__(self, meters: Meters, host: str, port: int) -> None:
        self.meters = meters
        self._server: WSGIServer
        self._thread: Thread
        self._server, self._thread = start_http_server(port, host, registry=meters.registry)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.server_port

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

"""Figures for Prometheus: the names that dashboards for inference servers know, and our own beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from holotron.server.auth import Admission
from holotron.server.engine_client import EngineClient
from holotron.server.sessions import SessionTable

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
# Ours: what the engine counts, as name, kind, help.
ENGINE = {
    "steps": ("steps", "counter", "Steps of the engine's loop"),
    "computed_tokens": ("computed_tokens", "counter", "Tokens that went through the model"),
    "recomputed_tokens": ("reprefilled_tokens", "counter", "Tokens computed a second time after a shortage of memory"),
    "forks": ("forks", "counter", "Sessions that began as forks"),
    "failures": ("failures", "counter", "Turns that failed"),
    "offloaded_bytes": ("offloaded_bytes", "counter", "Bytes copied off the device to make room"),
    "restored_bytes": ("restored_bytes", "counter", "Bytes copied back"),
    "host_bytes": ("host_bytes", "gauge", "Bytes of sessions in host memory"),
    "disk_bytes": ("disk_bytes", "gauge", "Bytes of sessions on disk"),
    "free_slots": ("free_state_slots", "gauge", "State slots that are free"),
    "free_pages": ("free_pages", "gauge", "Pages of keys and values that are free"),
    "kept": ("kept_sessions", "gauge", "Sessions that stateless requests left behind"),
    "redundancy": ("redundancy", "gauge", "Computed tokens for every new one; 1.0 is best"),
    "epoch": ("weight_epoch", "gauge", "How often the weights were replaced"),
}


class Metrics:
    """Counts what the HTTP process sees, and shows what the engine last told."""

    def __init__(self, model: str) -> None:
        self.registry = CollectorRegistry()
        self._model = model
        self._prompt_tokens = self._counter("vllm:prompt_tokens", "Tokens of prompts")
        self._cached_tokens = self._counter("vllm:prefix_cache_hits", "Prompt tokens a session had already")
        self._queried_tokens = self._counter("vllm:prefix_cache_queries", "Prompt tokens that were looked up")
        self.generated_tokens = self._counter("vllm:generation_tokens", "Tokens of answers")
        self._succeeded = Counter(
            "vllm:request_success", "Finished answers", ("model_name", "finished_reason"), registry=self.registry
        )
        self._requests = Counter(
            "holotron:http_requests", "Answered requests", ("path", "status"), registry=self.registry
        )
        self.first_token = self._histogram("vllm:time_to_first_token_seconds", "Until the first token", SECONDS)
        self.between_tokens = self._histogram("vllm:inter_token_latency_seconds", "Between tokens", TOKEN_SECONDS)
        self._whole = self._histogram("vllm:e2e_request_latency_seconds", "Until the last token", SECONDS)

    def prompted(self, tokens: int, cached: int) -> None:
        self._prompt_tokens.inc(tokens)
        self._queried_tokens.inc(tokens)
        self._cached_tokens.inc(cached)

    def finished(self, reason: str, seconds: float) -> None:
        self._succeeded.labels(self._model, reason).inc()
        self._whole.observe(seconds)

    def answered(self, path: str, status: int) -> None:
        self._requests.labels(path, str(status)).inc()

    def watch(self, client: EngineClient, admission: Admission, sessions: SessionTable) -> None:
        self.registry.register(_EngineFigures(self._model, client, admission, sessions))

    def text(self) -> bytes:
        return generate_latest(self.registry)

    def _counter(self, name: str, about: str) -> Counter:
        return Counter(name, about, ("model_name",), registry=self.registry).labels(self._model)

    def _histogram(self, name: str, about: str, buckets: tuple[float, ...]) -> Histogram:
        whole = Histogram(name, about, ("model_name",), buckets=buckets, registry=self.registry)
        return whole.labels(self._model)


@dataclass(eq=False)
class _EngineFigures(Collector):
    """Read when Prometheus asks, from what the engine sent last: no request waits for the GPU."""

    model: str
    client: EngineClient
    admission: Admission
    sessions: SessionTable

    def collect(self) -> Iterator[Metric]:
        stats, values = self.client.stats, self.client.stats.values
        waiting = values.get("waiting", 0.0)
        gauge, counter = GaugeMetricFamily, CounterMetricFamily
        yield self._one(gauge, "vllm:num_requests_running", "Turns at work", values.get("running", 0.0) - waiting)
        yield self._one(gauge, "vllm:num_requests_waiting", "Turns that wait", waiting)
        yield self._one(gauge, "vllm:kv_cache_usage_perc", "Share of the pages in use", values.get("page_share", 0.0))
        yield self._one(gauge, "holotron:state_usage", "Share of the state slots in use", values.get("slot_share", 0.0))
        yield self._one(gauge, "holotron:turns_admitted", "Turns under way in the server", self.admission.total)
        yield self._one(counter, "holotron:turns_refused", "Turns that were told to come back", self.admission.refused)
        yield self._one(gauge, "holotron:open_sessions", "Sessions that clients have open", len(self.sessions))
        restarts = self.client.restarts
        yield self._one(counter, "holotron:engine_restarts", "Times the engine had to be started again", restarts)
        places = gauge("holotron:sessions", "Sessions by where their memory is", labels=["model_name", "residency"])
        for place, count in stats.residency.items():
            places.add_metric([self.model, place], count)
        yield places
        for key, (name, kind, about) in ENGINE.items():
            family = counter if kind == "counter" else gauge
            yield self._one(family, f"holotron:{name}", about, values.get(key, 0.0))

    def _one(
        self, kind: type[GaugeMetricFamily] | type[CounterMetricFamily], name: str, about: str, value: float
    ) -> Metric:
        family = kind(name, about, labels=["model_name"])
        family.add_metric([self.model], value)
        return family

"""Figures for Prometheus: the names that dashboards for inference servers know, and our own beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from holotron.engine.requests import FinishEvent
from holotron.server.auth import Admission
from holotron.server.engine_service import EngineService
from holotron.server.sessions import SessionTable

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
LENGTHS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144)
TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
# What the engine counts, by its own names.
GAUGES = {
    "waiting": ("vllm:num_requests_waiting", "Turns that wait"),
    "page_share": ("vllm:kv_cache_usage_perc", "Share of the pages in use"),
    "slot_share": ("holotron:state_usage", "Share of the state slots in use"),
    "host_bytes": ("holotron:host_bytes", "Bytes of sessions in host memory"),
    "disk_bytes": ("holotron:disk_bytes", "Bytes of sessions on disk"),
    "free_slots": ("holotron:free_state_slots", "State slots that are free"),
    "free_pages": ("holotron:free_pages", "Pages of keys and values that are free"),
    "kept": ("holotron:kept_sessions", "Sessions that stateless requests left behind"),
    "redundancy": ("holotron:redundancy", "Computed tokens for every new one; 1.0 is best"),
    "epoch": ("holotron:weight_epoch", "How often the weights were replaced"),
}
COUNTERS = {
    "preempted": ("vllm:num_preemptions", "Turns whose memory had to give way to others"),
    "steps": ("holotron:steps", "Steps of the engine's loop"),
    "computed_tokens": ("holotron:computed_tokens", "Tokens that went through the model"),
    "recomputed_tokens": ("holotron:reprefilled_tokens", "Tokens computed a second time after a shortage of memory"),
    "forks": ("holotron:forks", "Sessions that began as forks"),
    "failures": ("holotron:failures", "Turns that failed"),
    "offloaded_bytes": ("holotron:offloaded_bytes", "Bytes copied off the device to make room"),
    "restored_bytes": ("holotron:restored_bytes", "Bytes copied back"),
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
        self.loop_lag = self._histogram("holotron:event_loop_lag_seconds", "Lateness of the event loop", TOKEN_SECONDS)
        phases = {"queue": "Waiting", "prefill": "Computing the prompt", "decode": "Generating", "inference": "At work"}
        self._phases = [
            self._histogram(f"vllm:request_{name}_time_seconds", about, SECONDS) for name, about in phases.items()
        ]
        self._prompt_lengths = self._histogram("vllm:request_prompt_tokens", "Tokens of a prompt", LENGTHS)
        self._answer_lengths = self._histogram("vllm:request_generation_tokens", "Tokens of an answer", LENGTHS)
        self._token_time = self._histogram(
            "vllm:request_time_per_output_token_seconds", "Seconds for each token after the first", TOKEN_SECONDS
        )
        self._whole = self._histogram("vllm:e2e_request_latency_seconds", "Until the last token", SECONDS)

    def prompted(self, tokens: int, cached: int) -> None:
        self._prompt_tokens.inc(tokens)
        self._queried_tokens.inc(tokens)
        self._cached_tokens.inc(cached)

    def finished(self, reason: str, seconds: float, event: FinishEvent, prompt_tokens: int, tokens: int) -> None:
        self._succeeded.labels(self._model, reason).inc()
        self._whole.observe(seconds)
        queue, prefill, decode = event.seconds
        for histogram, value in zip(self._phases, (queue, prefill, decode, prefill + decode), strict=True):
            histogram.observe(value)
        self._prompt_lengths.observe(prompt_tokens)
        self._answer_lengths.observe(tokens)
        if tokens > 1:
            self._token_time.observe(decode / (tokens - 1))

    def answered(self, path: str, status: int) -> None:
        self._requests.labels(path, str(status)).inc()

    def watch(self, client: EngineService, admission: Admission, sessions: SessionTable) -> None:
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
    client: EngineService
    admission: Admission
    sessions: SessionTable

    def collect(self) -> Iterator[Metric]:
        values = self.client.stats.values
        running = values.get("running", 0.0) - values.get("waiting", 0.0)
        yield self._gauge("vllm:num_requests_running", "Turns at work", running)
        yield self._gauge("holotron:turns_admitted", "Turns under way in the server", self.admission.total)
        yield self._counter("holotron:turns_refused", "Turns that were told to come back", self.admission.refused)
        yield self._gauge("holotron:open_sessions", "Sessions that clients have open", len(self.sessions))
        restarts = self.client.restarts
        yield self._counter("holotron:engine_restarts", "Times the engine had to be started again", restarts)
        labels = ["model_name", "residency"]
        places = GaugeMetricFamily("holotron:sessions", "Sessions by where their memory is", labels=labels)
        for place, count in self.client.stats.residency.items():
            places.add_metric([self.model, place], count)
        yield places
        by_replica = self.client.by_replica
        for family, named in ((GaugeMetricFamily, GAUGES), (CounterMetricFamily, COUNTERS)):
            for key, (name, about) in named.items():
                labels = ["model_name", "replica"] if by_replica else ["model_name"]
                figures = family(name, about, labels=labels)
                for replica, told in by_replica.items():
                    figures.add_metric([self.model, replica], told.values.get(key, 0.0))
                if not by_replica:
                    figures.add_metric([self.model], values.get(key, 0.0))
                yield figures
        for key, count in self.client.session_counts.items():
            yield self._counter(f"holotron:sessions_{key}", f"Sessions that were {key}", count)

    def _gauge(self, name: str, about: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, about, labels=["model_name"])
        family.add_metric([self.model], value)
        return family

    def _counter(self, name: str, about: str, value: float) -> Metric:
        family = CounterMetricFamily(name, about, labels=["model_name"])
        family.add_metric([self.model], value)
        return family

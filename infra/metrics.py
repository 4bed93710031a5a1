"""Every metric: name, kind, labels, who counts it. The composition root builds one `Metrics` and hands it around.

| metric                         | kind      | labels         | counted when                                           |
| ------------------------------ | --------- | -------------- | ------------------------------------------------------ |
| triptych_requests_total        | counter   | model, outcome | a gateway has answered a request                       |
| triptych_tokens_total          | counter   | model, kind    | a request ends: kind = prompt, cached or completion    |
| triptych_open_streams          | gauge     |                | now: requests that a gateway follows                   |
| triptych_ttft_seconds          | histogram | model          | the first token leaves a gateway; since acceptance     |
| triptych_queue_seconds         | histogram | model          | a worker claims a job; since acceptance                |
| triptych_jobs_total            | counter   | model, outcome | a worker has stored a terminal event                   |
| triptych_appends_total         | counter   | state          | per batch appended: stored, cancelled, fenced, ended   |
| triptych_catch_ups_total       | counter   | reason         | a follower reads a stream: see infra/stream_reader.py  |
| triptych_dead_letters_total    | counter   | reason         | a record goes to the dead-letter topic                 |
| triptych_handed_off_jobs_total | counter   | model          | a worker gives a queued job back to steering           |
| triptych_engine_restarts_total | counter   | model          | an engine that died is running again                   |
| triptych_steering_decisions_total | counter | model, reason | a gateway, encoder or worker (hand-off) places a job   |
| triptych_misplaced_jobs_total  | counter   | model          | a worker runs a job that steering meant for another    |
| triptych_predicted_cached_tokens_total | counter | model    | a request ends: prompt tokens steering expected cached |
| triptych_actual_cached_tokens_total | counter | model       | the same requests: prompt tokens that were cached      |
| triptych_feed_lag_seconds      | gauge     | model          | now: age of the oldest cache event not in the index    |
| triptych_feed_orphan_blocks    | gauge     | model          | now: cached blocks whose parent has not been told      |
| triptych_feed_gaps_total       | counter   | model          | the engine's cache events are lost beyond replay       |
| triptych_feed_skipped_blocks_total | counter | model, reason | cached blocks not indexed: see workers/block_map.py   |

Those of media, encoders and decoders are in infra/media_metrics.py; triptych_gateway_up, of several gateways on one
port, is in gateway/siblings.py.
"""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from infra.media_metrics import SECONDS, MediaMetrics

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics(MediaMetrics):
    """The metrics of one process. Methods, not metric objects, are what others touch: labels are spelled only here."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        super().__init__(registry)
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self._requests = Counter(
            "triptych_requests", "Requests answered by this gateway", ["model", "outcome"], registry=registry
        )
        self._tokens = Counter("triptych_tokens", "Tokens of ended requests", ["model", "kind"], registry=registry)
        self._open_streams = Gauge("triptych_open_streams", "Requests followed right now", registry=registry)
        self._ttft = Histogram(
            "triptych_ttft_seconds", "Acceptance to first token", ["model"], buckets=SECONDS, registry=registry
        )
        self._queue = Histogram(
            "triptych_queue_seconds", "Acceptance to claim", ["model"], buckets=SECONDS, registry=registry
        )
        self._jobs = Counter("triptych_jobs", "Jobs ended by this worker", ["model", "outcome"], registry=registry)
        self._appends = Counter("triptych_appends", "What became of appended batches", ["state"], registry=registry)
        self._catch_ups = Counter(
            "triptych_catch_ups", "Replay streams read by the follower", ["reason"], registry=registry
        )
        self._dead_letters = Counter(
            "triptych_dead_letters", "Records nobody could handle", ["reason"], registry=registry
        )
        self._handed_off = Counter(
            "triptych_handed_off_jobs", "Queued jobs given back to steering", ["model"], registry=registry
        )
        self._engine_restarts = Counter(
            "triptych_engine_restarts", "Engines replaced after a death", ["model"], registry=registry
        )

        self._decisions = Counter(
            "triptych_steering_decisions", "Jobs placed by this process", ["model", "reason"], registry=registry
        )
        self._misplaced = Counter(
            "triptych_misplaced_jobs", "Jobs run by another worker than the one chosen", ["model"], registry=registry
        )
        self._predicted = Counter(
            "triptych_predicted_cached_tokens", "Prompt tokens expected in the cache", ["model"], registry=registry
        )
        self._actual = Counter(
            "triptych_actual_cached_tokens", "Prompt tokens found in the cache", ["model"], registry=registry
        )
        self._feed_lag = Gauge(
            "triptych_feed_lag_seconds", "Age of the oldest event not yet in the index", ["model"], registry=registry
        )
        self._feed_orphans = Gauge(
            "triptych_feed_orphan_blocks", "Cached blocks that wait for their parent", ["model"], registry=registry
        )
        self._feed_gaps = Counter("triptych_feed_gaps", "Cache events lost for good", ["model"], registry=registry)
        self._feed_skipped = Counter(
            "triptych_feed_skipped_blocks", "Cached blocks not in the index", ["model", "reason"], registry=registry
        )

    def request_ended(self, model: str, outcome: str) -> None:
        self._requests.labels(model, outcome).inc()

    def tokens(self, model: str, *, prompt: int, cached: int, completion: int) -> None:
        for kind, count in (("prompt", prompt), ("cached", cached), ("completion", completion)):
            self._tokens.labels(model, kind).inc(count)

    def count_open_streams_by(self, count: Callable[[], float]) -> None:
        """Ask for the number when the page is rendered, instead of counting up and down."""
        self._open_streams.set_function(count)

    def first_token_after(self, model: str, seconds: float) -> None:
        self._ttft.labels(model).observe(seconds)

    def queued_for(self, model: str, seconds: float) -> None:
        self._queue.labels(model).observe(seconds)

    def job_ended(self, model: str, outcome: str) -> None:
        self._jobs.labels(model, outcome).inc()

    def appended(self, state: str, count: int) -> None:
        self._appends.labels(state).inc(count)

    def caught_up(self, reason: str, count: int) -> None:
        self._catch_ups.labels(reason).inc(count)

    def dead_letter(self, reason: str) -> None:
        self._dead_letters.labels(reason).inc()

    def handed_off(self, model: str) -> None:
        self._handed_off.labels(model).inc()

    def engine_restarted(self, model: str) -> None:
        self._engine_restarts.labels(model).inc()

    def steered(self, model: str, reason: str) -> None:
        self._decisions.labels(model, reason).inc()

    def misplaced(self, model: str) -> None:
        self._misplaced.labels(model).inc()

    def cache_hit(self, model: str, *, predicted: int, actual: int) -> None:
        """Prompt tokens, of one request."""
        self._predicted.labels(model).inc(predicted)
        self._actual.labels(model).inc(actual)

    def watch_feed_by(self, model: str, lag_s: Callable[[], float], orphans: Callable[[], float]) -> None:
        """Ask for both when the page is rendered."""
        self._feed_lag.labels(model).set_function(lag_s)
        self._feed_orphans.labels(model).set_function(orphans)

    def feed_gap(self, model: str) -> None:
        self._feed_gaps.labels(model).inc()

    def blocks_skipped(self, model: str, reason: str, count: int) -> None:
        self._feed_skipped.labels(model, reason).inc(count)

    def render(self) -> bytes:
        """The page that Prometheus reads, in its text format (CONTENT_TYPE)."""
        return generate_latest(self._registry)

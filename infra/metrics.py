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
| triptych_misplaced_jobs_total  | counter   | model          | a worker runs a job that steering meant for another    |
| triptych_predicted_cached_tokens_total | counter | model    | a request ends: prompt tokens steering expected cached |
| triptych_actual_cached_tokens_total | counter | model       | the same requests: prompt tokens that were cached      |
| triptych_feed_lag_seconds      | gauge     | model          | now: age of the oldest cache event not in the index    |
| triptych_feed_orphan_blocks    | gauge     | model          | now: cached blocks whose parent has not been told      |
| triptych_feed_gaps_total       | counter   | model          | the engine's cache events are lost beyond replay       |
| triptych_artifact_fetch_seconds | histogram | model        | an LLM worker has read an artifact from the store      |
| triptych_artifact_fetched_bytes_total | counter | model     | the same: its size                                     |
| triptych_artifact_cache_hits_total | counter | model        | an LLM worker finds an artifact in its own memory      |
| triptych_decode_jobs_total     | counter   | kind, outcome  | a decoder has stored a terminal event                  |
| triptych_decode_queue_seconds  | histogram | kind           | a decoder claims a job; since it was asked for         |
| triptych_decode_seconds        | histogram | kind           | an attempt ends; since its claim                       |
| triptych_decode_batch_size     | histogram |                | pictures are begun together                            |
| triptych_spoken_sentences_total | counter  |                | a decoder has spoken a sentence                        |
| triptych_encoded_items_total   | counter   | pool, encoder, how | an artifact is needed: made, reused, failed |
| triptych_encode_batch_items    | histogram | pool, encoder  | one forward: how many items                            |
| triptych_encode_seconds        | histogram | pool, encoder  | one forward                                            |
| triptych_encode_queue_seconds  | histogram | pool           | an encoder begins with a job; since acceptance         |
| triptych_joins_total           | counter   | model          | an encoder sends a request on, all its media encoded   |
| triptych_feed_skipped_blocks_total | counter | model, reason | cached blocks not indexed: see workers/block_map.py   |
"""

from collections.abc import Callable
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

CONTENT_TYPE = CONTENT_TYPE_LATEST

# From one engine step to the longest queue anybody sits out.
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
ITEMS = (1, 2, 4, 8, 16, 32)
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """The metrics of one process. Methods, not metric objects, are what others touch: labels are spelled only here."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
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

        self._misplaced = Counter(
            "triptych_misplaced_jobs", "Jobs run by another worker than the one chosen", ["model"], registry=registry
        )
        self._predicted = Counter(
            "triptych_predicted_cached_tokens", "Prompt tokens expected in the cache", ["model"], registry=registry
        )
        self._actual = Counter(
            "triptych_actual_cached_tokens", "Prompt tokens found in the cache", ["model"], registry=registry
        )
        self._artifact_fetch = Histogram(
            "triptych_artifact_fetch_seconds", "Reading an artifact", ["model"], buckets=SECONDS, registry=registry
        )
        self._artifact_bytes = Counter(
            "triptych_artifact_fetched_bytes", "Artifacts read from the store", ["model"], registry=registry
        )
        self._artifact_hits = Counter(
            "triptych_artifact_cache_hits", "Artifacts found in memory", ["model"], registry=registry
        )
        self._decode_jobs = Counter(
            "triptych_decode_jobs", "Decode jobs ended by this worker", ["kind", "outcome"], registry=registry
        )
        self._decode_queue = Histogram(
            "triptych_decode_queue_seconds", "Asked for to claimed", ["kind"], buckets=SECONDS, registry=registry
        )
        self._decode_seconds = Histogram(
            "triptych_decode_seconds", "Claimed to made", ["kind"], buckets=SECONDS, registry=registry
        )
        self._decode_batch = Histogram(
            "triptych_decode_batch_size", "Pictures drawn together", buckets=BATCH_SIZES, registry=registry
        )
        self._sentences = Counter("triptych_spoken_sentences", "Sentences spoken", registry=registry)
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
        self._encoded = Counter(
            "triptych_encoded_items", "Artifacts by how they came", ["pool", "encoder", "how"], registry=registry
        )
        self._encode_batch = Histogram(
            "triptych_encode_batch_items", "Items a forward", ["pool", "encoder"], buckets=ITEMS, registry=registry
        )
        self._encode_s = Histogram(
            "triptych_encode_seconds", "One forward", ["pool", "encoder"], buckets=SECONDS, registry=registry
        )
        self._encode_queue = Histogram(
            "triptych_encode_queue_seconds", "Acceptance to encoder", ["pool"], buckets=SECONDS, registry=registry
        )
        self._joins = Counter("triptych_joins", "Requests sent on by encoders", ["model"], registry=registry)

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

    def misplaced(self, model: str) -> None:
        self._misplaced.labels(model).inc()

    def cache_hit(self, model: str, *, predicted: int, actual: int) -> None:
        """Prompt tokens, of one request."""
        self._predicted.labels(model).inc(predicted)
        self._actual.labels(model).inc(actual)

    def artifact_from_store(self, model: str, seconds: float, size_bytes: int) -> None:
        self._artifact_fetch.labels(model).observe(seconds)
        self._artifact_bytes.labels(model).inc(size_bytes)

    def artifact_from_cache(self, model: str) -> None:
        self._artifact_hits.labels(model).inc()

    def decode_ended(self, kind: str, outcome: str) -> None:
        self._decode_jobs.labels(kind, outcome).inc()

    def decode_queued_for(self, kind: str, seconds: float) -> None:
        self._decode_queue.labels(kind).observe(seconds)

    def decoded_in(self, kind: str, seconds: float) -> None:
        self._decode_seconds.labels(kind).observe(seconds)

    def decode_batch(self, size: int) -> None:
        self._decode_batch.observe(size)

    def sentence_spoken(self) -> None:
        self._sentences.inc()

    def watch_feed_by(self, model: str, lag_s: Callable[[], float], orphans: Callable[[], float]) -> None:
        """Ask for both when the page is rendered."""
        self._feed_lag.labels(model).set_function(lag_s)
        self._feed_orphans.labels(model).set_function(orphans)

    def feed_gap(self, model: str) -> None:
        self._feed_gaps.labels(model).inc()

    def blocks_skipped(self, model: str, reason: str, count: int) -> None:
        self._feed_skipped.labels(model, reason).inc(count)

    def item_encoded(self, pool: str, encoder: str, how: Literal["made", "reused", "failed"]) -> None:
        self._encoded.labels(pool, encoder, how).inc()

    def batch_encoded(self, pool: str, encoder: str, items: int, seconds: float) -> None:
        self._encode_batch.labels(pool, encoder).observe(items)
        self._encode_s.labels(pool, encoder).observe(seconds)

    def encode_queued_for(self, pool: str, seconds: float) -> None:
        self._encode_queue.labels(pool).observe(seconds)

    def request_joined(self, model: str) -> None:
        self._joins.labels(model).inc()

    def render(self) -> bytes:
        """The page that Prometheus reads, in its text format (CONTENT_TYPE)."""
        return generate_latest(self._registry)

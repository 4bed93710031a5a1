"""Metrics of media: what encoders make, decoders draw and speak, and LLM workers fetch. A part of infra/metrics.py.

| metric                         | kind      | labels         | counted when                                           |
| ------------------------------ | --------- | -------------- | ------------------------------------------------------ |
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
| triptych_pool_workers          | gauge     | pool           | now: workers that a gateway sees in a pool, by topic   |
| triptych_joins_total           | counter   | model          | an encoder sends a request on, all its media encoded   |
| triptych_media_confinement     | gauge     | layer          | now: 1 = in force on an encoder's decoding processes   |
"""

from collections.abc import Callable
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

# From one engine step to the longest queue anybody sits out.
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
ITEMS = (1, 2, 4, 8, 16, 32, 64)


class MediaMetrics:
    """Methods, not metric objects, are what others touch: labels are spelled only here."""

    def __init__(self, registry: CollectorRegistry) -> None:
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
            "triptych_decode_batch_size", "Pictures drawn together", buckets=ITEMS, registry=registry
        )
        self._sentences = Counter("triptych_spoken_sentences", "Sentences spoken", registry=registry)
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
        self._workers = Gauge("triptych_pool_workers", "Workers seen in a pool", ["pool"], registry=registry)
        self._confinement = Gauge(
            "triptych_media_confinement", "Layers around decoding processes", ["layer"], registry=registry
        )
        self._joins = Counter("triptych_joins", "Requests sent on by encoders", ["model"], registry=registry)

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

    def item_encoded(self, pool: str, encoder: str, how: Literal["made", "reused", "failed"]) -> None:
        self._encoded.labels(pool, encoder, how).inc()

    def batch_encoded(self, pool: str, encoder: str, items: int, seconds: float) -> None:
        self._encode_batch.labels(pool, encoder).observe(items)
        self._encode_s.labels(pool, encoder).observe(seconds)

    def encode_queued_for(self, pool: str, seconds: float) -> None:
        self._encode_queue.labels(pool).observe(seconds)

    def count_workers_by(self, pool: str, count: Callable[[], float]) -> None:
        """Ask for the number when the page is rendered."""
        self._workers.labels(pool).set_function(count)

    def request_joined(self, model: str) -> None:
        self._joins.labels(model).inc()

    def media_confined(self, layer: str, is_in_force: bool) -> None:
        """`layer`: of workers/media/confine.py."""
        self._confinement.labels(layer).set(is_in_force)

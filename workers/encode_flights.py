"""Each artifact is made once: within this process, and, as far as notes can tell, over all encoders.

Two may make the same one where Redis has forgotten or an encoder was too slow to renew its flight; encoders are
deterministic, so that costs work and nothing else.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import msgspec

from infra import keys
from infra.artifact_ports import ArtifactNotes
from infra.faults import Corrupt, Missing, Unavailable
from infra.metrics import Metrics
from infra.ports import Blobs, Results
from schemas.errors import TriptychError
from schemas.jobs import EncodeJob, Head
from schemas.manifest import MediaLimits
from schemas.media import Artifact, EncoderKind, MediaKind, Slot
from topics.artifacts import Artifacts
from workers.encoder import Decoded, Encoded, MediaFault, Sound
from workers.encoders import Encoders, ServedEncoder, Waiting

log = logging.getLogger(__name__)

RENEW_S = keys.FLIGHT_TTL_MS / 3_000
# How soon the artifact that another encoder has made, or the death of that encoder, is noticed.
ASK_AGAIN_S = 0.2

Decode: TypeAlias = Callable[[MediaKind, EncoderKind, bytes, MediaLimits], Decoded]


class _Flight:
    def __init__(self, slot: Slot, language: str) -> None:
        self.slot = slot
        self.language = language
        self.heads: list[Head] = []  # of the requests that wait for it
        self.task: asyncio.Task[Artifact]


class Flights:
    """`maker` names this life of the process. At most `items` are in memory, `threads` of them being decoded."""

    def __init__(
        self,
        maker: str,
        encoders: Encoders,
        artifacts: Artifacts,
        notes: ArtifactNotes,
        blobs: Blobs,
        decode: Decode,
        metrics: Metrics,
        max_tries: int,
        items: int,
        threads: int,
    ) -> None:
        self._maker = maker
        self._encoders = encoders
        self._artifacts = artifacts
        self._notes = notes
        self._blobs = blobs
        self._decode = decode
        self._metrics = metrics
        self._max_tries = max_tries
        self._room = asyncio.Semaphore(items)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="decode")
        self._flights: dict[str, _Flight] = {}
        self._aloft: set[str] = set()  # those that the notes have under our name

    async def artifact(self, job: EncodeJob) -> Artifact:
        """The artifact of the job's slot, made by whoever is first.

        Raises:
            MediaFault: the item cannot be encoded.
            NotWanted: no request that waits for it wants to go on.
            TriptychError: too_many_attempts, when encoders died at it; internal, for another version's job.
            Unavailable: store or Redis cannot say now.
        """
        slot = job.slot
        self._encoders.of(slot, job.language)
        found = (await self._artifacts.lookup([slot]))[0]
        if found is not None:
            self._metrics.item_encoded(slot.pool, slot.encoder, "reused")
            return found
        flight = self._flights.get(slot.artifact)
        if flight is None:
            flight = self._flights[slot.artifact] = _Flight(slot, job.language)
            flight.task = asyncio.create_task(self._fly(flight), name=slot.artifact)
            flight.task.add_done_callback(_heard)
        flight.heads.append(job.head)
        # A job that is cut short must not take the others' flight down with it.
        return await asyncio.shield(flight.task)

    async def renew(self) -> None:
        """Tell, until cancelled, that this process is at work on its flights."""
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                await self._notes.fly_on(sorted(self._aloft), self._maker)
            except Unavailable as error:
                log.warning("others may begin to encode what is encoded here: %s", error)

    async def close(self) -> None:
        tasks = [flight.task for flight in self._flights.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _fly(self, flight: _Flight) -> Artifact:
        try:
            while True:
                async with self._room:
                    number = await self._notes.take_off(flight.slot.artifact, self._maker)
                    if number:
                        return await self._make_once(flight, number)
                await asyncio.sleep(ASK_AGAIN_S)
        finally:
            del self._flights[flight.slot.artifact]

    async def _make_once(self, flight: _Flight, number: int) -> Artifact:
        slot = flight.slot
        self._aloft.add(slot.artifact)
        try:
            found = (await self._artifacts.lookup([slot]))[0]  # another may have landed just now
            if found is not None:
                self._metrics.item_encoded(slot.pool, slot.encoder, "reused")
                return found
            if number > self._max_tries:
                message = f"given up after {number - 1} attempts, each of which ended with its encoder"
                raise TriptychError("too_many_attempts", message, param=slot.param)
            return await self._make(flight)
        finally:
            self._aloft.discard(slot.artifact)
            await self._land(slot.artifact)

    async def _land(self, artifact: str) -> None:
        try:
            await self._notes.land(artifact, self._maker)
        except Unavailable as error:
            log.warning("others wait for %s until our flight has timed out: %s", artifact, error)

    async def _make(self, flight: _Flight) -> Artifact:
        slot, served = flight.slot, self._encoders.of(flight.slot, flight.language)
        data = await self._fetch(slot)
        loop = asyncio.get_running_loop()
        try:
            item = await loop.run_in_executor(self._threads, self._decode, slot.kind, slot.pool, data, served.limits)
            if flight.language and isinstance(item, Sound):
                item = msgspec.structs.replace(item, language=flight.language)
            encoded = await served.loaded.batcher.submit(Waiting(item, flight.heads))
            if isinstance(encoded, MediaFault):
                raise encoded
        except MediaFault:
            self._metrics.item_encoded(slot.pool, slot.encoder, "failed")
            raise
        artifact, rows = _artifact(encoded, served, slot)
        await self._artifacts.store(slot.artifact, artifact, rows)
        self._metrics.item_encoded(slot.pool, slot.encoder, "made")
        return artifact

    async def _fetch(self, slot: Slot) -> bytes:
        try:
            return await self._blobs.get(slot.source)
        except Missing as error:
            raise MediaFault("file_not_found", "it is no longer stored; please send it again") from error
        except Corrupt as error:
            log.error("%s", error)
            raise MediaFault("media_unreadable", "it has been damaged in the store; please send it again") from error


def _artifact(encoded: Encoded, served: ServedEncoder, slot: Slot) -> tuple[Artifact, bytes]:
    rows, width, data, dtype = 0, 0, b"", ""
    if encoded.embeddings is not None:
        rows, width = encoded.embeddings.shape
        data, dtype = encoded.embeddings.tobytes(), encoded.embeddings.dtype.name
    artifact = Artifact(
        encoded.kind,
        served.fingerprint,
        slot.source.digest,
        rows=rows,
        width=width,
        dtype=dtype,
        token_ids=encoded.token_ids,
        text=encoded.text,
        segments=encoded.segments,
        language=encoded.language,
        duration_s=encoded.duration_s,
    )
    return artifact, data


def _heard(task: "asyncio.Task[Artifact]") -> None:
    """All who waited for it may have gone: a failure is nobody's then, and asyncio need not complain."""
    if not task.cancelled():
        task.exception()


class Sieve:
    """Asks, for all items of a batch in one round trip, whether any request that waits for them still wants to run."""

    def __init__(self, results: Results) -> None:
        self._results = results

    async def __call__(self, batch: Sequence[Waiting]) -> list[bool]:
        heads = [head for one in batch for head in one.heads]
        wishes = iter(await self._results.wishes(heads))
        answers = [[next(wishes) for _ in one.heads] for one in batch]
        return ["wanted" in each for each in answers]

"""The work of an encoder pool: make a slot's artifact, then send the request on if it was the last one missing."""

import asyncio
import logging
from collections.abc import Mapping

from infra.artifact_ports import ArtifactNotes
from infra.clock import Clock
from infra.faults import Unavailable
from infra.metrics import Metrics
from infra.ports import Results
from schemas.errors import TriptychError
from schemas.events import Cancelled, Failed
from schemas.jobs import EncodeJob, GenerateJob, Head
from schemas.media import Room
from topics.artifacts import Artifacts
from topics.headers import Headers
from topics.join import Language, assemble
from topics.send_generate import GenerateSender
from workers.batcher import NotWanted
from workers.encode_flights import Flights
from workers.encoder import MediaFault
from workers.running import Running
from workers.transcribe import Transcriptions

log = logging.getLogger(__name__)


class Joiner:
    """Sends a request on once all its artifacts are there. Whoever stores the last one sees them all; more than one may
    think it was the last: the copies are equal, and the claim of the LLM worker lets one run."""

    def __init__(
        self,
        artifacts: Artifacts,
        notes: ArtifactNotes,
        languages: Mapping[str, Language],
        senders: Mapping[str, GenerateSender],
        metrics: Metrics,
    ) -> None:
        self._artifacts = artifacts
        self._notes = notes
        self._languages = languages  # by the LLM's id, as the senders
        self._senders = senders
        self._metrics = metrics
        self._joining: dict[str, asyncio.Lock] = {}

    async def join(self, job: EncodeJob, draft: GenerateJob, room: Room, headers: Headers | None) -> None:
        """Returns when the request is on its way, or somebody else will see to that.

        Raises:
            TriptychError: as join.assemble and Producer.send. Unavailable: store or Redis cannot say now.
        """
        request_id = job.head.request_id
        lock = self._joining.setdefault(request_id, asyncio.Lock())
        try:
            async with lock:  # the items of one request come out of one batch at the same moment
                if not await self._notes.joined(request_id):
                    await self._join(job, draft, room, headers)
        finally:
            if not lock.locked():
                self._joining.pop(request_id, None)

    async def _join(self, job: EncodeJob, draft: GenerateJob, room: Room, headers: Headers | None) -> None:
        found = await self._artifacts.lookup(job.slots)
        artifacts = [one for one in found if one is not None]
        if len(artifacts) < len(found):
            return
        whole = assemble(draft, job.slots, artifacts, room, self._languages[job.head.model])
        await self._senders[job.head.model].send(whole, headers)
        await self._notes.mark_joined(job.head.request_id)
        self._metrics.request_joined(job.head.model)


class EncodeWork:
    """Implements topics.group_jobs.Work."""

    def __init__(
        self,
        flights: Flights,
        joiner: Joiner,
        transcriptions: Transcriptions,
        results: Results,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._flights = flights
        self._joiner = joiner
        self._transcriptions = transcriptions
        self._results = results
        self._metrics = metrics
        self._clock = clock
        self._open: dict[Running, str] = {}  # what is under way, and of which request

    async def handle(self, job: EncodeJob, headers: Headers | None = None) -> None:
        left_s = job.head.deadline_at - self._clock.now()
        self._metrics.encode_queued_for(job.slot.pool, self._clock.now() - job.head.created_at)
        limit = asyncio.timeout(left_s)
        running = Running()
        self._open[running] = job.head.request_id
        try:
            async with limit:
                await self._handle(job, headers)
        except TimeoutError:
            if not limit.expired():
                raise
            message = "the deadline passed before its media were encoded"
            await self._results.end(job.head, Failed(0, 0, "deadline_exceeded", message))
        except MediaFault as fault:
            await self._results.end(job.head, Failed(0, 0, fault.code, fault.message, job.slot.param))
        except TriptychError as error:
            await self._results.end(job.head, failed(job, error))
        except NotWanted:
            await self._stop(job.head)
        except asyncio.CancelledError:
            if not running.uncancel():
                raise
            await self._results.end(job.head, Cancelled(0, 0, running.reason))
        finally:
            running.finish()
            del self._open[running]

    def cancel(self, request_id: str, reason: str) -> None:
        """Stop what is here of this request."""
        for running, one in list(self._open.items()):
            if one == request_id:
                running.stop("cancelled", reason)

    async def give_up(self, job: EncodeJob, error: BaseException) -> None:
        message = f"the encoder failed on {job.slot.param}"
        await self._results.end(job.head, Failed(0, 0, "internal", message, job.slot.param))

    async def _handle(self, job: EncodeJob, headers: Headers | None) -> None:
        if (await self._results.wishes([job.head]))[0] != "wanted":
            raise NotWanted
        if job.draft is None or job.room is None:
            await self._transcriptions.answer(job)
            return
        await self._flights.artifact(job)
        await self._joiner.join(job, job.draft, job.room, headers)

    async def _stop(self, head: Head) -> None:
        """Whoever cancelled it waits for its end; nobody but an encoder has it."""
        match (await self._results.wishes([head]))[0]:
            case "ended":
                pass
            case "cancelled":
                await self._results.end(head, Cancelled(0, 0, "cancelled while its media were encoded"))
            case "wanted":
                # It began to wait for an item at the very moment at which the others that did were found to be over.
                raise Unavailable("the item is to be encoded after all")


def failed(job: EncodeJob, error: TriptychError) -> Failed:
    return Failed(0, 0, error.code, error.message, error.param or job.slot.param)

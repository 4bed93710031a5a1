"""Requests that ask for what is heard in a sound and nothing else: the encoder that claims one answers and ends it."""

import asyncio
import logging

from infra.clock import Clock
from infra.metrics import Metrics
from infra.ports import Claim, Incarnation, Lives, Outgoing, Results
from schemas.errors import TriptychError
from schemas.events import Event, Finished, Terminal, Transcript, Usage
from schemas.jobs import EncodeJob
from schemas.media import Artifact
from workers import retry
from workers.batcher import NotWanted
from workers.encode_flights import Flights
from workers.encoder import MediaFault
from workers.running import until_answered

log = logging.getLogger(__name__)

# A request that a living worker runs is asked for again at this pace: its end, or its worker's, is then noticed.
BUSY_POLL_S = 0.5


class Transcriptions:
    def __init__(
        self, flights: Flights, lives: Lives, results: Results, metrics: Metrics, clock: Clock, max_attempts: int
    ) -> None:
        self._flights = flights
        self._lives = lives
        self._results = results
        self._metrics = metrics
        self._clock = clock
        self._max_attempts = max_attempts

    async def answer(self, job: EncodeJob) -> None:
        """Returns when the request has ended, here or elsewhere. Raises as Flights.artifact; ends nothing then."""
        me = await self._lives.of(job.head.model)
        while True:
            claim = await until_answered(lambda: self._results.claim(job.head, me, self._max_attempts))
            match retry.on_claim(job.head, claim, self._clock.now()):
                case "drop":
                    return
                case "run":
                    return await self._run(job, claim, me)
                case "wait":
                    await asyncio.sleep(BUSY_POLL_S)
                case terminal:
                    return await self._send(job, [terminal])

    async def _run(self, job: EncodeJob, claim: Claim, me: Incarnation) -> None:
        try:
            artifact = await self._flights.artifact(job)
        except (MediaFault, NotWanted, TriptychError):
            raise  # the request ends
        except BaseException:
            # The next try, by this worker or another, must find it free.
            await until_answered(lambda: self._results.requeue(job.head, claim.attempt, me))
            raise
        await self._send(job, self._answer(job, artifact, claim, me))

    def _answer(self, job: EncodeJob, artifact: Artifact, claim: Claim, me: Incarnation) -> list[Event]:
        attempt, seq = claim.attempt, claim.last_seq + 1
        heard = Transcript(attempt, seq, artifact.text, artifact.segments, artifact.language, artifact.duration_s)
        queue_s = self._clock.now() - job.head.created_at
        return [heard, Finished(attempt, seq + 1, Usage(0, 0), me.worker, queue_s=queue_s)]

    async def _send(self, job: EncodeJob, events: "list[Event] | list[Terminal]") -> None:
        await until_answered(lambda: self._results.append([Outgoing(job.head, list(events))]))
        self._metrics.job_ended(job.head.model, type(events[-1]).__name__.lower())

"""Calls of one script that wait at the same time go to Redis together.

Each is as atomic as on its own; what they share is the way there and back, which costs this process more than
everything else about a short script.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from infra.redis_client import Argument, answered

# Bounds how long the server is busy with one trip: a decision takes it a fraction of a millisecond.
MOST_TOGETHER = 64
# Trips at the same time: one whose connection hangs holds up only the calls in it.
LANES = 2


class _Call(msgspec.Struct, eq=False):
    keys: Sequence[str]
    args: Sequence[Argument]
    reply: "asyncio.Future[Any]"


class SharedTrips:
    """One script, called like infra.redis_client.Script: whoever calls while all lanes are on their way waits for the
    next trip. A call that is cancelled before its trip begins is not sent."""

    def __init__(self, client: Redis, source: str) -> None:
        self._client = client
        self._script = client.register_script(source)
        self._waiting: list[_Call] = []
        self._lanes: set[asyncio.Task[None] | None] = set()
        self._lane_starts = False  # and will take what is waiting

    async def __call__(self, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """Raises Unavailable when Redis gives no answer in time, also after retries."""
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Call(keys, args, reply))
        self._start_lane()
        answer = await reply
        if isinstance(answer, Exception):
            async with answered():  # tells what the server's "not now" means
                raise answer
        return answer

    def _start_lane(self) -> None:
        """For those that wait, unless one is about to take them or there is none left."""
        if self._waiting and not self._lane_starts and len(self._lanes) < LANES:
            self._lane_starts = True
            self._lanes.add(asyncio.create_task(self._lane(), name="shared trips"))

    async def _lane(self) -> None:
        """Trip after trip, until nobody waits. Whatever a trip fails with is raised where its calls were made."""
        self._lane_starts = False
        try:
            while trip := self._next():
                self._start_lane()
                try:
                    answers = await self._send(trip)
                except Exception as error:  # noqa: BLE001 - not ours to judge: every caller gets it
                    answers = [error] * len(trip)
                for call, answer in zip(trip, answers, strict=True):
                    if not call.reply.done():
                        call.reply.set_result(answer)
        finally:
            # Not by a callback: who calls before that has run would find all lanes taken, and wait for nobody.
            self._lanes.discard(asyncio.current_task())

    def _next(self) -> list[_Call]:
        wanted = [call for call in self._waiting if not call.reply.done()]
        self._waiting = wanted[MOST_TOGETHER:]
        return wanted[:MOST_TOGETHER]

    async def _send(self, trip: Sequence[_Call]) -> list[Any]:
        async with answered():
            answers = await self._execute(trip)
            lost = [at for at, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
            if lost:
                await self._client.script_load(self._script.script)
                for at, answer in zip(lost, await self._execute([trip[at] for at in lost]), strict=True):
                    answers[at] = answer
            return answers

    async def _execute(self, trip: Sequence[_Call]) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        for call in trip:
            pipeline.evalsha(self._script.sha, len(call.keys), *call.keys, *call.args)
        return await pipeline.execute(raise_on_error=False)

"""The result path on Redis, gateway's side: all requests of one gateway over one channel, repaired from the streams.

A publication is a hint that may be lost; the stream is the truth. Whoever misses something reads it there: after a gap
in the seqs, after a reconnect, and after some silence, in case it was the last publication that went missing.
"""

import asyncio
import contextlib
import logging
from contextlib import aclosing

import msgspec
from redis.asyncio import Redis

from infra import keys
from infra.channel import Channel
from infra.clock import Clock
from infra.metrics import Metrics
from infra.stream_reader import StreamReader
from infra.subscription import Followed, Registry
from schemas import codec

log = logging.getLogger(__name__)

CONNECT_WAIT_S = 5.0
SWEEPS_PER_SILENCE = 10
RESTART_S = 1.0


class RedisFollower:
    """Follower over one Redis client; keeps one connection of it for the channel.

    `silence_s`: a request that nothing came for is looked up in its stream after this long.
    """

    def __init__(
        self, client: Redis, gateway_id: str, metrics: Metrics, clock: Clock, *, silence_s: float = 5.0
    ) -> None:
        self._clock = clock
        self._silence_s = silence_s
        self._reader = StreamReader(client, metrics, clock)
        self._channel = Channel(client, keys.gateway(gateway_id), on_subscribed=self._subscribed)
        self._open = Registry()
        self._first_subscribed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        metrics.count_open_streams_by(lambda: self.following)

    @property
    def connected(self) -> bool:
        """The channel is up. While it is not, nothing is lost, but all is late."""
        return self._channel.connected

    @property
    def following(self) -> int:
        """How many subscriptions are open."""
        return len(self._open)

    async def start(self) -> None:
        """Begin to listen. Returns when subscribed, or after a while: what is published until then is caught up."""
        self._task = asyncio.create_task(self._run(), name="follower")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CONNECT_WAIT_S):
                await self._first_subscribed.wait()

    def follow(self, model: str, request_id: str, after_seq: int = 0, *, begun: bool = False) -> Followed:
        one = Followed(
            model,
            request_id,
            after_seq,
            on_room=lambda one: self._reader.want(one, "lag"),
            on_close=self._forget,
            heard_at=self._clock.monotonic(),
        )
        self._open.add(one)
        if after_seq > 0 or begun:
            self._reader.want(one, "attach")
        return one

    async def close(self) -> None:
        """Stop listening; subscriptions that are still open end where they are."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for one in self._open:
            one.close()

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pump())
                    group.create_task(self._reader.run())
                    group.create_task(self._sweep())
            except Exception:
                # A fault of ours must not deafen the gateway for good; subscribing anew catches everybody up.
                log.exception("the follower failed and starts again in %.0f s", RESTART_S)
            await asyncio.sleep(RESTART_S)

    async def _pump(self) -> None:
        async with aclosing(self._channel.messages()) as messages:
            async for raw in messages:
                self._dispatch(raw)

    def _dispatch(self, raw: bytes) -> None:
        try:
            batches = codec.decode_batches(raw)
        except msgspec.MsgspecError as error:
            log.warning("a publication nobody understands: %s", error)
            return
        now = self._clock.monotonic()
        for batch in batches:
            for one in self._open.of(batch.request_id):
                one.heard_at = now
                one.feed(batch.events)
                if one.missing and not one.full:
                    self._reader.want(one, "gap")

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._silence_s / SWEEPS_PER_SILENCE)
            self._look_for_silence(self._clock.monotonic())

    def _look_for_silence(self, now: float) -> None:
        for one in self._open:
            if now - one.heard_at >= self._silence_s:
                one.heard_at = now
                self._reader.want(one, "silence")

    def _subscribed(self) -> None:
        self._first_subscribed.set()
        for one in self._open:
            self._reader.want(one, "reconnect")

    def _forget(self, one: Followed) -> None:
        self._open.discard(one)
        self._reader.forget(one)

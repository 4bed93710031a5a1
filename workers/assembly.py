"""The rows of a prompt's embeddings, fetched by key and checked: an engine may die of what does not fit.

A job that contradicts itself is the fault of whoever sent it (invalid_request); an artifact that does not fit the job
is ours (internal); one that the store no longer has can be made again by sending the request again (artifact_missing).
"""

import asyncio
import logging
from collections.abc import Sequence
from itertools import pairwise

from infra.artifact_ports import ArtifactNotes
from infra.faults import Corrupt, Missing, Unavailable
from schemas.errors import TriptychError
from schemas.jobs import GenerateJob
from schemas.media import Artifact, Embeds
from workers.artifact_cache import ArtifactCache
from workers.engine import EmbedsShape, Engine, Rows

log = logging.getLogger(__name__)


class Assembly:
    """Makes the prompts of one engine whole."""

    def __init__(self, engine: Engine, artifacts: ArtifactCache, notes: ArtifactNotes) -> None:
        self._engine = engine
        self._artifacts = artifacts
        self._notes = notes

    async def rows(self, job: GenerateJob) -> list[Rows]:
        """Of all its embeds, in order of their offsets; none for a prompt of tokens alone.

        Waits while the store gives no answer: bound it by the request's deadline.

        Raises:
            TriptychError: invalid_request, internal or artifact_missing; see above.
        """
        if not job.embeds:
            return []
        shape = self._engine.embeds
        if shape is None:
            raise TriptychError("invalid_request", "the model takes no embeddings", param="messages")
        embeds = sorted(job.embeds, key=lambda one: one.offset)
        check(embeds, job.prompt_ids, shape)
        try:
            async with asyncio.TaskGroup() as group:
                fetches = [group.create_task(self._fetch(one, shape)) for one in embeds]
        except* TriptychError as faults:
            first = _first(faults)
        else:
            return [fetch.result() for fetch in fetches]
        raise first  # out here: one raised up there would be a group again

    async def _fetch(self, one: Embeds, shape: EmbedsShape) -> Rows:
        try:
            found = await self._artifacts.get(one.artifact)
            _check_fit(one, found.artifact, shape)
        except Missing as error:
            await self._drop_note(one.artifact)
            text = "what was made of a media item is no longer stored; please send the request again"
            raise TriptychError("artifact_missing", text) from error
        except Corrupt as error:
            log.error("artifact %s: %s", one.artifact, error)
            raise TriptychError("internal", "what was made of a media item cannot be used") from error
        return Rows(one.offset, one.length, found.artifact.width, found.artifact.dtype, found.rows, one.digest)

    async def _drop_note(self, artifact: str) -> None:
        """So that the same request, sent again, finds out that it must be made anew."""
        try:
            await self._notes.drop(artifact)
        except Unavailable as error:
            log.warning("the note of %s, which is gone, stays for a while: %s", artifact, error)


def check(embeds: Sequence[Embeds], prompt_ids: Sequence[int], shape: EmbedsShape) -> None:
    """Whether each span, in order of the offsets, lies in the prompt, apart from the others, over placeholders of one
    kind.

    Raises:
        TriptychError: invalid_request.
    """
    for one in embeds:
        if one.length < 1 or one.offset < 0 or one.offset + one.length > len(prompt_ids):
            raise _contradiction(one, f"outside the prompt of {len(prompt_ids)} tokens")
        ids = set(prompt_ids[one.offset : one.offset + one.length])
        if len(ids) > 1 or (shape.placeholders and not ids <= shape.placeholders):
            raise _contradiction(one, "not over placeholders of one kind")
    for one, following in pairwise(embeds):
        if one.offset + one.length > following.offset:
            raise _contradiction(following, "over another item's")


def _contradiction(one: Embeds, where: str) -> TriptychError:
    return TriptychError("invalid_request", f"embeddings for {one.length} positions from {one.offset} on are {where}")


def _check_fit(one: Embeds, found: Artifact, shape: EmbedsShape) -> None:
    if found.kind != "embeddings":
        raise Corrupt(f"an artifact of {found.kind} has no rows to put into a prompt")
    if found.rows != one.length:
        raise Corrupt(f"{found.rows} rows for {one.length} positions")
    if shape.width and found.width != shape.width:
        raise Corrupt(f"rows of {found.width} numbers for a model of {shape.width}")


def _first(faults: BaseExceptionGroup[TriptychError]) -> TriptychError:
    fault = faults.exceptions[0]
    return _first(fault) if isinstance(fault, BaseExceptionGroup) else fault

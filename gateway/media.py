"""A chat request with media -> the generate job, when all of it is known already, or the encode jobs still needed."""

import asyncio
import base64
import itertools
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from gateway import admit, capabilities
from gateway.models import Served
from gateway.render import Surround
from schemas.errors import TriptychError
from schemas.jobs import EncodeJob, GenerateJob, Head
from schemas.manifest import Capability
from schemas.media import EncoderKind, MediaKind, Output, Slot
from schemas.openai_parts import AudioPart, FilePart, ImagePart, VideoPart
from schemas.openai_request import ChatRequest
from topics import join, names, plan
from topics.artifacts import Artifacts
from topics.bus import Producer
from topics.fingerprints import artifact_key
from topics.headers import Headers
from topics.intake.intake import Inline, Intake, Item, Link, Source, Taken, Uploaded, source_of

# A URL written as base64, as some clients of other servers do.
MOST_URL_CHARS = 12_000
# Coprime to the number of partitions: a request's jobs spread over all owners, however they are dealt out.
STRIDE = 5

_POOLS: Mapping[MediaKind, tuple[EncoderKind, ...]] = {
    "image": ("vision",),
    "audio": ("audio",),
    "video": ("vision", "audio"),  # it is seen and heard, by as many encoders as the model has
}
_NEEDED: Mapping[MediaKind, Capability] = {"image": "image_in", "audio": "audio_in", "video": "video_in"}


class Prepared(msgspec.Struct, frozen=True):
    """`ready` can be sent at once; else `missing` must be encoded first, and the last encoder sends the job."""

    ready: GenerateJob | None
    missing: Sequence[EncodeJob]


class Media:
    """Intake, artifacts and encoder pools, as seen from one gateway."""

    def __init__(self, intake: Intake, artifacts: Artifacts, producer: Producer) -> None:
        self._intake = intake
        self._artifacts = artifacts
        self._producer = producer
        # By pool: of a video's jobs, which take turns, each pool would else get every other partition only.
        self._turns: Mapping[EncoderKind, Iterator[int]] = {"vision": itertools.count(), "audio": itertools.count()}

    async def prepare(
        self,
        head: Head,
        served: Served,
        request: ChatRequest,
        items: Sequence[capabilities.Item],
        outputs: Sequence[Output],
    ) -> Prepared:
        """Take the media in, lay the prompt out around it and look what is known of it.

        Raises:
            TriptychError: a 400 that names the item, or what `admit.room` and the renderer raise.
            Unavailable: a store does not answer.
        """
        taken = await self._intake.take([_asked(item) for item in items], served.manifest.media)
        slots, prompt_ids = await _laid_out(served, request, taken)
        admit.room(request, len(prompt_ids), served.context_tokens)
        draft = plan.build(head, request, prompt_ids, plan.UNKNOWN_MAX_TOKENS, outputs, served.manifest.sampling)
        room = plan.room_of(request, served.context_tokens)
        artifacts = await self._artifacts.lookup(slots)
        found = [one for one in artifacts if one is not None]
        if len(found) == len(slots):
            return Prepared(join.assemble(draft, slots, found, room, served.language), [])
        missing = [number for number, one in enumerate(artifacts) if one is None]
        return Prepared(None, plan.encode_jobs(draft, slots, room, missing))

    async def lacks(self, slots: Sequence[Slot]) -> bool:
        """Whether anything of these is not encoded yet. Raises Unavailable: a store does not answer."""
        return None in await self._artifacts.lookup(slots)

    async def send(self, jobs: Sequence[EncodeJob], headers: Headers) -> None:
        """Ask the encoders, for everything at once.

        Raises:
            TriptychError: overloaded, when the broker does not take it in time.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for job in jobs:
                    group.create_task(self._send(job, headers))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _send(self, job: EncodeJob, headers: Headers) -> None:
        partition = next(self._turns[job.slot.pool]) * STRIDE % names.POOL_PARTITIONS
        key = job.head.request_id.encode()
        await self._producer.send(names.encode(job.slot.pool), job, partition=partition, key=key, headers=headers)


async def _laid_out(served: Served, request: ChatRequest, taken: Sequence[Taken]) -> tuple[list[Slot], list[int]]:
    sides = [_sides(served, one) for one in taken]
    surrounds = [[_surround(served, pool) for pool in pools] for pools in sides]
    layout = await served.renderer.lay_out(request.messages, served.context_tokens, surrounds)
    slots = [slot_of(served, taken[place.item], sides[place.item][place.side], place.offset) for place in layout.places]
    return slots, layout.prompt_ids


def slot_of(served: Served, taken: Taken, pool: EncoderKind, offset: int = 0, language: str = "") -> Slot:
    """Raises ValueError: `language` is no ISO 639 code."""
    return Slot(
        offset=offset,
        kind=taken.kind,
        pool=pool,
        encoder=f"{served.manifest.id}/{pool}",
        source=taken.blob,
        artifact=artifact_key(served.fingerprints[pool], taken.blob.digest, language, of_video=taken.kind == "video"),
        param=taken.param,
    )


def _sides(served: Served, taken: Taken) -> list[EncoderKind]:
    """Which of the model's encoders look at it."""
    capabilities.need(served.manifest, _NEEDED[taken.kind], taken.param)
    return [pool for pool in _POOLS[taken.kind] if pool in served.manifest.encoders]


def _surround(served: Served, pool: EncoderKind) -> Surround:
    encoder = served.manifest.encoders[pool]
    return Surround(encoder.before, encoder.after)


def _asked(item: capabilities.Item) -> Item:
    """The item as intake knows it."""
    match item.part:
        case ImagePart(image):
            return Item("image", source_of(image.url), item.param)
        case AudioPart(audio):
            return Item("audio", _sound(audio.data), item.param)
        case VideoPart(video):
            return Item("video", source_of(video.url), item.param)
        case FilePart(file) if file.file_id is not None and file.file_data is None:
            return Item(None, Uploaded(file.file_id), item.param)
        case FilePart(file) if file.file_data is not None and file.file_id is None:
            return Item(None, source_of(file.file_data), item.param)
        case _:
            message = f"Invalid value for '{item.param}.file': it must have either 'file_id' or 'file_data'."
            raise TriptychError("invalid_request", message, param=f"{item.param}.file")


def _sound(data: str) -> Source:
    source = source_of(data)
    if isinstance(source, Inline) and len(data) <= MOST_URL_CHARS:
        try:
            inside = base64.b64decode("".join(data.split()), validate=True).strip()
        except ValueError:  # also what a character outside of ASCII raises
            return source  # intake says what is wrong with it
        if inside.startswith((b"http://", b"https://")):
            return Link(inside.decode("latin-1"))
    return source

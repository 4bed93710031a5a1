"""What a decoded job must fulfil beyond the ranges of its fields: its parts agree with each other, with the topic it
stands on, and with this pool. Pure."""

from collections.abc import Collection, Sequence
from typing import Generic, TypeVar, assert_never

import msgspec

from schemas.jobs import DecodeJob, EncodeJob, GenerateJob, Head, Job
from schemas.media import DecoderKind, EncoderKind, ImageOptions, Slot

# Longer than any job stands on its topic: state kept until a later deadline would outlive whoever could need it.
MOST_LIFE_S = 7 * 86_400.0
# How far the clock of whoever made the job may be ahead of ours.
CLOCK_AHEAD_S = 3_600.0

MOST_ID_CHARS = 256


J = TypeVar("J", bound=Job)


class Belongs(msgspec.Struct, Generic[J], frozen=True):
    """What one topic carries: jobs of one type, of these models and, in a media pool, of this kind."""

    kind: type[J]
    models: Collection[str]  # LLM pools
    media: EncoderKind | DecoderKind | None = None

    def misplaced(self, job: Job) -> str:
        """Why it does not belong here; empty when it does."""
        if not isinstance(job, self.kind):
            return f"a {type(job).__name__} does not belong on this topic"
        if job.head.model not in self.models:
            return f"no worker of this pool serves the model {job.head.model!r}"
        if isinstance(job, EncodeJob) and job.number < len(job.slots) and job.slot.pool != self.media:
            return f"an item for the encoders of {job.slot.pool!r}"
        if isinstance(job, DecodeJob) and media_of(job) != self.media:
            return f"a job for the decoders of {media_of(job)!r}"
        return ""


def media_of(job: DecodeJob) -> DecoderKind:
    return "image" if isinstance(job.options, ImageOptions) else "audio"


def contradiction(job: Job, now: float) -> str:
    """What in it cannot be; empty when nothing is. `now`: unix seconds."""
    if wrong := _of_head(job.head, now):
        return wrong
    match job:
        case GenerateJob():
            return _of_generate(job)
        case EncodeJob():
            return _of_encode(job, now)
        case DecodeJob():
            return ""
        case _:
            assert_never(job)


def _of_head(head: Head, now: float) -> str:
    if head.deadline_at > now + MOST_LIFE_S:
        return f"head.deadline_at is more than {MOST_LIFE_S:.0f} s from now"
    if head.created_at > now + CLOCK_AHEAD_S:
        return f"head.created_at is more than {CLOCK_AHEAD_S:.0f} s from now"
    return ""


def _of_generate(job: GenerateJob) -> str:
    if wrong := _too_long(job.head):
        return wrong
    return _of_keys("embeds", [one.artifact for one in job.embeds], "artifacts/")


def _of_encode(job: EncodeJob, now: float) -> str:
    if wrong := _too_long(job.head):
        return wrong
    if job.number >= len(job.slots):
        return f"number is {job.number} of {len(job.slots)} slots"
    if (job.draft is None) != (job.room is None):
        return "draft and room come together"
    return _of_slots(job.slots) or (_of_draft(job, job.draft, now) if job.draft is not None else "")


def _of_draft(job: EncodeJob, draft: GenerateJob, now: float) -> str:
    if (draft.head.request_id, draft.head.model) != (job.head.request_id, job.head.model):
        return "the draft is of another request"
    if any(one.offset > len(draft.prompt_ids) for one in job.slots):
        return f"a slot lies beyond the draft's {len(draft.prompt_ids)} tokens"
    if [one.offset for one in job.slots] != sorted(one.offset for one in job.slots):
        return "the slots are not in the order of their offsets"
    return contradiction(draft, now)


def _of_slots(slots: Sequence[Slot]) -> str:
    wrong = _of_keys("slots.artifact", [one.artifact for one in slots], "artifacts/")
    return wrong or _of_keys("slots.source", [one.source.key for one in slots], "media/")


def _of_keys(what: str, keys: Sequence[str], folder: str) -> str:
    """A job names no objects but those of its kind: not another one's payload, upload or answer."""
    wrong = next((key for key in keys if not key.startswith(folder)), None)
    return "" if wrong is None else f"{what}: {wrong[:100]!r} is not under {folder}"


def _too_long(head: Head) -> str:
    """The parts of its answer will have longer names than it has."""
    return f"head.request_id has more than {MOST_ID_CHARS} characters" if len(head.request_id) > MOST_ID_CHARS else ""

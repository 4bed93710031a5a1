"""Events: the result stream of one request, from whichever worker runs it to whichever gateway follows it.

`seq` starts at 1 and has no gaps over the whole request, over all attempts: it is what a follower checks, what a replay
asks for and what a client re-attaches by. `attempt` fences: events of an attempt that is no longer the current one are
refused where they are stored. Exactly one of Finished, Failed, Cancelled ends the stream (promise P1).

Array-encoded, because one is sent per token; new fields go to the end, with defaults (see jobs.py for the rule).
"""

from typing import Literal

import msgspec

from schemas.media import DecoderKind, Segment
from schemas.refs import BlobRef
from schemas.steering import Decision

FinishReason = Literal["stop", "length"]


class Alternative(msgspec.Struct, frozen=True, array_like=True):
    """One candidate for a position: token text, its raw bytes, log probability (natural log)."""

    token: str
    raw: bytes
    logprob: float


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """The chosen token of one position and the likeliest ones beside it."""

    token: str
    raw: bytes
    logprob: float
    top: list[Alternative] = []


class Token(msgspec.Struct, frozen=True, array_like=True, tag="t"):
    """Some new text of one choice. `text` holds whole characters only; it may be empty while one is incomplete."""

    attempt: int
    seq: int
    index: int  # which of the n choices
    text: str
    token_ids: list[int]
    finish_reason: FinishReason | None = None  # set on the last one of this choice
    logprobs: list[TokenLogprob] | None = None


class Restarted(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """A new attempt starts from nothing: forget the text of the earlier ones."""

    attempt: int
    seq: int
    worker: str = ""


class Steered(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    """Why this attempt runs where it does; told only where somebody else has decided it than follows the request."""

    attempt: int
    seq: int
    decision: Decision


class Usage(msgspec.Struct, frozen=True, array_like=True):
    """Tokens: in, out, and how many of those in came from the prefix cache."""

    prompt: int
    completion: int
    cached: int = 0


class Finished(msgspec.Struct, frozen=True, array_like=True, tag="f"):
    attempt: int
    seq: int
    usage: Usage
    worker: str = ""
    partition: int = -1
    queue_s: float = 0.0  # accepted -> claimed


class Failed(msgspec.Struct, frozen=True, array_like=True, tag="x"):
    attempt: int
    seq: int
    code: str  # an errors.Code; a str so that a newer worker's code does not break an older gateway
    message: str
    param: str | None = None


class Cancelled(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    attempt: int
    seq: int
    reason: str = ""


class Part(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """A decoder has been asked for a piece of this answer. It is a request of its own, with its own event stream.

    Sent before the decode job is, so that whoever follows the answer can follow the piece from its beginning.
    """

    attempt: int
    seq: int
    index: int  # which of the n choices
    number: int  # 0, 1, ... within the choice: the order in which pieces belong
    kind: DecoderKind
    request_id: str


class Made(msgspec.Struct, frozen=True, array_like=True, tag="m"):
    """A decoder has made a picture, or a stretch of sound; the bytes are in the object store."""

    attempt: int
    seq: int
    kind: DecoderKind
    ref: BlobRef
    number: int = 0  # 0, 1, ... within this request
    duration_s: float = 0.0  # of sound
    width: int = 0  # of a picture
    height: int = 0
    text: str = ""  # what is spoken


class Progress(msgspec.Struct, frozen=True, array_like=True, tag="g"):
    """Long work goes on: `done` of `total` steps."""

    attempt: int
    seq: int
    done: int
    total: int


class Transcript(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    """What was heard in a sound; sent by the encoder of a request that asks for nothing else."""

    attempt: int
    seq: int
    text: str
    segments: list[Segment] = []
    language: str = ""
    duration_s: float = 0.0


Event = Token | Restarted | Finished | Failed | Cancelled | Part | Made | Progress | Transcript | Steered
Terminal = Finished | Failed | Cancelled


class EventBatch(msgspec.Struct, frozen=True, array_like=True):
    """What one request emitted in one step; the unit that is stored and published. Never empty."""

    request_id: str
    events: list[Event]

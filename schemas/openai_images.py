"""OpenAI's pictures: requests, bodies, events of their streams.

A field is honoured, or refused by name (`UNSUPPORTED`): none is dropped in silence. `seed`, `steps` and `guidance` are
our additions.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

UNSUPPORTED = (
    "complexity",
    "effort",
    "frame_count",
    "frame_duration_ms",
    "input_fidelity",
    "mask",
    "markup",
    "moderation",
    "reasoning",
    "style",
    "svg",
)

ImageFormat = Literal["png", "jpeg", "webp"]
Size = Annotated[str, Meta(pattern="^([0-9]{1,4}x[0-9]{1,4}|auto)$")]


class ImageRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of `POST /v1/images/generations`, and the fields of `POST /v1/images/edits` beside its images.

    `quality` is how many steps are taken, unless `steps` says so. The defaults are in schemas/media.py.
    """

    model: str
    prompt: Annotated[str, Meta(min_length=1, max_length=32_000)]
    n: Annotated[int, Meta(ge=1, le=10)] | None = None
    size: Size | None = None  # pixels, width x height
    response_format: Literal["url", "b64_json"] | None = None  # b64_json
    output_format: ImageFormat | None = None  # png
    output_compression: Annotated[int, Meta(ge=0, le=100)] | None = None  # of jpeg and webp: 100 is the best
    quality: Literal["low", "medium", "high", "auto", "standard", "hd"] | None = None
    background: Literal["auto", "opaque", "transparent"] | None = None  # pictures are opaque
    stream: bool | None = None
    partial_images: Annotated[int, Meta(ge=0, le=3)] | None = None  # only 0: pictures come whole
    user: str | None = None
    safety_identifier: str | None = None

    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    steps: Annotated[int, Meta(ge=1, le=200)] | None = None
    guidance: Annotated[float, Meta(ge=0, le=30)] | None = None

    complexity: Any = None
    effort: Any = None
    frame_count: Any = None
    frame_duration_ms: Any = None
    input_fidelity: Any = None
    mask: Any = None
    markup: Any = None
    moderation: Any = None
    reasoning: Any = None
    style: Any = None
    svg: Any = None


class Image(msgspec.Struct, frozen=True):
    """One of the two is there, as the client asked."""

    b64_json: str | None = None
    url: str | None = None
    revised_prompt: None = None


class InputDetails(msgspec.Struct, frozen=True):
    text_tokens: int
    image_tokens: int = 0


class ImagesUsage(msgspec.Struct, frozen=True):
    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputDetails


class ImagesReply(msgspec.Struct, frozen=True, kw_only=True):
    created: int  # unix seconds
    data: list[Image]
    background: Literal["opaque"] = "opaque"
    output_format: ImageFormat
    quality: str
    size: str
    usage: ImagesUsage


class ImageCompleted(msgspec.Struct, frozen=True, kw_only=True):
    """A picture of a stream. `usage`, of all pictures together, comes with the last one."""

    type: Literal["image_generation.completed", "image_edit.completed"]
    b64_json: str | None
    url: str | None
    created_at: int  # unix seconds
    size: str
    quality: str
    background: Literal["opaque"] = "opaque"
    output_format: ImageFormat
    usage: ImagesUsage | None


class ImageProgress(msgspec.Struct, frozen=True):
    """Our addition: a decoder has done so many steps of its picture."""

    type: Literal["image_generation.progress", "image_edit.progress"]
    done: int
    total: int

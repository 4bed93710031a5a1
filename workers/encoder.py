"""What an encoder pool needs of its engines. They know nothing of Kafka, Redis or the object store; all calls block."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from schemas.errors import Code
from schemas.media import ArtifactKind, Segment

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class MediaFault(Exception):
    """This media item cannot be encoded, here or elsewhere. `code` is one of the media_ codes; the message is for the
    client: it says what is wrong with the item, not how we found out."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Picture(msgspec.Struct, frozen=True):
    """As a viewer shows it: turned upright, on white, sRGB."""

    rgb: "NDArray[np.uint8]"  # [height, width, 3]


class Sound(msgspec.Struct, frozen=True):
    """As it is heard through one loudspeaker."""

    pcm: "NDArray[np.float32]"  # [samples], -1..1, 16 kHz
    language: str = ""  # what the client says is spoken; empty = unknown


class Clip(msgspec.Struct, frozen=True):
    """Frames of a video, in order."""

    frames: list[Picture]
    at_s: list[float]  # when each is shown, from the start


Decoded = Picture | Sound | Clip


def frames_of(item: Decoded) -> "list[NDArray[np.uint8]]":
    """What of it can be looked at: one picture, or the frames of a clip; nothing of a sound."""
    match item:
        case Picture(rgb=rgb):
            return [rgb]
        case Clip(frames=frames):
            return [one.rgb for one in frames]
        case Sound():
            return []


class Encoded(msgspec.Struct, frozen=True):
    """What becomes an artifact; the fields of the other kinds are empty."""

    kind: ArtifactKind
    embeddings: "NDArray[np.float32] | None" = None  # [rows, width]
    token_ids: list[int] = []
    text: str = ""
    segments: list[Segment] = []
    language: str = ""
    duration_s: float = 0.0


class EncoderEngine(Protocol):
    """Deterministic: the same item gives the same bits, whatever else is in its batch."""

    batch: int  # items it takes at once

    def load(self, report: Callable[[str], None]) -> None:
        """Load weights and run once; `report` gets a line per phase."""
        ...

    def encode(self, items: Sequence[Decoded]) -> list[Encoded | MediaFault]:
        """One forward for all, in their order; at most `batch` of them."""
        ...

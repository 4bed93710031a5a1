"""What a decoder pool needs of its engines. They know nothing of Kafka, Redis or the object store; all calls block."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from schemas.jobs import DecodeJob

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class CannotDecode(Exception):
    """These codes, or this text, make no picture or sound; the message is for the client."""


class Stopped(Exception):
    """`stopped` said so; nothing was made."""


class Drawn(msgspec.Struct, frozen=True):
    rgb: "NDArray[np.uint8]"  # [height, width, 3]


class Spoken(msgspec.Struct, frozen=True):
    """One sentence or so."""

    pcm: "NDArray[np.float32]"  # [samples], -1..1, mono
    sample_rate: int
    text: str


class PictureEngine(Protocol):
    batch: int  # jobs it takes at once

    def load(self, report: Callable[[str], None]) -> None: ...

    def draw(
        self, jobs: Sequence[DecodeJob], report: Callable[[int, int], None], stopped: Callable[[], bool]
    ) -> list[Drawn | CannotDecode]:
        """A picture of each job, in their order.

        `report(done, total)` after each step; `stopped` is asked between steps.

        Raises:
            Stopped
        """
        ...


class SpeechEngine(Protocol):
    voices: tuple[str, ...]

    def load(self, report: Callable[[str], None]) -> None: ...

    def speak(self, text: str, voice: str, speed: float) -> Iterator[Spoken]:
        """Sentence by sentence, as they become ready.

        Raises:
            CannotDecode: there is nothing to say, or no such voice.
        """
        ...

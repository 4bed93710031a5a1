"""As reply.py, for the routes that answer with pictures alone."""

import base64
from collections.abc import Iterable

import msgspec

from gateway import errors
from gateway.delivery import Piece, Told
from gateway.reply import error_line
from gateway.sse import event_of
from schemas import codec
from schemas.errors import TriptychError
from schemas.events import Cancelled, Failed, Finished, Progress, Restarted, Usage
from schemas.openai_images import (
    Image,
    ImageCompleted,
    ImageFormat,
    ImageProgress,
    ImagesReply,
    ImagesUsage,
    InputDetails,
)


class ImagesHead(msgspec.Struct, frozen=True):
    """What is said of all pictures of one answer."""

    created: int  # unix seconds
    n: int
    edits: bool
    output_format: ImageFormat
    quality: str


class _Drawn:
    """The first picture of each choice: one was asked for."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._pieces: dict[int, Piece] = {}

    def add(self, piece: Piece) -> bool:
        """Whether it is one more."""
        new = piece.made.kind == "image" and piece.part.index not in self._pieces
        if new:
            self._pieces[piece.part.index] = piece
        return new

    def forget(self) -> None:
        self._pieces.clear()

    def all(self) -> list[Piece]:
        """Raises TriptychError: not_drawn, when the model has drawn fewer than were asked for."""
        if len(self._pieces) < self._n:
            drawn = f"{len(self._pieces)} of {self._n} pictures" if self._n > 1 else "no picture"
            raise TriptychError("not_drawn", f"The model has drawn {drawn}; ask in other words.", param="prompt")
        return [piece for _, piece in sorted(self._pieces.items())]


class ImagesBody:
    """answer.Collector"""

    def __init__(self, head: ImagesHead) -> None:
        self._head = head
        self._drawn = _Drawn(head.n)

    def add(self, events: Iterable[Told]) -> None:
        for event in events:
            if isinstance(event, Piece):
                self._drawn.add(event)
            elif isinstance(event, Restarted):
                self._drawn.forget()

    def encode(self, usage: Usage) -> bytes:
        pieces = self._drawn.all()
        return codec.to_json(
            ImagesReply(
                created=self._head.created,
                data=[_image(one) for one in pieces],
                output_format=self._head.output_format,
                quality=self._head.quality,
                size=_size(pieces[0]),
                usage=_usage(usage),
            )
        )


class ImagesChunks:
    """answer.Encoder: each picture as soon as it is there, but the last one, which tells the usage."""

    def __init__(self, head: ImagesHead) -> None:
        self._head = head
        self._drawn = _Drawn(head.n)
        self._waiting: Piece | None = None

    def encode(self, events: Iterable[Told]) -> bytes:
        return b"".join(line for event in events for line in self._lines(event))

    def _lines(self, event: Told) -> list[bytes]:
        match event:
            case Piece() if self._drawn.add(event):
                before, self._waiting = self._waiting, event
                return [self._completed(before)] if before else []
            case Progress():
                return [self._progress(event)]
            case Restarted():
                if self._waiting is not None:
                    raise TriptychError("worker_lost", "The worker was lost in mid-stream; please try again.")
                return []
            case Finished():
                last = self._drawn.all() and self._waiting
                return [self._completed(last, event.usage)] if last else []
            case Failed() | Cancelled():
                return [error_line(errors.from_event(event))]
            case _:
                return []

    def _progress(self, event: Progress) -> bytes:
        if self._head.edits:
            return event_of(ImageProgress("image_edit.progress", event.done, event.total))
        return event_of(ImageProgress("image_generation.progress", event.done, event.total))

    def _completed(self, piece: Piece, usage: Usage | None = None) -> bytes:
        image = _image(piece)
        return event_of(
            ImageCompleted(
                type="image_edit.completed" if self._head.edits else "image_generation.completed",
                b64_json=image.b64_json,
                url=image.url,
                created_at=self._head.created,
                size=_size(piece),
                quality=self._head.quality,
                output_format=self._head.output_format,
                usage=None if usage is None else _usage(usage),
            )
        )


def _image(piece: Piece) -> Image:
    return Image(url=piece.url) if piece.url else Image(b64_json=base64.b64encode(piece.data).decode())


def _size(piece: Piece) -> str:
    return f"{piece.made.width}x{piece.made.height}"


def _usage(usage: Usage) -> ImagesUsage:
    return ImagesUsage(
        usage.prompt, usage.completion, usage.prompt + usage.completion, InputDetails(text_tokens=usage.prompt)
    )

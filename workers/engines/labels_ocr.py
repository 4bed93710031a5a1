"""Pictures and videos as words: what they show, by EfficientNet-Lite0, and what is written in them, by Tesseract."""

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from PIL import Image

from infra import tesseract
from infra.model_files import ModelMissing
from workers.encoder import Clip, Decoded, Encoded, MediaFault, frames_of
from workers.engines.efficientnet import Label, Labeller
from workers.engines.ocr import Reader, Rgb

BATCH = 4
THREADS = 1  # stages share the cores; a second thread of a network this small costs more than it saves
FORWARD = 8  # pictures; a video's frames would otherwise take gigabytes at once
TOP, WORTH_SAYING, SURE = 3, 0.1, 0.3  # labels looked at; shares from which one is told, and told without "may"
TEXT_CHARS = 1000  # of a picture: more would leave no room for the question
CLIP_CHARS = 2000
# Two frames whose thumbnails differ by less, in grey levels of 255 on average, have the same writing.
THUMBNAIL, SAME_WRITING = (32, 32), 6.0


class Seen(msgspec.Struct, frozen=True):
    """One picture: the labels worth telling and what is written."""

    labels: list[Label]
    text: str


class LabelsOcrEngine:
    """A sentence or two for each picture; for a clip, one for each thing that its frames show, with the time."""

    batch = BATCH

    def __init__(self, weights: Path) -> None:
        self._weights = weights
        self._labeller: Any = None
        self._reader: Any = None

    def load(self, report: Callable[[str], None]) -> None:
        """Raises ModelMissing: the weights, or Tesseract with its languages, are not there."""
        report("loading EfficientNet-Lite0")
        torch.set_num_threads(THREADS)
        self._labeller = Labeller.load(self._weights)
        report("looking for Tesseract")
        try:
            self._reader = Reader(tesseract.find())
        except tesseract.Unusable as error:
            raise ModelMissing(f"{error}; {tesseract.INSTALL}") from error
        self._labeller.label([np.zeros((8, 8, 3), np.uint8)], TOP)

    def encode(self, items: Sequence[Decoded]) -> list[Encoded | MediaFault]:
        """The frames of all items go through the network together."""
        frames = [frames_of(item) for item in items]
        labels = iter(self._labels([one for several in frames for one in several]))
        return [
            self._described(item, several, list(islice(labels, len(several))))
            for item, several in zip(items, frames, strict=True)
        ]

    def _labels(self, pictures: list[Rgb]) -> list[list[Label]]:
        found: list[list[Label]] = []
        for at in range(0, len(pictures), FORWARD):
            found += self._labeller.label(pictures[at : at + FORWARD], TOP)
        return found

    def _described(self, item: Decoded, frames: list[Rgb], labels: list[list[Label]]) -> Encoded | MediaFault:
        if not frames:
            return MediaFault("media_type_unsupported", "this model sees pictures and videos only")
        try:
            texts = self._texts(frames)
        except tesseract.Failed:
            return MediaFault("media_unreadable", "the writing in this picture could not be read in time")
        seen = [Seen(_told(one), text) for one, text in zip(labels, texts, strict=True)]
        if isinstance(item, Clip):
            return Encoded("text", text=of_clip(seen, item.at_s), duration_s=item.at_s[-1])
        return Encoded("text", text=of_picture(seen[0]))

    def _texts(self, frames: list[Rgb]) -> list[str]:
        """What is written in each frame. One that looks like the last one read is not read again."""
        texts: list[str] = []
        last: Any = None
        for frame in frames:
            look = np.asarray(Image.fromarray(frame).convert("L").resize(THUMBNAIL), np.float32)
            if last is not None and float(np.abs(look - last).mean()) < SAME_WRITING:
                texts.append(texts[-1])
                continue
            texts.append("\n".join(self._reader.read(frame)))
            last = look
        return texts


def of_picture(seen: Seen) -> str:
    """The words for a picture."""
    names = ", ".join(f"{one.name} ({one.share:.0%})" for one in seen.labels)
    if not names:
        shown = "The picture shows nothing that is known for sure."
    elif seen.labels[0].share < SURE:
        shown = f"The picture may show: {names}."
    else:
        shown = f"The picture shows: {names}."
    return f"{shown}\nText in the picture: {_quoted(seen.text, TEXT_CHARS)}" if seen.text else shown


def of_clip(seen: Sequence[Seen], at_s: Sequence[float]) -> str:
    """The words for a video: what its frames show, in order; what stays the same is said once."""
    told: list[str] = []
    last: tuple[str, str] | None = None
    for one, start_s in zip(seen, at_s, strict=True):
        name = one.labels[0].name if one.labels else "something unknown"
        if (name, one.text) == last:
            continue
        last = (name, one.text)
        written = f", with the text {_quoted(one.text, TEXT_CHARS)}" if one.text else ""
        told.append(f"At {start_s:.1f} s: {name}{written}.")
    return ("The video shows:\n" + "\n".join(told))[:CLIP_CHARS]


def _told(labels: Sequence[Label]) -> list[Label]:
    return [one for one in labels if one.share >= WORTH_SAYING]


def _quoted(text: str, most: int) -> str:
    return f'"{text}"' if len(text) <= most else f'"{text[:most]}..."'

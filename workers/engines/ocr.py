"""What is written in a picture, by Tesseract: first where the lines are, then each line alone, which it reads best."""

import io
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import msgspec
import numpy as np
from PIL import Image, ImageOps

from infra import tesseract

Rgb = np.ndarray[Any, np.dtype[np.uint8]]
Box = tuple[int, int, int, int]  # left, top, width, height, in pixels

SMALL_SIDE, LARGE_SIDE = 600, 3000  # pixels; a longer side below the one is doubled, above the other shrunk to it
JOIN = 1.5  # line heights; parts of a row that are nearer to each other are one line, cut apart by mistake
LINE_HEIGHT = 30  # pixels: letters as high as those that Tesseract was trained on
MARGIN = 0.25  # of a line's height, around it
PAPER = 40  # pixels around a line that is read alone
ONE_LINE, WORSE = "7", 10.0  # Tesseract's layout of a single line; by how much less sure it may be of it
MAX_LINES = 40
TIMEOUT_S = 60.0


class Look(msgspec.Struct, frozen=True):
    """A way to find lines. `sure`: the mean confidence (of 100) from which a line is taken for writing; `likely`: from
    which it is, beside a sure one; `letters`: how many it needs."""

    layout: str
    sure: float
    likely: float
    letters: int


# As one block of text; and if there is none, as words strewn over a picture, which finds some in leaves and waves too.
LOOKS = (Look("6", sure=70, likely=45, letters=2), Look("11", sure=85, likely=85, letters=3))


class Line(msgspec.Struct, frozen=True):
    box: Box
    confidence: float
    text: str


class Reader:
    """Reads Korean and English. Deterministic; each call runs two or three child processes, one after the other."""

    def __init__(self, program: str) -> None:
        self._program = program

    def read(self, rgb: Rgb) -> list[str]:
        """The lines, from top to bottom; none where nothing is written.

        Raises:
            tesseract.Failed
        """
        sheet = prepared(rgb)
        page = _file([sheet], "PNG")
        for look in LOOKS:
            found = joined(lines(tesseract.run(self._program, page, look.layout, TIMEOUT_S).words))
            written = [one for one in found if one.confidence >= look.likely and _letters(one.text) >= look.letters]
            if any(one.confidence >= look.sure for one in written):
                return self._each(sheet, written[:MAX_LINES])
        return []

    def _each(self, sheet: Image.Image, written: Sequence[Line]) -> list[str]:
        """Every line read alone, except where that is less sure: writing that slopes is easier to read on its page."""
        cuts = _file([cut(sheet, one.box) for one in written], "TIFF")
        alone = tesseract.run(self._program, cuts, ONE_LINE, TIMEOUT_S)
        sure = confidences(alone.words)
        texts = [
            " ".join(text.split()) if sure.get(page, 0) > line.confidence - WORSE else line.text
            for page, (line, text) in enumerate(zip(written, alone.text.split("\f"), strict=False), start=1)
        ]
        return [one for one in texts if _letters(one) > 1]


def prepared(rgb: Rgb) -> Image.Image:
    """Dark on light, in full contrast, at a size that Tesseract likes."""
    sheet = ImageOps.grayscale(Image.fromarray(rgb))
    if float(np.median(np.asarray(sheet))) < 128:
        sheet = ImageOps.invert(sheet)
    sheet = ImageOps.autocontrast(sheet)
    longer = max(sheet.size)
    if longer < SMALL_SIDE:
        return _scaled(sheet, 2.0)
    return _scaled(sheet, LARGE_SIDE / longer) if longer > LARGE_SIDE else sheet


def cut(sheet: Image.Image, box: Box) -> Image.Image:
    """One line as a small picture of its own."""
    left, top, width, height = box
    margin = round(height * MARGIN)
    right, bottom = min(left + width + margin, sheet.width), min(top + height + margin, sheet.height)
    line = sheet.crop((max(left - margin, 0), max(top - margin, 0), right, bottom))
    return ImageOps.expand(_scaled(line, LINE_HEIGHT / height), PAPER, 255)


def lines(words: str) -> list[Line]:
    """Tesseract's table of the words on a page, line by line, as it orders them."""
    boxes: dict[tuple[str, ...], Box] = {}
    said: dict[tuple[str, ...], list[tuple[float, str]]] = {}
    for row in words.splitlines()[1:]:
        level, _, *place, left, top, width, height, confidence, text = row.split("\t", 11)
        line = tuple(place[:3])
        if level == "4":
            boxes[line] = (int(left), int(top), int(width), int(height))
        if level == "5" and text.strip():
            said.setdefault(line, []).append((float(confidence), text.strip()))
    return [
        Line(boxes[line], fmean(sure for sure, _ in some), " ".join(word for _, word in some))
        for line, some in said.items()
    ]


def confidences(words: str) -> dict[int, float]:
    """The mean confidence of each page's words, by its number from 1; a page without words is not there."""
    pages: dict[int, list[float]] = {}
    for row in words.splitlines()[1:]:
        level, page, *_, confidence, text = row.split("\t", 11)
        if level == "5" and text.strip():
            pages.setdefault(int(page), []).append(float(confidence))
    return {page: fmean(some) for page, some in pages.items()}


def joined(found: Sequence[Line]) -> list[Line]:
    """Lines from top to bottom, those put together that stand side by side in one row."""
    rows: list[Line] = []
    for one in sorted(found, key=lambda line: (line.box[0], line.box[1])):
        left = next((place for place, row in enumerate(rows) if _beside(row.box, one.box)), None)
        if left is None:
            rows.append(one)
        else:
            rows[left] = _together(rows[left], one)
    return sorted(rows, key=lambda line: line.box[1])


def _beside(left: Box, right: Box) -> bool:
    overlap = min(left[1] + left[3], right[1] + right[3]) - max(left[1], right[1])
    gap = right[0] - (left[0] + left[2])
    height = max(left[3], right[3])
    return overlap > min(left[3], right[3]) / 2 and -height / 2 < gap < JOIN * height


def _together(left: Line, right: Line) -> Line:
    one, other = left.box, right.box
    x, y = min(one[0], other[0]), min(one[1], other[1])
    end_x, end_y = max(one[0] + one[2], other[0] + other[2]), max(one[1] + one[3], other[1] + other[3])
    sure = (left.confidence * len(left.text) + right.confidence * len(right.text)) / len(left.text + right.text)
    return Line((x, y, end_x - x, end_y - y), sure, f"{left.text} {right.text}")


def _scaled(image: Image.Image, factor: float) -> Image.Image:
    size = (max(1, round(image.width * factor)), max(1, round(image.height * factor)))
    return image.resize(size, Image.Resampling.LANCZOS)


def _file(pages: Sequence[Image.Image], kind: str) -> bytes:
    out = io.BytesIO()
    more = {"save_all": True, "append_images": list(pages[1:])} if kind == "TIFF" else {"compress_level": 1}
    pages[0].save(out, kind, **more)
    return out.getvalue()


def _letters(text: str) -> int:
    return sum(char.isalnum() for char in text)

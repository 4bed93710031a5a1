import numpy as np
import pytest
from PIL import Image

from infra import tesseract
from infra.tesseract import Output
from workers.engines import ocr
from workers.engines.ocr import Line, Reader

HEADER = "level\tpage_num\tblock_num\tpar_num\tline_num\tword_num\tleft\ttop\twidth\theight\tconf\ttext\n"


def table(*words: tuple[int, int, int, float, str], page: int = 1) -> str:
    """Tesseract's table: each word as (line, left, top, confidence, text), 50 x 20 pixels."""
    rows = ""
    for number in dict.fromkeys(word[0] for word in words):
        of_line = [word for word in words if word[0] == number]
        left, right = min(word[1] for word in of_line), max(word[1] for word in of_line) + 50
        rows += f"4\t{page}\t1\t1\t{number}\t0\t{left}\t{of_line[0][2]}\t{right - left}\t20\t-1\t\n"
        for place, (_, x, y, sure, text) in enumerate(of_line, start=1):
            rows += f"5\t{page}\t1\t1\t{number}\t{place}\t{x}\t{y}\t50\t20\t{sure}\t{text}\n"
    return rows


def test_words_are_gathered_line_by_line_with_their_mean_confidence() -> None:
    found = ocr.lines(
        HEADER + table((1, 0, 0, 90, "Wet"), (1, 60, 0, 70, "paint"), (2, 0, 40, 95, "Stop"), (2, 60, 40, 5, " "))
    )
    assert found == [Line((0, 0, 110, 20), 80.0, "Wet paint"), Line((0, 40, 110, 20), 95.0, "Stop")]


def test_a_row_that_was_cut_apart_is_one_line_again_and_rows_go_from_top_to_bottom() -> None:
    right, left = Line((70, 2, 50, 20), 90, "library"), Line((0, 0, 60, 22), 80, "to the")
    below, column = Line((0, 40, 60, 20), 90, "closed"), Line((300, 0, 60, 20), 90, "far away")
    found = ocr.joined([below, right, column, left])
    assert [one.text for one in found] == ["to the library", "far away", "closed"]
    assert found[0].box == (0, 0, 120, 22) and 80 < found[0].confidence < 90


def test_lines_of_a_slope_that_overlap_sideways_stay_apart() -> None:
    above, below = Line((0, 0, 400, 50), 90, "first"), Line((10, 20, 400, 50), 90, "second")
    assert ocr.joined([above, below]) == [above, below]


@pytest.mark.parametrize(
    ("size", "prepared"), [((300, 100), (600, 200)), ((800, 600), (800, 600)), ((6000, 3000), (3000, 1500))]
)
def test_small_pictures_grow_and_huge_ones_shrink(size: tuple[int, int], prepared: tuple[int, int]) -> None:
    assert ocr.prepared(np.full((size[1], size[0], 3), 255, np.uint8)).size == prepared


def test_light_writing_on_dark_becomes_dark_on_light() -> None:
    dark = np.full((700, 700, 3), 20, np.uint8)
    dark[300:310] = 200
    sheet = np.asarray(ocr.prepared(dark))
    assert sheet[0, 0] == 255 and sheet[305, 0] == 0


def test_a_line_is_cut_out_at_the_height_that_is_read_best() -> None:
    line = ocr.cut(Image.new("L", (500, 200), 255), (100, 50, 300, 60))
    assert line.height == round(60 * 1.5 * ocr.LINE_HEIGHT / 60) + 2 * ocr.PAPER


def answering(monkeypatch: pytest.MonkeyPatch, answers: dict[str, Output]) -> list[str]:
    """Tesseract's answers by layout; the layouts that were asked for."""
    asked: list[str] = []

    def run(program: str, pictures: bytes, layout: str, timeout_s: float) -> Output:
        asked.append(layout)
        return answers[layout]

    monkeypatch.setattr(tesseract, "run", run)
    return asked


SHEET = np.full((100, 700, 3), 255, np.uint8)


def test_each_line_is_read_again_alone_unless_that_is_less_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    page = HEADER + table((1, 0, 0, 80, "W et"), (2, 0, 40, 95, "sloping line"))
    alone = HEADER + table((1, 0, 0, 96, "Wet")) + table((1, 0, 0, 40, "s1op"), page=2)
    asked = answering(monkeypatch, {"6": Output("", page), "7": Output("Wet\n\fs1op\n\f", alone)})
    assert Reader("").read(SHEET) == ["Wet", "sloping line"]
    assert asked == ["6", "7"]


def test_beside_a_sure_line_a_likely_one_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    page = HEADER + table((1, 0, 0, 96, "OPEN"), (2, 0, 40, 60, "Sas"), (3, 0, 80, 20, "noise"))
    alone = HEADER + table((1, 0, 0, 96, "OPEN")) + table((1, 0, 0, 93, "영업중"), page=2)
    answering(monkeypatch, {"6": Output("", page), "7": Output("OPEN\f영업중\f", alone)})
    assert Reader("").read(SHEET) == ["OPEN", "영업중"]


def test_what_is_likely_nowhere_sure_is_no_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    leaves = HEADER + table((1, 0, 0, 60, "Ty te"), (2, 0, 40, 69, "ar"))
    few = HEADER + table((1, 0, 0, 99, "ar"))
    answering(monkeypatch, {"6": Output("", leaves), "11": Output("", few)})
    assert Reader("").read(SHEET) == []

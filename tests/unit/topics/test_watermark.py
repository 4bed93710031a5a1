import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.watermark import Watermark


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, list[tuple[str, int]]]:
    """A start, and a history of one partition: offsets with holes handed out in order, finished in any order."""
    start = draw(st.integers(0, 5))
    offset, open_ones, steps = start, [], []
    for _ in range(draw(st.integers(0, 40))):
        if open_ones and draw(st.booleans()):
            done = draw(st.sampled_from(open_ones))
            open_ones.remove(done)
            steps.append(("finished", done))
        else:
            offset += draw(st.integers(0, 3))
            open_ones.append(offset)
            steps.append(("handed out", offset))
            offset += 1
    return start, steps


@given(histories())
def test_the_commit_never_passes_unfinished_work_and_never_lags_behind_finished_work(
    history: tuple[int, list[tuple[str, int]]],
) -> None:
    start, steps = history
    marks, open_ones, handed_out, before = Watermark(start), set[int](), [start - 1], start
    for what, offset in steps:
        if what == "handed out":
            marks.handed_out(offset)
            open_ones.add(offset)
            handed_out.append(offset)
        else:
            assert marks.finished(offset)
            open_ones.remove(offset)
        assert marks.committable == (min(open_ones) if open_ones else handed_out[-1] + 1)
        assert marks.committable >= before
        before = marks.committable


@given(histories(), st.data())
def test_a_late_commit_of_a_lost_partition_never_passes_work_its_next_owner_has_not_finished(
    history: tuple[int, list[tuple[str, int]]], data: st.DataObject
) -> None:
    """The zombie committed at any moment of its life; the next owner starts there, or before, at an earlier commit."""
    start, steps = history
    marks, commits, finished = Watermark(start), [start], set[int]()
    for what, offset in steps:
        if what == "handed out":
            marks.handed_out(offset)
        else:
            marks.finished(offset)
            finished.add(offset)
        commits.append(marks.committable)
    late = data.draw(st.sampled_from(commits))
    handed_out = {offset for what, offset in steps if what == "handed out"}
    assert all(offset in finished for offset in handed_out if offset < late)


def test_an_offset_is_finished_once() -> None:
    marks = Watermark(3)
    marks.handed_out(3)
    assert [marks.finished(3), marks.finished(3), marks.finished(99)] == [True, False, False]


def test_offsets_are_handed_out_in_order_and_once() -> None:
    marks = Watermark(3)
    with pytest.raises(ValueError, match="offset 2"):
        marks.handed_out(2)
    marks.handed_out(5)
    with pytest.raises(ValueError, match="offset 5"):
        marks.handed_out(5)


def test_holes_at_the_end_are_committed_past_only_when_nothing_is_open() -> None:
    marks = Watermark(0)
    marks.handed_out(0)
    marks.skip_to(7)
    assert marks.committable == 0
    marks.finished(0)
    assert marks.committable == 7
    marks.skip_to(3)
    assert marks.committable == 7

"""Which pictures are drawn together."""

from schemas.media import ImageOptions
from tests.unit.workers.decoders import PICTURE, head, picture
from workers.decode_image import Sitting, choose

MOST = {PICTURE: 3, "other/image": 8}


def sitting(name: str, *, steps: int = 4, size: int = 16, priority: int = 0, decoder: str = PICTURE) -> Sitting:
    job = picture(head(name, priority=priority), steps=steps, size=size, decoder=decoder)
    assert isinstance(job.options, ImageOptions)
    return Sitting(job, job.options)


def chosen(*waiting: Sitting) -> list[str]:
    return [one.job.head.request_id for one in choose(waiting, MOST)]


def test_the_oldest_goes_first_with_those_that_are_like_it() -> None:
    assert chosen(sitting("a"), sitting("b", steps=9), sitting("c"), sitting("d", size=32)) == ["a", "c"]


def test_never_more_than_the_engine_takes() -> None:
    assert chosen(*(sitting(name) for name in "abcde")) == ["a", "b", "c"]


def test_the_most_urgent_one_decides() -> None:
    assert chosen(sitting("a"), sitting("b", priority=-1, steps=9), sitting("c", steps=9)) == ["b", "c"]


def test_each_decoder_draws_its_own() -> None:
    assert chosen(sitting("a"), sitting("b", decoder="other/image"), sitting("c")) == ["a", "c"]

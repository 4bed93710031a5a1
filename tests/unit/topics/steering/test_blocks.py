import time

import msgspec
import pytest

from topics.steering.blocks import Chain, Media, Namespace, begin, extend

NAMESPACE = Namespace("m", "r1", "bf16", "auto", "t", "", "", "s")


def keys(tokens: list[int], media: tuple[Media, ...] = (), namespace: Namespace = NAMESPACE) -> list[bytes]:
    return extend(begin(namespace), tokens, 4, media).keys


def test_only_full_blocks_have_keys() -> None:
    assert [len(keys(list(range(count)))) for count in (0, 3, 4, 7, 8)] == [0, 0, 1, 1, 2]


def test_a_key_depends_on_everything_before_it() -> None:
    one, other = keys([1, 2, 3, 4, 5, 6, 7, 8]), keys([9, 2, 3, 4, 5, 6, 7, 8])
    assert one[0] != other[0]
    assert one[1] != other[1]
    assert keys([1, 2, 3, 4, 0, 0, 0, 0])[0] == one[0]


@pytest.mark.parametrize("field", [name for name in Namespace.__struct_fields__ if name != "kind"])
def test_every_part_of_the_namespace_separates(field: str) -> None:
    other = msgspec.structs.replace(NAMESPACE, **{field: "other"})
    assert keys([1, 2, 3, 4], namespace=other) != keys([1, 2, 3, 4])


def test_a_prompt_with_embeddings_shares_nothing_with_one_of_tokens() -> None:
    other = msgspec.structs.replace(NAMESPACE, kind="embeds")
    assert set(keys([1, 2, 3, 4], namespace=other)).isdisjoint(keys([1, 2, 3, 4]))


def test_neighbouring_fields_of_the_namespace_do_not_run_together() -> None:
    assert begin(Namespace("ab", "c")).state != begin(Namespace("a", "bc")).state


def test_a_picture_enters_by_its_content_and_only_from_the_block_it_touches() -> None:
    tokens = [1, 2, 3, 4, 7, 7, 7, 7, 7, 5, 6, 8]
    cat, dog = keys(tokens, (Media(4, 5, "cat"),)), keys(tokens, (Media(4, 5, "dog"),))
    assert cat[0] == dog[0] == keys(tokens)[0]
    assert cat[1] != dog[1]
    assert cat[2] != dog[2]


def test_two_pictures_in_one_block_cannot_change_places() -> None:
    tokens = [7, 7, 7, 7]
    assert keys(tokens, (Media(0, 2, "a"), Media(2, 2, "b"))) != keys(tokens, (Media(0, 2, "b"), Media(2, 2, "a")))


def test_going_on_from_a_prefix_gives_the_keys_of_the_whole() -> None:
    tokens, picture = list(range(50)), (Media(30, 10, "x"),)
    for cut in range(0, 50, 7):
        half = extend(begin(NAMESPACE), tokens[:cut], 4, tuple(m for m in picture if m.offset < cut - cut % 4))
        assert extend(half, tokens, 4, picture) == extend(begin(NAMESPACE), tokens, 4, picture)


def test_a_hundred_thousand_tokens_take_milliseconds_and_the_next_turn_next_to_nothing() -> None:
    tokens = list(range(100_000))
    first_s, chain = _best(begin(NAMESPACE), tokens)
    next_s, _ = _best(chain, [*tokens, *range(100)])
    assert len(chain.keys) == 1_562
    assert first_s < 0.05
    assert next_s < first_s / 3


def _best(chain: Chain, tokens: list[int]) -> tuple[float, Chain]:
    times = []
    for _ in range(5):
        started = time.perf_counter()
        longer = extend(chain, tokens, 64)
        times.append(time.perf_counter() - started)
    return min(times), longer

"""Remembered chains are the chains that are computed; and what was remembered is not computed again."""

from hypothesis import given, settings
from hypothesis import strategies as st

from topics.steering.blocks import Media, Namespace, begin, extend
from topics.steering.chains import REMEMBERED_BYTES, STRIDE_BLOCKS, Chains

SIZE = 2  # tokens in a block
STRIDE = STRIDE_BLOCKS * SIZE
ROOT, OTHER = begin(Namespace("m")), begin(Namespace("m", salt="s"))

# Few different prompts, so that they share beginnings; lengths on both sides of every border.
prompts = st.builds(
    lambda seed, length: [seed] * (length // 2) + [1] * (length - length // 2),
    st.integers(0, 2),
    st.integers(0, 5 * STRIDE),
)
media = st.lists(
    st.builds(Media, st.integers(0, 4 * STRIDE), st.integers(1, STRIDE), st.sampled_from("ab")), max_size=3
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([ROOT, OTHER]), prompts, media), max_size=12),
    st.sampled_from([0, 40_000, REMEMBERED_BYTES]),
)
def test_chains_are_those_that_are_computed_from_the_root(asked: list, remembered_bytes: int) -> None:  # type: ignore[type-arg]
    chains = Chains(SIZE, remembered_bytes)
    for root, tokens, items in asked:
        assert chains.of(root, tokens, items) == extend(root, tokens, SIZE, items)


def test_a_conversation_computes_only_the_blocks_after_its_last_stride() -> None:
    chains, tokens = Chains(SIZE), list(range(20 * STRIDE))
    chains.of(ROOT, tokens)
    for _ in range(10):
        before = chains.computed_blocks
        tokens = [*tokens, *range(STRIDE // 4)]
        assert chains.of(ROOT, tokens) == extend(ROOT, tokens, SIZE)
        assert chains.computed_blocks - before <= STRIDE_BLOCKS


def test_prompts_that_begin_alike_share_what_they_have_in_common() -> None:
    chains, system = Chains(SIZE), list(range(10 * STRIDE))
    chains.of(ROOT, [*system, 1, 2, 3])
    before = chains.computed_blocks
    chains.of(ROOT, [*system, 4, 5, 6])
    assert chains.computed_blocks - before == 1


def test_nothing_is_shared_between_namespaces() -> None:
    chains, tokens = Chains(SIZE), list(range(3 * STRIDE))
    one, other = chains.of(ROOT, tokens), chains.of(OTHER, tokens)
    assert set(one.keys).isdisjoint(other.keys)


def test_another_picture_in_the_same_place_is_another_chain() -> None:
    chains, tokens = Chains(SIZE), [7] * (3 * STRIDE)
    cat, dog = (chains.of(ROOT, tokens, [Media(STRIDE + 1, 5, name)]) for name in ("cat", "dog"))
    assert cat.keys[:STRIDE_BLOCKS] == dog.keys[:STRIDE_BLOCKS]
    assert set(cat.keys[STRIDE_BLOCKS:]).isdisjoint(dog.keys[STRIDE_BLOCKS:])

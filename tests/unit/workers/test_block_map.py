"""Against values by hand, and against a naive model under any sequence of events."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.manifest import Limits, Manifest, Source
from topics.steering.blocks import Chain, Media, Namespace, append, begin, extend
from topics.steering.namespaces import block_tokens, cache_salt
from workers.block_map import BlockMap
from workers.engine import BlockHash, Removed, Stored

PLAIN = Namespace("m")
TENANT = Namespace("m", salt="tenant", lora="a")
TOKENS = list(range(1, 17))
KEYS = extend(begin(PLAIN), TOKENS, 4).keys


def stored(first: int, last: int, parent: int | None = None, **more: Any) -> Stored:
    """Blocks first..last of TOKENS, whose engine hashes are 100 + their number."""
    return Stored([100 + number for number in range(first, last)], parent, TOKENS[4 * first : 4 * last], 4, **more)


def changed(blocks: BlockMap, *events: Stored | Removed) -> list[tuple[bool, bytes]]:
    return [change for event in events for change in blocks.changes(event)]


def there(*keys: bytes) -> list[tuple[bool, bytes]]:
    return [(True, key) for key in keys]


def gone(*keys: bytes) -> list[tuple[bool, bytes]]:
    return [(False, key) for key in keys]


def test_stored_blocks_get_the_keys_that_the_gateway_computes() -> None:
    blocks = BlockMap(4, PLAIN)
    assert changed(blocks, stored(0, 2)) == there(*KEYS[:2])
    assert changed(blocks, stored(2, 4, parent=101)) == there(*KEYS[2:])
    assert changed(blocks, Removed([103, 100, 999])) == gone(KEYS[3], KEYS[0])
    assert blocks.keys == KEYS[1:3]


def test_a_salt_of_ours_is_its_namespace_with_the_adapter_that_goes_with_it() -> None:
    blocks = BlockMap(4, PLAIN)
    event = stored(0, 2, extras=[("a", cache_salt(TENANT)), ("a",)])
    assert changed(blocks, event) == there(*extend(begin(TENANT), TOKENS[:8], 4).keys)


def test_pictures_enter_as_at_the_gateway() -> None:
    """An item of six positions from the third on: it touches blocks 0 and 1."""
    expected = extend(begin(PLAIN), TOKENS[:8], 4, [Media(2, 6, "cat")]).keys
    assert changed(BlockMap(4, PLAIN), stored(0, 2, extras=[(("cat", 2),), [["cat", -2]]])) == there(*expected)
    twice = extend(begin(PLAIN), TOKENS[:8], 8, [Media(2, 6, "cat")]).keys
    assert changed(BlockMap(8, PLAIN), stored(0, 2, extras=[(("cat", 2),), (("cat", -2),)])) == there(*twice)


def test_what_is_not_ours_to_index_is_counted_with_all_that_follows_it() -> None:
    blocks = BlockMap(4, PLAIN)
    foreign: list[Sequence[object]] = [
        ("someone else's salt",),
        ("adapter",),
        (b"embeddings",),
        (None,),
        ("tri-no hex",),
    ]
    for number, extras in enumerate(foreign):
        assert changed(blocks, Stored([number], None, [1, 2, 3, 4], 4, [extras])) == []
        assert changed(blocks, Stored([10 + number], number, [5, 6, 7, 8], 4)) == []
    assert blocks.take_skipped() == Counter(foreign=10)
    assert changed(blocks, Removed([0, 10])) == []
    assert not blocks.keys and not blocks.take_skipped()


def test_blocks_of_a_shape_that_does_not_fit_are_counted() -> None:
    blocks = BlockMap(4, PLAIN)
    for event in (
        Stored([1], None, list(range(8)), 8),
        Stored([1, 2], None, list(range(4)), 4),
        Stored([1], None, [], 0),
        Stored([1, 2], None, list(range(8)), 4, [None]),
        Stored([1, 2], None, (), 0, keys=[b"only one"]),
    ):
        assert changed(blocks, event) == []
    assert blocks.take_skipped() == Counter(shape=8)


def test_an_orphan_is_indexed_when_its_parent_comes_and_not_if_it_has_gone_meanwhile() -> None:
    blocks = BlockMap(4, PLAIN)
    assert changed(blocks, stored(3, 4, parent=102), stored(1, 3, parent=100)) == []
    assert blocks.orphans == 3
    assert changed(blocks, Removed([103])) == []
    assert changed(blocks, stored(0, 1)) == there(*KEYS[:3])
    assert blocks.orphans == 0 and not blocks.take_skipped()


def test_orphans_beyond_the_bound_are_given_up_oldest_first() -> None:
    blocks = BlockMap(4, PLAIN, max_orphans=2)
    assert changed(blocks, stored(1, 4, parent=100)) == []
    assert (blocks.orphans, blocks.take_skipped()) == (2, Counter(orphan=1))
    assert changed(blocks, stored(0, 2)) == there(*KEYS)


def test_a_block_stored_twice_is_there_until_it_is_removed_twice() -> None:
    blocks = BlockMap(4, PLAIN)
    assert changed(blocks, stored(0, 1), stored(0, 1)) == there(KEYS[0])
    assert changed(blocks, Removed([100])) == []
    assert changed(blocks, Removed([100])) == gone(KEYS[0])


def test_one_key_under_two_hashes_is_there_until_both_are_removed() -> None:
    blocks = BlockMap(4, PLAIN)
    other = Stored([7], None, TOKENS[:4], 4)
    assert changed(blocks, stored(0, 1), other, Removed([100])) == there(KEYS[0])
    assert changed(blocks, Removed([7])) == gone(KEYS[0])


def test_a_block_of_ours_is_there_while_all_of_the_engines_that_it_is_made_of_are() -> None:
    blocks = BlockMap(8, PLAIN)
    wide = extend(begin(PLAIN), TOKENS, 8).keys
    assert changed(blocks, stored(0, 1)) == []
    assert changed(blocks, stored(1, 4, parent=100)) == there(*wide)
    assert changed(blocks, Removed([100])) == gone(wide[0])
    assert changed(blocks, stored(0, 1)) == there(wide[0])
    assert changed(blocks, Removed([101]), Removed([100]), stored(0, 2)) == [*gone(wide[0]), *there(wide[0])]


def test_a_block_of_ours_waits_for_a_part_that_has_gone_before_the_last_one_came() -> None:
    blocks = BlockMap(12, PLAIN)
    wide = extend(begin(PLAIN), TOKENS, 12).keys
    assert changed(blocks, stored(0, 2), Removed([100]), stored(2, 3, parent=101)) == []
    assert changed(blocks, stored(0, 1)) == there(*wide)


def test_keys_told_by_the_engine_are_taken_as_they_are() -> None:
    blocks = BlockMap(4, PLAIN)
    assert changed(blocks, Stored(KEYS[:2], None, (), 0, keys=KEYS[:2])) == there(*KEYS[:2])
    assert changed(blocks, Stored(KEYS[2:3], KEYS[1], (), 0, keys=KEYS[2:3])) == there(KEYS[2])
    assert changed(blocks, Removed([KEYS[0]])) == gone(KEYS[0])


def test_after_a_clear_nothing_is_known() -> None:
    blocks = BlockMap(4, PLAIN)
    changed(blocks, stored(0, 2), stored(3, 4, parent=102))
    blocks.clear()
    assert not blocks.keys and not blocks.orphans
    assert changed(blocks, stored(2, 3, parent=101)) == []


def test_our_block_size_is_whole_for_every_build_of_the_engine() -> None:
    manifest = Manifest("m", Source("hf", repo="r", revision="main"), Limits(context_tokens=512))
    assert block_tokens(manifest) == 32


class Naive:
    """What there should be, recomputed from scratch after each event. A prompt is a path in a tree of blocks."""

    def __init__(self, ours: int, path: dict[BlockHash, list[int]], foreign: set[BlockHash]) -> None:
        self.ours, self.path, self.foreign = ours, path, foreign
        self.copies: Counter[BlockHash] = Counter()
        self.known: set[BlockHash] = set()

    def settle(self, parents: dict[BlockHash, BlockHash | None]) -> None:
        self.known &= {one for one, count in self.copies.items() if count > 0}
        while True:
            new = {
                one
                for one, count in self.copies.items()
                if count > 0 and one not in self.known and (parents[one] is None or parents[one] in self.known)
            }
            if not new:
                return
            self.known |= new

    def keys(self, parents: dict[BlockHash, BlockHash | None]) -> set[bytes]:
        found = set()
        for last in self.known:
            line: list[BlockHash] = []
            one: BlockHash | None = last
            while one is not None:
                line.insert(0, one)
                one = parents[one]
            if len(self.path[last]) % self.ours or self.foreign & set(line):
                continue
            whole = self.ours // 2
            if self.known >= set(line[-whole:]):
                found.add(append(Chain(begin(PLAIN).root), self.path[last], self.ours, {}).keys[-1])
        return found


TREE = 7
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("store"), st.integers(0, TREE - 1), st.integers(1, 4)),
        st.tuples(st.just("remove"), st.integers(0, TREE - 1), st.just(0)),
        st.tuples(st.just("clear"), st.just(0), st.just(0)),
    ),
    min_size=15,
    max_size=60,
)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.integers(1, 2), min_size=TREE, max_size=TREE),
    st.sets(st.integers(1, TREE - 1), max_size=1),
    st.sampled_from([2, 4, 6]),
    ACTIONS,
)
def test_any_sequence_of_events_gives_exactly_the_keys_of_a_naive_model(
    back: list[int], foreign: set[BlockHash], ours: int, actions: list[tuple[str, int, int]]
) -> None:
    """Engine blocks of two tokens in a random tree; runs are stored in any order, twice, again after a removal."""
    parents: dict[BlockHash, BlockHash | None] = {
        one: one - step if one >= step else None for one, step in enumerate(back)
    }
    path: dict[BlockHash, list[int]] = {}
    for one, up in parents.items():
        path[one] = [*(path[up] if up is not None else []), int(one), 99]
    naive, blocks, seen = Naive(ours, path, foreign), BlockMap(ours, PLAIN), set[bytes]()
    for what, one, length in actions:
        if what == "clear":
            naive.copies.clear()
            blocks.clear()
            seen.clear()
        elif what == "remove":
            naive.copies[one] -= naive.copies[one] > 0
            seen = replayed(seen, changed(blocks, Removed([one])))
        else:
            run = [one]
            while len(run) < length and (up := parents[run[0]]) is not None:
                run.insert(0, int(up))
            naive.copies.update(run)
            extras = [(b"?",) if each in foreign else None for each in run]
            tokens = [token for each in run for token in path[each][-2:]]
            seen = replayed(seen, changed(blocks, Stored(run, parents[run[0]], tokens, 2, extras)))
        naive.settle(parents)
        assert seen == naive.keys(parents) == set(blocks.keys)


def replayed(before: set[bytes], changes: list[tuple[bool, bytes]]) -> set[bytes]:
    """The set after these changes; none of them may say what is so already."""
    after = set(before)
    for there, key in changes:
        assert (key in after) is not there
        (after.add if there else after.discard)(key)
    return after

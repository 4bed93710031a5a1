"""What the feed makes of an engine's blocks of prompts with embeddings, against what the placer asks for."""

import hashlib
from collections import Counter
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.jobs import GenerateJob, Head, Sampling
from schemas.media import Embeds
from topics.steering import namespaces
from topics.steering.blocks import Namespace, begin, extend
from workers.block_items import Told, joined, told
from workers.block_map import BlockMap
from workers.engine import Item, Items, Removed, Rows, Stored
from workers.engines.vllm_items import MAX_READINGS, ItemMemory, items_of

PLAIN = Namespace("m")
EMBEDS = namespaces.with_embeds(PLAIN)
PLACEHOLDER = 7
CAT = Item(2, 3, PLACEHOLDER, "cat")


def test_placeholders_are_put_back_where_the_items_lie() -> None:
    this = told([1, 2, 0, 0], ["salt", Items([[CAT]])], ())
    assert this == Told([1, 2, 7, 7], ((2, "cat"),), (Item(-2, 3, 7, "cat"),))
    following = told([0, 5, 6, 8], [Items([[], [Item(-2, 3, 7, "cat")]])], this.coming)
    assert following == Told([7, 5, 6, 8], ((-2, "cat"),))
    assert joined([this, following]) == ([1, 2, 7, 7, 7, 5, 6, 8], [(2, "cat")])


def test_of_several_readings_the_one_that_goes_on_with_what_came_is_right_and_the_newest_of_equals() -> None:
    begins, goes_on = Item(0, 9, 7, "cat"), Item(-4, 9, 7, "cat")
    readings = Items([[Item(-8, 9, 7, "cat")], [goes_on], [begins], [Item(0, 9, 7, "older")]])
    assert told([0] * 4, [readings], (goes_on,)) == Told([7] * 4, ((-4, "cat"),), (Item(-8, 9, 7, "cat"),))
    assert told([0] * 4, [readings], ()) == Told([7] * 4, ((0, "cat"),), (goes_on,))


def test_a_block_that_no_reading_explains_is_not_ours() -> None:
    assert told([0] * 4, [b"digest"], ()) is None
    assert told([0] * 4, [Items([[CAT]])], (Item(-1, 3, 7, "dog"),)) is None
    assert told([1, 2, 3, 4], [], (Item(-1, 3, 7, "dog"),)) is None


def test_the_memory_is_bounded_in_blocks_and_in_readings() -> None:
    memory = ItemMemory(max_blocks=2)
    for name in (b"a", b"b", b"a", b"c"):
        memory.remember(name, (CAT,))
    assert memory.recall(b"b") is None
    assert memory.recall(b"a") == memory.recall(b"c") == Items(((CAT,),))
    for number in range(MAX_READINGS + 5):
        memory.remember(b"c", (Item(-number, 9, 7, "cat"),))
    readings = memory.recall(b"c")
    assert readings is not None and len(readings.readings) == MAX_READINGS
    assert readings.readings[0] == (Item(-MAX_READINGS - 4, 9, 7, "cat"),)


class Engine:
    """vLLM's prefix cache, as its events tell of it: masked tokens are zeros, every block of the prompt has a digest of
    the bytes of its rows, generated ones have that of nothing."""

    def __init__(self, block_tokens: int) -> None:
        self.size = block_tokens
        self.memory = ItemMemory()
        self.held: set[int] = set()

    def run(self, job: GenerateJob, content: Sequence[int], answer: Sequence[int]) -> list[Stored]:
        """What it stores. `content`: of each position's row; 0 for tokens."""
        size, prompt = self.size, job.prompt_ids
        rows = [Rows(one.offset, one.length, 1, "float32", memoryview(b""), one.digest) for one in job.embeds]
        rows.sort(key=lambda one: one.offset)
        for start in range(0, len(prompt) - size + 1, size):
            digest = _digest(content[start : start + size])
            self.memory.remember(digest, items_of(rows, prompt, start, size))
        seen = [0 if row else token for token, row in zip(prompt, content, strict=True)] + list(answer)
        salt = namespaces.cache_salt(EMBEDS)
        parent: int | None = None
        stored: list[Stored] = []
        for start in range(0, len(seen) - size + 1, size):
            tokens, digest = seen[start : start + size], _digest(content[start : start + size])
            block = hash((parent, tuple(tokens), digest, start == 0))
            if block not in self.held:
                self.held.add(block)
                extras = [*([salt] if start == 0 else []), self.memory.recall(digest) or digest]
                stored.append(Stored([block], parent, tokens, size, [extras]))
            parent = block
        return stored


def _digest(content: Sequence[int]) -> bytes:
    return hashlib.sha256(repr(list(content)).encode()).digest()


@st.composite
def prompts(draw: st.DrawFn) -> tuple[GenerateJob, list[int]]:
    """A prompt of few different tokens, so that many share a beginning, with up to three items anywhere in it.

    The first row of an item tells its digest, the others are often equal to each other; of what kind it is, and so its
    placeholder, goes with the digest.
    """
    ids: list[int] = []
    content: list[int] = []
    embeds: list[Embeds] = []
    for _ in range(draw(st.integers(1, 3))):
        gap = draw(st.integers(0, 9))
        ids += [PLACEHOLDER if draw(st.integers(0, 9)) == 0 else 1 for _ in range(gap)]
        content += [0] * gap
        picture, length = draw(st.integers(1, 3)), draw(st.integers(1, 14))
        embeds.append(Embeds(len(ids), length, f"artifacts/{picture}.{length}", f"{picture}.{length}"))
        ids += [PLACEHOLDER + picture % 2] * length
        content += [100 * picture + length, *[1 + picture % 2] * (length - 1)]
    tail = draw(st.integers(0, 9))
    ids += [2] * tail
    content += [0] * tail
    head = Head("r", "m", deadline_at=2e9, created_at=0.0, reply_to="")
    return GenerateJob(head, ids, Sampling(max_tokens=1), embeds=draw(st.permutations(embeds))), content


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.tuples(prompts(), st.integers(0, 9)), min_size=1, max_size=5),
    st.sampled_from([(2, 2), (4, 4), (2, 4), (2, 8), (4, 12), (3, 6)]),
)
def test_the_feed_knows_exactly_the_keys_that_the_placer_asks_for(
    asked: list[tuple[tuple[GenerateJob, list[int]], int]], sizes: tuple[int, int]
) -> None:
    theirs, ours = sizes
    engine, blocks, expected, keys = Engine(theirs), BlockMap(ours, PLAIN), set[bytes](), set[bytes]()
    everything: list[Stored] = []
    for (job, content), answered in asked:
        stored = engine.run(job, content, [3] * answered)
        everything += stored
        for event in stored:
            keys |= {key for there, key in blocks.changes(event) if there}
        root = begin(namespaces.of(PLAIN, job))
        expected |= set(extend(root, job.prompt_ids, ours, namespaces.media(job)).keys)
    assert keys == set(blocks.keys) == expected
    gone = [one for event in reversed(everything) for one in event.hashes]
    blocks.changes(Removed(gone))
    assert not blocks.keys


def test_what_is_generated_after_rows_is_counted_as_foreign() -> None:
    head = Head("r", "m", deadline_at=2e9, created_at=0.0, reply_to="")
    job = GenerateJob(head, [1, 7, 7, 1], Sampling(max_tokens=1), embeds=[Embeds(1, 2, "artifacts/a", "a")])
    blocks = BlockMap(2, PLAIN)
    stored = Engine(2).run(job, [0, 101, 1, 0], [3] * 4)
    for event in stored:
        blocks.changes(event)
    assert len(blocks.keys) == 2 and blocks.take_skipped() == Counter(foreign=2)

"""Which media items lie in a block that vLLM knows only by the bytes of its rows. Pure; imports no vLLM.

vLLM hashes a prompt with embeddings by these bytes, block by block, and tells that digest with every stored block; the
tokens it tells are zeros where rows stand. So what each digest stands for is written down before a prompt is run.
"""

from collections import OrderedDict
from collections.abc import Sequence

from workers.engine import Item, Items, Rows

# Blocks remembered. A note is read as soon as the block is computed; only those of prompts that still wait must stay.
MAX_BLOCKS = 100_000
# Ways to read one content. Uniform pictures have many: their blocks differ only in how far into the item they are.
MAX_READINGS = 64


class ItemMemory:
    """What lies in blocks, by the digest of their rows' bytes; bounded, the block not seen for longest goes first."""

    def __init__(self, max_blocks: int = MAX_BLOCKS) -> None:
        self._max_blocks = max_blocks
        self._readings: OrderedDict[bytes, tuple[tuple[Item, ...], ...]] = OrderedDict()

    def remember(self, digest: bytes, items: tuple[Item, ...]) -> None:
        """These items lie in a block of a prompt that is about to run."""
        others = (one for one in self._readings.pop(digest, ()) if one != items)
        self._readings[digest] = (items, *others)[:MAX_READINGS]
        if len(self._readings) > self._max_blocks:
            self._readings.popitem(last=False)

    def recall(self, digest: bytes) -> Items | None:
        """None for blocks that no prompt filled alone: a later prompt with the same tokens will not find those."""
        readings = self._readings.get(digest)
        return None if readings is None else Items(readings)


def items_of(rows: Sequence[Rows], prompt_ids: Sequence[int], start: int, block_tokens: int) -> tuple[Item, ...]:
    """What lies in the block of the prompt that begins at `start`, in order. `rows` are in order of their offsets."""
    return tuple(
        Item(one.offset - start, one.length, prompt_ids[one.offset], one.digest)
        for one in rows
        if one.offset < start + block_tokens and one.offset + one.length > start
    )

"""Token ids for a turn of the workloads: equal block keys become equal blocks, different ones different blocks."""

from tests.bench.steering.traffic import BLOCK, Turn

VOCABULARY = 49_152
_STRIDE = 7_919


class Prompts:
    """Remembers the blocks that come again."""

    def __init__(self) -> None:
        self._blocks: dict[int, list[int]] = {}

    def token_ids(self, turn: Turn) -> list[int]:
        """The whole prompt. What lies behind its last full block is no block's, and the same everywhere."""
        full, rest = divmod(turn.prompt_tokens, BLOCK)
        return [token for key in turn.keys[:full] for token in self._block(key)] + self._block(0)[:rest]

    def _block(self, key: int) -> list[int]:
        if key not in self._blocks:
            self._blocks[key] = _made(key)
        return self._blocks[key]


def _made(key: int) -> list[int]:
    """The first two ids alone tell keys apart; the others are there to be carried."""
    high, low = divmod(key, VOCABULARY)
    return [high, low, *((low + _STRIDE * place) % VOCABULARY for place in range(2, BLOCK))]

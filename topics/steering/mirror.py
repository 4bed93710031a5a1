"""What an engine's cache holds, in our block keys: the engine's own hashes are translated, never used.

The engine tells with every stored block its tokens, the hash of its parent and what else went into the hash. The first
block of a prompt carries the cache salt, which is our namespace's chain state (see `salt`): so the engine keeps apart
exactly what our keys keep apart, and its events say which chain they belong to.
"""

from collections.abc import Sequence

import msgspec

from infra.prefix_index import CacheEvent
from topics.steering.blocks import Chain, Namespace, Touch, append, begin, key

_SALT = "tri-"


class Stored(msgspec.Struct, frozen=True):
    """Consecutive blocks of one prompt. `extras`: per block, strings and (media digest, offset in the block) pairs."""

    hashes: Sequence[int]
    parent: int | None
    token_ids: Sequence[int]
    block_tokens: int
    extras: Sequence[Sequence[object] | None] = ()


class Removed(msgspec.Struct, frozen=True):
    hashes: Sequence[int]


class Cleared(msgspec.Struct, frozen=True):
    pass


EngineEvent = Stored | Removed | Cleared


def salt(namespace: Namespace) -> str:
    """What to give the engine as the cache salt of every prompt of this namespace."""
    return _SALT + begin(namespace).state.hex()


class CacheMirror:
    """Translates events in order and remembers what is held. Does no IO; one process's, one event loop's."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._states: dict[int, bytes] = {}  # engine hash -> chain state after that block
        self.unresolved = 0  # blocks that could not be translated: unknown parent, foreign salt, another block size

    def __len__(self) -> int:
        return len(self._states)

    def translate(self, event: EngineEvent) -> CacheEvent | None:
        """The same in our keys; None when nothing of it concerns us."""
        match event:
            case Stored():
                packed = self._stored(event)
                return CacheEvent("s", packed) if packed else None
            case Removed():
                states = [self._states.pop(one, None) for one in event.hashes]
                packed = b"".join(key(state) for state in states if state)
                return CacheEvent("r", packed) if packed else None
            case Cleared():
                self._states.clear()
                return CacheEvent("c")

    def snapshot(self, most_keys: int) -> list[CacheEvent]:
        """All that is held, in events of at most so many keys."""
        keys = [key(state) for state in self._states.values()]
        return [CacheEvent("s", b"".join(keys[at : at + most_keys])) for at in range(0, len(keys), most_keys)]

    def _stored(self, event: Stored) -> bytes:
        state = self._state_before(event)
        if state is None or event.block_tokens != self._block_tokens:
            self.unresolved += len(event.hashes)
            return b""
        chain = append(Chain(state), event.token_ids, self._block_tokens, _touching(event))
        self._states.update(zip(event.hashes, chain.states, strict=True))
        return b"".join(chain.keys)

    def _state_before(self, event: Stored) -> bytes | None:
        if event.parent is not None:
            return self._states.get(event.parent)
        for extra in (event.extras[0] if event.extras else None) or ():
            if isinstance(extra, str) and extra.startswith(_SALT):
                return bytes.fromhex(extra.removeprefix(_SALT))
        return None


def _touching(event: Stored) -> dict[int, list[Touch]]:
    touching: dict[int, list[Touch]] = {}
    for number, extras in enumerate(event.extras):
        for extra in extras or ():
            if isinstance(extra, tuple | list) and len(extra) == 2:
                digest, offset = extra
                touching.setdefault(number, []).append((int(offset), str(digest)))
    return touching

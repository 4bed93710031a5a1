"""What an engine tells of one block, as our keys need it: the tokens as the prompt has them, and the items that lie in
it."""

from collections.abc import Iterable, Sequence

import msgspec

from topics.steering.blocks import Touch
from workers.engine import Item, Items


class Told(msgspec.Struct, frozen=True):
    """One block. `coming`: the items that go on in the next one, placed as seen from there."""

    token_ids: Sequence[int]
    touches: tuple[Touch, ...] = ()
    coming: tuple[Item, ...] = ()


def told(token_ids: Sequence[int], extras: Sequence[object], coming: Sequence[Item]) -> Told | None:
    """`coming`: as the block before this one has it.

    None when our keys cannot tell apart what these extras tell apart (they know names, salts and media), or when no
    reading of the block goes on with what has come.
    """
    touches: list[Touch] = []
    items: Sequence[Item] | None = () if not coming else None
    for extra in extras:
        match extra:
            case str():
                continue
            case [str(digest), int(offset)]:
                touches.append((offset, digest))
            case Items(readings):
                items = next((one for one in readings if _begun(one) == list(coming)), None)
                if items is None:
                    return None
            case _:
                return None
    if items is None:
        return None
    touches += [(item.offset, item.digest) for item in items]
    return Told(_as_prompted(token_ids, items), tuple(touches), _going_on(items, len(token_ids)))


def joined(parts: Iterable[Told]) -> tuple[list[int], list[Touch]]:
    """Consecutive blocks as one: every item once, by its place counted from the start of the first block."""
    tokens: list[int] = []
    found: dict[Touch, None] = {}
    for part in parts:
        for offset, digest in part.touches:
            found[offset + len(tokens), digest] = None
        tokens += part.token_ids
    return tokens, list(found)


def _begun(items: Sequence[Item]) -> list[Item]:
    return [item for item in items if item.offset < 0]


def _going_on(items: Sequence[Item], size: int) -> tuple[Item, ...]:
    later = (msgspec.structs.replace(item, offset=item.offset - size) for item in items)
    return tuple(item for item in later if item.offset + item.length > 0)


def _as_prompted(token_ids: Sequence[int], items: Sequence[Item]) -> Sequence[int]:
    """With the placeholders back in their places, where the engine tells something else."""
    if not items:
        return token_ids
    restored = list(token_ids)
    for item in items:
        for position in range(max(0, item.offset), min(len(restored), item.offset + item.length)):
            restored[position] = item.token_id
    return restored

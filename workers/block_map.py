"""What an engine's cache holds, in our block keys: the engine's own hashes are looked up, never used as keys.

An engine tells with every stored block its tokens, the hash of the block before it and what else went into its hash;
from these our chain goes on. Our blocks may be several of the engine's: a key is there while all of them are.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence

import msgspec

from topics.steering import namespaces
from topics.steering.blocks import Chain, Namespace, append, begin, key
from workers.block_items import Told, joined, told
from workers.engine import BlockHash, Item, Removed, Stored

# Blocks whose parent has not been told (yet). Past this the oldest are given up.
MAX_ORPHANS = 10_000

Change = tuple[bool, bytes]  # is the key there now; the key


class _Block(msgspec.Struct):
    """One block of the engine, as told."""

    hash: BlockHash
    parent: BlockHash | None
    token_ids: Sequence[int]
    extras: Sequence[object]
    key: bytes = b""  # from an engine that knows it
    copies: int = 1  # an engine may store the same block twice, and then removes it twice


class _Node(msgspec.Struct, eq=False):
    """A block that is held and whose chain is known. `state` None: of a namespace that is not ours to index."""

    state: bytes | None  # of our chain at the last boundary of our blocks
    tail: tuple[tuple[BlockHash, Told], ...] = ()  # since that boundary, up to and with this one
    coming: tuple[Item, ...] = ()  # items that go on in the next block, as seen from there
    copies: int = 1


class _Group(msgspec.Struct, eq=False):
    """The engine's blocks that make up one of ours."""

    key: bytes
    members: tuple[BlockHash, ...]
    present: int = 0  # of the members


class BlockMap:
    """Takes events in order and says what they change. Does no IO; never raises, whatever it is told.

    `block_tokens` is the size of our blocks, `plain` the namespace of prompts without a salt.
    """

    def __init__(self, block_tokens: int, plain: Namespace, max_orphans: int = MAX_ORPHANS) -> None:
        self._block_tokens = block_tokens
        self._plain = begin(plain).root
        self._max_orphans = max_orphans
        self._nodes: dict[BlockHash, _Node] = {}
        self._groups: dict[BlockHash, _Group] = {}  # by the hash of the last member, which tells the whole chain
        self._groups_of: dict[BlockHash, list[_Group]] = {}
        self._holders: Counter[bytes] = Counter()  # complete groups by key
        self._orphans: OrderedDict[BlockHash, _Block] = OrderedDict()
        self._waiting: dict[BlockHash, list[BlockHash]] = {}  # parent that is not known -> orphans
        self._skipped: Counter[str] = Counter()

    @property
    def keys(self) -> list[bytes]:
        """All that is held."""
        return list(self._holders)

    @property
    def orphans(self) -> int:
        """Blocks that wait for their parent."""
        return len(self._orphans)

    def take_skipped(self) -> Counter[str]:
        """Blocks that have not been indexed since the last call, by reason.

        orphan: the parent never came. foreign: something unknown went into the hash. shape: tokens and hashes, or block
        sizes, do not fit.
        """
        skipped, self._skipped = self._skipped, Counter()
        return skipped

    def clear(self) -> None:
        """The engine's cache is empty, or nothing is known of it any more."""
        for table in (self._nodes, self._groups, self._groups_of, self._holders, self._orphans, self._waiting):
            table.clear()

    def changes(self, event: Stored | Removed) -> list[Change]:
        """What the event changes, in order."""
        if isinstance(event, Stored):
            return [change for block in self._blocks(event) for change in self._store(block)]
        return [change for one in event.hashes for change in self._remove(one)]

    def _blocks(self, event: Stored) -> Iterator[_Block]:
        if not self._fits(event):
            self._skipped["shape"] += len(event.hashes)
            return
        size, parent = event.block_tokens, event.parent
        for number, one in enumerate(event.hashes):
            tokens = event.token_ids[number * size : (number + 1) * size]
            extras = (event.extras[number] if event.extras else None) or ()
            yield _Block(one, parent, tokens, extras, event.keys[number] if event.keys else b"")
            parent = one

    def _fits(self, event: Stored) -> bool:
        count = len(event.hashes)
        if event.keys:
            return len(event.keys) == count
        size = event.block_tokens
        whole = size > 0 and self._block_tokens % size == 0 and len(event.token_ids) == count * size
        return whole and len(event.extras) in (0, count)

    def _store(self, block: _Block) -> Iterator[Change]:
        """This one, and all that have waited for it."""
        ready = [block]
        while ready:
            one = ready.pop()
            if held := self._nodes.get(one.hash) or self._orphans.get(one.hash):
                held.copies += one.copies
            elif one.parent is None or one.parent in self._nodes:
                yield from self._enter(one)
                ready += [self._orphans.pop(child) for child in self._waiting.pop(one.hash, ())]
            else:
                self._wait(one)

    def _wait(self, block: _Block) -> None:
        if len(self._orphans) == self._max_orphans:
            self._abandon(next(iter(self._orphans)))
            self._skipped["orphan"] += 1
        assert block.parent is not None
        self._orphans[block.hash] = block
        self._waiting.setdefault(block.parent, []).append(block.hash)

    def _abandon(self, orphan: BlockHash) -> None:
        parent = self._orphans.pop(orphan).parent
        assert parent is not None
        siblings = self._waiting[parent]
        siblings.remove(orphan)
        if not siblings:
            del self._waiting[parent]

    def _enter(self, block: _Block) -> Iterator[Change]:
        node = self._nodes[block.hash] = self._node(block)
        for group in self._groups_of.get(block.hash, ()):
            yield from self._more(group)
        if node.state is None:
            self._skipped["foreign"] += 1
        elif not node.tail and block.hash not in self._groups:
            yield from self._group(block, node.state)

    def _node(self, block: _Block) -> _Node:
        parent = self._nodes[block.parent] if block.parent is not None else _Node(self._root(block))
        this = told(block.token_ids, block.extras, parent.coming)
        if parent.state is None or this is None:
            return _Node(None, copies=block.copies)
        if block.key:
            return _Node(block.key, copies=block.copies)
        tail = (*parent.tail, (block.hash, this))
        tokens, touches = joined(part for _, part in tail)
        if len(tokens) < self._block_tokens:
            return _Node(parent.state, tail, this.coming, block.copies)
        chain = append(Chain(parent.state), tokens, self._block_tokens, {0: touches})
        return _Node(chain.state, (), this.coming, block.copies)

    def _root(self, block: _Block) -> bytes | None:
        """The state before a first block. An adapter, or a salt that is not ours, makes a foreign namespace."""
        names = [extra for extra in block.extras if isinstance(extra, str)]
        ours = [chain.root for name in names if (chain := namespaces.of_salt(name))]
        if ours:
            return ours[0]
        return None if names else self._plain

    def _group(self, last: _Block, state: bytes) -> Iterator[Change]:
        """The last of the engine's blocks that make up one of ours has come."""
        before = self._nodes[last.parent].tail if last.parent is not None else ()
        group = _Group(key(state), (*(one for one, _ in before), last.hash))
        self._groups[last.hash] = group
        for one in group.members:
            self._groups_of.setdefault(one, []).append(group)
            if one in self._nodes:
                yield from self._more(group)

    def _more(self, group: _Group) -> Iterator[Change]:
        group.present += 1
        if group.present == len(group.members):
            self._holders[group.key] += 1
            if self._holders[group.key] == 1:
                yield True, group.key

    def _remove(self, one: BlockHash) -> Iterator[Change]:
        held = self._nodes.get(one) or self._orphans.get(one)
        if held is None:
            return
        held.copies -= 1
        if held.copies:
            return
        if one in self._orphans:
            self._abandon(one)
            return
        del self._nodes[one]
        for group in list(self._groups_of.get(one, ())):
            yield from self._less(group)

    def _less(self, group: _Group) -> Iterator[Change]:
        if group.present == len(group.members):
            self._holders[group.key] -= 1
            if not self._holders[group.key]:
                del self._holders[group.key]
                yield False, group.key
        group.present -= 1
        if not group.present:
            self._forget(group)

    def _forget(self, group: _Group) -> None:
        del self._groups[group.members[-1]]
        for one in group.members:
            self._groups_of[one].remove(group)
            if not self._groups_of[one]:
                del self._groups_of[one]

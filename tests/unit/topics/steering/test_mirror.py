from topics.steering.blocks import Media, Namespace, begin, extend
from topics.steering.mirror import CacheMirror, Cleared, Removed, Stored, salt

NAMESPACE = Namespace("m", salt="tenant")
TOKENS = list(range(1, 17))
KEYS = extend(begin(NAMESPACE), TOKENS, 4).keys


def stored(first: int, last: int, parent: int | None = None) -> Stored:
    """Blocks first..last of TOKENS, whose engine hashes are 100 + their number."""
    extras = [(salt(NAMESPACE),) if number == 0 else None for number in range(first, last)]
    return Stored([100 + number for number in range(first, last)], parent, TOKENS[4 * first : 4 * last], 4, extras)


def packed(mirror: CacheMirror, event: Stored | Removed) -> bytes:
    translated = mirror.translate(event)
    return translated.block_keys if translated else b""


def test_stored_blocks_get_the_keys_that_the_gateway_computes() -> None:
    mirror = CacheMirror(4)
    assert packed(mirror, stored(0, 2)) == b"".join(KEYS[:2])
    assert packed(mirror, stored(2, 4, parent=101)) == b"".join(KEYS[2:])
    assert packed(mirror, Removed([103, 100])) == KEYS[3] + KEYS[0]
    assert len(mirror) == 2


def test_pictures_enter_as_at_the_gateway() -> None:
    """An item of six positions from the third on: it touches blocks 0 and 1."""
    expected = extend(begin(NAMESPACE), TOKENS[:8], 4, [Media(2, 6, "cat")]).keys
    event = Stored([1, 2], None, TOKENS[:8], 4, [(("cat", 2), salt(NAMESPACE)), (("cat", -2),)])
    assert packed(CacheMirror(4), event) == b"".join(expected)


def test_blocks_with_an_unknown_parent_a_foreign_salt_or_another_size_are_counted_not_entered() -> None:
    mirror = CacheMirror(4)
    for event in (
        stored(2, 4, parent=101),
        Stored([1], None, [1, 2, 3, 4], 4, [("someone else's",)]),
        Stored([1], None, [1, 2, 3, 4], 4),
        Stored([1], None, list(range(8)), 8, [(salt(NAMESPACE),)]),
    ):
        assert mirror.translate(event) is None
    assert mirror.unresolved == 5
    assert mirror.translate(Removed([1])) is None


def test_a_clear_forgets_everything() -> None:
    mirror = CacheMirror(4)
    mirror.translate(stored(0, 4))
    cleared = mirror.translate(Cleared())
    assert cleared and cleared.kind == "c"
    assert mirror.snapshot(100) == []


def test_a_snapshot_is_all_that_is_held_in_pieces() -> None:
    mirror = CacheMirror(4)
    mirror.translate(stored(0, 4))
    assert [event.block_keys for event in mirror.snapshot(3)] == [b"".join(KEYS[:3]), KEYS[3]]

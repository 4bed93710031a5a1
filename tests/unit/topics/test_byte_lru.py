import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from topics.byte_lru import ENTRY_BYTES, LARGEST_SHARE, ByteLru

MOST_BYTES = 100 * ENTRY_BYTES


def test_what_was_not_used_for_longest_goes_first() -> None:
    memory: ByteLru[int, str] = ByteLru(10 * ENTRY_BYTES)
    for key in range(10):
        memory.put(key, f"value {key}", 0)
    assert memory.get(0) == "value 0"
    memory.put(10, "value 10", 0)
    assert memory.get(1) is None
    assert memory.get(0) == "value 0"


def test_one_that_would_push_out_many_others_is_not_kept() -> None:
    memory: ByteLru[str, str] = ByteLru(MOST_BYTES)
    memory.put("small", "x", 1)
    memory.put("large", "x", int(MOST_BYTES * LARGEST_SHARE))
    assert memory.get("large") is None
    assert memory.get("small") == "x"


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12 * ENTRY_BYTES)), max_size=80))
def test_it_never_holds_more_than_its_bound_and_counts_what_it_holds(puts: list[tuple[int, int]]) -> None:
    memory: ByteLru[int, int] = ByteLru(MOST_BYTES)
    for key, size_bytes in puts:
        memory.put(key, size_bytes, size_bytes)
        assert memory.held_bytes <= MOST_BYTES
    found = [memory.get(key) for key in range(31)]
    assert memory.held_bytes == sum(size + ENTRY_BYTES for size in found if size is not None)


def test_threads_that_use_it_together_find_only_what_was_put() -> None:
    memory: ByteLru[int, int] = ByteLru(20 * ENTRY_BYTES)
    wrong: list[tuple[int, int]] = []

    def use(start: int) -> None:
        for step in range(2_000):
            key = (start + step) % 50
            memory.put(key, -key, 0)
            if (found := memory.get(key)) not in (None, -key):
                wrong.append((key, found))

    threads = [threading.Thread(target=use, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert memory.held_bytes == 20 * ENTRY_BYTES

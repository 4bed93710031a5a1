"""What `triptych status` shows of who works where."""

import io

from rich.console import Console

from cli import status


def test_each_pool_has_its_workers_and_one_without_any_says_so() -> None:
    shown = io.StringIO()
    seen = {"encode.vision": frozenset({"b", "a"}), "decode.audio": frozenset[str]()}
    Console(file=shown, width=80).print(status.media_pools(seen))
    vision, audio = [line for line in shown.getvalue().splitlines() if "code." in line]
    assert vision.split("│")[1:4] == [" encode.vision ", " 2       ", " a b               "]
    assert "0" in audio and "nobody works here" in audio

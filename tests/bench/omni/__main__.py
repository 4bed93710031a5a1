"""`python -m tests.bench.omni --json FILE`: how well the whole pipeline sees, draws, hears and speaks.

Real small models on a running stack (`triptych up`), asked over HTTP as a client asks. Figures:

digit_accuracy     of held-out handwritten digits, how many the answer names (triptych-omni-tiny)
digits_in_8        of held-out digits shown eight in one question, how many the answer lists in their place
drawn_accuracy     of digits asked for in words, how many an independent classifier reads as asked (triptych-omni-tiny)
wer                word error rate on recorded human speech with known words (smollm2-cascade)
speech_roundtrip   of spoken sentences, how many are transcribed back word for word (smollm2-cascade)
text_read          of pictures with English and Korean text, how many are read exactly (smollm2-cascade)
second_turn_hit    cached / whole prompt blocks, of a second user's question about the same picture, on another gateway,
                   after the encoder was killed; `encoded` counts how often that picture was encoded
parallel_ratio     time of 8 pictures in one request over 2 encoder workers / 8 pictures one after the other; encoders
                   of made-up speed (labelled sim), because two cores cannot run two real ones side by side
"""

import argparse
import importlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.bench import published
from tests.stack import Stack, running

MODELS = "smollm2-cascade,triptych-omni-tiny"
# Module and function; imported when they are run, because what they need takes seconds to import.
PARTS = {
    "digits": ("digits", "recognised"),
    "together": ("digits", "together"),
    "drawn": ("digits", "drawn"),
    "hearing": ("speech", "heard"),
    "speaking": ("speech", "spoken"),
    "text": ("text", "read"),
    "second": ("second_turn", "second_turn"),
}


def part(name: str) -> Callable[[Stack, int], dict[str, object]]:
    module, function = PARTS[name]
    found: Callable[[Stack, int], dict[str, object]] = getattr(
        importlib.import_module(f"tests.bench.omni.{module}"), function
    )
    return found


def real(parts: list[str], size: int, folder: Path, broker: str) -> dict[str, object]:
    found: dict[str, object] = {}
    chosen = [name for name in PARTS if name in parts]
    if not chosen:
        return found
    with running(folder / "real", "--model", MODELS, "--workers", "2", "--broker", broker) as stack:
        for name in chosen:
            found |= part(name)(stack, size)
            print(json.dumps(found, ensure_ascii=False, default=str), flush=True)
    return found


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.bench.omni", description=__doc__.split("\n\n")[0])
    made.add_argument("--json", type=Path, help="write the figures here")
    made.add_argument("--size", type=int, default=100, help="how many digits are shown, and drawn")
    made.add_argument("--parts", default=",".join([*PARTS, "parallel"]), help="of these, comma separated")
    made.add_argument("--broker", choices=["embedded", "kafka"], default="embedded")
    return made


def main() -> None:
    given = parser().parse_args()
    parts = given.parts.split(",")
    with tempfile.TemporaryDirectory(prefix="triptych-omni-") as folder:
        found = real(parts, given.size, Path(folder), given.broker)
        if "parallel" in parts:
            from tests.bench.omni import parallel

            found |= parallel.ratio(Path(folder), given.broker)
    print(json.dumps(found, indent=2, ensure_ascii=False, default=str))
    if given.json:
        published.write(given.json, "vllm", found)


if __name__ == "__main__":
    main()

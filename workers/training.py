"""`python -m workers train MODEL`: make the weights of a model of our own."""

import argparse
import sys
from pathlib import Path

BASE_MODEL = "smollm2-135m"


def main(argv: list[str], model_dir: Path) -> int:
    """Train, with progress on stdout. The exit status: 0 done, 2 something is missing."""
    parser = argparse.ArgumentParser(prog="python -m workers train", description=__doc__)
    parser.add_argument("model", choices=["omni-tiny"])
    parser.add_argument("--out", type=Path, required=True, help="folder for the weights")
    parser.add_argument("--base", type=Path, default=model_dir / BASE_MODEL, help="folder of the base language model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--quick", action="store_true", help="all of it in a minute, learning nothing: a test of the way"
    )
    given = parser.parse_args(argv)
    if not (given.base / "model.safetensors").is_file():
        print(f"workers: {given.base} holds no model; triptych models pull {BASE_MODEL}", file=sys.stderr)  # noqa: T201 - the command line's own words
        return 2
    from workers.engines.omni_tiny.train import train  # noqa: PLC0415 - torch, only where it is needed

    train(given.base, given.out, given.seed, given.quick)
    return 0

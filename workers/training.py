"""`python -m workers train MODEL`: make the weights of a model of our own."""

import argparse
import signal
import sys
from pathlib import Path

BASE_MODEL = "smollm2-135m"
INTERRUPTED = 130  # as shells have it


def main(argv: list[str], model_dir: Path) -> int:
    """Train, with progress on stdout. The exit status: 0 done, 1 failed, 2 something is missing, 130 interrupted."""
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
        _complain(f"{given.base} holds no model; triptych models pull {BASE_MODEL}")
        return 2
    from workers.engines.omni_tiny.train import TrainingFailed, train  # noqa: PLC0415 - torch, only where it is needed

    # Asked to end, it ends as on Ctrl-C: the second process of the training must not go on without it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        train(given.base, given.out, given.seed, given.quick)
    except TrainingFailed as error:
        _complain(str(error))
        return 1
    except KeyboardInterrupt:
        _complain(f"interrupted; {given.out} holds what it held, or the whole of what was trained")
        return INTERRUPTED
    return 0


def _complain(text: str) -> None:
    print(f"workers: {text}", file=sys.stderr)  # noqa: T201 - the command line's own words

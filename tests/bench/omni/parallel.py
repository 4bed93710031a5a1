"""Eight pictures in one request over two encoder workers, against the same pictures one request after the other.

The encoders only take their time (sim): on two cores that also run everything else, two real ones would measure the
machine. What is real is the way: gateway, topic, consumer group, store, join.
"""

import time
from pathlib import Path

import numpy as np

from tests.bench.omni.asking import about, client, png
from tests.stack import running

MODEL = "triptych-omni-tiny"
PICTURES, ENCODE_MS, ROUNDS = 8, 400, 3


def ratio(folder: Path, broker: str) -> dict[str, object]:
    arguments = ["--model", MODEL, "--engine", "stub", "--workers", "1", "--media-engine", "sim", "--broker", broker]
    scaled = ["--scale", "encode.vision=2", "--media-args", f"--sim-ms {ENCODE_MS}"]
    with running(folder / "sim", *arguments, *scaled) as stack:
        asker = client(stack.url)

        def took(pictures: list[bytes]) -> float:
            begun = time.perf_counter()
            about(asker, MODEL, pictures, "What is this?", max_tokens=1)
            return time.perf_counter() - begun

        took([_picture(0)])  # the pool has settled
        numbers = iter(range(1, 1_000))
        fresh = [[_picture(next(numbers)) for _ in range(PICTURES)] for _ in range(2 * ROUNDS)]
        serial = sum(took([one]) for pictures in fresh[:ROUNDS] for one in pictures)
        together = sum(took(pictures) for pictures in fresh[ROUNDS:])
    return {
        "parallel_ratio": together / serial,
        "parallel_encoders": f"sim, {ENCODE_MS} ms a picture",
        "serial_s": serial / ROUNDS,
        "parallel_s": together / ROUNDS,
    }


def _picture(number: int) -> bytes:
    return png(np.random.default_rng(number).integers(0, 256, (64, 64, 3), np.uint8))

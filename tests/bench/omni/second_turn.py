"""One picture, two users, two gateways, and an encoder that is killed in between."""

import contextlib
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator

import psutil

from infra.settings import variable
from tests.bench.omni.asking import about, client, png
from tests.stack import Stack, free_port
from workers.engines.omni_tiny import data

MODEL = "triptych-omni-tiny"
ENCODER = "encode-vision-0"
# Long enough that what two users' questions share is most of them, as it is with a real system prompt.
PREAMBLE = "You look at pictures of handwritten digits and answer in one word. " * 24
START_S = 60.0


@contextlib.contextmanager
def second_gateway(stack: Stack) -> Iterator[str]:
    """Another gateway of the same cluster, as a second replica would be: the first one's settings, another port."""
    first = psutil.Process(stack.pid("gateway")).environ()
    port = free_port()
    own = {variable("port"): str(port), variable("gateway_id"): "gateway-2"}
    url = f"http://127.0.0.1:{port}"
    with (stack.home / "gateway-2.log").open("wb") as log:
        command = [sys.executable, "-m", "gateway"]
        process = subprocess.Popen(command, env={**os.environ, **first, **own}, stdout=log, stderr=log)
        try:
            _wait_for(f"{url}/readyz")
            yield url
        finally:
            process.terminate()
            process.wait(START_S)


def second_turn(stack: Stack, size: int) -> dict[str, object]:
    picture = png(data.to_picture(data.split()[1].images[7], 200, 200))
    with second_gateway(stack) as other_url:
        encoded = _encoded(stack)
        _ask(stack.url, picture, "Which digit is this?")
        encoded, before = _encoded(stack) - encoded, stack.pid(ENCODER)
        stack.kill(ENCODER)
        second = _ask(other_url, picture, "Which digit is this, please?")
        _until_restarted(stack, before)
        third = _ask(other_url, picture, "Say which digit it is.")
        encoded += _encoded(stack)
    return {"second_turn_hit": min(second, third), "encoded": encoded}


def _ask(url: str, picture: bytes, question: str) -> float:
    """Cached / prompt tokens, in whole blocks of what the two questions can share."""
    usage = about(client(url), MODEL, [picture], f"{PREAMBLE}\n{question}", max_tokens=8).usage
    assert usage is not None
    return float((usage.prompt_tokens_details.cached_tokens or 0) / usage.prompt_tokens)


def _encoded(stack: Stack) -> int:
    """What the encoder has encoded in this life of its."""
    port = psutil.Process(stack.pid(ENCODER)).environ()[variable("metrics_port")]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    wanted = [line for line in lines if line.startswith("triptych_encoded_items_total{") and 'how="made"' in line]
    return round(sum(float(line.rsplit(" ", 1)[1]) for line in wanted))


def _until_restarted(stack: Stack, old_pid: int) -> None:
    _poll(lambda: stack.pid(ENCODER) != old_pid)
    port = psutil.Process(stack.pid(ENCODER)).environ()[variable("metrics_port")]
    _wait_for(f"http://127.0.0.1:{port}/readyz")


def _wait_for(url: str) -> None:
    def answers() -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
        return False

    _poll(answers)


def _poll(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + START_S
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"not within {START_S:g} s")
        time.sleep(0.1)

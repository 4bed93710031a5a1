"""One picture, two users, two gateways, and an encoder that is killed in between."""

import time
from collections.abc import Callable

from tests.bench.omni.asking import about, client, png
from tests.stack import Stack, another_gateway
from workers.engines.omni_tiny import data

MODEL = "triptych-omni-tiny"
ENCODER = "encode-vision-0"
# Long enough that what two questions share, in whole blocks, is most of them, as it is with a real system prompt.
PREAMBLE = "You look at pictures of handwritten digits and answer in one word. " * 60
RESTART_S = 60.0


def second_turn(stack: Stack, size: int) -> dict[str, object]:
    picture = png(data.to_picture(data.split()[1].images[7], 200, 200))
    with another_gateway(stack) as other_url:
        encoded = pictures_encoded(stack)
        _ask(stack.url, picture, "Which digit is this?")
        encoded = pictures_encoded(stack) - encoded
        dead = stack.kill(ENCODER)
        second = _ask(other_url, picture, "Which digit is this, please?")
        _poll(lambda: stack.alive_again(ENCODER, dead))
        third = _ask(other_url, picture, "Say which digit it is.")
        encoded += pictures_encoded(stack)
    return {"second_turn_hit": min(second, third), "encoded": encoded}


def pictures_encoded(stack: Stack) -> int:
    """By the encoder in this life of its."""
    return round(stack.metric("triptych_encoded_items_total", ENCODER, how="made"))


def _ask(url: str, picture: bytes, question: str) -> float:
    """Cached / prompt tokens. The last block, which is not whole, is never cached."""
    usage = about(client(url), MODEL, [picture], f"{PREAMBLE}\n{question}", max_tokens=8).usage
    assert usage is not None
    return float((usage.prompt_tokens_details.cached_tokens or 0) / usage.prompt_tokens)


def _poll(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + RESTART_S
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"not within {RESTART_S:g} s")
        time.sleep(0.1)

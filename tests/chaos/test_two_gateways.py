"""One picture, two users, two gateways, and kill -9 of the only encoder in between: encoded once, answered twice."""

import asyncio
import io
import uuid
from typing import Any

import openai
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from tests.bench.omni.asking import picture_part
from tests.bench.omni.second_turn import ENCODER, pictures_encoded
from tests.stack import Stack, another_gateway
from tests.waiting import until

pytestmark = [pytest.mark.services, pytest.mark.vllm, pytest.mark.timeout(400)]

MODEL = "smollm2-cascade"  # two LLM workers: steering must know which of them has seen the picture
SYSTEM = "You look at pictures for people who cannot see them, and answer in a few plain words. " * 40


def picture() -> dict[str, Any]:
    """One that nobody has sent before."""
    mark, file = PngInfo(), io.BytesIO()
    mark.add_text("Comment", uuid.uuid4().hex)
    Image.new("RGB", (64, 64), "orange").save(file, "PNG", pnginfo=mark)
    return picture_part(file.getvalue())


async def ask(url: str, shown: dict[str, Any], question: str) -> Any:
    messages: Any = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": [shown, {"type": "text", "text": question}]},
    ]
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=150) as client:
        return await client.chat.completions.create(model=MODEL, messages=messages, max_tokens=8, temperature=0)


async def test_a_picture_outlives_its_encoder(stack: Stack) -> None:
    known, new = picture(), picture()
    with another_gateway(stack) as other_url:
        before = await asyncio.to_thread(pictures_encoded, stack)
        assert (await ask(stack.url, known, "What is in the picture?")).choices
        assert await asyncio.to_thread(pictures_encoded, stack) == before + 1

        dead = stack.kill(ENCODER)
        second = await ask(other_url, known, "Which colour is it?")
        assert second.usage.prompt_tokens_details.cached_tokens >= 0.9 * second.usage.prompt_tokens

        # Nobody can encode this one now. Both users are answered when somebody can, and it is encoded for both at once.
        waiting = asyncio.gather(ask(stack.url, new, "What is it?"), ask(other_url, new, "What is it?"))
        await until(lambda: asyncio.to_thread(stack.alive_again, ENCODER, dead), within_s=120, every_s=0.2)
        assert all(answer.choices for answer in await waiting)
        assert await asyncio.to_thread(pictures_encoded, stack) == 1

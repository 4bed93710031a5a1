"""The URL of a picture, drawn by the real model and kept in a real store, opened from where a client stands."""

import io

import httpx
import openai
import pytest
from PIL import Image

from tests.stack import Stack

pytestmark = pytest.mark.services


async def test_a_drawn_picture_opens_at_the_address_of_the_gateway(stack: Stack, client: openai.AsyncOpenAI) -> None:
    made = await client.images.generate(
        model="triptych-omni-tiny", prompt="Draw a seven.", size="192x192", response_format="url"
    )
    assert made.data is not None
    url = made.data[0].url or ""
    assert url.startswith(f"{stack.url}/v1/outputs/")
    async with httpx.AsyncClient() as browser:  # nothing of the SDK's: no key, no cookie
        answer = await browser.get(url, timeout=30)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")
    assert Image.open(io.BytesIO(answer.content)).size == (192, 192)

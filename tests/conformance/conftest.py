"""The running stack with the real model, and clients of it."""

from collections.abc import AsyncIterator

import openai
import pytest

from tests.stack import Stack

MODEL = "smollm2-135m"


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{stack.url}/v1", api_key="none", max_retries=0, timeout=90) as one:
        yield one

from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest

from tests import models
from tests.stack import Stack


@pytest.fixture(scope="session")
def model_dir() -> Path:
    """The folder that holds `smollm2-135m/`; pulls the model if it is not there yet."""
    return models.pulled().parent


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{stack.url}/v1", api_key="none", max_retries=0, timeout=120) as one:
        yield one

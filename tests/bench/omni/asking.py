"""How the benchmark asks: OpenAI's own client, pictures as data URLs."""

import base64
import io
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import openai
from numpy.typing import NDArray
from PIL import Image

# Asked for at once: enough to let encoders and the LLM batch, not enough to only measure queueing on two cores.
AT_ONCE = 4

T = TypeVar("T")
R = TypeVar("R")


def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=300)


def png(rgb: NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(rgb).save(file, "PNG")
    return file.getvalue()


def picture_part(data: bytes, media_type: str = "image/png") -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{base64.b64encode(data).decode()}"}}


def about(asker: openai.OpenAI, model: str, pictures: Iterable[bytes], question: str, **more: Any) -> Any:
    """The completion for one user message: pictures, then the question."""
    content = [*map(picture_part, pictures), {"type": "text", "text": question}]
    return asker.chat.completions.create(
        model=model, messages=[{"role": "user", "content": content}], temperature=0, **more
    )


def all_of(ask: Callable[[T], R], about: Iterable[T]) -> list[R]:
    """In order, a few at once."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(ask, about))

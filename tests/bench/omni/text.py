"""smollm2-cascade: text in pictures. What the encoder read is looked up where the LLM worker gets it from."""

import asyncio
import hashlib
import io
import re
from collections.abc import Mapping

from PIL import Image, ImageDraw, ImageFont

from infra import manifests, settings
from infra.blobs import S3Blobs
from schemas.media import EncoderKind
from tests.bench.omni.asking import about, client
from tests.stack import Stack
from topics import fingerprints, safetensors

MODEL = "smollm2-cascade"
FONT = "/usr/share/fonts/truetype/nanum/NanumGothic.ttf"  # Debian's fonts-nanum
TEXTS = (
    "Platform 9 closes at 17:45",
    "Total: 12,300 KRW",
    "Wet paint, do not touch",
    "안녕하세요 멀티모달 서빙",
    "오늘은 도서관이 쉽니다",
    "서울역 출구 안내",
)


def picture_of(text: str) -> bytes:
    image = Image.new("RGB", (720, 160), "white")
    ImageDraw.Draw(image).text((30, 50), text, font=ImageFont.truetype(FONT, 44), fill="black")
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def read(stack: Stack, size: int) -> dict[str, object]:
    asker, found = client(stack.url), {}
    for text in TEXTS:
        data = picture_of(text)
        about(asker, MODEL, [data], "What does it say?", max_tokens=8)
        found[text] = hashlib.sha256(data).hexdigest()
    seen = asyncio.run(artifact_texts(stack, MODEL, "vision", found))
    right = {text: _plain(text) in _plain(seen[text]) for text in TEXTS}
    return {"text_read": sum(right.values()) / len(right), "texts_missed": [one for one, ok in right.items() if not ok]}


async def artifact_texts(
    stack: Stack, model: str, pool: EncoderKind, digests: Mapping[str, str], *, of_video: bool = False
) -> dict[str, str]:
    """By name: what the model's encoder made of the media with that SHA-256."""
    config = settings.load(stack.environment("gateway"))
    encoder = fingerprints.fingerprint(manifests.find(config, model), pool)
    blobs = S3Blobs(config)
    await blobs.start()
    try:
        keys = {name: fingerprints.artifact_key(encoder, one, of_video=of_video) for name, one in digests.items()}
        return {name: safetensors.unpack_header(await blobs.read(key, 1 << 20)).text for name, key in keys.items()}
    finally:
        await blobs.close()


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()

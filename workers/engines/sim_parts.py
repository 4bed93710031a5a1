"""What the worker model is made of: its parameters with their sources, a request inside it, and who is told of it."""

from collections.abc import Sequence as Row
from typing import Protocol

import msgspec

from workers.engines.sim_cache import Key

NEVER = -1


class SimParams(msgspec.Struct, frozen=True):
    """One worker of workload W1: Qwen3-32B on two H100, TP 2, under vLLM."""

    block_tokens: int = 64  # published guide's block size
    blocks: int = 4_802  # published: 307,328 KV tokens per pod
    step_budget_tokens: int = 8_192  # vLLM's default for chunked prefill
    max_sequences: int = 256  # vLLM's default
    prefill_tokens_per_s: float = 15_928.0  # published peak, used by the guide's own saturation valve
    step_base_s: float = 0.025  # published inter-token latency 25-47 ms: its floor ...
    step_per_sequence_s: float = 0.000_22  # ... and its slope up to about 100 sequences
    speed: float = 1.0  # 0.5 = every step takes twice as long


class Sequence:
    """One request inside the worker. `keys` are those of all full blocks of prompt and output together."""

    __slots__ = (
        "cached_tokens", "computed", "finish_at", "generated", "grow_at", "keys", "origin_step", "origin_tokens",
        "output_tokens", "private", "prompt_tokens", "published", "shared", "tag", "target",
    )  # fmt: skip

    def __init__(self, tag: object, keys: Row[Key], prompt_tokens: int, output_tokens: int, generated: int = 0) -> None:
        self.tag = tag
        self.keys = keys
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.generated = generated  # as of the last prefill; more than 0 at the start when an earlier worker died
        self.cached_tokens = 0  # prompt tokens found in the cache at the first admission
        self.target = 0  # tokens to compute before the next one can be sampled
        self.computed = 0
        self.shared: list[Key] = []  # keyed blocks it references
        self.private = 0  # blocks without a key
        self.published = 0  # leading blocks that are full and known to the cache
        self.origin_step = 0  # the step that sampled token number `generated`
        self.origin_tokens = 0  # tokens in the KV cache after that step
        self.grow_at = NEVER  # step that needs one more block
        self.finish_at = NEVER


class WorkerListener(Protocol):
    def first_token(self, sequence: Sequence, at: float) -> None:
        """Its prefill is done (again after each preemption; `generated` tells)."""
        ...

    def finished(self, sequence: Sequence, at: float) -> None: ...

    def step(self, seconds: float, prefilled_tokens: int, sequences: int) -> None:
        """A step has begun that will take so long."""
        ...

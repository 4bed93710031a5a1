"""Signals: small, unordered, lossy. Nothing may depend on one arriving; each has a slower way to be noticed."""

import msgspec


class Cancel(msgspec.Struct, frozen=True, tag="cancel", omit_defaults=True):
    """Stop working on a request. Missed? The next append of that request says so too."""

    request_id: str
    reason: str = ""


class Beat(msgspec.Struct, frozen=True, tag="beat", omit_defaults=True):
    """A worker's load, sent with every lease renewal."""

    worker: str
    epoch: int
    at: float  # unix seconds
    running: int = 0
    waiting: int = 0
    slots: int = 0  # how many jobs it would take at once
    kv_usage: float = 0.0  # 0..1
    tokens_per_s: float = 0.0
    engine: str = ""  # "vllm", "stub", "sim": shown wherever a figure of it is shown


Signal = Cancel

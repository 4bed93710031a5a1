from typing import Any

from schemas.jobs import GenerateJob, Head, Sampling


def job(prompt: list[int] | None = None, **sampling: Any) -> GenerateJob:
    head = Head("r", "m", deadline_at=2e9, created_at=0.0, reply_to="g")
    return GenerateJob(head, [1, 2, 3] if prompt is None else prompt, Sampling(**{"max_tokens": 8, **sampling}))

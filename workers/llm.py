"""The LLM pool's handler: one job in, its events out, in order. The loop does the sending."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from infra.ports import Claim
from schemas.events import Event, Finished, Restarted, Token, Usage
from schemas.jobs import GenerateJob
from workers.assembly import Assembly
from workers.engine import Delta, End, Engine
from workers.outbox import Account
from workers.outputs import Piece, Watch


async def handle(
    job: GenerateJob,
    claim: Claim,
    account: Account,
    assembly: Assembly,
    engine: Engine,
    worker: str,
    partition: int,
    queue_s: float,
) -> AsyncGenerator[Event | Piece]:
    """Yield what this job sends: events, and pieces for decoders, each after the token that completes it.

    Raises:
        EngineDied, Unrunnable: from the engine; the loop knows what they mean for the request.
        TriptychError: the prompt cannot be assembled, or a part of the answer cannot be decoded.
    """
    attempt, watch = account.attempt, Watch(job.outputs) if job.outputs else None
    if claim.emitted:
        yield Restarted(attempt, account.next_seq(), worker)
    run = engine.run(job, await assembly.rows(job))
    async with aclosing(run) as steps:  # leaving early, for any reason, aborts the run in the engine
        async for step in steps:
            match step:
                case Delta():
                    shown, pieces = watch.take(step) if watch is not None else (step, [])
                    account.emitted_tokens = True
                    yield Token(
                        attempt,
                        account.next_seq(),
                        shown.index,
                        shown.text,
                        shown.token_ids,
                        shown.finish_reason,
                        shown.logprobs,
                    )
                    for piece in pieces:
                        yield piece
                case End():
                    usage = Usage(step.prompt_tokens, step.completion_tokens, step.cached_tokens)
                    # Numbered by the loop, which may have to say something else instead: a part can still fail.
                    yield Finished(attempt, 0, usage, worker, partition, queue_s)

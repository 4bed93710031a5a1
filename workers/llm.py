"""The LLM pool's handler: one job in, its events out, in order. The loop does the sending."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from infra.ports import Claim
from schemas.events import Event, Finished, Restarted, Token, Usage
from schemas.jobs import GenerateJob
from workers.assembly import Assembly
from workers.engine import Delta, End, Engine
from workers.outbox import Account


async def handle(
    job: GenerateJob,
    claim: Claim,
    account: Account,
    assembly: Assembly,
    engine: Engine,
    worker: str,
    partition: int,
    queue_s: float,
) -> AsyncGenerator[Event]:
    """Yield what this job sends.

    Raises:
        EngineDied, Refused: from the engine; the loop knows what they mean for the request.
        TriptychError: the prompt cannot be assembled.
    """
    attempt = account.attempt
    if claim.emitted:
        yield Restarted(attempt, account.next_seq(), worker)
    run = engine.run(job, await assembly.rows(job))
    async with aclosing(run) as steps:  # leaving early, for any reason, aborts the run in the engine
        async for step in steps:
            match step:
                case Delta():
                    account.emitted_tokens = True
                    yield Token(
                        attempt,
                        account.next_seq(),
                        step.index,
                        step.text,
                        step.token_ids,
                        step.finish_reason,
                        step.logprobs,
                    )
                case End():
                    usage = Usage(step.prompt_tokens, step.completion_tokens, step.cached_tokens)
                    yield Finished(attempt, account.next_seq(), usage, worker, partition, queue_s)

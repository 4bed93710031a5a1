"""What to do with a request, decided from facts alone: no clock, no client, no await."""

from typing import Literal

from infra.ports import Claim
from schemas.events import Cancelled, Failed, Terminal
from schemas.jobs import Head
from workers.outbox import Account

Verdict = Literal["run", "wait", "drop"]


def on_claim(head: Head, claim: Claim, now: float) -> Verdict | Terminal:
    """After asking for the request: run it, ask again later, drop it, or end it with this event.

    A streamed request whose earlier attempt emitted tokens cannot start over: the client has them. Until an attempt can
    continue from the emitted ids, such a request ends with worker_lost rather than with doubled text.
    """
    seq = claim.last_seq + 1
    match claim.state:
        case "done":
            return "drop"
        case "busy":
            return "wait"
        case "cancelled":
            return Cancelled(claim.attempt, seq, "cancelled before it ran")
        case "exhausted":
            text = f"given up after {claim.attempt - 1} attempts, each of which ended with its worker"
            return Failed(claim.attempt, seq, "too_many_attempts", text)
        case "mine":
            if now >= head.deadline_at:
                return Failed(
                    claim.attempt, seq, "deadline_exceeded", "the deadline passed while the request was queued"
                )
            if claim.emitted and head.streamed:
                return Failed(claim.attempt, seq, "worker_lost", "the worker was lost in mid-stream; please try again")
            return "run"


def can_go_again(head: Head, claim: Claim, account: Account) -> bool:
    """After an engine or a drain cut an attempt short: may another attempt start from nothing?"""
    return not (head.streamed and (account.emitted_tokens or claim.emitted))

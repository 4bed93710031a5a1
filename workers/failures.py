"""What an error in an attempt means for its request: the event that ends it."""

import logging

from infra.faults import Unavailable
from schemas.errors import Code, TriptychError
from schemas.events import Failed
from workers.outbox import Account

log = logging.getLogger(__name__)


def failure(account: Account, error: Exception, doing: str, bug: Code, worker: str) -> Failed:
    """`doing`: what was being done to the answer; `bug`: the code of what nobody foresaw, which is logged here."""
    match error:
        case TriptychError():
            return account.failed(error.code, error.message, error.param)
        case TimeoutError():
            return account.failed("deadline_exceeded", f"the deadline passed while the answer was {doing}")
        case Unavailable():
            log.warning("request %s: %s", account.head.request_id, error)
            return account.failed("overloaded", "a service that the answer needs is away; please try again")
        case _:
            log.error("request %s failed", account.head.request_id, exc_info=error)
            return account.failed(bug, f"the {worker} failed on this request")

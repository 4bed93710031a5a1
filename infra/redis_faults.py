"""What an error of Redis, or of its client, means to those who asked: one of the four words of infra/faults.py."""

import re

from redis.exceptions import (
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    AuthorizationError,
    InvalidResponse,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from infra.faults import Corrupt, PortFault, Refused, Unavailable

# A server's errors begin with a word that programs may go by. "Not now":
_LATER = frozenset(
    {
        "LOADING",  # it has just started and reads its data
        "BUSY",  # a script runs for too long
        "MISCONF",  # its disk is full or broken
        "OOM",  # it is full, and may evict nothing
        "NOREPLICAS",  # too few replicas are there to write safely
        "READONLY",  # a replica: of the primary that was, or about to become one
        "MASTERDOWN",  # a replica that has lost its primary
        "CLUSTERDOWN",
        "TRYAGAIN",  # a slot is under way between two nodes
        "UNBLOCKED",  # it has become a replica meanwhile
        "NOSCRIPT",  # it has lost the script that was just loaded: a fail-over in between
    }
)
# MOVED, ASK: a cluster, where a single server or a proxy is needed. DENIED: protected mode.
_REFUSED = frozenset({"NOAUTH", "WRONGPASS", "NOPERM", "DENIED", "MOVED", "ASK"})
# A key of ours holds what we never write there.
_CORRUPT = frozenset({"WRONGTYPE"})

_WRONG_CREDENTIALS = (AuthenticationError, AuthorizationError, AuthenticationWrongNumberOfArgsError)
# No connection, or none that makes sense any more. An asyncio.TimeoutError is an OSError.
_NO_ANSWER = (RedisConnectionError, RedisTimeoutError, InvalidResponse, OSError)

# Before the server's own words: the client's, about a command of a pipeline; those of EXEC, about one of its
# transaction; and, before Redis 7, those about the script that the error happened in.
_CODE = re.compile(
    r"(?:.*of pipeline caused error: \(?['\"]?)?"
    r"(?:EXECABORT )?(?:Transaction discarded because of: )?"
    r"(?:ERR )?(?:Error running script [^@]*@\w+: ?\d+: ?)?(?:@\w+: ?\d+: ?)?"
    r"-?(?P<code>[A-Z]+)\b",
    re.DOTALL,
)


def fault_of(error: BaseException) -> PortFault | None:
    """The fault that this error stands for; None when it is a bug, here or there."""
    if isinstance(error, BaseExceptionGroup):
        return _worst([fault_of(one) for one in error.exceptions])
    code, text = code_of(error), f"redis: {str(error) or 'no answer in time'}"
    if isinstance(error, _WRONG_CREDENTIALS) or code in _REFUSED:
        return Refused(text)
    if isinstance(error, _NO_ANSWER) or code in _LATER or _wrote_to_closed(error):
        return Unavailable(text)
    return Corrupt(text) if code in _CORRUPT else None


def code_of(error: BaseException) -> str:
    """The word that the server's answer begins with, wherever the client or a script has put it; "" if it has none."""
    if not isinstance(error, ResponseError):
        return str(error.status_code or "") if isinstance(error, RedisError) else ""
    # The client takes the words that it knows out of the text.
    if error.status_code not in (None, "ERR", "EXECABORT"):
        return str(error.status_code)
    found = _CODE.match(str(error))
    return found["code"] if found else ""


def _wrote_to_closed(error: BaseException) -> bool:
    """How uvloop says that the other side has hung up; plain asyncio has a ConnectionError for it."""
    return isinstance(error, RuntimeError) and "the handler is closed" in str(error)


def _worst(faults: list[PortFault | None]) -> PortFault | None:
    """Of several at once: a bug before anything else, then what time does not heal."""
    if any(one is None for one in faults):
        return None
    return next((one for one in faults if not isinstance(one, Unavailable)), faults[0])

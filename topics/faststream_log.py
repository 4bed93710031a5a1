"""What FastStream says, less what it says of every worker and nobody needs."""

import logging
from collections.abc import Mapping
from typing import Any

_UNWANTED = (
    "Auto create topics is disabled",  # on purpose: the start of a pool requires its topic (topics/pools.py)
    "callback for ",  # a task of its own has ended; why, if there is a why, is a line of its own
)


class FastStreamLog:
    """FastStream's LoggerProto, over a logger of ours."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log

    def log(self, level: int, msg: Any, /, *, exc_info: Any = None, extra: Mapping[str, Any] | None = None) -> None:
        if not str(msg).startswith(_UNWANTED):
            self._log.log(level, msg, exc_info=exc_info, extra=extra)

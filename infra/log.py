"""Logging: the standard library's, one line an event, ids as fields of the line."""

import logging
import sys

FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def setup(level: str) -> None:
    """Log to stderr. Called once, by the composition root."""
    logging.basicConfig(stream=sys.stderr, format=FORMAT, level=level.upper(), force=True)
    # aiokafka warns about every retried metadata request while topics settle; real faults reach us as exceptions.
    logging.getLogger("aiokafka").setLevel(logging.ERROR)
    logging.getLogger("botocore").setLevel(logging.WARNING)

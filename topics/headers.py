"""Record headers, and which of them a stage passes on to the jobs that it begets."""

from collections.abc import Iterable

Headers = list[tuple[str, bytes]]

# What joins the logs and traces of one request. Everything else is between whoever wrote a record and its readers.
PASSED_ON = ("x-request-id", "traceparent", "tracestate")
# What W3C Trace Context asks everybody to propagate of a tracestate; the others are shorter.
MOST_BYTES = 512


def passed_on(headers: Iterable[tuple[str, bytes]]) -> Headers:
    """One of each name, the first. One that is too long is left out: a part of an id would join nothing."""
    found: dict[str, bytes] = {}
    for name, value in headers:
        if name in PASSED_ON and 0 < len(value) <= MOST_BYTES:
            found.setdefault(name, value)
    return list(found.items())

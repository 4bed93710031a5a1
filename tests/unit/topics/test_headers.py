"""What of a record's headers goes on with the request."""

from topics.headers import MOST_BYTES, passed_on


def test_only_what_joins_logs_and_traces_is_passed_on() -> None:
    theirs = [("user", b"u"), ("traceparent", b"00-a-b-01"), ("metadata", b"{}"), ("x-request-id", b"r")]
    assert passed_on(theirs) == [("traceparent", b"00-a-b-01"), ("x-request-id", b"r")]


def test_of_one_name_the_first_is_passed_on() -> None:
    assert passed_on([("x-request-id", b"a"), ("x-request-id", b"b")]) == [("x-request-id", b"a")]


def test_what_is_empty_or_too_long_is_left_out() -> None:
    fits, too_long = ("traceparent", b"x" * MOST_BYTES), ("tracestate", b"x" * (MOST_BYTES + 1))
    assert passed_on([fits, too_long, ("x-request-id", b"")]) == [fits]


def test_what_is_passed_on_stays_as_it_is_when_passed_on_again() -> None:
    once = passed_on([("x-request-id", b"r"), ("tracestate", b"a=1")])
    assert passed_on(once) == once

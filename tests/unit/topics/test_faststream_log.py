import logging

import pytest

from topics.faststream_log import FastStreamLog

log = logging.getLogger("pool")


def test_what_is_so_by_design_and_the_ends_of_tasks_are_not_passed_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    said = FastStreamLog(log)
    said.log(logging.WARNING, "Auto create topics is disabled. Make sure the topics exist.")
    said.log(logging.INFO, "callback for Task-7 is being executed...", extra={"topic": "t"})
    assert not caplog.records


def test_all_else_is_with_its_level_and_its_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    said, error = FastStreamLog(log), ValueError("why")
    said.log(logging.INFO, "Consumer c-1 assigned to partitions: (TopicPartition(topic='t', partition=0))")
    said.log(logging.ERROR, "Task-7 raised an exception, retrying...", exc_info=error, extra={"topic": "t"})
    assigned, failed = caplog.records
    assert (assigned.name, assigned.levelno) == ("pool", logging.INFO)
    assert (failed.levelno, failed.exc_info and failed.exc_info[1]) == (logging.ERROR, error)

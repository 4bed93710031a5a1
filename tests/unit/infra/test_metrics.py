"""Metrics: the table in the module's docstring is what the page shows."""

import re

from infra import media_metrics, metrics
from infra.metrics import Metrics


def counted() -> Metrics:
    """One of each."""
    one = Metrics()
    one.request_ended("m", "finished")
    one.tokens("m", prompt=5, cached=2, completion=7)
    one.count_open_streams_by(lambda: 3)
    one.first_token_after("m", 0.02)
    one.queued_for("m", 0.01)
    one.job_ended("m", "failed")
    one.appended("stored", 64)
    one.caught_up("gap", 2)
    one.dead_letter("undecodable")
    one.engine_restarted("m")
    one.count_workers_by("encode.vision", lambda: 2)
    one.steered("m", "home")
    one.misplaced("m")
    one.cache_hit("m", predicted=64, actual=32)
    one.watch_feed_by("m", lag_s=lambda: 0.5, orphans=lambda: 2)
    one.feed_gap("m")
    one.blocks_skipped("m", "orphan", 4)
    return one


def test_page_shows_every_metric_of_the_table_and_no_other() -> None:
    table = set(re.findall(r"^\| (triptych_\w+)", f"{metrics.__doc__}{media_metrics.__doc__}", re.MULTILINE))
    page = set(re.findall(r"^# TYPE (triptych_\w+) (?:counter|histogram|gauge)$", counted().render().decode(), re.M))
    assert {name for name in page if not name.endswith("_created")} == table


def test_counts_carry_their_labels() -> None:
    page = counted().render().decode()
    assert 'triptych_tokens_total{kind="completion",model="m"} 7.0' in page
    assert 'triptych_appends_total{state="stored"} 64.0' in page
    assert "triptych_open_streams 3.0" in page


def test_two_processes_in_one_test_do_not_share_counts() -> None:
    counted()
    assert "triptych_jobs_total{" not in Metrics().render().decode()

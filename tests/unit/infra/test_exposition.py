"""Pages of metrics of several processes, read as one."""

from prometheus_client.parser import text_string_to_metric_families

from infra.exposition import merged
from infra.metrics import Metrics


def page(answers: int) -> str:
    metrics = Metrics()
    for _ in range(answers):
        metrics.request_ended("m", "finished")
    metrics.first_token_after("m", 0.1)
    return metrics.render().decode()


def test_every_sample_says_whose_it_is_and_nothing_is_lost() -> None:
    one, two = page(1), page(2)
    families = list(text_string_to_metric_families(merged({"gw-0": one, "gw-1": two}, "gateway")))
    assert len({family.name for family in families}) == len(families)
    samples = [sample for family in families for sample in family.samples]
    before = [
        sample for text in (one, two) for family in text_string_to_metric_families(text) for sample in family.samples
    ]
    assert len(samples) == len(before)
    assert {sample.labels["gateway"] for sample in samples} == {"gw-0", "gw-1"}
    answers = {sample.labels["gateway"]: sample.value for sample in samples if sample.name == "triptych_requests_total"}
    assert answers == {"gw-0": 1, "gw-1": 2}


def test_types_and_helps_are_said_once() -> None:
    told = merged({"a": page(1), "b": page(1)}, "gateway")
    lines = [line for line in told.splitlines() if line.startswith("#")]
    assert len(lines) == len(set(lines))


def test_samples_with_and_without_labels_and_odd_values() -> None:
    text = '# HELP m A metric\n# TYPE m gauge\nm{path="a}b \\" c"} 1.0\nm 2.0\n'
    told = merged({'x"\\y': text}, "gateway")
    (family,) = text_string_to_metric_families(told)
    assert [(sample.labels, sample.value) for sample in family.samples] == [
        ({"gateway": 'x"\\y', "path": 'a}b " c'}, 1.0),
        ({"gateway": 'x"\\y'}, 2.0),
    ]

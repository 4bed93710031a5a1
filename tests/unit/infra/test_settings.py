"""Settings: read once, and a wrong one refuses to start, naming itself."""

import pytest

from infra import settings
from infra.settings import Secret, WrongSetting


def test_nothing_set_is_a_local_cluster() -> None:
    found = settings.load({})
    assert (found.port, found.model_ids) == (8000, ["smollm2-135m"])


def test_values_are_read_by_their_type() -> None:
    found = settings.load({"TRIPTYCH_PORT": "9001", "TRIPTYCH_MODELS": "a, b,", "TRIPTYCH_S3_SECRET_KEY": "k"})
    assert (found.port, found.model_ids, found.s3_secret_key.value) == (9001, ["a", "b"], "k")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TRIPTYCH_PORT", "eighty"),
        ("TRIPTYCH_PORT", "70000"),
        ("TRIPTYCH_DRAIN_S", "0"),
        ("TRIPTYCH_LOG_LEVEL", "loud"),
        ("TRIPTYCH_PROT", "8000"),
        ("TRIPTYCH_PUBLIC_URL", "ai.example.com"),
        ("TRIPTYCH_PUBLIC_URL", "https://ai.example.com/?x"),
        ("TRIPTYCH_S3_PUBLIC_ENDPOINT", "s3:9000"),
    ],
)
def test_a_wrong_one_is_named(name: str, value: str) -> None:
    with pytest.raises(WrongSetting, match=name):
        settings.load({name: value})


def service_links(service: str, ip: str = "10.96.0.7", port: int = 8000) -> dict[str, str]:
    """What Kubernetes gives every container about one Service with one named port."""
    at = service.upper().replace("-", "_")
    host = f"[{ip}]" if ":" in ip else ip
    return {
        f"{at}_SERVICE_HOST": ip,
        f"{at}_SERVICE_PORT": str(port),
        f"{at}_SERVICE_PORT_HTTP": str(port),
        f"{at}_PORT": f"tcp://{host}:{port}",
        f"{at}_PORT_{port}_TCP": f"tcp://{host}:{port}",
        f"{at}_PORT_{port}_TCP_PROTO": "tcp",
        f"{at}_PORT_{port}_TCP_PORT": str(port),
        f"{at}_PORT_{port}_TCP_ADDR": ip,
    }


@pytest.mark.parametrize("ip", ["10.96.0.7", "fd00::7"])
@pytest.mark.parametrize(
    "service", ["triptych", "triptych-gateway", "triptych-kafka", "triptych-redis", "triptych-s3", "triptych-metrics"]
)
def test_service_links_of_kubernetes_are_no_settings(service: str, ip: str) -> None:
    given = service_links(service, ip) | {"TRIPTYCH_KAFKA": "kafka:9092"}
    assert settings.load(given) == settings.load({"TRIPTYCH_KAFKA": "kafka:9092"})


def test_a_setting_that_a_service_link_hides_is_said_to_have_its_default(caplog: pytest.LogCaptureFixture) -> None:
    assert settings.load(service_links("triptych")).port == 8000
    assert [record.getMessage() for record in caplog.records] == [
        "TRIPTYCH_PORT=tcp://10.96.0.7:8000 is a service link of Kubernetes and no setting: the default holds"
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TRIPTYCH_KAFKAA", "kafka:9092"),
        ("TRIPTYCH_GATEWAY_PORT", "8000"),  # ours for compose, and no URL: somebody meant TRIPTYCH_PORT
        ("TRIPTYCH_SERVICE_HOTS", "10.96.0.7"),
        ("TRIPTYCH_SERVICE_HOST", "gateway.internal"),
        ("TRIPTYCH_GATEWAY_PORT_8000_TCP_PROTO", "8000"),
        ("TRIPTYCH_S3_PORT", "http://10.96.0.7:9000"),
    ],
)
def test_what_is_not_quite_a_service_link_is_still_refused(name: str, value: str) -> None:
    with pytest.raises(WrongSetting, match=name):
        settings.load({name: value})


def test_the_largest_body_must_find_room() -> None:
    mib = 1 << 20
    settings.load({"TRIPTYCH_MAX_BODY_BYTES": str(96 * mib), "TRIPTYCH_MAX_HELD_BODY_BYTES": str(192 * mib)})
    with pytest.raises(WrongSetting, match=r"TRIPTYCH_MAX_HELD_BODY_BYTES must be at least \d+.*MAX_BODY_BYTES"):
        settings.load({"TRIPTYCH_MAX_BODY_BYTES": str(96 * mib), "TRIPTYCH_MAX_HELD_BODY_BYTES": str(191 * mib)})


def test_variables_of_others_are_left_alone() -> None:
    settings.load({"PATH": "/bin", "TRIPTYCH_KAFKA_LIBS": "/jars"})


def test_urls_for_clients_may_be_empty_or_have_a_path() -> None:
    given = {"TRIPTYCH_PUBLIC_URL": "https://ai.example.com/triptych", "TRIPTYCH_S3_PUBLIC_ENDPOINT": ""}
    assert settings.load(given).public_url == "https://ai.example.com/triptych"


def test_a_secret_does_not_print_itself() -> None:
    found = settings.load({"TRIPTYCH_S3_SECRET_KEY": "hunter2"})
    assert "hunter2" not in repr(found) + str(found.s3_secret_key)
    assert repr(Secret("")) == "Secret('')"


def test_only_known_other_variables_can_be_asked_for() -> None:
    assert settings.other("URL", environ={"TRIPTYCH_URL": "http://x"}) == "http://x"
    with pytest.raises(KeyError):
        settings.other("NONSENSE", environ={})

"""The real services that tests talk to: given by the environment, or started on free ports for one session."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from cli.local import broker, ports, s3, valkey
from cli.local.process import running
from infra import settings

ACCESS_KEY = "triptych-test"
SECRET_KEY = "triptych-test-secret"


class S3(msgspec.Struct, frozen=True):
    endpoint: str
    access_key: str
    secret_key: str


@contextmanager
def redis(folder: Path) -> Iterator[str]:
    """A Redis URL: TRIPTYCH_TEST_REDIS, else a Valkey of our own."""
    given = settings.other("TEST_REDIS")
    if given:
        yield given
        return
    port = ports.free()
    with running(valkey.part(port, folder / "valkey.log")):
        yield valkey.url(port)


@contextmanager
def kafka(folder: Path) -> Iterator[str]:
    """Bootstrap servers: TRIPTYCH_TEST_KAFKA (host:port), or a broker of our own.

    "apache" there starts Apache Kafka itself, "" the embedded broker.
    """
    given = settings.other("TEST_KAFKA")
    if given not in ("", "apache"):
        yield given
        return
    decision = broker.broker_kind("kafka" if given == "apache" else "embedded")
    port = ports.free()
    with running(broker.part(decision, port, folder / "broker.log", folder / "broker")):
        yield broker.bootstrap(port)


def broker_is_embedded() -> bool:
    """Whether `kafka` starts the embedded broker."""
    return settings.other("TEST_KAFKA") == ""


def broker_wish() -> list[str]:
    """Arguments of `triptych up`: whole-stack tests run on the broker that TRIPTYCH_TEST_KAFKA names."""
    given = settings.other("TEST_KAFKA")
    return ["--broker", {"": "embedded", "apache": "kafka"}.get(given, given)]


@contextmanager
def object_store(folder: Path) -> Iterator[S3]:
    """TRIPTYCH_TEST_S3 (http://access:secret@host:port), else an S3 server of our own."""
    given = settings.other("TEST_S3")
    if given:
        yield parse_s3(given)
        return
    port = ports.free()
    with running(s3.part(port, folder / "s3.log", folder / "s3", ACCESS_KEY, SECRET_KEY)):
        yield S3(s3.endpoint(port), ACCESS_KEY, SECRET_KEY)


def parse_s3(url: str) -> S3:
    """http://access:secret@host:port; without keys in it, ours."""
    scheme, _, rest = url.partition("://")
    keys, _, address = rest.rpartition("@")
    access_key, _, secret_key = keys.partition(":")
    return S3(f"{scheme}://{address}", access_key or ACCESS_KEY, secret_key or SECRET_KEY)

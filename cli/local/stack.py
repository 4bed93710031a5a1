"""What `triptych up` runs: which parts, on which ports, in which order, with which settings."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from signal import SIGTERM

import msgspec

from cli.local import broker, pools, ports, probes, s3, valkey
from cli.local.broker import Decision
from cli.local.process import Part
from infra.settings import Settings, variable
from schemas.manifest import Manifest

GATEWAY = "gateway"
BROKER_PORT, VALKEY_PORT, S3_PORT = 9092, 6379, 9000
GATEWAY_LIMIT_S = 60.0
# For each gateway more than one: they start at the same time, on the same cores.
MORE_GATEWAY_LIMIT_S = 30.0
# On one machine nobody takes over what is cut off, but nobody wants to watch a stop for half a minute either.
DRAIN_S = 8
# What a part may take after its drain: error events of cut streams, commits, an engine that is closed.
LAST_WORDS_S = 10.0
# Whoever keeps several gateways ends the one that takes longer than that, and must have the time for it.
KEEPER_S = 2.0


class UpOptions(msgspec.Struct, frozen=True, kw_only=True):
    broker: str  # auto, kafka, embedded or host:port
    port: int
    gateways: int = 0  # processes on that port; 0 = as the settings say
    workers: int  # LLM workers in all
    models: str  # comma-separated; empty = those that come with it and can run here
    engine: str  # of the LLM workers
    media_engine: str = "real"  # of encoders and decoders
    worker_args: list[str] = []  # more arguments for each LLM worker
    media_args: list[str] = []  # more arguments for each encoder and decoder
    scale: dict[str, int] = {}  # pool -> workers
    home: Path


class Addresses(msgspec.Struct, frozen=True):
    """Where the parts listen."""

    url: str
    bootstrap: str
    redis: str
    s3: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    addresses: Addresses
    decision: Decision
    models: list[str]
    logs: Path
    groups: list[list[Part]]
    stop_order: list[list[str]]


class _Ports(msgspec.Struct, frozen=True):
    gateway: int
    broker: int
    valkey: int
    s3: int


def plan(
    options: UpOptions,
    settings: Settings,
    models: Sequence[Manifest],
    decision: Decision,
    topics_exist: Callable[[str], bool],
) -> Plan:
    """Choose ports, lay out the folders and describe every part; starts none of them.

    `topics_exist` makes the topics on the broker of that address where they are missing. It runs each time a broker
    has come up, because the embedded one forgets them when it dies.
    """
    at = _Ports(options.port, *(ports.preferred(one) for one in (BROKER_PORT, VALKEY_PORT, S3_PORT)))
    addresses = Addresses(
        url=f"http://{ports.reachable(settings.host)}:{at.gateway}",
        bootstrap=decision.address or broker.bootstrap(at.broker),
        redis=valkey.url(at.valkey),
        s3=s3.endpoint(at.s3),
    )
    served = [one.id for one in models]
    environment = _environment(options, settings, addresses, served)
    workers = _workers(options, models, environment)
    gateway = _gateway(options, settings, addresses.url, environment)
    return Plan(
        addresses=addresses,
        decision=decision,
        models=served,
        logs=options.home / "logs",
        groups=[_services(options, settings, decision, at, topics_exist), [gateway, *workers]],
        stop_order=[[gateway.name], [worker.name for worker in workers]],
    )


def _services(
    options: UpOptions, settings: Settings, decision: Decision, at: _Ports, topics_exist: Callable[[str], bool]
) -> list[Part]:
    logs, data = options.home / "logs", options.home / "data"
    # Valkey keeps what the broker keeps: offsets of a log that is gone would only mislead.
    valkey_data = None if decision.kind == "embedded" else data / "valkey"
    keys = settings.s3_access_key.value, settings.s3_secret_key.value
    cache = valkey.part(at.valkey, logs / "valkey.log", valkey_data)
    store = s3.part(at.s3, logs / "s3.log", data / "s3", *keys)
    if decision.kind == "external":
        address = decision.address
        return [msgspec.structs.replace(cache, ready=lambda: cache.ready() and topics_exist(address)), store]
    bus = broker.part(decision, at.broker, logs / "broker.log", data / "broker")
    own = broker.bootstrap(at.broker)
    return [msgspec.structs.replace(bus, ready=lambda: probes.kafka(own) and topics_exist(own)), cache, store]


def _environment(options: UpOptions, settings: Settings, addresses: Addresses, models: Sequence[str]) -> dict[str, str]:
    """Settings that all of our own processes share."""
    values = {
        "kafka": addresses.bootstrap,
        "redis": addresses.redis,
        "s3_endpoint": addresses.s3,
        "models": ",".join(models),
        "model_dir": str(Path(settings.model_dir).resolve()),
        "drain_s": str(DRAIN_S),
    }
    return {variable(field): value for field, value in values.items()} | {"PYTHONUNBUFFERED": "1"}


def _gateway(options: UpOptions, settings: Settings, url: str, environment: dict[str, str]) -> Part:
    gateways = options.gateways or settings.gateways
    return Part(
        name=GATEWAY,
        argv=[sys.executable, "-m", "gateway", "--gateways", str(gateways)],
        log=options.home / "logs" / "gateway.log",
        port=options.port,
        # Whether the others are there is /readyz's business.
        ready=lambda: probes.http_status(f"{url}/healthz") == 200,
        start_limit_s=GATEWAY_LIMIT_S + (gateways - 1) * MORE_GATEWAY_LIMIT_S,
        environment={**environment, variable("port"): str(options.port), variable("gateway_id"): GATEWAY},
        stop_limit_s=DRAIN_S + LAST_WORDS_S + KEEPER_S,
        orphan_signal=SIGTERM,
    )


def _workers(options: UpOptions, models: Sequence[Manifest], environment: dict[str, str]) -> list[Part]:
    wanted = pools.pools(
        models,
        workers=options.workers,
        scale=options.scale,
        llm_arguments=["--engine", options.engine, *options.worker_args],
        media_arguments=["--engine", options.media_engine, *options.media_args],
    )
    return pools.parts(wanted, pools.Surroundings(options.home / "logs", environment, DRAIN_S + LAST_WORDS_S))

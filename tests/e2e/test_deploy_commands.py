"""Every command of docker-compose.yml and of the images, run as it stands there, in what its image would hold."""

import asyncio
import contextlib
import hashlib
import json
import signal
import subprocess
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from cli.local import broker, kafka_jars, ports
from cli.local import valkey as local_valkey
from cli.local.process import Part, running
from gateway.links import Links
from infra import settings
from infra.blobs import S3Blobs
from infra.clock import SystemClock
from infra.settings import Secret, Settings
from schemas.refs import BlobRef
from tests import deploy
from tests.containers import Containers, checks, grace_s
from tests.services import S3

pytestmark = pytest.mark.services

MODEL_DIR = str(Path(settings.load().model_dir).resolve())


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory, kafka: str, redis_url: str, s3: S3) -> Containers:
    addresses = {
        "TRIPTYCH_KAFKA": kafka,
        "TRIPTYCH_REDIS": redis_url,
        "TRIPTYCH_S3_ENDPOINT": s3.endpoint,
        "TRIPTYCH_S3_ACCESS_KEY": s3.access_key,
        "TRIPTYCH_S3_SECRET_KEY": s3.secret_key,
        "TRIPTYCH_MODEL_DIR": MODEL_DIR,
        "TRIPTYCH_HOST": ports.LOOPBACK,
        "TRIPTYCH_MODELS": "smollm2-135m",
    }
    return Containers(tmp_path_factory.mktemp("images"), addresses)


def ask(port: int) -> dict[str, Any]:
    body = {"model": "smollm2-135m", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5}
    request = urllib.request.Request(
        f"http://{ports.LOOPBACK}:{port}/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    return found


async def topics_of(bootstrap: str) -> set[str]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        return set(await admin.list_topics())
    finally:
        await admin.close()


@pytest.mark.timeout(400)  # on a fresh machine the model is fetched and converted here
async def test_the_one_shot_services_do_their_work_and_may_run_again(containers: Containers, kafka: str) -> None:
    for _ in range(2):
        containers.run("topics")
        containers.run("models")
    assert {"generate.smollm2-135m", "dead-letters"} <= await topics_of(kafka)
    assert (Path(MODEL_DIR) / "smollm2-135m" / "config.json").is_file()


async def test_the_services_become_healthy_answer_and_stop_in_their_grace_period(containers: Containers) -> None:
    containers.run("topics")
    containers.run("models")
    http, metrics = ports.free(), ports.free()
    ready, alive = checks("gateway")
    with containers.start("gateway", TRIPTYCH_PORT=str(http)) as gateway:
        await containers.becomes_healthy("gateway", alive, http)
        assert not containers.healthy("gateway", ready, http), "ready without a worker"
        with containers.start("llm", "--engine", "stub", TRIPTYCH_METRICS_PORT=str(metrics)) as llm:
            for check in checks("llm"):
                await containers.becomes_healthy("llm", check, metrics)
            await containers.becomes_healthy("gateway", ready, http)
            answer = await asyncio.to_thread(ask, http)
            assert answer["choices"][0]["finish_reason"] in ("stop", "length")
            for name, process in (("llm", llm), ("gateway", gateway)):
                process.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(process.wait, grace_s(name)) == 0, containers.log(name)


PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


def fetch(url: str, method: str = "GET", data: bytes | None = None, media_type: str = "") -> bytes:
    request = urllib.request.Request(url, data, {"content-type": media_type} if media_type else {}, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return bytes(answer.read())


def upload(url: str) -> bool:
    """Announce a file, put its bytes where we are told to, and read them back; all by one address."""
    body = json.dumps({"filename": "a.png", "bytes": len(PNG), "purpose": "vision"}).encode()
    made = json.loads(fetch(f"{url}/v1/files", "POST", body, "application/json"))
    assert made["upload"]["url"].startswith(f"{url}/v1/uploads/")
    put = json.loads(fetch(made["upload"]["url"], "PUT", PNG))
    return put["status"] == "processed" and fetch(f"{url}/v1/files/{made['id']}/content") == PNG


@pytest.mark.timeout(400)  # three processes that begin with nothing compiled
async def test_two_gateways_answer_at_the_one_address_that_clients_reach(containers: Containers, s3: S3) -> None:
    containers.run("topics")
    containers.run("models")
    first, second, front = ports.free(), ports.free(), ports.free()
    url = f"http://{ports.LOOPBACK}:{front}"
    behind = [part for port in (first, second) for part in ("--to", f"{ports.LOOPBACK}:{port}")]
    _, alive = checks("gateway")
    with contextlib.ExitStack() as started:
        one = started.enter_context(containers.start("gateway", TRIPTYCH_PORT=str(first)))
        await containers.becomes_healthy("gateway", alive, first)
        started.enter_context(containers.start("gateway", TRIPTYCH_PORT=str(second)))
        await containers.becomes_healthy("gateway", alive, second)
        balancer = started.enter_context(containers.start("front", *behind, TRIPTYCH_PORT=str(front)))
        await containers.becomes_healthy("front", alive, front)
        assert await asyncio.to_thread(upload, url)
        # A picture that a decoder has made: whichever gateway gave its link, any of them opens it.
        blobs = S3Blobs(
            Settings(s3_endpoint=s3.endpoint, s3_access_key=Secret(s3.access_key), s3_secret_key=Secret(s3.secret_key))
        )
        await blobs.start()
        ref = BlobRef(f"outputs/{uuid.uuid4().hex}/0", hashlib.sha256(PNG).hexdigest(), len(PNG), "image/png")
        await blobs.put(ref, PNG)
        await blobs.close()
        link = Links(s3.secret_key, "", SystemClock()).output(ref, 60, url)
        assert [await asyncio.to_thread(fetch, link) for _ in range(4)] == [PNG] * 4
        one.kill()
        await asyncio.to_thread(one.wait)
        for _ in range(4):
            assert await asyncio.to_thread(fetch, f"{url}/healthz") == b'{"status":"alive"}'
        balancer.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(balancer.wait, grace_s("front")) == 0, containers.log("front")


@pytest.mark.parametrize("target", ["gateway", "worker-cpu", "worker-gpu"])
def test_an_image_by_itself_runs_the_command_of_its_service(target: str) -> None:
    commands = [
        service["command"] for service in deploy.services().values() if service.get("build", {}).get("target") == target
    ]
    assert deploy.command(target) in commands


def test_the_tools_image_by_itself_lists_its_commands(containers: Containers) -> None:
    built = containers.image("tools")
    done = subprocess.run(
        built.argv(deploy.command("tools")), cwd=built.app, env=built.environment({}), capture_output=True, timeout=60
    )
    assert done.returncode == 0
    assert b"topics" in done.stdout


def test_valkey_starts_with_the_arguments_of_the_compose_file(tmp_path: Path) -> None:
    server, *arguments = deploy.services()["valkey"]["command"]
    assert server == "valkey-server"
    port = ports.free()
    ours = local_valkey.part(port, tmp_path / "valkey.log")
    argv = [local_valkey.binary(), *arguments, "--port", str(port), "--dir", str(tmp_path), "--bind", ports.LOOPBACK]
    with running(Part(name="valkey", argv=argv, log=ours.log, port=port, ready=ours.ready, start_limit_s=15.0)):
        pass


def properties(environment: dict[str, Any]) -> dict[str, str]:
    """server.properties as the image writes it: KAFKA_LOG_DIRS becomes log.dirs."""
    return {
        name.removeprefix("KAFKA_").lower().replace("_", "."): str(value)
        for name, value in environment.items()
        if name.startswith("KAFKA_") and name != "KAFKA_HEAP_OPTS"
    }


def test_kafka_starts_with_the_settings_of_the_compose_file(tmp_path: Path) -> None:
    try:
        java, jars = kafka_jars.java(), kafka_jars.class_path()
    except kafka_jars.NotToBeHad as error:
        pytest.skip(f"Apache Kafka is not to be had: {error}")
    environment = deploy.services()["kafka"]["environment"]
    port, controller = ports.free(), ports.free()
    text = "\n".join(f"{name}={value}" for name, value in properties(environment).items())
    text = text.replace("9092", str(port)).replace("9093", str(controller)).replace("//kafka:", "//localhost:")
    text = text.replace("/var/lib/kafka/data", str(tmp_path / "data"))
    server = tmp_path / "server.properties"
    server.write_text(text)
    run = [str(java), environment["KAFKA_HEAP_OPTS"], "-cp", jars]
    storage = ["kafka.tools.StorageTool", "format", "-t", environment["CLUSTER_ID"], "-c", str(server)]
    subprocess.run([*run, *storage], check=True, capture_output=True, timeout=60)
    ours = broker.bootstrap(port)
    part = Part(
        name="broker",
        argv=[*run, "kafka.Kafka", server],
        log=tmp_path / "kafka.log",
        port=port,
        ready=lambda: broker.probes.kafka(ours),
        start_limit_s=60.0,
        stop_limit_s=deploy.seconds(deploy.services()["kafka"]["stop_grace_period"]),
    )
    with running(part):
        tool = ["org.apache.kafka.tools.BrokerApiVersionsCommand", "--bootstrap-server", f"localhost:{port}"]
        subprocess.run([*run, *tool], check=True, capture_output=True, timeout=30)

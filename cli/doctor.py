"""`triptych doctor`: what stands in the way of a local stack, and whether the services of a running one answer."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec
import psutil
from rich.table import Table
from rich.text import Text

from cli.local import broker, kafka_jars, ports, probes, s3, state, valkey
from cli.local.process import PartFailed
from cli.served import reads_pictures
from infra import manifests, model_store, tesseract
from infra import settings as config
from infra.settings import Settings
from schemas.manifest import Manifest

Verdict = Literal["ok", "note", "problem"]

STYLES = {"ok": "green", "note": "yellow", "problem": "red"}
# facts of the CPU build with a small model: about 2.1 GB resident for each engine.
WORKER_BYTES = 2_200_000_000
DISK_BYTES = 2_000_000_000
PORTS = {"broker": 9092, "valkey": 6379, "s3": 9000}


class Finding(msgspec.Struct, frozen=True):
    """One thing looked at. `mend` says what to do; empty when nothing need be done."""

    what: str
    verdict: Verdict
    seen: str
    mend: str = ""


def examine(settings: Settings, home: Path, port: int) -> list[Finding]:
    """Look at everything. Starts nothing and downloads nothing."""
    findings = [
        apache(),
        *(installed(*one) for one in (("embedded broker", broker.tansu), ("valkey", valkey.binary), ("s3", s3.binary))),
        *(model(one, Path(settings.model_dir)) for one in _served(settings)),
        *ocr(_served(settings)),
        memory(psutil.virtual_memory().available),
        disk(shutil.disk_usage(_existing(home)).free),
    ]
    stack = state.running(home)
    if stack is None:
        findings.append(gateway_port(port, ports.taken(port, settings.host)))
        findings += [service_port(name, number, ports.taken(number)) for name, number in PORTS.items()]
    at, url = state.applied(settings, home), state.gateway_url(settings, home)
    return [*findings, *services(at.kafka, at.redis, at.s3_endpoint, url, expected=stack is not None)]


def _served(settings: Settings) -> list[Manifest]:
    return [manifests.find(settings, one) for one in settings.model_ids]


def _existing(path: Path) -> Path:
    return next(one for one in (path, *path.resolve().parents) if one.exists())


def apache() -> Finding:
    """Whether Apache Kafka itself can run here."""
    fallback = "without it `triptych up` takes the embedded broker, which is memory-only"
    try:
        java = kafka_jars.java()
    except kafka_jars.NotToBeHad as error:
        return Finding("Apache Kafka", "note", str(error), fallback)
    if config.other("KAFKA_LIBS"):
        try:
            return Finding("Apache Kafka", "ok", f"{java}, jars of {kafka_jars.class_path()}")
        except kafka_jars.NotToBeHad as error:
            return Finding("Apache Kafka", "problem", str(error), "let TRIPTYCH_KAFKA_LIBS name a folder of its jars")
    return Finding("Apache Kafka", "ok", f"{java}; jars come from Maven with the first `triptych up`")


def installed(what: str, find: Callable[[], Path]) -> Finding:
    try:
        return Finding(what, "ok", str(find()))
    except PartFailed as error:
        return Finding(what, "problem", str(error), "pip install 'triptych[local]'")


def model(manifest: Manifest, model_dir: Path) -> Finding:
    what = f"model {manifest.id}"
    if model_store.present(manifest, model_dir):
        return Finding(what, "ok", str(model_dir / manifest.id))
    return Finding(what, "note", "not on disk", f"triptych models pull {manifest.id} (`triptych up` does so too)")


def ocr(served: list[Manifest]) -> list[Finding]:
    """Whether Tesseract is there, if a served model reads what is written in pictures."""
    readers = [one.id for one in served if reads_pictures(one)]
    if not readers:
        return []
    try:
        return [Finding("Tesseract", "ok", tesseract.find())]
    except tesseract.Unusable as error:
        return [Finding("Tesseract", "problem", f"{error}; {', '.join(readers)} cannot see", tesseract.INSTALL)]


def memory(available_bytes: int, workers: int = 2) -> Finding:
    seen = f"{available_bytes / 1e9:.1f} GB free"
    if available_bytes >= workers * WORKER_BYTES:
        return Finding("memory", "ok", seen)
    fit = available_bytes // WORKER_BYTES
    mend = f"{workers} workers want {workers * WORKER_BYTES / 1e9:.1f} GB; try --workers {max(1, fit)}"
    return Finding("memory", "note" if fit else "problem", seen, mend)


def disk(free_bytes: int) -> Finding:
    seen = f"{free_bytes / 1e9:.1f} GB free"
    if free_bytes >= DISK_BYTES:
        return Finding("disk", "ok", seen)
    return Finding("disk", "problem", seen, f"a model and the broker's log want {DISK_BYTES / 1e9:.0f} GB")


def gateway_port(port: int, taken: bool) -> Finding:
    if not taken:
        return Finding(f"port {port} (gateway)", "ok", "free")
    return Finding(f"port {port} (gateway)", "problem", "taken", "triptych up --port N, or stop what listens there")


def service_port(name: str, port: int, taken: bool) -> Finding:
    seen = "taken: `triptych up` will choose another" if taken else "free"
    return Finding(f"port {port} ({name})", "note" if taken else "ok", seen)


def services(bootstrap: str, redis: str, store: str, url: str, *, expected: bool) -> list[Finding]:
    """Whether each answers. Where no stack runs, silence is no problem."""
    answers = {
        f"broker at {bootstrap}": probes.kafka(bootstrap),
        f"Redis at {redis}": probes.redis(redis),
        f"object store at {store}": probes.http_status(store) is not None,
        f"gateway at {url}": probes.http_status(f"{url}/healthz") == 200,
    }
    return [service(what, answer, expected) for what, answer in answers.items()]


def service(what: str, answers: bool, expected: bool) -> Finding:
    if answers:
        return Finding(what, "ok", "answers")
    if expected:
        return Finding(
            what, "problem", "does not answer", "look into its log under <home>/logs; triptych down, then up"
        )
    return Finding(what, "note", "nobody there", "triptych up, or docker compose up")


def table(findings: list[Finding]) -> Table:
    rows = Table("", "what", "seen", "how to mend it")
    for one in findings:
        rows.add_row(Text(one.verdict, STYLES[one.verdict]), Text(one.what), Text(one.seen), Text(one.mend))
    return rows

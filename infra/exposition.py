"""Pages of metrics of several processes as one, in Prometheus' text format: each sample says whose it is. Pure."""

import re
from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")


def merged(pages: Mapping[str, str], label: str) -> str:
    """`pages` by the value that `label` gets in each of their samples."""
    comments: dict[str, list[str]] = {}  # by metric, in the order of the first page that has it
    samples: dict[str, list[str]] = {}
    for owner, page in pages.items():
        said = f'{label}="{_escaped(owner)}"'
        metric = ""
        for line in page.splitlines():
            if line.startswith("#"):
                metric = line.split(" ", 3)[2]
                known = comments.setdefault(metric, [])
                if line not in known:
                    known.append(line)
            elif line:
                samples.setdefault(metric, []).append(_with(said, line))
    lines = [line for metric, head in comments.items() for line in [*head, *samples.get(metric, [])]]
    return "".join(f"{line}\n" for line in lines)


def _with(label: str, sample: str) -> str:
    name = _NAME.match(sample)
    end = name.end() if name else 0
    rest = sample[end:]
    return f"{sample[:end]}{{{label},{rest[1:]}" if rest.startswith("{") else f"{sample[:end]}{{{label}}}{rest}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

"""Print what an image installs: the dependencies of pyproject.toml, with the extras named. Standard library only.

python requirements.py PYPROJECT [EXTRA ...] [--without NAME ...]
"""

import argparse
import re
import sys
import tomllib
from pathlib import Path


def requirements(pyproject: Path, extras: list[str], without: list[str]) -> list[str]:
    """The requirement lines, in the file's order.

    Raises:
        KeyError: pyproject.toml has no such extra.
        ValueError: a name to leave out is not among the lines, so leaving it out means nothing.
    """
    project = tomllib.loads(pyproject.read_text("utf-8"))["project"]
    lines = list(project["dependencies"])
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    kept = [line for line in lines if _name(line) not in without]
    missing = set(without) - {_name(line) for line in lines}
    if missing:
        raise ValueError(f"not among the requirements: {', '.join(sorted(missing))}")
    return kept


def _name(line: str) -> str:
    return re.split(r"[\[<>=!~; ]", line, maxsplit=1)[0].lower()


def main() -> None:
    parser = argparse.ArgumentParser(description="What an image installs, one requirement a line.")
    parser.add_argument("pyproject", type=Path)
    parser.add_argument("extras", nargs="*")
    parser.add_argument("--without", nargs="*", default=[])
    given = parser.parse_args()
    sys.stdout.write("\n".join(requirements(given.pyproject, given.extras, given.without)) + "\n")


if __name__ == "__main__":
    main()

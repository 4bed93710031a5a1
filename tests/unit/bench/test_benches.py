"""Every documented bench command is one that `make bench-all` runs, and one that its module takes."""

import re
import shlex
from pathlib import Path

import msgspec
import pytest

from tests.bench import all as bench_all
from tests.bench import benches
from tests.bench.benches import BENCHES, BY_NAME, Bench
from tests.bench.published import ROOT, Head

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests/bench").rglob("*.py")]
COMMAND = re.compile(r"`?python -m (tests\.bench[\w.]*)([^`\n|)]*)`")
TOOLS = {"tests.bench.all", "tests.bench.figures"}  # they measure nothing


def documented() -> set[tuple[str, str]]:
    """Module and arguments."""
    found = (each for page in PAGES for each in COMMAND.findall(page.read_text("utf-8")))
    return {(module, arguments.strip()) for module, arguments in found}


def test_commands_are_found_at_all() -> None:
    assert {module for module, _ in documented()} >= {bench.module for bench in BENCHES}


@pytest.mark.parametrize(("module", "arguments"), sorted(documented()))
def test_a_documented_command_is_taken_and_runs_with_all_the_others(module: str, arguments: str) -> None:
    given = shlex.split(arguments)
    benches.parser(module).parse_args(given)  # exits where it does not take them
    assert module in TOOLS or benches.of_command(module, given)


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("bench", BENCHES, ids=lambda bench: bench.name)
def test_what_bench_all_runs_is_taken_and_is_that_bench(bench: Bench, full: bool) -> None:
    arguments = bench.arguments(Path("folder"), full=full)
    benches.parser(bench.module).parse_args(arguments)
    assert benches.of_command(bench.module, arguments) is bench
    assert str(Path("folder") / f"{bench.name}.json") in arguments


def test_every_bench_in_the_folder_is_in_the_list() -> None:
    folder = ROOT / "tests/bench"
    run = [path for path in folder.rglob("*.py") if '__name__ == "__main__"' in path.read_text()]
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__") for path in run}
    assert modules - TOOLS == {bench.module for bench in BENCHES}


def test_a_bench_that_works_leaves_figures_under_a_head(tmp_path: Path) -> None:
    bench = msgspec.structs.replace(BY_NAME["speech_files"], small=("--seconds", "1"))
    assert not bench_all.run(bench, tmp_path, full=False).problem
    made = msgspec.json.decode((tmp_path / "speech_files.json").read_bytes())
    head = msgspec.convert(made["head"], Head)
    assert head.command.startswith("python -m tests.bench.speech_files --seconds 1 --json ")
    assert [each["format"] for each in made["formats"]] == ["mp3", "opus", "aac"]


@pytest.mark.parametrize(
    ("mode", "problem"), [(("--nonsense",), "exit status 2; see"), (("--help",), "it has written no figures; see")]
)
def test_a_bench_that_fails_or_writes_nothing_is_told(tmp_path: Path, mode: tuple[str, ...], problem: str) -> None:
    bench = Bench("fails", "tests.bench.speech_files", "", mode=mode)
    result = bench_all.run(bench, tmp_path, full=False)
    assert result.problem.startswith(problem)
    assert "1 run, 1 failed" in bench_all.table([result])


def test_a_name_that_is_no_bench_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench_all.parser().parse_args(["--only", "gateway,gatway"])
    assert "no bench gatway" in capsys.readouterr().err

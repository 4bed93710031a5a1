"""README and docs show what docs/bench/data says, and say where it is simulated."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from tests.bench.benches import BY_NAME
from tests.bench.figures import markers, registry
from tests.bench.figures.__main__ import PICTURES, SOURCE, Pages, Unknown
from tests.bench.figures.data import FOLDER, Published, link, origin
from tests.bench.published import ROOT, Head, Machine
from tests.bench.steering import pipeline_report
from tests.bench.steering.meter import Usage
from tests.bench.steering.scaling import Outcome

README = (ROOT / "README.md").read_text("utf-8")
MARKDOWN = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MOST_BYTES = 600 * 1024

HEAD = Head("python -m tests.bench.omni", "abc", "2026-01-02 03:04", Machine("A Processor", 2, 8, 0.5), "vllm")
PAGE = """\
# Figures

<!-- figures: omni -->
what stood here before
<!-- /figures -->

Words wrong: <!--f:omni.wer .1%-->9<!--/f-->, and so on.
"""


def checkout(root: Path, page: str = PAGE, **benches: dict[str, Any]) -> Pages:
    (root / FOLDER).mkdir(parents=True, exist_ok=True)
    (root / "README.md").write_text(page)
    for name, figures in benches.items():
        (root / FOLDER / f"{name}.json").write_text(json.dumps({"head": msgspec.to_builtins(HEAD), **figures}))
    return Pages(root)


def omni(wer: float) -> dict[str, Any]:
    return {"wer": wer, "words": 71, "clips": 5}


def test_the_pages_of_this_checkout_say_what_its_data_say() -> None:
    assert Pages(ROOT).stale() == []


def test_tables_and_numbers_are_written_in_place_and_the_rest_is_kept(tmp_path: Path) -> None:
    assert checkout(tmp_path, omni=omni(0.028)).write() == ["README.md"]
    page = (tmp_path / "README.md").read_text()
    assert "| `wer` | 2.8% | of 71 words of 5 recorded readings" in page
    assert "Words wrong: <!--f:omni.wer .1%-->2.8%<!--/f-->, and so on." in page
    assert "what stood here before" not in page
    assert "*vLLM and real models; [omni.json](docs/bench/data/omni.json)*" in page
    assert Pages(tmp_path).write() == []


def test_pages_below_docs_tell_command_commit_and_machine(tmp_path: Path) -> None:
    pages = checkout(tmp_path, omni=omni(0.028))
    (tmp_path / "docs/page.md").write_text(PAGE)
    pages.write()
    made = (
        "vLLM and real models; `python -m tests.bench.omni`, 2026-01-02, commit `abc`, 2 cores (A Processor), load 0.5"
    )
    assert made in (tmp_path / "docs/page.md").read_text()


def test_other_figures_make_a_page_stale(tmp_path: Path) -> None:
    checkout(tmp_path, omni=omni(0.028)).write()
    page = (tmp_path / "README.md").read_text()
    assert checkout(tmp_path, page, omni=omni(0.05)).stale() == ["README.md"]


def test_a_number_changed_by_hand_makes_a_page_stale(tmp_path: Path) -> None:
    checkout(tmp_path, omni=omni(0.028)).write()
    page = (tmp_path / "README.md").read_text()
    for by_hand in (
        page.replace("<!--f:omni.wer .1%-->2.8%", "<!--f:omni.wer .1%-->2.7%"),
        page.replace("of 71", "of 72"),
    ):
        assert by_hand != page
        assert checkout(tmp_path, by_hand, omni=omni(0.028)).stale() == ["README.md"]


def test_without_figures_a_page_names_the_command_that_makes_them(tmp_path: Path) -> None:
    checkout(tmp_path).write()
    page = (tmp_path / "README.md").read_text()
    assert "No figures yet: `python -m tests.bench.omni --json docs/bench/data/omni.json`" in page
    assert "Words wrong: <!--f:omni.wer .1%-->(not measured yet)<!--/f-->" in page


@pytest.mark.parametrize(
    "page",
    [
        "<!-- figures: omni -->\nno end",
        "<!-- /figures -->",
        "a <!--f:omni.wer .1%-->2",
        "a <!--f:omni.wer-->2<!--/f-->",
        "<!-- figures: Omni -->\n<!-- /figures -->",
    ],
)
def test_a_broken_marker_is_an_error(tmp_path: Path, page: str) -> None:
    with pytest.raises(markers.Malformed):
        checkout(tmp_path, page, omni=omni(0.1)).stale()


@pytest.mark.parametrize(
    "page",
    [
        "<!-- figures: nothing -->\n<!-- /figures -->",
        "a <!--f:omni.nothing .1%-->2<!--/f-->",
        "a <!--f:nothing.wer .1%-->2<!--/f-->",
    ],
)
def test_what_nothing_makes_is_an_error(tmp_path: Path, page: str) -> None:
    with pytest.raises(Unknown):
        checkout(tmp_path, page, omni=omni(0.1)).stale()


def dot(data: Mapping[str, Any], path: Path, metadata: Mapping[str, str]) -> None:
    """A picture of one pixel, as bright as words are wrong."""
    noted = PngInfo()
    for name, text in metadata.items():
        noted.add_text(name, text)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (1, 1), round(255 * data["wer"])).save(path, pnginfo=noted)


def test_a_picture_of_other_data_is_stale_and_one_without_data_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "PICTURES", (registry.Picture("dot.png", "omni", dot),))
    name = str(PICTURES / "dot.png")
    assert checkout(tmp_path, "no figures", omni=omni(0.2)).write() == [name]
    assert Pages(tmp_path).stale() == []
    other = checkout(tmp_path, "no figures", omni=omni(0.8))
    assert other.write() == [name]
    with Image.open(tmp_path / name) as image:
        assert image.getpixel((0, 0)) == round(255 * 0.8)
    (tmp_path / FOLDER / "omni.json").unlink()
    assert Pages(tmp_path).write() == [name]
    assert not (tmp_path / name).exists()


def test_a_plot_carries_what_it_was_made_from(tmp_path: Path) -> None:
    path = tmp_path / "plot.png"
    usage = Usage(0.1, "broker", 0.1, 0.2)
    play = Outcome(1, 1, 0, [], [0.5] * 10, [(1.0, 0.5)], [], usage)
    pipeline_report.plot_scaling(play, path, {SOURCE: "here"})
    with Image.open(path) as image:
        assert image.info[SOURCE] == "here"


def test_every_data_file_is_a_benchs_and_says_what_made_it() -> None:
    published = Published(ROOT)
    assert published.names()
    for name in published.names():
        assert name in BY_NAME
        head = published.head(name)
        assert BY_NAME[name].module in head.command
        assert all(msgspec.structs.astuple(head))
    assert sum(path.stat().st_size for path in (ROOT / FOLDER).glob("*.json")) < MOST_BYTES


def test_every_bench_has_a_block_or_a_number_on_some_page() -> None:
    text = "".join(page.read_text("utf-8") for page in MARKDOWN)
    blocks = {
        registry.BLOCKS[found["name"]].bench
        for found in markers.BLOCK.finditer(text)
        if found["name"] in registry.BLOCKS
    }
    numbers = {found["bench"] for found in markers.VALUE.finditer(text)}
    assert blocks | numbers == set(BY_NAME)


def test_every_kind_of_engine_that_computes_nothing_is_named_under_its_tables() -> None:
    for engine in ("sim", "stub"):
        head = msgspec.structs.replace(HEAD, engine=engine)
        assert f"{engine} engine" in origin(head)
        assert f"{engine} engine" in link("omni", head)


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda path: path.name)
def test_a_paragraph_that_quotes_a_simulation_says_so(page: Path) -> None:
    published = Published(ROOT)
    for paragraph, benches in markers.benches_by_paragraph(page.read_text("utf-8")):
        for engine in {published.head(bench).engine for bench in benches} & {"sim", "stub"}:
            assert re.search(rf"\b{engine}\b", paragraph), paragraph


def test_no_number_among_the_figures_of_the_readme_is_written_by_hand() -> None:
    section = README.split("## Figures\n")[1].split("\n## ")[0]
    assert markers.BLOCK.search(section)
    assert not re.search(r"\d", markers.without(section))

"""Python blocks of the documentation run and are formatted, its rig files are valid, and its links have targets.

A block is independent, unless its first line is `# continues`. It then uses the names of the previous block.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from selection import gate

from sensorium import registry
from sensorium.client.client_sensor import ClientSensor
from sensorium.jobs.rig import load_rig
from sensorium.measurement.stage_cfg import SENSOR_PLUGINS, STAGE_KINDS
from sensorium.stream.streamed import StreamedSensor
from sensorium.wire import serializers

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LINKING = [*PAGES, *sorted((ROOT / "examples").rglob("*.md"))]
SITE = "https://sensorium-sim.github.io/sensorium/"
SOURCE = "https://github.com/sensorium-sim/sensorium/blob/main/"
"""Addresses of the documentation and of files, for pages that are shown elsewhere."""
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    label: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def file(self, folder: Path) -> Path:
        """Write the block into a separate file, at the line numbers of the page, so that tracebacks name them."""
        path = folder / f"{self.page.stem}_{self.line}.py"
        path.write_text("\n" * self.line + self.text, encoding="utf-8")
        return path


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        yield Block(page, text.count("\n", 0, match.start()) + 1, match[1].strip(), match[2])


def stories(page: Path) -> Iterator[list[Block]]:
    """Yield lists of blocks that share their names."""
    story: list[Block] = []
    for block in blocks(page):
        if block.label != "python":
            continue
        if story and not block.text.startswith("# continues"):
            yield story
            story = []
        story.append(block)
    if story:
        yield story


def anchors(page: Path) -> set[str]:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


STORIES = [story for page in PAGES for story in stories(page)]
QUICK = [story for story in STORIES if "MujocoWarpEngine(model_path()" not in story[0].text]
"""All blocks except one that compiles five kernels of mujoco_warp for the demo's height field, which takes 45 s."""
RIGS = [block for page in PAGES for block in blocks(page) if block.label == "toml rig"]


@pytest.fixture
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget the sensors, stages and message types that a page defines."""
    SENSOR_PLUGINS.load()
    stages = dict(STAGE_KINDS)
    monkeypatch.setattr(registry._pairs, "data", dict(registry._pairs))
    for side in (StreamedSensor._registry, ClientSensor._registry):
        monkeypatch.setattr(side, "data", side.registered())
    monkeypatch.setattr(serializers._serializers, "data", serializers.registered())
    yield
    STAGE_KINDS.clear()
    STAGE_KINDS.update(stages)


@pytest.mark.parametrize("story", gate(STORIES, QUICK), ids=lambda story: str(story[0]))
@pytest.mark.usefixtures("_own_registry")
def test_python_blocks_run(story: list[Block], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = ModuleType(f"docs_{story[0].page.stem}_{story[0].line}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # Warp and dataclasses look up a function's module there
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for block in story:
            path = block.file(tmp_path)
            module.__file__ = str(path)
            exec(compile(path.read_text(encoding="utf-8"), path, "exec"), vars(module))


@pytest.mark.parametrize("block", RIGS, ids=str)
def test_rig_files_are_rigs(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "rig.toml"
    path.write_text(block.text, encoding="utf-8")
    configs, _ = load_rig(path)
    assert len(configs) == block.text.count("[[sensor]]")


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    broken = []
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        path, _, anchor = target.partition("#")
        if path.startswith(SITE):
            file = ROOT / "docs" / f"{path.removeprefix(SITE).removesuffix('.html')}.md"
        elif path.startswith(SOURCE):
            file = ROOT / path.removeprefix(SOURCE)
        elif re.match(r"https?://", path):
            continue
        else:
            file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert not broken


def test_the_front_page_has_absolute_links() -> None:
    """It is also the page of the package on an index, where relative links are broken."""
    targets = LINK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert targets and all(target.startswith("https://") for target in targets)


def test_index_links_every_page_and_example() -> None:
    index = ROOT / "docs/README.md"
    named = {(index.parent / target.partition("#")[0]).resolve() for target in LINK.findall(index.read_text("utf-8"))}
    examples = [*(ROOT / "examples").glob("*.py"), *(ROOT / "examples").glob("*/README.md")]
    assert {*PAGES, *examples} - {index, ROOT / "docs/index.md", ROOT / "docs/sensors/index.md"} <= named


def test_python_blocks_are_formatted_as_the_code_is(tmp_path: Path) -> None:
    for block in [block for story in STORIES for block in story]:
        name = str(block).replace("/", "_").replace(":", "_")
        (tmp_path / f"{name}.py").write_text(block.text, encoding="utf-8")
    ruff = [sys.executable, "-m", "ruff", "format", "--diff", "--config", str(ROOT / "pyproject.toml"), str(tmp_path)]
    done = subprocess.run(ruff, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_places_in_the_code_exist() -> None:
    """The architecture page names files with a class, method or function in them, the contributing page files."""
    source = ROOT / "src/sensorium"
    places = re.findall(r"`([\w/]+\.py): ([\w.]+)`", (ROOT / "docs/architecture.md").read_text(encoding="utf-8"))
    assert len(places) > 25
    for file, name in places:
        body: list[ast.stmt] = ast.parse((source / file).read_text(encoding="utf-8")).body
        for part in name.split("."):
            found = [each for each in body if isinstance(each, ast.ClassDef | ast.FunctionDef) and each.name == part]
            assert found, f"{file}: {name}"
            body = found[0].body
    changes = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Typical changes")[2]
    named = re.findall(r"`([\w/]+\.pyi?)`", changes.partition("\n## ")[0])
    assert named and all((ROOT / file).exists() or (source / file).exists() for file in named)


def test_documentation_was_collected() -> None:
    assert len(STORIES) >= 10
    assert RIGS

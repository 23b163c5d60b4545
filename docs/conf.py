"""Configuration of the documentation site; `make docs` builds it into out/site.

The pages are the Markdown files of this folder. Three reference pages are generated: the API from docstrings, the
options of all kinds from the tables of `sensorium list`, and the command line from `--help`.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
REPOSITORY = "https://github.com/sensorium-sim/sensorium"

project = "sensorium"
author = copyright = "The sensorium developers"
version = release = metadata.version("sensorium")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "sphinx_copybutton",
              "sphinx_design"]  # fmt: skip
exclude_patterns = ["conf.py", "README.md", "gallery/*.py", "pictures/*"]
root_doc = "index"
default_role = "code"
add_module_names = False
html_theme = "furo"
html_search_scorer = str(DOCS / "search.js")
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_use_index = False  # the API's pages and the search have its entries
html_title = f"sensorium {version}"
html_theme_options = {
    "source_repository": REPOSITORY, "source_branch": "main", "source_directory": "docs/", "navigation_with_keys": True,
}  # fmt: skip
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_class_signature = "separated"
suppress_warnings = ["ref.python"]  # names of parameters that are also names of attributes
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
linkcheck_ignore = [REPOSITORY]  # not public yet

OUTSIDE = re.compile(r"\]\(\.\./((?!sensors/|images/)[\w./-]*[\w-])(#[\w-]*)?\)")
"""A link from a page in `docs` to a file outside it."""


PICTURE = re.compile(r"!\[[^\]]*\]\((?:\.\./)?(images|gallery)/(\w+)\.png\)")
"""A picture of a page."""


def _to_script(picture: re.Match[str]) -> str:
    """Let a picture lead to the script that makes it."""
    script = "examples/19_gallery.py" if picture[1] == "gallery" else f"docs/pictures/{picture[2]}.py"
    return f"[{picture[0]}]({REPOSITORY}/blob/main/{script})" if (DOCS.parent / script).exists() else picture[0]


def _to_repository(app: Any, page: str, source: list[str]) -> None:
    """Let links to files outside of the site lead to the repository."""
    if "/" not in page:
        source[0] = OUTSIDE.sub(rf"]({REPOSITORY}/blob/main/\1\2)", source[0])
    source[0] = PICTURE.sub(_to_script, source[0])
    source[0] = re.sub(r"\]\(((?:\.\./)?)README\.md(#[\w-]*)?\)", r"](\1index.md)", source[0])


PARTS = ("", ".stages", ".patterns", ".lenses", ".engines", ".math", ".pictures", ".readings", ".client", ".targets")
"""The package and its parts with further public names."""


def _public() -> Iterator[tuple[str, str, Any]]:
    """Yield module, name and object of everything public, each object once."""
    seen = set()
    for part in PARTS:
        package = importlib.import_module(f"sensorium{part}")
        for name in sorted(package.__all__):
            found = getattr(package, name)
            if not isinstance(found, type(sys)) and id(found) not in seen:
                seen.add(id(found))
                yield getattr(found, "__module__", ""), name, found


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "   * - " + "\n     - ".join(_plain(" ".join(cell.split())) or "\\-" for cell in cells)

    head = ".. list-table::\n   :header-rows: 1\n   :widths: auto\n\n"
    return head + "\n".join(map(line, [header, *rows])) + "\n\n"


def _title(text: str, mark: str = "=") -> str:
    return f"{text}\n{mark * len(text)}\n\n"


def _api(folder: Path) -> None:
    by_package: dict[str, list[tuple[str, str, Any]]] = {}
    for module, name, found in _public():
        if module.startswith("sensorium."):
            by_package.setdefault(".".join(module.split(".")[1:3]), []).append((module, name, found))
    index = (
        _title("API")
        + "What `import sensorium as sn` and its parts such as `sn.stages` provide, by package.\n\n.. toctree::\n\n"
    )
    for package, entries in sorted(by_package.items()):
        text = _title(package)
        for module, name, found in entries:
            if isinstance(found, type):
                text += (
                    f".. autoclass:: {module}.{found.__qualname__}\n   :members:\n   :exclude-members: model_config\n\n"
                )
            elif callable(found):
                text += f".. autofunction:: {module}.{getattr(found, '__qualname__', name)}\n\n"
        page = f"api-{package.replace('.', '-')}"
        (folder / f"{page}.rst").write_text(text, encoding="utf-8")
        index += f"   {page}\n"
    (folder / "api.rst").write_text(index, encoding="utf-8")


BOUNDS = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}


def _options(cls: Any, rows: Sequence[Sequence[str]]) -> str:
    """Return the table of a config's options: the rows of `sensorium list` with type, range and unit."""
    from sensorium.cfg.help import fields_of

    helps, shown = {each.name: each for each in fields_of(cls)}, []
    for name, default, meaning in rows:
        limits = cls.model_fields[name].json_schema_extra or {}
        bounds = [f"{mark} {limits[key]:g}" for key, mark in BOUNDS.items() if key in limits]
        accepts = ", ".join([f"`{helps[name].type}`", *bounds])
        shown.append((f"`{name}`", accepts, helps[name].unit, default and f"`{default}`", meaning))
    return _table(("option", "type and range", "unit", "default", "meaning"), shown) if shown else ""


def _kinds(folder: Path) -> None:
    from sensorium.cli.kinds import kinds
    from sensorium.measurement.sensor_cfg import MountedSensorCfg
    from sensorium.measurement.stage_cfg import STAGE_KINDS
    from sensorium.patterns.base import PATTERN_KINDS

    found = kinds()
    text = _title("Sensors, patterns and stages")
    text += "Fields and options of every kind, as `sensorium list` shows them.\n\n"
    shapes = "field", "shape", "unit", "frame", "dtype"
    text += _title("Options of every sensor", "-") + _options(MountedSensorCfg, found["shared"])
    for each in found["sensors"]:
        module, _, name = each["config"].rpartition(".")
        text += _title(each["kind"], "-") + f"{each['title']}\n\n" + _table(shapes, each["fields"])
        text += _options(getattr(importlib.import_module(module), name), each["options"])
    for part, classes in (("patterns", PATTERN_KINDS), ("stages", STAGE_KINDS)):
        for kind, each in found[part].items():
            text += _title(f"{kind} ({part[:-1]})", "-") + f"{each['title']}\n\n"
            text += _options(classes[kind], each["options"])
    presets = [(name, each["kind"], each["title"], each["source"]) for name, each in found["presets"].items()]
    text += _title("Presets", "-") + _table(("preset", "kind", "device", "source"), presets)
    numbers = [(name, *row) for name, each in found["presets"].items() for row in each["numbers"]]
    text += _title("Numbers of presets", "-") + _table(("preset", "number", "value", "method", "source"), numbers)
    (folder / "kinds.rst").write_text(text, encoding="utf-8")


def _commands(folder: Path) -> None:
    from sensorium.cli import main

    def help_of(*words: str) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
            main([*words, "--help"])
        return re.sub(r"\x1b\[[\d;]*m", "", out.getvalue())

    overview = help_of()
    text = _title("Command line") + ".. code-block:: text\n\n" + _indented(overview)
    for command in re.search(r"\{([^}]*)\}", overview)[1].split(","):
        if (shown := help_of(*command.split())) and shown != overview:
            text += _title(f"sensorium {command}", "-") + ".. code-block:: text\n\n" + _indented(shown)
    (folder / "commands.rst").write_text(text, encoding="utf-8")


def _indented(text: str) -> str:
    return "".join(f"   {line}\n" for line in text.splitlines()) + "\n"


def _generate(app: Any) -> None:
    folder = DOCS / "reference"
    shutil.rmtree(folder, ignore_errors=True)  # pages of modules that no longer exist
    folder.mkdir()
    for write in (_api, _kinds, _commands):
        write(folder)


def _prepare_docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Leave out the table of fields, which are shown below the class, and convert Markdown's code and bars."""
    end = lines.index("Fields:") if "Fields:" in lines else len(lines)
    shown, in_code = [], False
    for line in lines[:end]:
        if line.startswith("```"):
            in_code = not in_code
            shown += [".. code-block:: python", ""] if in_code else [""]
        else:
            shown.append(f"    {line}" if in_code else _plain(line))
    lines[:] = shown


def _plain(text: str) -> str:
    """Escape bars, which would be substitutions, and underscores that would end references, outside of code."""
    return "".join(
        part if part.startswith("`") else re.sub(r"\||(?<=\w)_(?!\w)", r"\\\g<0>", part)
        for part in re.split(r"(`+[^`]*`+)", text)
    )


def _is_for_authors(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out hooks of sensor classes, which `Sensor` and `SimpleSensor` describe once for authors."""
    from sensorium.sensors.core.hooks import SPELLINGS

    return True if what == "class" and name in {*SPELLINGS.values(), *DECLARED} else None


DECLARED = (
    "cfg_class",
    "data_class",
    "own_history",
    "checks_state",
    "lookback",
    "single",
    "derived_values",
    "selectable",
)
"""Attributes by which a class describes itself to the base class."""


def _reachable(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Let keyboards scroll code and tables, and give the headings of the navigation their level."""
    if body := context.get("body"):
        body = body.replace('<div class="highlight"><pre>', '<div class="highlight"><pre tabindex="0">')
        context["body"] = body.replace('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper')
    if tree := context.get("furo_navigation_tree"):
        context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')


def setup(app: Any) -> None:
    """Connect the generated pages and the links."""
    app.connect("html-page-context", _reachable, priority=900)  # after the theme has built the navigation
    app.connect("autodoc-process-docstring", _prepare_docstring, priority=400)
    app.connect("builder-inited", _generate)
    app.connect("autodoc-skip-member", _is_for_authors)
    app.connect("source-read", _to_repository)

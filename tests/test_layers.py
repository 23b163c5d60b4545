"""Imports point in one direction: a module imports at run time only from layers before its own, or from its own layer.

Imports inside functions count, because they run; imports under `if TYPE_CHECKING:` do not. The checker is tested on a
small tree at the end.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"

LAYERS = (
    "errors", "lazy", "plugins", "memory", "spec", "pose", "readings", "pictures", "drawing", "random", "cfg",
    "compute", "geometry", "math", "engines", "world", "shapes", "targets", "measurement", "stages", "registry",
    "patterns", "sensors", "cameras", "lenses", "presets", "scene", "wire", "compat", "jax", "rl", "testing", "record",
    "stream", "client", "local", "bridges", "view", "fitting", "demo", "jobs", "cli", "__main__",
)  # fmt: skip
"""The modules and packages in `sensorium`, from lowest to highest layer."""

OUTPUTS = {
    "record": {"errors", "plugins", "memory", "spec", "pose", "readings", "pictures"},
    "wire": {"errors", "plugins", "spec", "pose", "readings"},
    "stream": {
        "errors",
        "memory",
        "spec",
        "pose",
        "readings",
        "drawing",
        "wire",
        "registry",
        "cfg",
        "measurement",
        "compat",
    },
    "client": {"lazy", "errors", "spec", "pose", "readings", "wire", "compat"},
    "bridges": {"errors", "readings", "record", "client", "wire"},
    "view": {"errors", "spec", "readings", "pictures", "drawing", "wire", "stream", "client"},
    "fitting": {"errors", "spec", "pose", "readings", "record", "view"},
}
"""Permitted imports of output packages: readings and specs only; the stream server also builds sensors from blueprints.
The wire and client packages import nothing heavy.
"""

FAMILIES = {"inertial", "joints", "contact", "rays", "touch", "frames", "cameras"}
"""The families of sensors: the folders of `sensors/`, and `cameras/`."""

BETWEEN_FAMILIES = {
    "cameras": {"rays", "frames"},
    "touch": {"rays", "frames"},
    "rays": {"frames"},
    "joints": {"inertial"},
}
"""Permitted imports between families."""

LOAD_FAMILIES = {"compat", "demo", "presets", "cli"}
"""Packages outside the families that import them; no scene imports these packages unless they are used."""

SIMULATORS = {"mujoco", "mujoco_warp", "newton", "genesis", "dm_control", "jax"}
"""Packages that only the engine adapters import."""

ADAPTERS = {
    ("engines", "mujoco"), ("engines", "mujoco_warp"), ("engines", "newton"), ("engines", "mjx"),
    ("fitting", "identify.py"),  # mujoco.sysid
}  # fmt: skip
"""Packages and modules that import a simulator."""

FRAMEWORKS = {"mjlab"}
"""Packages that only the module of the same name in `compat/` imports."""

OTHERS = re.compile(r"isaac|mjlab|genesis|genelab|carla", re.IGNORECASE)
"""Names of other systems, which appear in `compat/` alone."""

MAY_NAME_OTHERS = {"engines/mujoco_warp/worlds.py": "pip install"}
"""Files whose messages state what to write or to install, and the permitted text of such messages."""


def run_time_imports(tree: ast.Module, package: str) -> Iterator[tuple[int, str]]:
    """Yield (line, absolute dotted name) of every import that runs, at any depth.

    Args:
        tree: the parsed module.
        package: the package that relative imports start from.
    """
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and _is_type_checking(node.test):
            todo.extend(node.orelse)
            continue
        todo.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__") and node.args:
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield node.lineno, name.value


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def _called(call: ast.Call) -> str:
    return getattr(call.func, "id", getattr(call.func, "attr", ""))


def lazy_names(src: Path) -> dict[str, str]:
    """Return the module of each public name below `sensorium`, from the stub `sensorium/__init__.pyi`."""
    stub = ast.parse((src / "sensorium/__init__.pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom) and node.module != "sensorium"]
    return {alias.name: str(node.module).partition(".")[2] for node in imports for alias in node.names}


def family_of(parts: Sequence[str]) -> str:
    """Return the family of a module, given as the parts of its name below `sensorium`; empty for other modules."""
    name = parts[1] if parts[0] == "sensors" and len(parts) > 1 else parts[0]
    return name if name in FAMILIES else ""


def violations(src: Path) -> list[str]:
    """Return every forbidden import under `src/sensorium`, one line of text each."""
    public = lazy_names(src)
    found = []
    for path in sorted((src / "sensorium").rglob("*.py")):
        where = path.relative_to(src)
        module = ".".join(where.with_suffix("").parts)
        package = module.removesuffix(".__init__") if path.name == "__init__.py" else module.rpartition(".")[0]
        layer = "" if where.parts[1] == "__init__.py" else where.parts[1].removesuffix(".py")
        if layer in LAYERS and path.name == "__main__.py":  # a command, which no module imports
            layer = "__main__"
        if layer and layer not in LAYERS:
            found.append(f"{where}: {layer!r} is no layer; give it a place in LAYERS")
            continue
        for line, name in run_time_imports(ast.parse(path.read_text(encoding="utf-8")), package):
            top, _, rest = name.partition(".")
            if top in SIMULATORS and where.parts[1:3] not in ADAPTERS:
                found.append(f"{where}:{line}: imports {top}; only the adapters in engines/ may import a simulator")
            if top in FRAMEWORKS and not module.startswith(f"sensorium.compat.{top}"):
                found.append(f"{where}:{line}: imports {top}; only sensorium.compat.{top} may import it")
            if top != "sensorium" or rest == "__version__":
                continue
            if rest.partition(".")[0] not in LAYERS:  # a public name counts as its module, the package as its last one
                rest = public.get(rest.partition(".")[0], "scene")
            target, family = rest.partition(".")[0], family_of(rest.split("."))
            own = family_of(where.with_suffix("").parts[1:])
            if family and family != own and family not in BETWEEN_FAMILIES.get(own, ()) and layer not in LOAD_FAMILIES:
                found.append(f"{where}:{line}: {own or layer} imports the family {family}")
                continue
            if layer == "":
                if target != "lazy":
                    found.append(f"{where}:{line}: imports {target}; the package itself loads everything lazily")
            elif target != layer and LAYERS.index(target) > LAYERS.index(layer):
                found.append(f"{where}:{line}: {layer} imports {target}, which comes after it")
            elif target != layer and target not in OUTPUTS.get(layer, LAYERS):
                found.append(
                    f"{where}:{line}: {layer} imports {target}; it may see {', '.join(sorted(OUTPUTS[layer]))}"
                )
    return found


def test_imports_point_one_way_and_only_engines_import_simulators() -> None:
    assert violations(SRC) == []


def foreign_words(src: Path) -> list[str]:
    """Return every identifier and text in the code outside `compat/` with another system's name, one line of text each.

    Comments and docstrings may name the origin of an idea.
    """
    found = []
    for path in sorted((src / "sensorium").rglob("*.py")):
        where = path.relative_to(src / "sensorium").as_posix()
        if where.startswith("compat/"):
            continue
        text = path.read_text(encoding="utf-8")
        if not OTHERS.search(text):
            continue
        said: set[int] = set()
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                said.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        allowed = MAY_NAME_OTHERS.get(where)
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT or token.start[0] in said or not OTHERS.search(token.string):
                continue
            if allowed is None or allowed not in token.line:
                found.append(f"{where}:{token.start[0]}: {token.string}")
    return found


def test_only_compat_uses_names_of_other_systems() -> None:
    assert foreign_words(SRC) == []


# The checker itself ---------------------------------------------------------------------------------------------------


def _tree(tmp_path: Path, files: dict[str, str]) -> Path:
    for name, text in {"__init__.pyi": "from sensorium.scene import Scene as Scene\n", **files}.items():
        path = tmp_path / "sensorium" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("spec.py", "from sensorium.cfg import Cfg", "spec imports cfg, which comes after it"),
        ("spec.py", "import sensorium.cfg", "spec imports cfg, which comes after it"),
        ("spec.py", "from sensorium import cfg", "spec imports cfg, which comes after it"),
        ("spec.py", "from sensorium import Scene", "spec imports scene, which comes after it"),
        ("spec.py", "import sensorium as sn", "spec imports scene, which comes after it"),
        ("spec.py", "from .cfg import Cfg", "spec imports cfg, which comes after it"),
        ("world/mount.py", "from ..measurement import clock", "world imports measurement, which comes after it"),
        ("world/__init__.py", "from ..scene import Scene", "world imports scene, which comes after it"),
        ("spec.py", "def f():\n    from sensorium import cfg", "spec imports cfg, which comes after it"),
        ("spec.py", "try:\n    import sensorium.cfg\nexcept ImportError: ...", "spec imports cfg"),
        ("spec.py", "import importlib\nimportlib.import_module('sensorium.cfg')", "spec imports cfg"),
        (
            "spec.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass\nelse:\n    from sensorium import cfg",
            "spec imports cfg, which comes after it",
        ),
        (
            "record/npz.py",
            "from sensorium.scene import Scene",
            "record imports scene; it may see errors, memory, pictures",
        ),
        (
            "stream/server.py",
            "from sensorium.sensors import imu",
            "stream imports sensors; it may see cfg, compat, drawing, errors",
        ),
        ("client/client.py", "from sensorium.cli import plain", "client imports cli, which comes after it"),
        ("view/web.py", "from sensorium.registry import find", "view imports registry; it may see client, drawing"),
        ("sensors/core/base.py", "from sensorium.sensors.inertial import imu", "sensors imports the family inertial"),
        ("scene/scene.py", "def f():\n    from sensorium.cameras import camera", "scene imports the family cameras"),
        ("sensors/rays/lidar.py", "from sensorium.cameras.camera import Camera", "rays imports the family cameras"),
        ("sensors/touch/touch.py", "from sensorium.sensors import contact", "touch imports the family contact"),
        ("__init__.py", "from sensorium.errors import ConfigError", "the package itself loads everything lazily"),
        ("sensors/imu.py", "import mujoco", "only the adapters in engines/ may import a simulator"),
        (
            "world/mount.py",
            "def f():\n    from mujoco import batch",
            "only the adapters in engines/ may import a simulator",
        ),
        ("measurement/chain.py", "import mujoco.batch as b", "only the adapters in engines/ may import a simulator"),
        ("engines/tensor.py", "import mujoco", "only the adapters in engines/ may import a simulator"),
        ("view/web.py", "from mjlab.viewer import base", "only sensorium.compat.mjlab may import it"),
        ("scene/scene.py", "from sensorium.compat.mjlab import reading", "scene imports compat, which comes after it"),
        ("helpers.py", "", "'helpers' is no layer"),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, file: str, text: str, expected: str) -> None:
    (found,) = violations(_tree(tmp_path, {file: text}))
    assert found.replace("\\", "/").startswith(f"sensorium/{file}:")
    assert expected in found


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("spec.py", "from sensorium.errors import ConfigError"),
        ("spec.py", "from sensorium import __version__"),
        ("spec.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from sensorium.scene import Scene"),
        ("spec.py", "import typing\nif typing.TYPE_CHECKING:\n    import mujoco"),
        ("engines/mujoco/engine.py", "import mujoco\nfrom sensorium.engines.base import Engine\nfrom . import base"),
        ("stream/server.py", "from sensorium.registry import find\nfrom sensorium.stream import protocol"),
        ("cameras/camera.py", "from sensorium.sensors.rays import ray_caster\nfrom sensorium.cameras import lenses"),
        ("demo/run.py", "def f():\n    from sensorium.sensors.inertial.imu import Imu"),
        ("compat/mjlab/scenes.py", "from mjlab.sensor import Sensor\nfrom sensorium.scene import Scene"),
        ("demo/run.py", "import sensorium as sn"),
        ("cli.py", "def main():\n    from sensorium.demo import run"),
        ("client/__main__.py", "from sensorium.cli.plain import main"),
    ],
)
def test_an_allowed_import_is_not_reported(tmp_path: Path, file: str, text: str) -> None:
    assert violations(_tree(tmp_path, {file: text})) == []


SHARED_NAMES = {
    "Block", "BodyState", "Bundle", "Fit", "Instances", "Light", "Motion",
    "Plot", "Pose", "Record", "Replay", "Rows", "Run",
    "Sample", "Segment", "SensorRows", "Session", "Stream", "Subscription", "Term", "Topic", "View", "Report",
    "Samples", "_Camera", "_Track", "_Watch",
}  # fmt: skip
"""Names that classes of different files share; those in `compat/` have the names of their documents."""


def test_no_two_classes_share_a_name() -> None:
    places: dict[str, set[Path]] = {}
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and "compat" not in path.parts:
                places.setdefault(node.name, set()).add(path)
    shared = {name: found for name, found in places.items() if len(found) > 1 and name not in SHARED_NAMES}
    assert shared == {}


def test_name_of_another_system_is_found_in_code_and_not_in_comments(tmp_path: Path) -> None:
    text = '"""As in CARLA."""\n\nCARLA = 1  # as CARLA does\nmode = "carla"\n"""Genesis\' mode."""\n'
    tree = _tree(tmp_path, {"spec.py": text, "compat/carla.py": "CARLA = 1\n"})
    assert foreign_words(tree) == ["spec.py:3: CARLA", 'spec.py:4: "carla"']

"""Model files, before a simulator reads them: whether a file exists, and the meshes of a URDF file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

from sensorium.errors import ModelError, listed, nearest

SUFFIXES = (".xml", ".urdf", ".mjcf", ".mjb")
PACKAGE_PATHS = ("ROS_PACKAGE_PATH", "AMENT_PREFIX_PATH", "GZ_SIM_RESOURCE_PATH")
"""Environment variables with the folders in which ROS and Gazebo look for packages and models."""
PACKAGE_HINT = (
    f" package:// starts at the folder of a ROS package, which is looked for above the URDF file and in "
    f"{listed(PACKAGE_PATHS)}. Set ROS_PACKAGE_PATH to the folder that contains the package, or write a path relative "
    "to the file."
)
"""How to correct a mesh of a package that does not exist."""


def model_file(source: str | Path) -> Path:
    """Return the path of a model file.

    Args:
        source: path to an MJCF or URDF file.

    Raises:
        ModelError: the file does not exist, or it is TOML; the message lists the model files in its folder.
    """
    label = f"model file {str(source)!r}"
    path = Path(source).expanduser()
    if path.is_dir():
        raise ModelError(f"{label} is a folder: name the file in it.{_files_in(path)}")
    if not path.is_file():
        folder = path.parent
        if not folder.is_dir():
            raise ModelError(f"{label} does not exist, nor does its folder {str(folder.absolute())!r}: check the path.")
        raise ModelError(f"{label} does not exist.{nearest(path.name, _names(folder))}{_files_in(folder)}")
    if path.suffix.lower() == ".toml":
        raise ModelError(f"{label} is TOML, as rig files are; expected MJCF or URDF.{_files_in(path.parent)}")
    return path


def _files_in(folder: Path) -> str:
    return f" Model files in {str(folder.absolute())!r}: {listed(_names(folder))}."


def _names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.suffix.lower() in SUFFIXES)


def urdf_of(source: str | Path) -> str | None:
    """Return a URDF model as XML text, with the absolute paths of its meshes; None for another format.

    A path is relative to the folder of the file, and ``package://`` or ``model://`` starts at a package. This is a
    folder above the file, or in one of these, or in a folder of `PACKAGE_PATHS`. Its name is that of the folder, or in
    its ``package.xml``. Where there is no such file, the path is that which MuJoCo would read. A mesh that does not
    exist keeps its path, since simulators omit some shapes.

    Args:
        source: the path of a file, or XML text.
    """
    text = source if isinstance(source, str) else source.read_bytes().decode("utf-8", errors="replace")
    folder = Path.cwd() if isinstance(source, str) else source.absolute().parent
    parser = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))
    try:
        root = ElementTree.fromstring(text, parser) if "<robot" in text else None
    except ElementTree.ParseError:  # the simulator reports it
        return None
    if root is None or root.tag != "robot":
        return None
    options = root.find("mujoco/compiler")
    if options is None:
        options = ElementTree.SubElement(ElementTree.SubElement(root, "mujoco"), "compiler")
    folder_of_all, is_stripped = options.get("meshdir", ""), options.get("strippath", "true") == "true"
    for mesh in root.iterfind("link/*/geometry/mesh[@filename]"):
        name = mesh.attrib["filename"]
        paths = [*_paths(name, folder), folder / folder_of_all / (Path(name).name if is_stripped else name)]
        found = filter(Path.is_file, reversed(paths) if folder_of_all else paths)
        mesh.set("filename", str(next(found, name)))
    options.set("strippath", "false")
    start = "\n" * text[: text.index("<robot")].count("\n")  # so that messages name the same lines
    return start + ElementTree.tostring(root, encoding="unicode")


def _paths(name: str, folder: Path) -> Iterator[Path]:
    """Yield the possible paths of a mesh; the first one that exists is meant."""
    scheme, _, rest = name.partition("://")
    if not rest or scheme == "file":
        yield folder / (unquote(rest) or name)
        return
    package, _, inner = unquote(rest).partition("/")
    given = [Path(each) for key in PACKAGE_PATHS for each in os.environ.get(key, "").split(os.pathsep) if each]
    for root in (folder, *folder.parents, *given):
        yield root / package / inner
        if root.name == package or _package_name(root) == package:
            yield root / inner
    for root in given:  # packages in the folders of a workspace, or in share/
        yield from (each / inner for each in sorted(root.glob(f"*/{package}")))


def _package_name(folder: Path) -> str | None:
    """Return the name in the ``package.xml`` of a folder."""
    try:
        return ElementTree.parse(folder / "package.xml").findtext("name")
    except (OSError, ElementTree.ParseError):
        return None


REFERENCES = re.compile(r'\b(?:file\w*|meshdir|texturedir|assetdir)\s*=\s*["\']([^"\']+)["\']')
"""Attributes of MJCF and URDF that name files and folders."""


def files_of(source: str | Path) -> list[Path]:
    """Return a model or world file and all files that it refers to, in the order of their first mention.

    Raises:
        ModelError: the file does not exist.
    """
    found = [model_file(source)]
    folders = {found[0].parent: None}
    for path in found:
        if path.suffix.lower() not in (".xml", ".urdf", ".mjcf"):
            continue
        names = REFERENCES.findall(urdf_of(path) or path.read_text(encoding="utf-8", errors="replace"))
        folders |= dict.fromkeys(folder / name for folder in list(folders) for name in names)
        candidates = dict.fromkeys(folder / name for name in names for folder in (path.parent, *folders))
        found += [each for each in candidates if each not in found and each.is_file()]
    return found

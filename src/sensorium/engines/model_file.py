"""Model files: check that a file exists before a simulator is imported."""

from __future__ import annotations

from pathlib import Path

from sensorium.errors import ModelError, listed, nearest

SUFFIXES = (".xml", ".urdf", ".mjcf", ".mjb")


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

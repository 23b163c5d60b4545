"""`sensorium new-sensor`: a template for a plugin package, whose tests pass unchanged."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated

from tyro.conf import Positional, arg

from sensorium.cli.arguments import unset
from sensorium.cli.kinds import kinds
from sensorium.cli.messages import stdout
from sensorium.errors import UsageError

EXTRA = '''    shake: float = 0.01
    """Standard deviation of the vertical vibration of the device, m."""
'''
"""Additional config fields of a full-control sensor."""
LONGEST = 24
"""Maximum number of letters and digits in a name, so that no line in the package becomes too long."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one plugin, in each style.

    Args:
        camel: of the sensor class, e.g. ``"WindSpeed"``.
        kind: kind in files and of the entry point, e.g. ``"wind_speed"``.
    """

    camel: str
    kind: str

    @property
    def package(self) -> str:
        """Name of the import package."""
        return f"sensorium_{self.kind}"

    @property
    def distribution(self) -> str:
        """Name of the installed project."""
        return self.package.replace("_", "-")

    @classmethod
    def of(cls, text: str) -> Names:
        """Read a name in any style: wind-speed, wind_speed, WindSpeed, "wind speed", with or without Sensor at its end.

        Raises:
            UsageError: the text cannot be converted to Python names.
        """
        from sensorium.spec import kind_of, snake_case

        expected = "letters and digits, such as wind-speed, wind_speed or WindSpeed"
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*([-_ ]+[A-Za-z0-9]+)*", text):
            raise UsageError.of("NAME", text, expected, "Start with a letter.")
        words = [snake_case(word) for word in re.split(r"[-_ ]+", text)]
        is_camel = len(words) == 1 and text[0].isupper()
        camel = text if is_camel else "".join(part.capitalize() for word in words for part in word.split("_"))
        camel = re.sub(r"(?<=.)(Sensor|Cfg)$", "", re.sub(r"^Sensorium(?=[A-Z])", "", camel))
        if len(camel) > LONGEST:
            raise UsageError.of("NAME", text, f"at most {LONGEST} letters and digits, not {len(camel)}")
        if keyword.iskeyword(camel) or camel in ("Cfg", "Sensor", "Sensorium"):
            fix = "Choose a name that states the measured quantity."
            raise UsageError.of("NAME", text, f"{expected}; {camel!r} already has another meaning", fix)
        return cls(camel, kind_of(type(camel, (), {})))


@dataclass
class NewSensor:
    """Write a template of a plugin package with a new sensor.

    A custom sensor is a package that declares its data and config (options.py), computes the data (sensor.py), and
    announces itself in its pyproject.toml under the entry-point group sensorium.sensors. Once it is installed, rig
    files can use its kind and `sensorium list` shows it. All common features work for it: noise, bias, rate, delay,
    history, recording. This command writes such a package. Its sensor reports the height of its mount, its tests pass,
    and ruff and mypy --strict find no errors. Then replace the height with your own quantity.

    For example:
      sensorium new-sensor wind-speed
      cd sensorium-wind-speed && pip install -e '.[test]' && python -m pytest
      sensorium list

    Without --full-control you implement only the truth (SimpleSensor.update_raw_data), and the standard chain derives
    the measured value. With it you compute both at once (Sensor.compute), for noise that affects the physics.
    """

    name: Annotated[Positional[str], arg(metavar="NAME")]
    """Name of the sensor in any style: wind-speed, wind_speed or WindSpeed. Gives the class WindSpeed, the config
    WindSpeedCfg, the kind wind_speed and the package sensorium_wind_speed."""
    out: Annotated[Path | None, unset("DIR", "./sensorium-NAME")] = None
    """Folder of the package; must be new or empty."""
    full_control: Annotated[bool, arg(name="full-control")] = False
    """Compute the true and the measured value together."""

    def run(self) -> int:
        """Run the command and return the exit code."""
        names = Names.of(self.name)
        _check_is_new(names)
        folder = self.out if self.out is not None else Path(names.distribution)
        written = write(names, folder, full_control=self.full_control)
        console = stdout()
        console.print(f'wrote {len(written)} files in {folder}: a plugin with the kind "{names.kind}"', markup=False)
        hook = "compute" if self.full_control else "update_raw_data"
        for path, meaning in (
            (f"src/{names.package}/options.py", f"{names.camel}Data: its fields; {names.camel}Cfg: its options"),
            (f"src/{names.package}/sensor.py", f"{names.camel}.{hook}: its computation"),
            (f"tests/test_{names.kind}.py", "checks of the value and of every rule of the contract"),
            ("README.md", "the next steps, in order"),
        ):  # fmt: skip
            console.print(f"  {path:<{len(names.package) + 16}}  {meaning}", markup=False)
        console.print("next:")
        for line in (f"cd {folder}", "pip install -e '.[test]'", "python -m pytest", "sensorium list"):
            console.print(f"  {line}", markup=False)
        return 0


def _check_is_new(names: Names) -> None:
    for each in kinds()["sensors"]:
        if each["kind"] == names.kind:
            expected = f"an unused kind; {each['config']} already has it"
            raise UsageError.of(
                "NAME", names.kind, expected, f"Choose another, such as my-{names.kind.replace('_', '-')}."
            )


def write(names: Names, folder: Path, *, full_control: bool = False) -> list[Path]:
    """Write a plugin package and return its files.

    Args:
        names: the names in it.
        folder: target folder; created if missing.
        full_control: derive from `Sensor` instead of `SimpleSensor`.

    Raises:
        UsageError: the folder is not empty, or is not writable.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = "a new or empty folder"
        raise UsageError.of("--out", str(folder), what, "Give another folder; nothing was overwritten.")
    values = {
        "Name": names.camel,
        "kind": names.kind,
        "package": names.package,
        "distribution": names.distribution,
        "field": "height",
        "extra": EXTRA.rstrip("\n") if full_control else "",
        "how": ", true and measured (`compute`)" if full_control else " in place (`update_raw_data`)",
        "atol": ", rtol=0.0, atol=0.1" if full_control else "",
    }
    source = f"src/{names.package}"
    places = {
        "pyproject.toml.in": "pyproject.toml",
        "README.md.in": "README.md",
        "__init__.py.in": f"{source}/__init__.py",
        "options.py.in": f"{source}/options.py",
        "sensor_full_control.py.in" if full_control else "sensor.py.in": f"{source}/sensor.py",
        "test.py.in": f"tests/test_{names.kind}.py",
    }
    templates = files("sensorium") / "templates" / "plugin"
    texts = {
        place: Template((templates / name).read_text(encoding="utf-8")).substitute(values)
        for name, place in places.items()
    }
    texts[f"{source}/py.typed"] = ""
    with UsageError.writing("--out", folder):
        for place, text in texts.items():
            path = folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text.rstrip()}\n" if text else "", encoding="utf-8")
    return [folder / place for place in texts]

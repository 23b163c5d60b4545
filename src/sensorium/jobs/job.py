"""Job: everything that determines the bytes of a data set, and its shards."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import field_serializer, field_validator, model_validator

from sensorium.cfg import Cfg, Positive, bad, must
from sensorium.cfg.knobs import parse_amount
from sensorium.engines.model_file import files_of
from sensorium.errors import ConfigError, ModelError, SensoriumError, nearest
from sensorium.jobs.control import LOGS
from sensorium.jobs.entry_points import import_from_here
from sensorium.jobs.rig import rig_file, sensor_cfg, tables_of
from sensorium.measurement.sensor_cfg import SensorCfg
from sensorium.random import Distribution

Count = Annotated[int, must(lambda count: count >= 1, "a whole number >= 1")]
Entry = Annotated[str, must(lambda text: is_entry(text), 'an entry point "package.module:function"')]
"""Name of a function that workers import, ``"package.module:function"``."""
VERSIONS = ("numpy", "torch", "warp-lang", "mujoco", "mujoco-warp", "newton")
"""Packages whose versions can change the bytes of a data set."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A range of the environments of a job, generated as one unit."""

    index: int
    """Number of the shard."""
    first_env: int
    """Global index of its first environment."""
    num_envs: int
    """Number of environments."""
    key: str
    """Hash of everything that determines its bytes."""


class Job(Cfg):
    """Data set of many simulated episodes: everything that changes its bytes, and nothing about the machines.

    Environment k of the job gives the same rows in every run, whatever the number of workers and their order. Exactly
    one of `model`, `factory` and, for the engine ``"trajectory"``, a `control` with paths says what is simulated.

    Entry points are texts ``"package.module:function"``. Workers import them, also from the working directory:

    - `factory`: ``factory(num_envs, first_env)`` returns an engine.
    - `rig`: ``rig()`` returns configs of sensors.
    - `control`: ``control(scene, time)`` returns the controls `[env, nu]` or `[nu]`, or None to keep the last ones;
      ``scene.global_env_ids`` has the global indices.
    - `begin_episode`: ``begin_episode(scene, env_ids)`` returns the start state of environments, as for `Scene.reset`,
      drawn with ``scene.draw``.
    - `keep`: ``keep(scene)`` returns which environments have a successful episode at its end, bool `[env]`.

    Example::

        job = Job(model="robot.xml", rig="rig.toml", control="random", envs=64, envs_per_shard=8, episode_seconds=10.0)
    """

    model: str | None = None
    """MJCF or URDF file, or ``"demo"`` or ``"arm"``, the bundled robots. With the engine ``"trajectory"`` the world: a
    mesh, an MJCF or URDF file without joints, ``"hall"``, or None for an empty world."""
    factory: Entry | None = None
    """Entry point that returns the engine, instead of `model`."""
    engine: Literal["mujoco", "mujoco_warp", "newton", "trajectory"] = "mujoco"
    """Engine of `model`."""
    rig: str | tuple[Mapping[str, Any], ...] | None = None
    """Sensors: a rig file, an entry point, or a list of configs or of tables as in a rig file. None takes those of a
    bundled robot."""
    control: str | tuple[str, ...] = "hold"
    """``"hold"``, ``"zero"``, ``"random"``, an entry point, or a log: ``FILE.npz`` with ``ctrl`` `[time, nu]` or
    `[time, env, nu]` of all environments of the job, or a recording ``FILE.mcap``. With the engine ``"trajectory"`` the
    paths: files, patterns such as ``"logs/*.tum"``, ``"drone"`` or ``"car"``; environment k follows path k modulo their
    number."""
    begin_episode: Entry | None = None
    """Entry point that returns the start state of episodes."""
    randomise: Mapping[str, Any] = {}
    """Distributions drawn per environment and episode, as for `RlEnv`: ``{"imu.noise": Uniform(0.0, 0.02)}`` or
    ``{"model.body_mass": Uniform(0.8, 1.2)}``, a factor."""
    seed: int = 0
    """Seed of all random numbers."""
    envs: Count
    """Environments of the whole job."""
    envs_per_shard: Count
    """Environments of one shard; divides `envs`."""
    episodes: Count = 1
    """Episodes of each environment."""
    episode_seconds: Positive
    """Simulated time of an episode, s."""
    substeps: Count | None = None
    """Physics ticks per call of the control; None: as ``sensorium run``, every 10 ms or every row of a log."""
    threads: Count = 1
    """Threads of a worker."""
    device: str = "cpu"
    """Device of the sensors, and of the physics of engines that run on it."""
    sensors: tuple[str, ...] | None = None
    """Names of the sensors that are written; None for all of the rig."""
    truth: bool = True
    """Whether to write the ground truth and the poses of the sensors."""
    keep: Entry | None = None
    """Entry point that selects the episodes to write; the others are dropped and counted."""
    format: Literal["parquet", "mcap"] = "parquet"
    """Format of the files."""

    @field_validator("rig", mode="before")
    @classmethod
    def _tables(cls, rig: Any) -> Any:
        if isinstance(rig, SensorCfg):
            raise bad("a list of configs", "Write rig=[cfg].")
        if isinstance(rig, str | Path):
            return str(rig_file(Path(rig)))
        if rig is None or not isinstance(rig, Sequence):
            return rig
        if not rig:
            raise bad("at least one sensor")
        import sensorium.sensors.all  # noqa: F401 - registers the built-in sensors, even if not installed

        tables = []
        for each in rig:
            try:
                cfg = each if isinstance(each, SensorCfg) else sensor_cfg(each)
            except SensoriumError as error:
                raise bad(f"configs of sensors: {error}") from None
            tables.append({"kind": cfg.kind(), **cfg.to_dict()})
        return tuple(tables)

    @field_validator("model", "control", mode="before")
    @classmethod
    def _as_text(cls, given: Any) -> Any:
        if isinstance(given, list | tuple):
            return tuple(map(cls._as_text, given))
        return str(given) if isinstance(given, Path) else given

    @field_validator("randomise")
    @classmethod
    def _distributions(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        parsed = {name: parse_amount(value) for name, value in given.items()}
        for name, value in parsed.items():
            if not isinstance(value, Distribution):
                raise bad("distributions by knob or field", f"{name}: write for example Uniform(0.9, 1.1).")
        return parsed

    @field_serializer("randomise")
    def _plain(self, randomise: Mapping[str, Distribution]) -> dict[str, Any]:
        return {name: value.to_dict() for name, value in randomise.items()}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.envs % self.envs_per_shard:
            divisors = [n for n in range(1, self.envs + 1) if self.envs % n == 0]
            near = min(divisors, key=lambda n: abs(n - self.envs_per_shard))
            raise bad("envs, envs_per_shard: a multiple of envs_per_shard", f"Give for example envs_per_shard={near}.")
        if self.format == "mcap" and self.keep is not None and self.envs_per_shard > 1:
            fix = 'Give format="parquet" or envs_per_shard=1.'
            raise bad("format, keep: parquet, since a message of MCAP holds all environments of a shard", fix)
        is_path = self.engine == "trajectory"
        if is_path and self.factory is None and self.control in ("hold", "zero", "random"):
            raise bad('control: the paths of the engine "trajectory"', 'Give for example control="logs/*.tum".')
        if self.factory is not None and self.model is not None:
            raise bad("model, factory: one of the two", "Omit model or factory.")
        if self.factory is None and self.model is None and not is_path:
            raise bad("model, factory: a model or a factory", 'Give for example model="robot.xml".')
        if isinstance(self.control, tuple) and not is_path:
            raise bad("control: one text", 'Several paths need engine="trajectory".')
        if self.factory is not None and self.engine != "mujoco":
            raise bad("engine, factory: one of the two", "Omit engine: the factory returns one.")
        if self.factory is not None and self.device != "cpu":
            raise bad("device, factory: one of the two", "Omit device: the engine of the factory has one.")
        if self.sensors == ():
            raise bad("sensors: at least one name", "Omit sensors for all of the rig.")
        has_rig = self.engine == "mujoco" and self.model in ("demo", "arm")
        if self.model in ("demo", "arm") and not has_rig:
            raise bad('engine: "mujoco", which simulates the bundled robots', "Omit engine.")
        if self.rig is None and not has_rig:
            raise bad("rig: the sensors", 'Give a rig file, such as rig="rig.toml", or a list of configs.')
        return self

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the job in a TOML file.

        Raises:
            ModelError: the file is missing or not a job; the message names the file.
        """
        file = Path(path)
        try:
            return cls.from_toml(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            near = nearest(file.name, [each.name for each in file.absolute().parent.glob("*.toml")])
            raise ModelError(f"job file {str(path)!r} cannot be read: {error}.{near} Check the path.") from None
        except ConfigError as error:
            raise ModelError("\n".join(f"job file {str(path)!r}: {fault}" for fault in error.faults)) from None

    # Keys -------------------------------------------------------------------------------------------------------------

    @cached_property
    def origin(self) -> dict[str, Any]:
        """Everything that determines the bytes: the job, the content of its files, sources, and versions.

        It has the names of files and not their folders, so that it is the same wherever they are.

        Raises:
            ModelError: a file is missing.
            ConfigError: an entry point does not exist.
        """
        entries = {name: getattr(self, name) for name in ("factory", "begin_episode", "keep", "rig", "control")}
        sources = {
            package: _source(field, package)
            for field, each in entries.items()
            if is_entry(each) and (package := each.partition(":")[0].partition(".")[0])
        }
        found = {name: each for name in VERSIONS if (each := version(name))}
        job, files = self.model_dump(mode="json"), dict[str, list[Path]]()
        if self.model is not None and self.model not in BUNDLED:
            files["model"] = files_of(self.model)
            job["model"] = files["model"][0].name
        if self.engine == "trajectory":
            files["control"] = [Path(each) for each in self.paths if each not in BUNDLED]
            job["control"] = [Path(each).name for each in self.paths]
        elif isinstance(self.control, str) and self.control.endswith(LOGS):
            files["control"] = [existing(self.control, "control")]
            job["control"] = files["control"][0].name
        rig = self.rig
        if isinstance(rig, str) and not is_entry(rig):
            files["rig"] = [existing(rig, "rig")]
            job["rig"], rig = files["rig"][0].name, tuple(tables_of(files["rig"][0]))
        if isinstance(rig, tuple):
            from sensorium import registry

            tables = _by_name(rig, files.setdefault("rig", []))
            job["rig"] = tables if isinstance(self.rig, tuple) else job["rig"]
            for kind in {table["kind"] for table in tables if "kind" in table}:  # also of plugins
                package = registry.cfg_for_kind(kind).__module__.partition(".")[0]
                sources |= {} if package == "sensorium" else {package: _source("rig", package)}
        return {
            "job": job,
            "files": {field: _digest(paths) for field, paths in files.items()},
            "sources": {**sources, "sensorium": _source("", "sensorium")},
            "versions": {**found, "machine": platform.machine()},
        }

    @property
    def paths(self) -> list[str]:
        """Files and names of the paths of the engine ``"trajectory"``, in the order of the environments.

        Raises:
            ModelError: a file does not exist, or a pattern has no match.
        """
        from glob import glob

        found = []
        for given in [self.control] if isinstance(self.control, str) else self.control:
            matches = [given] if Path(given).is_file() else sorted(glob(given, recursive=True))
            if not matches and given not in BUNDLED:
                raise ModelError(f"Job: control: got {given!r}, which matches no file. Check the path.")
            found += matches or [given]
        return found

    @cached_property
    def key(self) -> str:
        """Hash of `origin`, 32 hexadecimal digits. Raises as `origin` does."""
        return key_of(self.origin)

    @property
    def num_shards(self) -> int:
        """Number of shards."""
        return self.envs // self.envs_per_shard

    def shard(self, index: int) -> Shard:
        """Return one shard.

        Raises:
            ConfigError: the job has no shard of this number.
        """
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < self.num_shards:
            raise ConfigError.single("Job", "shard", index, f"a whole number from 0 to {self.num_shards - 1}")
        return Shard(index, index * self.envs_per_shard, self.envs_per_shard, shard_key(self.key, index))

    def shards(self) -> list[Shard]:
        """Return all shards: consecutive ranges of `envs_per_shard` environments. Raises as `origin` does."""
        return [self.shard(index) for index in range(self.num_shards)]


BUNDLED = ("demo", "arm", "drone", "car", "hall")
"""Names of bundled robots, paths and worlds."""


def key_of(origin: Mapping[str, Any]) -> str:
    """Return the key of a job from `Job.origin`."""
    return hashlib.blake2b(json.dumps(origin, sort_keys=True).encode(), digest_size=16).hexdigest()


def shard_key(key: str, index: int) -> str:
    """Return the key of a shard from that of its job."""
    return hashlib.blake2b(f"{key}/{index}".encode(), digest_size=16).hexdigest()


def version(package: str) -> str:
    """Return the version of an installed package; empty if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def is_entry(value: object) -> bool:
    """Return whether a field names an entry point."""
    return isinstance(value, str) and re.fullmatch(r"[\w.]+:\w+", value) is not None


def existing(path: str, field: str) -> Path:
    """Return the path of a file.

    Raises:
        ModelError: it does not exist.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        near = nearest(file.name, [each.name for each in file.absolute().parent.glob("*")])
        raise ModelError(f"Job: {field}: got {path!r}, which is no file.{near} Check the path.")
    return file


def _by_name(value: Any, files: list[Path]) -> Any:
    """Return tables of sensors with the names of their files instead of the paths, which are added to `files`."""
    if isinstance(value, Mapping):
        return {
            name: _by_name(_file(each, files) if name == "path" or _is_preset_file(name, each) else each, files)
            for name, each in value.items()
        }
    return [_by_name(each, files) for each in value] if isinstance(value, list | tuple) else value


def _is_preset_file(name: str, value: Any) -> bool:
    return name == "preset" and isinstance(value, str) and value.endswith(".toml")


def _file(path: Any, files: list[Path]) -> Any:
    if not isinstance(path, str):
        return path
    files.append(existing(path, "rig"))
    return files[-1].name


def _source(field: str, package: str) -> str:
    """Return the hash of the source files of a package or a module, which is not imported."""
    import_from_here()
    found = None if package == "__main__" else find_spec(package)
    if found is None:
        fix = "Install the package, or start in the folder that contains the module."
        raise ConfigError.single("Job", field, package, "a package or module that can be imported", fix)
    digest = hashlib.blake2b(digest_size=16)
    for folder in found.submodule_search_locations or ():
        digest.update(_digest(_sources(Path(folder)), Path(folder)).encode())
    if not found.submodule_search_locations and found.has_location:
        digest.update(_digest([Path(str(found.origin))]).encode())
    return digest.hexdigest()


def _sources(folder: Path) -> list[Path]:
    """Return the files of a package, without what Python or a compiler derives from them."""
    found = (each for each in folder.rglob("*") if "__pycache__" not in each.parts and each.suffix != ".so")
    return sorted(each for each in found if each.is_file())


def _digest(files: Sequence[Path], root: Path | None = None) -> str:
    """Return the hash of the names and the contents of files."""
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        data = file.read_bytes()
        name = file.name if root is None else file.relative_to(root).as_posix()
        digest.update(f"{name}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()

"""`sensorium explain`: the meaning of a rig on a model, without simulation."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich import box
from rich.markup import escape
from rich.table import Table
from tyro.conf import Positional, arg

from sensorium.cli.arguments import RIG, unset
from sensorium.cli.commands import Driven, Run
from sensorium.cli.messages import busy, stderr, stdout
from sensorium.jobs.models import EngineName

if TYPE_CHECKING:
    from sensorium.engines.base import Engine
    from sensorium.measurement.sensor_cfg import SensorCfg
    from sensorium.scene import Scene
    from sensorium.sensors.core.base import Sensor
    from sensorium.shapes.solid_query import SolidQuery

SHOWN_SHAPES = 12
"""Maximum number of shape names in the tables."""
ROUNDS = 5
"""Number of measurements of each cost, in turns; the minimum is reported, so that a busy moment has no effect."""


PROFILED = 100
"""Steps of the profile of all sensors together."""


@dataclass
class Explain(Driven):
    """Explain a rig file on a model or a trajectory, without simulating.

    For each sensor: the elements its selector resolved to; shape, unit and frame of every field; its memory; its
    requirements on the engine; whether it is computed lazily and why; and its automatic choices. Use it to find out why
    a rig does not fit a model, before a long run.

    For example:
      sensorium explain robot.xml --rig rig.toml
      sensorium explain robot.xml --rig rig.toml --envs 4096 --time
      sensorium explain robot.xml --rig rig.toml --json > rig.json
      sensorium explain --trajectory drone --world hall --rig rig.toml
    """

    rig: Annotated[Path, arg(metavar="RIG"), RIG]
    """Rig file: the sensors, as TOML; see `sensorium run --help`."""
    model: Annotated[Positional[Path | None], unset("[MODEL]", "")] = None
    """MJCF or URDF file; omit it with --trajectory."""
    envs: Annotated[int, arg(metavar="N")] = 1
    """Number of environments; memory and cost depend on it."""
    device: Annotated[str, arg(metavar="D")] = "cpu"
    """Device of the sensors: cpu, cuda or cuda:INDEX."""
    engine: EngineName = "mujoco"
    """Physics engine; see `sensorium run --help`."""
    time: bool = False
    """Also measure the cost per physics step on this machine: each sensor separately, and all kernels together."""
    json: bool = False
    """Print one JSON object instead of tables."""

    def run(self) -> int:
        """Run the command and return the exit code."""
        from sensorium.cli.checks import check_device_name
        from sensorium.cli.simulation import check_device
        from sensorium.jobs.rig import load_semantics

        run = Run(self.model, self.rig, self.envs, engine=self.engine, device=self.device, **self.path)
        drive = run.drive()
        check_device_name(self.device)
        with busy("loading"):
            scene, presets, _, _ = run.built(drive, lambda: check_device(self.device))
        sensors = [sensor.cfg for sensor in scene.sensors.values()]
        described = explanation(scene, [cfg.label for cfg in sensors], presets)
        described["model"] = str(self.model or self.trajectory)
        if self.time:
            from sensorium.scene.profile import WARM_UP

            described["cost"] = _costs(lambda: run.simulator(drive), sensors, scene.engine.dt, load_semantics(self.rig))
            with stderr().status("measuring"):
                left = getattr(scene.engine, "ticks_left", PROFILED + WARM_UP + 2) - WARM_UP - 2
                profile = scene.profile(max(min(PROFILED, left), 1))
            parts = [{"sensor": sensor, "part": part, "s": s} for (sensor, part), s in profile.parts.items()]
            described["profile"] = {"steps": profile.steps, "step_s": profile.seconds, "parts": parts}
        if self.json:
            print(json.dumps(described, indent=2), flush=True)
        else:
            _show(described)
            if self.time:
                stdout().print(profile)
        return 0


def explanation(scene: Scene, names: list[str], presets: Mapping[str, str]) -> dict[str, Any]:
    """Return the resolved sensors of a scene, JSON-serialisable.

    Args:
        scene: the scene.
        names: names of the sensors, in order.
        presets: sensor name -> its preset.
    """
    engine = scene.engine
    taken = {scene[name].name for name in names}  # with their prefixes
    return {
        "engine": engine.name,
        "device": str(scene.compute.device),
        "num_envs": scene.num_envs,
        "dt": engine.dt,
        "sensors": {name: _sensor(scene[name], presets.get(name)) for name in names},
        "nbytes": sum(scene[name].info.nbytes for name in names),
        "shapes_nbytes": _shapes_nbytes(scene),
        "declared": [native.name for native in engine.native_sensors() if native.name not in taken],
    }


def _sensor(sensor: Sensor[Any, Any], preset: str | None) -> dict[str, Any]:
    info, cfg, envs = sensor.info, sensor.cfg, sensor.num_envs
    needs = list(type(sensor).needs(cfg, sensor.engine, sensor.engine.supports))
    rate = sensor.rate
    out: dict[str, Any] = {
        "kind": cfg.kind(),
        **({"preset": preset} if preset else {}),
        "rate_hz": info.rate_hz,
        "ticks_per_sample": f"{rate.numerator}/{rate.denominator}" if rate.denominator > 1 else str(rate.numerator),
        "mounts": [{"name": m, "body": b} for m, b in zip(info.mounts, info.bodies, strict=True)],
        "fields": [{**spec.to_dict(), "shape": [envs, *spec.shape]} for spec in info.specs],
        "nbytes": info.nbytes,
        "needs": [str(requirement) for requirement in needs],
        "evaluation": info.evaluation,
        "why": info.why,
        "notes": dict(info.notes),
        "constants": dict(sensor.constants),
        "options": {k: v for k, v in cfg.to_dict().items() if k not in ("kind", "name")},
    }
    selector = getattr(cfg, "selector", None)
    if isinstance(selector, tuple):
        given = getattr(cfg, selector[0], None)  # as given; a link name is looked up in its entity
        out["selector"] = {selector[0]: _plain(selector[1] if given is None else given)}
    if rays := _rays(sensor):
        out["rays"] = rays
    if query := _solids(sensor):
        out["detects"] = _described(sensor, query.view.shapes)
    return out


def _described(sensor: Sensor[Any, Any], numbers: Iterable[int]) -> list[dict[str, Any]]:
    """Return descriptions of shapes of the scene, by their numbers."""
    shapes = sensor.rays.drawable
    return [{"name": shapes[i].name, "kind": shapes[i].kind, "moves": not shapes[i].is_static} for i in numbers]


def _solids(sensor: Sensor[Any, Any]) -> SolidQuery | None:
    """Return the query for the depth of a taxel sensor in shapes; None for other sensors."""
    from sensorium.shapes.solid_query import SolidQuery

    held = [each for value in vars(sensor).values() for each in (value, getattr(value, "query", None))]
    return next((each for each in held if isinstance(each, SolidQuery)), None)


def _casts(sensor: Sensor[Any, Any]) -> list[Any]:
    """Return the casts of a sensor, that of a scan first; empty if it has none."""
    from sensorium.shapes.query import MountQuery

    queries = (value for value in vars(sensor).values() if isinstance(value, MountQuery))
    return list(dict.fromkeys(query for query in queries if query.is_cast))


def _shapes_nbytes(scene: Scene) -> int:
    """Return bytes of the shapes for the rays of all sensors, for any number of envs; 0 without rays."""
    from sensorium.shapes.ray_cast import RayCast

    casts = [cast for sensor in scene.sensors.values() for cast in _casts(sensor)]
    for cast in casts:
        if isinstance(cast, RayCast) and cast.vertical:
            cast.view.indexed()  # otherwise built by the first ray
    return sum(each.nbytes for each in {cast.scene for cast in casts})


def _rays(sensor: Sensor[Any, Any]) -> dict[str, Any]:
    """Return pattern, rays and candidate shapes of a sensor that casts rays; empty for other sensors."""
    from sensorium.patterns import PatternBaseCfg

    casts = _casts(sensor)
    if not casts:
        return {}
    out: dict[str, Any] = {}
    pattern = getattr(sensor.cfg, "pattern", None)
    if isinstance(pattern, PatternBaseCfg):
        out["pattern"], out["return_shape"] = pattern.to_dict(), list(pattern.return_shape)
    met = sorted({number for cast in casts for number in cast.view.met})
    return out | {
        "count": casts[0].count,
        "shapes": _described(sensor, met),
        "nbytes": sum(cast.nbytes for cast in casts),
    }


def _plain(selected: Any) -> Any:
    """Return the content of a selector as text, or a list of texts."""
    from sensorium.cfg import ObjRef

    if isinstance(selected, tuple):
        return [_plain(each) for each in selected]
    if isinstance(selected, ObjRef):
        return f"{selected.entity}/{selected.name}" if selected.entity else selected.name
    return selected if isinstance(selected, str) else str(selected)


# Cost -----------------------------------------------------------------------------------------------------------------


def _costs(
    engine: Callable[[], Engine], sensors: list[SensorCfg[Any]], dt: float, semantics: Mapping[str, Any]
) -> dict[str, Any]:
    """Measure seconds per physics step: the physics alone, and the extra cost of each sensor when read at every step.

    Each sensor has a separate scene; the scenes are measured in turns. Refreshing the engine's state is part of the
    cost.
    """
    from sensorium.scene import Scene

    with stderr().status("measuring"):
        scenes = {"": Scene(engine(), discover=False)}
        for cfg in sensors:
            scenes[cfg.label] = Scene(engine(), [cfg], discover=False, semantics=semantics)
        ticks = max(20, _whole_samples(list(scenes.values())))
        ticks = min(ticks, getattr(scenes[""].engine, "ticks_left", ticks + 1) - 1)  # after a reset and a first step
        best = dict.fromkeys(scenes, float("inf"))
        for _ in range(ROUNDS):
            for name, scene in scenes.items():
                best[name] = min(best[name], _seconds_per_tick(scene, ticks))
    physics = best.pop("")
    return {
        "dt": dt,
        "physics_s": physics,
        "ticks": ticks,
        "sensors_s": {name: max(seconds - physics, 0.0) for name, seconds in best.items()},
    }


def _whole_samples(scenes: list[Scene]) -> int:
    """Return the number of ticks for a few samples of the slowest sensor, at most a thousand."""
    periods = [sensor.rate.period for scene in scenes for sensor in scene.sensors.values()]
    return min(1000, int(4 * max(periods, default=1.0)))


def _seconds_per_tick(scene: Scene, ticks: int) -> float:
    sensors = list(scene.sensors.values())
    scene.reset()
    scene.step()  # loads kernels and records work
    for sensor in sensors:
        _ = sensor.data
    start = time.perf_counter()
    for _ in range(ticks):
        scene.step()
        for sensor in sensors:
            _ = sensor.data
    if not scene.compute.is_cpu:
        import torch

        torch.cuda.synchronize(scene.compute.device)
    return (time.perf_counter() - start) / ticks


# Output ---------------------------------------------------------------------------------------------------------------


def _show(described: Mapping[str, Any]) -> None:
    console = stdout()
    envs = described["num_envs"]
    console.print(
        f"[bold]{escape(described['model'])}[/]: {envs} env{'s' if envs > 1 else ''}, {described['dt'] * 1e3:.4g} ms "
        f"per tick, engine {described['engine']}, sensors on {described['device']}",
        soft_wrap=True,
    )
    for name, sensor in described["sensors"].items():
        console.print()
        preset = f", preset {sensor['preset']}" if "preset" in sensor else ""
        console.print(f"[bold]{escape(name)}[/]  kind {sensor['kind']}{preset}")
        console.print(_facts(sensor))
        console.print(_fields(sensor))
    console.print()
    console.print(f"memory of all: {bytes_text(described['nbytes'])}, {bytes_text(described['nbytes'] / envs)} per env")
    if described["shapes_nbytes"]:
        console.print(f"shapes for rays: {bytes_text(described['shapes_nbytes'])}, for any number of envs")
    if described["declared"]:
        console.print(f"declared by the model itself: {escape(', '.join(described['declared']))}")
    if "cost" in described:
        console.print(_cost_table(described["cost"]))


def _facts(sensor: Mapping[str, Any]) -> Table:
    view = Table(box=None, show_header=False, pad_edge=True)
    view.add_column(style="dim", no_wrap=True)
    view.add_column()
    if sensor["mounts"]:
        chosen = ", ".join(f"{key}={value!r}" for key, value in sensor.get("selector", {}).items())
        found = ", ".join(
            mount["name"] if mount["name"] == mount["body"] else f"{mount['name']} on {mount['body']}"
            for mount in sensor["mounts"]
        )
        view.add_row("mount", escape(f"{chosen}: {found}" if chosen else found))
    ticks = sensor["ticks_per_sample"]
    view.add_row("rate", f"{sensor['rate_hz']:.6g} Hz, one sample every {'tick' if ticks == '1' else f'{ticks} ticks'}")
    options = ", ".join(f"{key}={_short(value)}" for key, value in sensor["options"].items())
    view.add_row("options", escape(options) or "none")
    view.add_row("needs", escape(", ".join(sensor["needs"])) or "nothing from the engine")
    view.add_row("computed", escape(f"{_EVALUATION[sensor['evaluation']]}: {sensor['why']}"))
    rays = sensor.get("rays")
    if rays:
        if "pattern" in rays:
            view.add_row("pattern", escape(_pattern(rays["pattern"])))
        shape = " x ".join(map(str, rays.get("return_shape", ())))
        if "rays" not in sensor["notes"]:
            view.add_row("rays", f"{rays['count']}" + (f", {shape}" if " x " in shape else ""))
        view.add_row("hits", escape(_shapes(rays["shapes"])))
    if "detects" in sensor:
        view.add_row("detects", escape(_shapes(sensor["detects"])))
    more = f", its rays {bytes_text(rays['nbytes'])}" if rays else ""
    view.add_row("memory", bytes_text(sensor["nbytes"]) + more)
    for key, value in (*sensor["constants"].items(), *sensor["notes"].items()):
        if text := _listed(value):
            view.add_row(escape(key), escape(text))
    return view


def _pattern(pattern: Mapping[str, Any]) -> str:
    given = [f"{key}={_short(value)}" for key, value in pattern.items() if key != "kind"]
    return ", ".join([pattern["kind"], *given])


def _shapes(shapes: Sequence[Mapping[str, Any]]) -> str:
    """Return the number of shapes and the names of the first ones."""
    moving = sum(shape["moves"] for shape in shapes)
    names = [f"{shape['name']} ({shape['kind']})" for shape in shapes[:SHOWN_SHAPES]]
    more = f" and {len(shapes) - SHOWN_SHAPES} more" if len(shapes) > SHOWN_SHAPES else ""
    what = f"{len(shapes)} shape{'s' if len(shapes) > 1 else ''}, {moving or 'none'} of them moving"
    return f"{what}: {', '.join(names)}{more}"


def _listed(value: object, between: str = ", ") -> str:
    """Return a value as text: the items of a list, and nested lists in columns."""
    if isinstance(value, list | tuple):
        return between.join(_listed(item, " | ") for item in value)
    return str(value)


_EVALUATION = {
    "lazy": "on first read (lazy)",
    "eager": "at each due tick",
    "wanted": "at due ticks while the sensor has readers",
    "on_access": "on the first read after it is due",
}


def _fields(sensor: Mapping[str, Any]) -> Table:
    view = Table(box=box.SIMPLE_HEAD, pad_edge=True)
    for heading in ("field", "shape", "axes", "unit", "frame", "dtype"):
        view.add_column(heading, no_wrap=heading != "axes")
    for spec in sensor["fields"]:
        shape = " x ".join(map(str, spec["shape"]))
        unit = escape(spec["unit"])
        view.add_row(spec["name"], shape, escape(", ".join(spec["axes"])), unit, spec["frame"] or "-", spec["dtype"])
    return view


def _cost_table(cost: Mapping[str, Any]) -> Table:
    physics = cost["physics_s"]
    title = f"cost per physics step, each sensor separately, read at every step (minimum of {ROUNDS} x {cost['ticks']})"
    view = Table(box=box.SIMPLE_HEAD, pad_edge=True, title=title, title_justify="left")
    view.add_column("what")
    view.add_column("time", justify="right")
    view.add_column("of the physics", justify="right")
    view.add_row("physics alone", f"{physics * 1e6:.1f} us", "")
    for name, seconds in cost["sensors_s"].items():
        view.add_row(escape(name), f"{seconds * 1e6:.1f} us", f"{100.0 * seconds / physics:.0f} %")
    return view


def bytes_text(count: float) -> str:
    """Return a number of bytes as readable text."""
    for unit in ("B", "kB", "MB"):
        if count < 1000.0:
            return f"{count:.4g} {unit}"
        count /= 1000.0
    return f"{count:.4g} GB"


def _short(value: object, limit: int = 60) -> str:
    text = json.dumps(value)
    if len(text) > limit and isinstance(value, list) and (shape := _sizes(value)):
        return f"{' x '.join(map(str, shape))} numbers"
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _sizes(value: object) -> tuple[int, ...]:
    """Return the sizes of nested lists of numbers with equal rows; empty for anything else."""
    import numpy as np

    try:
        numbers = np.array(value)
    except ValueError:
        return ()
    return numbers.shape if numbers.dtype.kind in "if" else ()

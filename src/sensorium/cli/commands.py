"""The commands: `demo`, `run` and `list`. Their docstrings are what `--help` shows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from sensorium.cli.messages import stdout
from sensorium.cli.rig import EXAMPLE

if TYPE_CHECKING:
    from sensorium.engines.mujoco import MujocoEngine

INTERRUPTED = 130
"""Exit code after Ctrl-C."""


@dataclass
class Demo:
    """Simulate a walking quadruped and show what its sensors report.

    The bundled 12-joint robot trots over uneven ground; its joints follow a PD controller. One IMU (preset bmi088) sits
    on the trunk, another (icm42688p) on the left front foot, with a lower rate and a longer delay. Encoders of 14 bits
    with backlash read the joints, a frame transformer tells where the feet are in the trunk's frame, and the touch
    sensors and the velocimeter that the model itself declares are there without a config.

    Writes OUT/readings.npz (true and measured values, capture times, specs) and a picture for each kind of sensor
    (OUT/imu.png, OUT/joint.png, ...: true against measured), and prints the latest values of environment 0.

    For example:
      sensorium demo
      sensorium demo --envs 256 --seconds 10 --out out/long
      python -c "from sensorium.record import load; print(load('out/demo/readings.npz')['trunk'].measured)"
    """

    envs: Annotated[int, arg(metavar="N")] = 16
    """Environments, each with its own noise, place and heading."""
    seconds: Annotated[float, arg(metavar="S")] = 4.0
    """Simulated time, s."""
    out: Annotated[Path, arg(metavar="DIR")] = Path("out/demo")
    """Folder of the results; made if needed, files in it are replaced."""
    seed: Annotated[int, arg(metavar="K")] = 0
    """Seed of every random number; equal seeds give equal files."""
    device: Annotated[str, arg(metavar="D")] = "cpu"
    """Where the sensors compute: cpu, cuda or cuda:INDEX. The physics runs on the CPU."""

    def run(self) -> int:
        """Run the command and return the exit code."""
        from sensorium.cli.simulation import Settings, finish, simulate

        settings = Settings(self.envs, self.seconds, self.out, self.seed, self.device)
        settings.start()
        from sensorium.demo import model_path
        from sensorium.demo.gait import Trot
        from sensorium.engines.mujoco import MujocoEngine
        from sensorium.presets import preset
        from sensorium.record import NpzRecorder
        from sensorium.scene import Scene
        from sensorium.sensors.frame_transformer import FrameTransformerCfg
        from sensorium.sensors.joint import JointSensorCfg

        feet = FrameTransformerCfg.FrameCfg
        presets = {"trunk": "bmi088", "foot": "icm42688p"}
        sensors = [
            preset(presets["trunk"], name="trunk", site="imu", rate_hz=200.0, delay=0.004, jitter=0.002),
            preset(presets["foot"], name="foot", site="FL_foot_imu", rate_hz=100.0, delay=0.012, jitter=0.004),
            JointSensorCfg(
                name="encoders", joints=".*", bits=14, backlash=0.002, velocity_mode="difference", rate_hz=200.0
            ),
            FrameTransformerCfg(
                name="feet", body="trunk", target_frames=(feet(site=".*_foot"),), fields=("target_pos_source",)
            ),
        ]
        engine = MujocoEngine(model_path(), self.envs, device=self.device, keyframe="home")
        self._scatter(engine)
        scene = Scene(engine, sensors, seed=self.seed)
        trot, recorder = Trot(), NpzRecorder()
        every = max(1, round(0.01 / engine.dt))
        completed = simulate(scene, lambda _, time: trot.targets(time), every, settings.ticks(engine.dt), recorder)
        finish(scene, recorder, settings, presets, "demo quadruped, trotting")
        return 0 if completed else INTERRUPTED

    def _scatter(self, engine: MujocoEngine) -> None:
        """Give every environment but the first its own place (up to 0.2 m away) and heading (up to 0.2 rad)."""
        import numpy as np

        qpos = engine.qpos.numpy()
        for env in range(1, self.envs):
            x, y, yaw = np.random.default_rng([abs(self.seed), env]).uniform(-0.2, 0.2, 3)
            c, s = math.cos(yaw / 2.0), math.sin(yaw / 2.0)
            qw, qx, qy, qz = qpos[env, 3:7]
            qpos[env, :2] += (x, y)
            qpos[env, 3:7] = (c * qw - s * qz, c * qx - s * qy, c * qy + s * qx, c * qz + s * qw)


@dataclass
class Run:
    """Simulate any MJCF or URDF model with the sensors of a rig file.

    Writes OUT/readings.npz (true and measured values, capture times, specs) and one picture for each kind of sensor,
    e.g. OUT/imu.png, and prints the latest values of environment 0.

    For example:
      sensorium run robot.xml --rig rig.toml
      sensorium run robot.urdf --rig rig.toml --envs 64 --seconds 10 --control random
      sensorium run robot.xml --rig rig.toml --control my_gait:control

    """

    model: Annotated[Positional[Path], arg(metavar="MODEL")]
    """MJCF or URDF file."""
    rig: Annotated[Path, arg(metavar="RIG.toml")]
    """Rig file: the sensors, as TOML, such as the example above."""
    envs: Annotated[int, arg(metavar="N")] = 1
    """Environments, each with its own noise."""
    seconds: Annotated[float, arg(metavar="S")] = 2.0
    """Simulated time, s."""
    out: Annotated[Path, arg(metavar="DIR")] = Path("out/run")
    """Folder of the results; made if needed, files in it are replaced."""
    seed: Annotated[int, arg(metavar="K")] = 0
    """Seed of every random number; equal seeds give equal files."""
    device: Annotated[str, arg(metavar="D")] = "cpu"
    """Where the sensors compute: cpu, cuda or cuda:INDEX. The physics runs on the CPU."""
    control: Annotated[str, arg(metavar="hold|zero|random|FILE.npz|module:function")] = "hold"
    """hold: keep the joints in the pose of the first keyframe, or the start pose (nothing balances). zero: controls 0.
    random: within the actuators' ranges. FILE.npz: play its array ctrl, [time, nu] or [time, env, nu], one row every
    dt s (an optional number in the file; else every physics step), and hold the last row. module:function: called as
    function(scene, time) every 10 ms, returns ctrl."""

    def run(self) -> int:
        """Run the command and return the exit code."""
        from sensorium.cli.simulation import Settings, finish, load_model, simulate

        settings = Settings(self.envs, self.seconds, self.out, self.seed, self.device)
        import sensorium.sensors  # noqa: F401 - registers our sensors, also where the package is not installed
        from sensorium.cli.rig import load_rig

        sensors, presets = load_rig(self.rig)
        settings.start()
        from sensorium.cli.control import control_for
        from sensorium.record import NpzRecorder
        from sensorium.scene import Scene

        engine = load_model(self.model, self.envs, self.device)
        scene = Scene(engine, sensors, seed=self.seed, discover=False)  # what the rig names, no more
        control, every = control_for(self.control, engine, self.seed)
        recorder = NpzRecorder()
        completed = simulate(scene, control, every, settings.ticks(engine.dt), recorder)
        finish(scene, recorder, settings, presets, str(self.model))
        return 0 if completed else INTERRUPTED


@dataclass
class List:
    """List the kinds of sensors with their fields and defaults, stages, device presets, and plugins that are broken."""

    def run(self) -> int:
        """Run the command and return the exit code."""
        import sensorium.sensors  # noqa: F401 - registers our sensors, also where the package is not installed
        from sensorium import registry
        from sensorium.presets import presets

        registry.load_installed(warn=False)  # the table at the end says it
        console = stdout()
        classes: list[Any] = sorted(registry.registered(), key=lambda cls: cls.kind())
        for cfg_class in classes:
            plugin = "" if cfg_class.__module__.startswith(registry.OURS) else registry.plugin_of(cfg_class)
            title = f"{cfg_class.__name__}{f' ({plugin})' if plugin else ''}: {_summary(cfg_class)}"
            console.print(f'[bold]kind = "{cfg_class.kind()}"[/]  {_escaped(title)}')
            console.print(_fields(cfg_class))
        console.print("[bold]stages[/]")
        console.print(_stages())
        console.print("[bold]presets[/]")
        console.print(_presets(presets()))
        if registry.broken():
            console.print("[bold red]broken plugins[/]")
            console.print(_broken(registry.broken()))
        return 0


def _summary(cls: type) -> str:
    return (cls.__doc__ or "").strip().split("\n")[0]


def _stages() -> Any:
    from rich import box
    from rich.table import Table

    from sensorium import registry
    from sensorium.cfg import PLACES, STAGE_KINDS

    view = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("stage", "place", "meaning"):
        view.add_column(heading, no_wrap=heading != "meaning")
    places = {  # of the kind, or of each instance, with a default
        kind: stage.model_fields["place"].default if "place" in stage.model_fields else stage.place
        for kind, stage in STAGE_KINDS.items()
    }
    for kind, stage in sorted(STAGE_KINDS.items(), key=lambda pair: (PLACES.index(places[pair[0]]), pair[0])):
        plugin = "" if stage.__module__.startswith(registry.OURS) else registry.plugin_of(stage)
        view.add_row(kind, places[kind], _escaped(_summary(stage) + (f" ({plugin})" if plugin else "")))
    return view


def _broken(plugins: Any) -> Any:
    from rich import box
    from rich.table import Table

    view = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("plugin", "package", "entry point"):
        view.add_column(heading, no_wrap=True)
    view.add_column("what is wrong, and what to do")
    for each in plugins:
        view.add_row(*map(_escaped, (each.name, each.distribution, each.value, f"{each.reason} {each.fix}")))
    return view


def _fields(cfg_class: Any) -> Any:
    from rich import box
    from rich.table import Table

    view = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    view.add_column("field", no_wrap=True)
    view.add_column("default")
    view.add_column("meaning")
    for name, info in cfg_class.model_fields.items():
        default = "(to be given)" if info.is_required() else "" if info.default is None else repr(info.default)
        view.add_row(name, _escaped(default), _escaped(" ".join((info.description or "").split())))
    return view


def _presets(infos: Any) -> Any:
    from rich import box
    from rich.table import Table

    view = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("preset", "kind", "device", "source"):
        view.add_column(heading, no_wrap=heading in ("preset", "kind"))
    for name, info in infos.items():
        view.add_row(name, info.kind, _escaped(info.title), _escaped(info.source))
    return view


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text.replace("``", "`"))


Run.__doc__ = f"{(Run.__doc__ or '').rstrip()}\n\n    a rig file:\n" + "".join(
    f"      {line}\n" for line in EXAMPLE.splitlines()
)

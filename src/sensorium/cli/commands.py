"""The commands `demo` and `run`. Their docstrings are shown by `--help`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from tyro.conf import Positional, arg

from sensorium.cli.arguments import RIG, number, unset
from sensorium.cli.checks import check_device_name, check_envs, check_files
from sensorium.cli.messages import busy, note
from sensorium.demo import robots
from sensorium.errors import UsageError
from sensorium.jobs.drives import Drive, drive_of
from sensorium.jobs.models import EngineName
from sensorium.jobs.rig import EXAMPLE

if TYPE_CHECKING:
    from sensorium.engines.base import Engine
    from sensorium.engines.trajectory.engine import TrajectoryEngine
    from sensorium.jobs.control import Control
    from sensorium.measurement.sensor_cfg import SensorCfg
    from sensorium.scene import Scene

NAMED = UsageError.naming(control="--control", seconds="--seconds")
"""Decorator of functions whose errors then name options instead of fields."""
INTERRUPTED = 130
"""Exit code after Ctrl-C."""


@dataclass
class Demo:
    """Simulate a walking quadruped and show the readings of its sensors.

    The bundled 12-joint robot trots over uneven ground; a PD controller drives its joints. One IMU (preset bmi088) is
    on the trunk, another (icm42688p) on the left front foot, with a lower rate and a longer delay. Encoders with 14
    bits and backlash read the joints, and a frame transformer reports the feet in the trunk's frame. Rays measure the
    ground: a height scan around the trunk, the clearance of each foot, and a spinning lidar on the mast, whose scans
    are distorted by the robot's motion. A head camera measures depth, with noise, and labels the surfaces it sees: the
    ground, the robot, crates and poles. The touch sensors and the velocimeter that the model declares are included
    without a config.

    Writes OUT/readings.npz (true and measured values, capture times, specs), one picture per kind of sensor
    (OUT/imu.png, OUT/camera.png, ...: true and measured) and the last images (OUT/head.*.png), and prints the latest
    values of environment 0.

    For example:
      sensorium demo
      sensorium demo --view
      sensorium demo --envs 256 --seconds 10 --out out/long
      python -c "from sensorium.record import load; print(load('out/demo/readings.npz')['trunk'].measured)"
    """

    envs: Annotated[int, arg(metavar="N")] = 4
    """Number of environments, each with its own noise, place and heading."""
    seconds: Annotated[float, arg(metavar="S")] = 4.0
    """Simulated time, s."""
    out: Annotated[Path, arg(metavar="DIR")] = Path("out/demo")
    """Folder for the results; created if missing, existing files are replaced."""
    seed: Annotated[int, arg(metavar="K")] = 0
    """Seed of all random numbers; equal seeds give equal files."""
    device: Annotated[str, arg(metavar="D")] = "cpu"
    """Device of the sensors: cpu, cuda or cuda:INDEX. The physics runs on the CPU."""
    view: bool = False
    """Show the robot and its sensors in the browser until Ctrl-C, instead of writing files; see `sensorium view`."""

    def run(self) -> int:
        """Run the command and return the exit code."""
        if self.view:
            from sensorium.cli.view import View

            return View("demo", envs=self.envs, seed=self.seed, device=self.device).run()
        model, seconds = Path("demo"), self.seconds
        run = Run(model, envs=self.envs, seconds=seconds, out=self.out, seed=self.seed, device=self.device)
        return run.run(discover=True)


def ticks_left(scene: Scene) -> int:
    """Return the number of steps up to the end of the trajectory of a scene."""
    return cast("TrajectoryEngine", scene.engine).ticks_left


@dataclass(kw_only=True)
class Driven:
    """Options of a command that can move a body along a trajectory instead of simulating a model."""

    trajectory: Annotated[str | None, unset("FILE|drone|car", "")] = None
    """Path of the body instead of physics: a file of TUM, EuRoC or KITTI, a CSV file with a header, or a bundled path
    through the hall. In the rig, the body's name is "body"."""
    rate: Annotated[float | None, unset("HZ", "")] = None
    """Poses per second of a trajectory in a KITTI file, which has no times."""
    times: Annotated[str | None, unset("FILE", "times.txt beside it")] = None
    """Times of the poses in a KITTI file, one per line, s."""
    drop_repeated: bool = False
    """Keep only the first of adjacent poses of a trajectory with equal times."""
    max_gap: Annotated[float | None, unset("S", "10 times the median")] = None
    """Longest time between two poses of a trajectory, s; a file with a longer gap is refused."""
    world: Annotated[str | None, unset("FILE|hall", "an empty world")] = None
    """World around a trajectory: a mesh (OBJ, STL, PLY, GLB, glTF; pip install 'sensorium[mesh]'), an MJCF or URDF file
    without joints, or the bundled hall."""

    @property
    def path(self) -> dict[str, Any]:
        """The options, to construct another command with them."""
        return {each.name: getattr(self, each.name) for each in fields(Driven)}


@dataclass
class Run(Driven):
    """Simulate any MJCF or URDF model, or move along a trajectory, with the sensors of a rig file.

    Writes OUT/readings.npz (true and measured values, capture times, specs), one picture per kind of sensor, e.g.
    OUT/imu.png, and the last images of cameras, and prints the latest values of environment 0. With --record, one MCAP
    file is written instead while the simulation runs, of any length; sensorium replay FILE reads it.

    MODEL is an MJCF or URDF file, or the name of a bundled robot: demo is the quadruped, arm an arm with a tactile
    fingertip. Bundled robots move by themselves and need no rig file.

    For example:
      sensorium run robot.xml --rig rig.toml
      sensorium run robot.urdf --rig rig.toml --envs 64 --seconds 10 --control random
      sensorium run robot.xml --rig rig.toml --control my_gait:control
      sensorium run robot.xml --rig rig.toml --envs 4096 --engine mujoco_warp --device cuda
      sensorium run demo --record run.mcap
      sensorium run robot.xml --rig rig.toml --envs 64 --record run.mcap --ros2 --record-envs 0,3
      sensorium run --trajectory path.tum --world hall.obj --rig rig.toml
      sensorium run --trajectory drone --world hall --rig rig.toml
      sensorium run --trajectory poses/00.txt --rate 10 --rig rig.toml

    """

    model: Annotated[Positional[Path | None], unset("[MODEL|demo|arm]", "")] = None
    """MJCF or URDF file, demo or arm; omit it with --trajectory."""
    rig: Annotated[Path | None, unset("RIG", "the sensors of a bundled robot"), RIG] = None
    """Rig file: the sensors, as TOML; `sensorium run --help` shows an example. Required except for bundled robots."""
    envs: Annotated[int, arg(metavar="N"), number(int, "To record some of them: --record-envs {}")] = 1
    """Number of environments, each with its own noise."""
    seconds: Annotated[float | None, unset("S", "2, with --trajectory its duration")] = None
    """Simulated time, s."""
    out: Annotated[Path, arg(metavar="DIR")] = Path("out/run")
    """Folder for the results; created if missing, existing files are replaced. Not used with --record."""
    record: Annotated[Path | None, unset("FILE.mcap", "none")] = None
    """MCAP file to record in (pip install 'sensorium[record]')."""
    ros2: bool = False
    """With --record: write standard ROS 2 messages too, one per environment and sample."""
    ros2_only: bool = False
    """With --record: write ROS 2 messages and nothing else, as a bag. --no-truth halves its size."""
    truth: bool = True
    """With --record: write true values and poses; --no-truth omits them."""
    states: bool = False
    """With --record: write the true states of sensors, such as biases and walks, as the sensors NAME.states."""
    images: Literal["raw", "png", "jpeg"] = "raw"
    """With --ros2 or --ros2-only: images of 8 bits in ROS 2 messages, raw or compressed."""
    start_ns: Annotated[int, unset("NS", "the date of a trajectory, for exports")] = 0
    """With --record: date of the start, ns since 1970, for exports, and for the messages of --ros2-only."""
    record_envs: Annotated[str, unset("K,K,...", "all")] = ""
    """With --record: only these environments, e.g. 0,3."""
    seed: Annotated[int, arg(metavar="K")] = 0
    """Seed of all random numbers; equal seeds give equal files."""
    first_env: Annotated[int | None, unset("K", "0")] = None
    """Global index of env 0, if this process simulates a slice of a larger run: env 0 then has the noise, the start and
    the controls of env K."""
    device: Annotated[str, arg(metavar="D")] = "cpu"
    """Device of the sensors: cpu, cuda or cuda:INDEX. The physics of mujoco runs on the CPU, that of mujoco_warp and
    newton on this device."""
    engine: EngineName = "mujoco"
    """Physics engine: MuJoCo on the CPU, MuJoCo Warp (pip install 'sensorium[warp]') for many environments on a GPU,
    or Newton (pip install 'sensorium[newton]') with its solver SolverMuJoCo."""
    control: Annotated[str, arg(metavar="hold|zero|random|FILE.npz|FILE.mcap|module:function")] = "hold"
    """hold: keep the joints in the pose of the first keyframe or of the start (without balancing). zero: all controls
    0. random: within the actuators' ranges. FILE.npz: play its array ctrl, [time, nu] or [time, env, nu], one row every
    dt s (an optional number in the file; by default every physics step), and hold the last row. Its envs are those of
    the whole run. FILE.mcap: play the controls of a recording. module:function: called as function(scene, time) every
    10 ms, returns the ctrl; scene.global_env_ids are the indices of the envs in the whole run."""

    def run(self, *, discover: bool = False) -> int:
        """Run the command, also with the sensors that the model declares, and return the exit code."""
        from sensorium.cli.simulation import finish, recording, simulate
        from sensorium.record import NpzRecorder

        drive = self.drive()
        envs = self._recorded_envs()
        seconds = NAMED(drive.seconds)(self.seconds) if drive else 2.0 if self.seconds is None else self.seconds
        if not 0.0 < seconds < float("inf"):
            raise UsageError.of("--seconds", seconds, "a finite time > 0, in seconds", "Use for example --seconds 4.")
        check_device_name(self.device)
        with busy("loading"):
            scene, presets, control, every = self.built(drive, self._prepare, discover=discover)
        title, ticks = self.title, max(1, round(seconds / scene.engine.dt))
        if self.record is not None:
            ros2: Any = "only" if self.ros2_only else self.ros2
            options = {"ros2": ros2, "truth": self.truth, "states": self.states, "images": self.images,
                       "start_ns": self.start_ns}  # fmt: skip
            with recording(scene, self.record, envs, self.rig, options) as recorder:
                completed = simulate(scene, control, every, ticks)
            finish(scene, recorder, self.out, presets, title)
            for name, fields in recorder.unmapped.items() if self.ros2_only else ():
                note(f"not recorded: {', '.join(fields)} of {name}, which no ROS 2 message holds")
            return INTERRUPTED if not completed else 1 if recorder.failed else 0
        collected = NpzRecorder()
        completed = simulate(scene, control, every, ticks, collected)
        finish(scene, collected, self.out, presets, title)
        return 0 if completed else INTERRUPTED

    @property
    def _robot(self) -> robots.Robot | None:
        """The bundled robot that the model names."""
        return robots.ROBOTS.get(str(self.model))

    @property
    def title(self) -> str:
        """Heading of the results."""
        return self._robot.title if self._robot is not None else str(self.model or self.trajectory)

    def built(
        self, drive: Drive | None, start: Callable[[], object], *, draws: bool = False, discover: bool = False
    ) -> tuple[Scene, Mapping[str, str], Control, int]:
        """Return the scene, the preset of each sensor that has one, the control and the ticks between its calls.

        Args:
            drive: the trajectory; None if a model is simulated.
            start: called before anything slow; initialises the device.
            draws: whether viewers draw all sensors, unless the rig selects some.
            discover: whether to add the sensors that the model declares.

        Raises:
            UsageError: an option is invalid, or a file is missing.
        """
        from sensorium.jobs.control import check_control, control_for
        from sensorium.jobs.rig import load_rig

        robot = self._robot
        rig = self.rig if self.rig is not None or robot is None else robot.rig
        if rig is None:
            raise UsageError.of("--rig", None, "a rig file", "`sensorium run --help` shows an example.")
        if robot is not None and self.engine != "mujoco":
            raise UsageError.of("--engine", self.engine, "mujoco for the demo", "Omit --engine, or run a model file.")
        check_envs(self.envs, self.first_env or 0)
        check_files(None if robot is not None else self.model, self.rig)
        NAMED(check_control)(self.control)
        import sensorium.sensors.all  # noqa: F401 - registers the built-in sensors, even if not installed

        sensors, presets = load_rig(rig)
        if draws and not any(cfg.debug_vis for cfg in sensors):
            sensors = [cfg.replace(debug_vis=True) for cfg in sensors]
        start()
        scene = self.scene(drive, sensors, discover=discover)
        if drive is not None:
            return scene, presets, (lambda scene, time: None), ticks_left(scene)
        control, every = NAMED(control_for)(self.control, scene, robot=robot)
        return scene, presets, NAMED(control), every

    def scene(
        self,
        drive: Drive | None,
        sensors: list[SensorCfg[Any]],
        *,
        discover: bool,
        reserve: Callable[[Engine], list[Any]] = lambda engine: [],
    ) -> Scene:
        """Return the scene at the start of its first episode.

        Args:
            drive: the trajectory; None if a model is simulated.
            sensors: configs of the sensors, those of the rig file if there is one.
            discover: whether to add the sensors that the model declares.
            reserve: returns what else to prepare the engine for.
        """
        from sensorium.jobs.rig import load_semantics, naming_tables
        from sensorium.scene import Scene

        robot, engine = self._robot, self.simulator(drive)
        semantics = ({} if robot is None else dict(robot.semantics)) | (load_semantics(self.rig) if self.rig else {})
        with naming_tables(self.rig, sensors):
            scene = Scene(
                engine, sensors, seed=self.seed, first_env=self.first_env, reserve=reserve(engine), discover=discover,
                semantics=semantics,
            )  # fmt: skip
        if robot is not None:
            robot.start(scene)
        return scene

    def simulator(self, drive: Drive | None) -> Engine:
        """Return the engine of the model, or of a trajectory."""
        from sensorium.jobs.models import load_model

        if drive is not None:
            return drive.engine(self.envs, self.device)
        assert self.model is not None
        if self._robot is not None:
            return self._robot.engine(self.envs, self.device)
        return load_model(self.model, self.envs, self.device, self.engine)

    def _prepare(self) -> None:
        """Create the folder for the results and initialise the device, before any other work.

        Raises:
            UsageError: the folder is not writable, or the device does not exist.
        """
        from sensorium.cli.simulation import check_device

        with UsageError.writing("--out", self.out):
            if self.record is None:
                self.out.mkdir(parents=True, exist_ok=True)
                probe = self.out / ".write-test"
                probe.touch()
                probe.unlink()
        check_device(self.device)

    def _recorded_envs(self) -> list[int] | None:
        """Return the environments to record; None for all.

        Raises:
            UsageError: an option of a recording was given without --record, the environments are not numbers, or the
                file has the name of an NPZ file.
        """
        if self.record is not None and self.record.suffix.lower() == ".npz":  # which no command reads as an MCAP file
            fix = "Without --record, sensorium run writes OUT/readings.npz."
            raise UsageError.of("--record", str(self.record), "the name of an MCAP file, such as run.mcap", fix)
        given = {"--ros2": self.ros2, "--ros2-only": self.ros2_only, "--no-truth": not self.truth,
                 "--states": self.states, "--start-ns": self.start_ns, "--record-envs": self.record_envs}  # fmt: skip
        for option, value in given.items():
            if value and self.record is None:
                raise UsageError.of(option, str(value), f"{option} only with --record", "Add --record FILE.mcap.")
        try:
            envs = [int(each) for each in self.record_envs.split(",")] if self.record_envs else None
        except ValueError:
            envs = [-1]
        if envs is not None and not all(0 <= env < self.envs for env in envs):
            expected = f"numbers from 0 to {self.envs - 1}, separated by commas"
            raise UsageError.of("--record-envs", self.record_envs, expected, "Use for example --record-envs 0.")
        return envs

    def drive(self) -> Drive | None:
        """Return the trajectory and its world; None if a model is simulated.

        Raises:
            UsageError: neither or both of model and trajectory were given, or an option of the other one.
        """
        if self.trajectory is None:
            for name, given in self.path.items():
                if given not in (None, False):
                    option = f"--{name.replace('_', '-')}"
                    raise UsageError.of(option, given, f"{option} only with --trajectory", "Add --trajectory FILE.")
            if self.model is None:
                fix = "Give for example robot.xml, or --trajectory path.tum. See sensorium run --help."
                raise UsageError.of("MODEL, --trajectory", None, "a model, or a trajectory", fix)
            return None
        others = {"MODEL": self.model, "--control": self.control != "hold" and self.control}
        others["--engine"] = self.engine != "mujoco" and self.engine
        for option, given in others.items():
            if given:
                raise UsageError.of(option, str(given), "no value with --trajectory", "Remove it, or --trajectory.")
        reading = {"rate_hz": self.rate, "times": self.times, "drop_repeated": self.drop_repeated}
        return drive_of(self.trajectory, self.world, max_gap=self.max_gap, **reading)


Run.__doc__ = f"{(Run.__doc__ or '').rstrip()}\n\n    a rig file:\n" + "".join(
    f"      {line}\n" for line in EXAMPLE.splitlines()
)

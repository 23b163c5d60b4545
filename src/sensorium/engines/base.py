"""The engine protocol: what a physics simulator offers to the sensors.

An engine owns N environments and gives batched derived state in one convention: poses of body *frame origins* in the
world (metres, quaternions wxyz), linear velocity and acceleration at that origin, all float32 torch tensors
`[env, item, ...]` at addresses that never change. Acceleration is coordinate acceleration (0 at rest); gravity is its
own per-env vector.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from sensorium.errors import UnsupportedError
from sensorium.geometry.shapes import Shape
from sensorium.spec import (
    BODY_ACCELERATION,
    BODY_POSE,
    BODY_VELOCITY,
    GRAVITY,
    JOINT_EFFORT,
    JOINT_STATE,
    JOINT_TORQUE,
    JOINT_WRENCH,
    MAGNETIC,
    SHAPES,
    Requirement,
    exact_fraction,
)

if TYPE_CHECKING:
    from torch import Tensor

NameKind = Literal["body", "site", "geom", "joint", "camera", "actuator", "scalar_joint"]
"""Kinds of named elements. A `scalar_joint` is a joint with one coordinate (hinge or slide): a row of joint arrays."""

ARRAYS: dict[Requirement, dict[str, tuple[str | int, ...]]] = {
    BODY_POSE: {"body_pos_w": ("body", 3), "body_quat_w": ("body", 4)},
    BODY_VELOCITY: {"body_lin_vel_w": ("body", 3), "body_ang_vel_w": ("body", 3)},
    BODY_ACCELERATION: {"body_lin_acc_w": ("body", 3), "body_ang_acc_w": ("body", 3)},
    GRAVITY: {"gravity_w": (3,)},
    MAGNETIC: {"magnetic_w": (3,)},
    JOINT_STATE: {"joint_pos": ("joint",), "joint_vel": ("joint",)},
    JOINT_EFFORT: {"joint_effort": ("joint",)},
    JOINT_TORQUE: {"joint_torque": ("joint",)},
    JOINT_WRENCH: {"body_parent_force_w": ("body", 3), "body_parent_torque_w": ("body", 3)},
}
"""What requirements bring: array name to its shape after the env axis; `"body"` and `"joint"` are numbers of rows.
NATIVE_SENSOR and CONTACT_REPORT bring one array each, SHAPES and MODEL_ELEMENTS none."""
NATIVE_ARRAY = "native:"
"""What the array of a native sensor is called, before the sensor's name."""

PoseOnBody = tuple[Sequence[float], Sequence[float]]
"""Position (m) and orientation (wxyz) of a frame in another one."""


def array_sizes(requirement: Requirement, num_envs: int, bodies: int, joints: int) -> dict[str, tuple[int, ...]]:
    """Return the arrays of a requirement in `ARRAYS` and their shapes, with the env axis."""
    counts = {"body": bodies, "joint": joints}
    return {
        name: (num_envs, *(counts[size] if isinstance(size, str) else size for size in shape))
        for name, shape in ARRAYS[requirement].items()
    }


@dataclass(frozen=True, slots=True)
class FrameOnBody:
    """A frame fixed to a body.

    Args:
        body: index of the body in `names("body")`; -1 is the world.
        pos: origin in the body's frame, m.
        quat: orientation in the body's frame, wxyz.
        element: kind and name of the element whose frame it is, where the owner of the model may move that on the body:
            see `Engine.offsets`. None where it stays as it is.
    """

    body: int
    pos: tuple[float, float, float] = (0.0, 0.0, 0.0)
    quat: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)
    element: tuple[NameKind, str] | None = field(default=None, compare=False, repr=False)


DataType = Literal["real", "positive", "axis", "quat"]
"""What the values of a native sensor are: any numbers, numbers from 0 up, a unit vector, a unit quaternion (wxyz)."""


@dataclass(frozen=True, slots=True)
class NativeSensor:
    """A sensor that the model itself declares; `NATIVE_SENSOR(name)` makes its output an array.

    Args:
        name: its name in the model.
        type: word for its type in MuJoCo's XML, e.g. ``"accelerometer"``; empty where unknown.
        dim: number of values.
        unit: SI unit as text; ``"1"`` for none, empty where unknown or where the values have several.
        datatype: what the values are.
        stage: ``"pos"``, ``"vel"`` or ``"acc"``: how far the engine's computation must run for it; empty for none.
        objtype: kind of element that it is attached to (``"site"``, ``"joint"``, ...); empty for none.
        objname: name of that element.
        reftype: kind of the reference element; empty for none.
        refname: name of the reference.
        cutoff: bound of its values, in their unit; 0 for none.
    """

    name: str
    type: str = ""
    dim: int = 1
    unit: str = ""
    datatype: DataType = "real"
    stage: str = ""
    objtype: str = ""
    objname: str = ""
    reftype: str = ""
    refname: str = ""
    cutoff: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class CameraLens:
    """Image and lens of a camera of the model.

    Args:
        resolution: (width, height), px; None where the model states none.
        fovy: vertical field of view, degrees, float64 `[1 or env]`; of an orthographic camera the height, m.
        sensor_size: (width, height) of the image sensor, m; None where `fovy` is the lens.
        intrinsic: focal lengths (x, y) and principal point (x, y), m, float64 `[1 or env, 4]`, beside `sensor_size`.
            The point is measured from the middle of the sensor, to the left and up.
        is_orthographic: whether rays are parallel, so that there is no pinhole.
    """

    resolution: tuple[int, int] | None
    fovy: NDArray[np.float64]
    sensor_size: tuple[float, float] | None
    intrinsic: NDArray[np.float64]
    is_orthographic: bool = False

    def matrices(self, width: int, height: int) -> NDArray[np.float64]:
        """Return the intrinsic matrices, px, float64 `[1 or env, 3, 3]`, for images of another size.

        The vertical field of view of a lens by `fovy` stays, and pixels are square. An image sensor keeps the shape of
        its pixels at `resolution` (square ones without); an image of another aspect is cropped about its middle.
        """
        k = np.zeros((max(len(self.fovy), len(self.intrinsic)), 3, 3))
        k[:, :, 2] = 0.5 * width, 0.5 * height, 1.0
        if self.sensor_size is None:
            k[:, 0, 0] = k[:, 1, 1] = 0.5 * height / np.tan(np.radians(0.5 * self.fovy))
            return k
        columns, rows = self.resolution or self.sensor_size
        zoom = max(width / columns, height / rows)
        per_metre = zoom * np.array([columns, rows]) / self.sensor_size
        k[:, [0, 1], [0, 1]] = self.intrinsic[:, :2] * per_metre
        k[:, :2, 2] -= self.intrinsic[:, 2:] * per_metre
        return k


class Engine(abc.ABC):
    """N parallel environments of one simulator behind one adapter.

    Attributes:
        name: short name for messages.
        num_envs: N.
        dt: physics time step, s.
        device: torch device of the derived arrays.
        tick: physics steps taken so far; for wrapped live objects advanced by `count_ticks`.
        owns_time: True where `step` advances the physics; False where the user steps and calls `scene.update()`.
        lag: ticks by which derived state is older than `tick` (1 with `fresh=False`, else 0).
        prepared: the requirements granted so far.
    """

    name: str
    num_envs: int
    dt: float
    device: str
    tick: int
    owns_time: bool
    lag: int
    prepared: frozenset[Requirement]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse to be copied or pickled: it holds a simulation."""
        raise TypeError(
            f"a {type(self).__name__} cannot be copied or pickled. Build a second one from the same model, and take "
            "the state along: other.load_state(engine.state())."
        )

    @property
    def dt_exact(self) -> Fraction:
        """The time step as an exact rational, s."""
        return exact_fraction(self.dt)

    @abc.abstractmethod
    def names(self, kind: NameKind) -> tuple[str, ...]:
        """Return all names of a kind in the order of the model. Bodies exclude the world, which is index -1."""

    @abc.abstractmethod
    def frame(self, kind: NameKind, name: str) -> FrameOnBody:
        """Return the body a named body, site, geom, joint or camera sits on, and its offset there."""

    def offsets(self, frames: Sequence[FrameOnBody], inner: Sequence[PoseOnBody]) -> tuple[Tensor, Tensor] | None:
        """Return where mounts are on their bodies now, and from now on; None where that never changes (the default).

        The engine keeps the tensors up to date for life, in `refresh`, `forward` and `reset` (of the reset envs only).
        It is called for each sensor when the sensor is built.

        Args:
            frames: what the mounts sit on, as `frame` returned them.
            inner: for each of them the pose of the mount in it, which stays as it is.

        Returns:
            Position float32 `[env, mount, 3]`, m, and orientation float32 `[env, mount, 4]`, wxyz, of the mounts in
            the frames of their bodies, on the engine's device, at fixed addresses.
        """
        return None

    def camera_lens(self, name: str) -> CameraLens | None:
        """Return image and lens of a camera of the model as they are now; None where this engine knows none."""
        return None

    def slide_joints(self) -> tuple[str, ...]:
        """Return those of `names("scalar_joint")` that slide (m) instead of turning (rad); by default none."""
        return ()

    def parent_body(self, body: int) -> int | None:
        """Return the index of a body's parent, -1 for the world; None where this engine knows no kinematic tree."""
        return None

    def geoms(self, body: str) -> tuple[str, ...]:
        """Return the named geoms fixed to a body (`"world"`: those of no body), in the order of the model.

        Raises:
            UnknownNameError: no body has that name.
        """
        row = self.frame("body", body).body
        return tuple(name for name in self.names("geom") if self.frame("geom", name).body == row)

    def subtree(self, body: str) -> tuple[str, ...] | None:
        """Return a body and all that descend from it, in the order of the model; `"world"` itself is left out.

        Returns:
            Names of bodies; None where this engine knows no kinematic tree.

        Raises:
            UnknownNameError: no body has that name.
        """
        names, root = self.names("body"), self.frame("body", body).body
        below: list[str] = []
        for row, name in enumerate(names):
            above: int | None = row
            while above is not None and above not in (root, -1):
                above = self.parent_body(above)
            if above is None:
                return None
            if above == root:
                below.append(name)
        return tuple(below)

    def native_sensors(self) -> tuple[NativeSensor, ...]:
        """Return the sensors that the model itself declares, in its order; hidden and nameless ones are left out."""
        return ()

    def native_sensor(self, requirement: Requirement) -> NativeSensor | None:
        """Return what the sensor of a granted `NATIVE_SENSOR` is; None where this engine does not know.

        By default it is one of `native_sensors`, whose type may be unknown.
        """
        return next((sensor for sensor in self.native_sensors() if sensor.name == requirement.args[0]), None)

    def shapes(self) -> tuple[Shape, ...]:
        """Return all shapes of one environment, in the order of the model, as SHAPES grants them; by default none.

        Static shapes are the same in all environments. Those that cannot be cast at have a `fault`.
        """
        return ()

    @abc.abstractmethod
    def supports(self, requirement: Requirement) -> str | None:
        """Return None where the engine can give the requirement, else the reason and the fix."""

    def supports_on(self, requirement: Requirement, body: int) -> str | None:
        """Return None where the engine can give a supported requirement of one body, else the reason and the fix.

        By default it can, of every body. A sensor is refused that is mounted where the engine cannot.

        Args:
            requirement: one that `supports` accepts.
            body: index of the body in `names("body")`; -1 is the world.
        """
        return None

    def grants_late(self, requirement: Requirement) -> bool:
        """Whether a requirement that `supports` accepts may be prepared when sensors are there already.

        It may where no array that they hold moves, and what it brings is of the same instant as the rest. By default
        only SHAPES, for which nothing is computed.
        """
        return requirement == SHAPES

    def prepare(self, requirements: Mapping[Requirement, str]) -> None:
        """Grant requirements (mapped to the name of a sensor that asks), all or none.

        Raises:
            UnsupportedError: naming sensor, requirement and engine.
        """
        for requirement, sensor in requirements.items():
            if requirement in self.prepared:
                continue
            reason = self.supports(requirement)
            if reason is not None:
                raise UnsupportedError(sensor, requirement, self.name, reason)
        new = frozenset(requirements) - self.prepared
        if needed := new - {SHAPES}:  # shapes are described when asked for: nothing is computed for them
            self._apply(needed)
        self.prepared = self.prepared | new

    @abc.abstractmethod
    def _apply(self, requirements: frozenset[Requirement]) -> None:
        """Make the model and the arrays ready for requirements that `supports` accepted."""

    @abc.abstractmethod
    def array(self, name: str) -> Tensor:
        """Return a derived array by name (`body_pos_w`, `gravity_w`, ...), float32, fixed address.

        Raises:
            KeyError: the requirement that brings it was not prepared.
        """

    @abc.abstractmethod
    def step(self, ctrl: Tensor | Sequence[float] | None = None, substeps: int = 1) -> None:
        """Advance `substeps` ticks under one control, `[env, nu]` or `[nu]`; None keeps what `engine.ctrl` holds."""

    @abc.abstractmethod
    def refresh(self) -> None:
        """Bring derived arrays up to the current tick (minus `lag`); nothing happens where they already are."""

    @abc.abstractmethod
    def forward(self) -> None:
        """Recompute derived state after the user edited the state, without taking time."""

    @abc.abstractmethod
    def reset(self, env_ids: Tensor | None, state: Mapping[str, Any]) -> None:
        """Reset environments, then write `state` (e.g. `qpos [n, nq]`) into them and go forward.

        Args:
            env_ids: int64 indices, a bool mask `[env]` on the engine's device, or None for all.
            state: values for the n environments meant, in the order of the indices.
        """

    def capture(self, on: bool) -> None:  # noqa: B027  # an engine without kernels of its own has nothing to capture
        """Replay the engine's own kernels as captured graphs, or launch each by itself; by default it has none.

        The scene says so when it is built and in `Scene.capture`. What the engine computes does not depend on it.
        """

    def replaced(self) -> Tensor | None:
        """Return the environments whose state the simulator itself replaced since their last reset; None without any.

        MuJoCo puts a state that became NaN, infinite or huge back to the model's default. Samples of it are finite, but
        not valid. The host knows without waiting for the device.

        Returns:
            Bool `[env]` on the engine's device, or None, which is the default.
        """
        return None

    def count_ticks(self, ticks: int) -> None:
        """Note that the owner of a wrapped simulation took `ticks` steps."""
        self.tick += ticks

    def state(self) -> dict[str, Any]:
        """Return all that is needed to resume bit-identically, where this engine owns the physics."""
        return {"tick": self.tick}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self.tick = int(state["tick"])

"""The engine protocol: the interface of a physics simulator for sensors.

An engine holds N environments and provides batched derived state in one convention: poses of body *frame origins* in
the world frame (metres, quaternions wxyz), and linear velocity and acceleration at that origin. All are float32 torch
tensors `[env, item, ...]` at fixed addresses. Acceleration is coordinate acceleration (0 at rest); gravity is a
separate vector per environment.
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
from sensorium.geometry.appearance import Lighting, Varied
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
    TENDON_PATHS,
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
    TENDON_PATHS: {"tendon_segments_w": ("segment", 2, 3), "tendon_radii": ("segment",)},
}
"""Arrays of each requirement: name to shape after the env axis, where texts are numbers of rows.

NATIVE_SENSOR and CONTACT_REPORT have one array each, SHAPES and MODEL_ELEMENTS none.
"""
NATIVE_ARRAY = "native:"
"""Prefix of the name of a native sensor's array."""

PoseOnBody = tuple[Sequence[float], Sequence[float]]
"""Position (m) and orientation (wxyz) of a frame in another frame."""


def array_sizes(requirement: Requirement, num_envs: int, counts: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the arrays of a requirement in `ARRAYS`, name -> shape with the env axis; `counts` are numbers of rows."""
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
        element: kind and name of the frame's element, if the owner of the model may move it on the body; see
            `Engine.offsets`. None if it is fixed.
    """

    body: int
    pos: tuple[float, float, float] = (0.0, 0.0, 0.0)
    quat: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)
    element: tuple[NameKind, str] | None = field(default=None, compare=False, repr=False)


DataType = Literal["real", "positive", "axis", "quat"]
"""Kind of a native sensor's values: any numbers, numbers >= 0, a unit vector, or a unit quaternion (wxyz)."""


@dataclass(frozen=True, slots=True)
class NativeSensor:
    """A sensor declared in the model; `NATIVE_SENSOR(name)` provides its output as an array.

    Args:
        name: name in the model.
        type: name of its type in MuJoCo's XML, e.g. ``"accelerometer"``; empty if unknown.
        dim: number of values.
        unit: SI unit as text; ``"1"`` for dimensionless, empty where unknown or where the values differ in unit.
        datatype: kind of the values.
        stage: ``"pos"``, ``"vel"`` or ``"acc"``: stage of the engine's computation that provides it; empty for none.
        objtype: kind of the element that it is attached to (``"site"``, ``"joint"``, ...); empty for none.
        objname: name of that element.
        reftype: kind of the reference element; empty for none.
        refname: name of the reference element.
        cutoff: bound of the values, in their unit; 0 for none.
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
        resolution: (width, height), px; None if the model defines none.
        fovy: vertical field of view, degrees, float64 `[1 or env]`; for an orthographic camera the height, m.
        sensor_size: (width, height) of the image sensor, m; None if `fovy` defines the lens.
        intrinsic: focal lengths (x, y) and principal point (x, y), m, float64 `[1 or env, 4]`, used with `sensor_size`.
            The principal point is relative to the centre of the sensor, positive to the left and up.
        is_orthographic: whether rays are parallel instead of passing through a pinhole.
    """

    resolution: tuple[int, int] | None
    fovy: NDArray[np.float64]
    sensor_size: tuple[float, float] | None
    intrinsic: NDArray[np.float64]
    is_orthographic: bool = False

    def matrices(self, width: int, height: int) -> NDArray[np.float64]:
        """Return the intrinsic matrices for an image size in px, float64 `[1 or env, 3, 3]`.

        The vertical field of view stays, with square pixels, as `mjvGLCamera` of MuJoCo's header defines it. An image
        sensor has the shape of its pixels at `resolution` in images of that aspect, up to the rounding of their size.
        """
        k = np.zeros((max(len(self.fovy), len(self.intrinsic)), 3, 3))
        k[:, :, 2] = 0.5 * width, 0.5 * height, 1.0
        if self.sensor_size is None:
            k[:, 0, 0] = k[:, 1, 1] = 0.5 * height / np.tan(np.radians(0.5 * self.fovy))
            return k
        columns, rows = self.resolution or (0, 1)
        focal, centre = self.intrinsic[:, :2], self.intrinsic[:, 2:]
        k[:, 0, 0] = k[:, 1, 1] = focal[:, 1] * height / self.sensor_size[1]
        if abs(width * rows - height * columns) <= 0.5 * max(columns, rows):
            k[:, 0, 0] = focal[:, 0] * width / self.sensor_size[0]
        k[:, :2, 2] -= k[:, [0, 1], [0, 1]] * centre / focal
        return k


class Engine(abc.ABC):
    """N parallel environments of one simulator behind one adapter.

    Attributes:
        name: short name for messages.
        num_envs: number of environments, N.
        dt: physics time step, s.
        device: torch device of the derived arrays.
        tick: number of physics steps taken; for wrapped live objects advanced by `count_ticks`.
        owns_time: whether `step` advances the physics; False where the user steps and calls `scene.update()`.
        lag: ticks by which derived state is older than `tick` (1 with `fresh=False`, otherwise 0).
        prepared: requirements granted so far.
    """

    name: str
    num_envs: int
    dt: float
    device: str
    tick: int
    owns_time: bool
    lag: int
    prepared: frozenset[Requirement]
    varies_late = False
    """Whether the owner of the simulation can make quantities of `looks` different in each environment at any time."""
    merged_hint = ""
    """What to do about a body of the model's file that is missing from `names`; empty if none can be."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Raise `TypeError`: an engine holds a simulation and cannot be copied or pickled."""
        raise TypeError(
            f"a {type(self).__name__} cannot be copied or pickled. Build a second one from the same model and transfer "
            "the state: other.load_state(engine.state())."
        )

    @property
    def diverged(self) -> Tensor | None:
        """Bool `[env]`: environments whose simulated state became NaN, infinite or huge; None if unknown (default)."""
        return None

    @property
    def dt_exact(self) -> Fraction:
        """Time step as an exact rational number, s."""
        return exact_fraction(self.dt)

    @abc.abstractmethod
    def names(self, kind: NameKind) -> tuple[str, ...]:
        """Return all names of a kind in model order. Bodies exclude the world, whose index is -1."""

    @property
    def control_names(self) -> tuple[str, ...]:
        """Names of the controls of `step`, in order; by default those of the actuators."""
        return self.names("actuator")

    @abc.abstractmethod
    def frame(self, kind: NameKind, name: str) -> FrameOnBody:
        """Return the body of a named body, site, geom, joint or camera, with the frame's pose on that body."""

    def offsets(self, frames: Sequence[FrameOnBody], inner: Sequence[PoseOnBody]) -> tuple[Tensor, Tensor] | None:
        """Return live poses of mounts on their bodies; None if these poses are constant (the default).

        The engine keeps the tensors up to date in `refresh`, `forward` and `reset` (of the reset envs only). It is
        called once for each sensor, when the sensor is built.

        Args:
            frames: frames of the mounts, as returned by `frame`.
            inner: constant pose of each mount in its frame.

        Returns:
            Position float32 `[env, mount, 3]`, m, and orientation float32 `[env, mount, 4]`, wxyz, of the mounts in the
            frames of their bodies, on the engine's device, at fixed addresses.
        """
        return None

    def camera_lens(self, name: str) -> CameraLens | None:
        """Return the current image and lens of a camera of the model; None if the engine does not know them."""
        return None

    def slide_joints(self) -> tuple[str, ...]:
        """Return the names in `names("scalar_joint")` of sliding joints (m), not hinges (rad); by default none."""
        return ()

    def parent_body(self, body: int) -> int | None:
        """Return the index of a body's parent, -1 for the world; None if the engine knows no kinematic tree."""
        return None

    def geoms(self, body: str) -> tuple[str, ...]:
        """Return the named geoms fixed to a body in model order; `"world"` selects geoms of no body.

        Raises:
            UnknownNameError: there is no such body.
        """
        row = self.frame("body", body).body
        return tuple(name for name in self.names("geom") if self.frame("geom", name).body == row)

    def subtree(self, body: str) -> tuple[str, ...] | None:
        """Return a body and all its descendants in model order; `"world"` itself is omitted.

        Returns:
            Names of bodies; None if the engine knows no kinematic tree.

        Raises:
            UnknownNameError: there is no such body.
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
        """Return the sensors declared in the model, in model order; hidden and unnamed sensors are omitted."""
        return ()

    def native_sensor(self, requirement: Requirement) -> NativeSensor | None:
        """Return the native sensor of a granted `NATIVE_SENSOR`; None if the engine does not know it.

        The default looks it up in `native_sensors`; its type may be unknown.
        """
        return next((sensor for sensor in self.native_sensors() if sensor.name == requirement.args[0]), None)

    def shapes(self) -> tuple[Shape, ...]:
        """Return all shapes of one environment in model order, as granted by SHAPES; by default none.

        All environments have the same shapes. A quantity that differs between environments, or that changes, is not
        part of a `Shape`: it is an array `[env, shape, ...]` with a separate requirement in `ARRAYS`, whose rows
        follow this order. Shapes that rays cannot be cast at have a `fault`.
        """
        return ()

    def decorations(self) -> tuple[Shape, ...]:
        """Return the shapes that only cameras can see: tendons, sites and skins, in this order; by default nothing.

        Granted by SHAPES. Consecutive shapes of a tendon are the segments of its path; see `TENDON_PATHS`.
        """
        return ()

    def lighting(self) -> Lighting:
        """Return lights, sky and fog of one environment, and the textures of its shapes; by default a headlight."""
        return Lighting()

    def looks(self) -> Varied:
        """Return current values of quantities of shapes and lights that differ between environments; by default none.

        Returns:
            Name of the quantity -> values `[1 or env, shape, ...]`, or `[1 or env, light, ...]` for the names
            ``"light_..."``, of those in `geometry.appearance.VARIED`. Colours read it when they are built and at each
            reset.
        """
        return {}

    def camera_notice(self) -> str:
        """Return a warning about a part of the model that cameras would see and that is lost, or an empty text."""
        return ""

    @abc.abstractmethod
    def supports(self, requirement: Requirement) -> str | None:
        """Return None if the engine supports the requirement, otherwise the reason and the fix."""

    def supports_on(self, requirement: Requirement, body: int) -> str | None:
        """Return None if a supported requirement is available for one body, otherwise the reason and the fix.

        By default it is available for every body. A sensor mounted on an unsupported body is rejected.

        Args:
            requirement: requirement that `supports` accepts.
            body: index of the body in `names("body")`; -1 is the world.
        """
        return None

    def grants_late(self, requirement: Requirement) -> bool:
        """Whether a requirement that `supports` accepts may be prepared after sensors were built.

        This is possible where existing arrays keep their addresses and new data is of the same instant as the rest. By
        default only SHAPES, which needs no computation.
        """
        return requirement == SHAPES

    def prepare(self, requirements: Mapping[Requirement, str]) -> None:
        """Grant requirements, each mapped to the name of a sensor that has it: either all or none.

        Raises:
            UnsupportedError: a requirement is unsupported; the message names sensor, requirement and engine.
        """
        for requirement, sensor in requirements.items():
            if requirement in self.prepared:
                continue
            reason = self.supports(requirement)
            if reason is not None:
                raise UnsupportedError(sensor, requirement, self.name, reason)
        new = frozenset(requirements) - self.prepared
        if needed := new - {SHAPES}:  # shapes are described on request, without computation
            self._apply(needed)
        self.prepared = self.prepared | new

    @abc.abstractmethod
    def _apply(self, requirements: frozenset[Requirement]) -> None:
        """Prepare the model and the arrays for requirements that `supports` accepted."""

    @abc.abstractmethod
    def array(self, name: str) -> Tensor:
        """Return a derived array by name (`body_pos_w`, `gravity_w`, ...).

        It is float32 at a fixed address, with a contiguous last axis.

        Raises:
            KeyError: the array's requirement was not prepared.
        """

    @abc.abstractmethod
    def step(self, ctrl: Tensor | Sequence[float] | None = None, substeps: int = 1) -> None:
        """Advance `substeps` ticks with one control, `[env, nu]` or `[nu]`; None keeps `engine.ctrl`."""

    @abc.abstractmethod
    def refresh(self) -> None:
        """Bring derived arrays up to the current tick (minus `lag`); no effect where they are up to date."""

    @abc.abstractmethod
    def forward(self) -> None:
        """Recompute derived state without advancing time, after the user edited the state."""

    @abc.abstractmethod
    def reset(self, env_ids: Tensor | None, state: Mapping[str, Any]) -> None:
        """Reset environments, write `state` (e.g. `qpos [n, nq]`) into them and compute derived state.

        Args:
            env_ids: int64 indices, a bool mask `[env]` on the engine's device, or None for all.
            state: values for the n selected environments, in the order of the indices.
        """

    def capture(self, on: bool) -> None:  # noqa: B027  # by default an engine has no kernels to capture
        """Replay the engine's own kernels as captured graphs, or launch each separately; by default there are none.

        The scene calls this when it is built and in `Scene.capture`. Results do not depend on it.
        """

    def replaced(self) -> Tensor | None:
        """Return the environments whose state the simulator replaced since their last reset; None if there are none.

        MuJoCo resets a state that became NaN, infinite or huge to the model's default. Samples of it are finite but
        invalid. The host gets the answer without waiting for the device.

        Returns:
            Bool `[env]` on the engine's device, or None (the default).
        """
        return None

    def count_ticks(self, ticks: int) -> None:
        """Register `ticks` steps taken by the owner of a wrapped simulation."""
        self.tick += ticks

    def state(self) -> dict[str, Any]:
        """Return everything needed to resume bit-identically, if the engine owns the physics."""
        return {"tick": self.tick}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state`."""
        self.tick = int(state["tick"])

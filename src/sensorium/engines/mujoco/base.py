"""Common base of the MuJoCo engines: names, frames, and float32 arrays derived from MuJoCo's fields."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import mujoco
import numpy as np
import torch

from sensorium.compute import Compute, keeps_current, resolve_device
from sensorium.engines.base import (
    ARRAYS,
    NATIVE_ARRAY,
    CameraLens,
    Engine,
    FrameOnBody,
    NameKind,
    NativeSensor,
    PoseOnBody,
)
from sensorium.engines.contacts import is_contact
from sensorium.engines.envs import copies, env_rows, put, restore, time_step
from sensorium.engines.mujoco.contacts import contact_reason, contact_sensors, contacts
from sensorium.engines.mujoco.derived import Derived
from sensorium.engines.mujoco.elements import Elements
from sensorium.engines.mujoco.looks import model_lighting, model_looks, model_textures
from sensorium.engines.mujoco.native import declared, describe, native, reason, sensor_id
from sensorium.engines.mujoco.needs import (
    FRICTION,
    NEEDS,
    STATE_SOURCES,
    fields_of,
    model_fields_of,
    needs_wrenches,
    stage_of,
)
from sensorium.engines.mujoco.shapes import model_decorations, model_shapes, visible_geoms
from sensorium.engines.mujoco.sleep import disabled, is_held, lacks_held, sleeps, static_wrench_fault
from sensorium.engines.mujoco.spec import computes_acceleration, has_elements
from sensorium.engines.mujoco.tendons import paths_of
from sensorium.engines.mujoco.torque import torque_fault
from sensorium.engines.offsets import LiveOffsets
from sensorium.errors import (
    ArgumentError,
    ModelError,
    NonFiniteStateWarning,
    ScheduleError,
    SensoriumWarning,
    UnknownNameError,
    listed,
)
from sensorium.geometry.appearance import Lighting, Varied
from sensorium.geometry.shapes import Shape
from sensorium.spec import JOINT_TORQUE, JOINT_WRENCH, SHAPES, TENDON_PATHS, Requirement

_WARNING = mujoco.mjtWarning
LIMITS = {
    int(_WARNING.mjWARN_CONTACTFULL): "contacts, and those beyond it were dropped: no report has them",
    int(_WARNING.mjWARN_CNSTRFULL): "constraints, and all were dropped: contacts have no force",
}
"""MuJoCo's warnings that its memory was too small, each with the affected items."""


BAD_STATE = [int(getattr(_WARNING, f"mjWARN_BAD{what}")) for what in ("QPOS", "QVEL", "QACC")]
"""MuJoCo's warnings, with consecutive indices, that the state became NaN, infinite or huge."""


class MujocoModelEngine(Engine):
    """Names, frames and derived arrays of an MjModel; the base of `MujocoEngine` and `LiveMujocoEngine`.

    Derived arrays, by requirement (see `array`), float32 on `device`:

    - BODY_POSE: `body_pos_w [env, body, 3]` m, `body_quat_w [env, body, 4]` wxyz, of the body frame in the world.
    - BODY_VELOCITY: `body_lin_vel_w [env, body, 3]` m/s at the body frame origin, `body_ang_vel_w` rad/s, world axes.
    - BODY_ACCELERATION: `body_lin_acc_w [env, body, 3]` m/s^2 at the body frame origin, coordinate acceleration,
      `body_ang_acc_w` rad/s^2, world axes.
    - GRAVITY: `gravity_w [env, 3]` m/s^2. MAGNETIC: `magnetic_w [env, 3]`, in the model's unit.
    - JOINT_STATE: `joint_pos`, `joint_vel [env, joint]`, rad and rad/s (slide: m, m/s).
    - JOINT_EFFORT: `joint_effort [env, joint]`, N m (slide: N): `qfrc_actuator`, which is all actuators, also through
      tendons, with gravity compensation where the joint's `actuatorgravcomp` is on, clamped to `actuatorfrcrange`.
    - JOINT_TORQUE: `joint_torque [env, joint]`, N m (slide: N), at the gearbox output: the effort less the torque of
      the armature, the dampers and the dry friction of the joint and its actuators.
    - JOINT_WRENCH: `body_parent_force_w [env, body, 3]` N, `body_parent_torque_w` N m about the body frame origin,
      world axes, as measured by MuJoCo's force and torque sensors; gravity compensation counts as transmitted by the
      parent.
    - NATIVE_SENSOR: `native:NAME [env, dim]`: MuJoCo's sensordata of that sensor.
    - SHAPES: no array; see `shapes` and `decorations`.
    - TENDON_PATHS: `tendon_segments_w [env, segment, 2, 3]` m, world, `tendon_radii [env, segment]` m; see
      `mujoco.tendons`.
    - CONTACT_REPORT: `contact_array(requirement) [env, primary, slot, column]`. `found` also counts contacts in the gap
      zone of a geom, which have no force. With ``netforce``, dist is 0, normal and tangent are the x and y axes.

    The state is accessible as `qpos`, `qvel`, `act`, `ctrl`, `mocap_pos`, `mocap_quat`, `gravity` and `magnetic`, in
    the simulator's type: float64 of MuJoCo, float32 of mujoco_warp.

    Rows of bodies follow `names("body")`: the bodies of the model without the world. Rows of joints follow
    `names("scalar_joint")`: hinges and slides.
    """

    name = "mujoco"
    merged_hint = (
        "MuJoCo merges links on fixed joints of URDF files into their parents: give MujocoEngine the file, or set "
        "spec.compiler.fusestatic = False before you compile."
    )
    _model: Any
    _computes_when_fresh = True
    """Whether `fresh=True` computes accelerations and wrenches of bodies independently of the model's sensors."""
    _reads_friction = False
    """Whether the engine reads the dry friction at joints instead of computing it."""
    _holds_asleep = True
    """Whether native sensors hold values that MuJoCo does not compute for sleeping bodies, see `mujoco.sleep`."""

    @keeps_current
    def __init__(self, num_envs: int, device: str, fresh: bool, threads: int | None) -> None:
        self.num_envs = num_envs
        self.device = resolve_device(device)
        self.fresh = fresh
        self.tick = 0
        self.lag = 0
        self.prepared: frozenset[Requirement] = frozenset()
        self._derived = self._new_derived(threads)
        self._offsets = LiveOffsets(self._derived.compute, self.device)
        self.stage = 0
        """Highest mjtStage needed by a prepared requirement."""
        self._dirty = self._needs_forward = True
        self._previous: dict[str, torch.Tensor] = {}  # state of the previous tick, where derived state lags
        self._fields: tuple[str, ...] = ()
        self._model_fields: tuple[str, ...] = ()
        self._named: Elements | None = None
        self._described: tuple[Any, tuple[NativeSensor, ...]] | None = None
        self._shapes: tuple[Any, tuple[Shape, ...]] | None = None
        self._decorations: tuple[Any, tuple[Shape, ...]] | None = None
        self._issued: set[str] = set()  # warnings already issued
        self._diverged = np.zeros(num_envs, dtype=bool)

    def _ensure(self) -> None:
        """Ensure that the environments exist."""

    def _new_derived(self, threads: int | None) -> Derived:
        return Derived(self.num_envs, self.device, Compute("cpu", self.num_envs, threads))

    @property
    def model(self) -> Any:
        """Compiled MjModel. Edits do not affect the environments of a batch."""
        raise NotImplementedError

    def __repr__(self) -> str:
        model = self.model
        return self._repr(bytes(model.names).split(b"\0", 1)[0].decode(), model.nbody - 1)

    def _repr(self, model_name: str, bodies: int) -> str:
        return (
            f"{type(self).__name__}({model_name!r}, num_envs={self.num_envs}, dt={self.dt:g} s, bodies={bodies}, "
            f"device={self.device!r}, fresh={self.fresh}, tick={self.tick})"
        )

    @property
    def _elements(self) -> Elements:
        """Named elements of the compiled model."""
        model = self.model
        if self._named is None or self._named.model is not model:
            self._named = Elements(model)
        return self._named

    def _report_limits(self, counts: np.ndarray) -> None:
        """Warn if MuJoCo ran out of memory, once for each of `LIMITS`.

        Args:
            counts: number of warnings `[env, limit]`, in the order of `LIMITS`.
        """
        fix = f'<size memory="..."/> of the model, now {int(self.model.narena)} bytes'
        for column, lost in enumerate(LIMITS.values()):
            self._warn_too_small(np.flatnonzero(counts[:, column]), "at", f"MuJoCo's {lost}", fix)

    def _warn_too_small(self, envs: np.ndarray, when: str, what: str, larger: str) -> None:
        """Warn that the memory of some environments was too small, once per kind of loss.

        Args:
            envs: indices of the environments; empty if none is affected.
            when: "at" the current tick, or "by" it.
            what: purpose of the memory, and the lost data.
            larger: setting to increase.
        """
        if what in self._issued or not len(envs):
            return
        self._issued.add(what)
        warnings.warn(
            f"the memory of env {listed(map(str, envs), 8)} was too small {when} tick {self.tick} for {what}. "
            f"Raise {larger}. This warning is issued once.",
            SensoriumWarning,
            stacklevel=5,
        )

    def _check_time_step(self, step: float, where: str) -> None:
        """Raise an error if a time step differs from the one that the engine and its scene use.

        Args:
            step: current time step, s.
            where: location of the time step.

        Raises:
            ScheduleError: the time step was edited.
        """
        if step != self.dt:
            raise ScheduleError(
                f"{where}: the time step is {step:g} s now, and was {self.dt:g} s when the engine was created. Sensors "
                'count time by that value. Set <option timestep="..."/> in the model, and rebuild engine and scene.'
            )

    def _note_diverged(self, envs: np.ndarray) -> None:
        """Mark environments whose state became NaN, infinite or huge, and warn of newly affected ones.

        Args:
            envs: bool `[env]`.
        """
        new = envs & ~self._diverged
        if not new.any():
            return
        self._diverged |= new
        put_back = " and MuJoCo reset it to the model's default state" if self._resets_itself else ""
        warnings.warn(
            f"the state of env {listed(map(str, np.flatnonzero(new)), 8)} became NaN, infinite or huge by tick "
            f"{self.tick}{put_back}: lower the time step, soften contacts or gains, or check the control. Its samples "
            "are not valid, and engine.diverged marks it, until it is reset.",
            NonFiniteStateWarning,
            stacklevel=5,
        )

    @property
    def _resets_itself(self) -> bool:
        """Whether MuJoCo replaces a diverged state."""
        return not disabled(self.model.opt, "AUTORESET")

    @property
    def diverged(self) -> torch.Tensor:
        """Bool `[env]`: environments whose state became NaN, infinite or huge since their last reset."""
        return torch.from_numpy(self._diverged.copy())

    def replaced(self) -> torch.Tensor | None:
        """Return the environments that MuJoCo reset to the default state since their last reset, or None."""
        if not np.count_nonzero(self._diverged) or not self._resets_itself:
            return None
        return self.diverged.to(self.device)

    def _check_unfresh(self, options: Any) -> None:
        """Raise ModelError if `fresh` is False and a MuJoCo step leaves derived state that belongs to no tick."""
        if not self.fresh and int(options.integrator) == int(mujoco.mjtIntegrator.mjINT_RK4):
            raise ModelError(
                "fresh=False with the RK4 integrator: it leaves bodies at an intermediate state that belongs to no "
                "tick. Use fresh=True or another integrator."
            )

    def _derive(self, prepared: frozenset[Requirement]) -> None:
        """Create the derived arrays of requirements that the model fulfils."""
        used = prepared if len(paths_of(self._model).tendon) else prepared - {TENDON_PATHS}
        self._fields = fields_of(used, held=self._holds_asleep and sleeps(self._model.opt))
        self._model_fields = model_fields_of(used)
        self._tendons = TENDON_PATHS in used
        self._sensors = bool(native(prepared) or contacts(prepared))
        self._wrenches = any(map(needs_wrenches, prepared))
        self._bind(prepared)
        self._needs_forward = self._dirty = True  # the fields are still empty

    def _bind(self, prepared: frozenset[Requirement]) -> None:
        """Read the required fields from their current memory."""
        sources = {name: _shared(self._source(name)) for name in (*self._fields, *self._model_fields)}
        if JOINT_TORQUE in prepared and self._reads_friction:
            sources[FRICTION] = _shared(self._source(FRICTION))
        if not self.fresh:  # after a step the state is one tick newer than derived state
            for name in STATE_SOURCES:
                if name in sources:
                    self._previous.setdefault(name, sources[name].clone())
            sources |= self._previous
        if self._is_weightless and "opt.gravity" in sources:
            sources["opt.gravity"] = torch.zeros_like(sources["opt.gravity"])
        elements = self._elements
        self._derived.build(self._model, elements.body_ids, elements.joint_ids, prepared, sources)
        self.stage = stage_of(self._model, prepared)

    def _source(self, name: str) -> np.ndarray | torch.Tensor:
        """Return a field of MuJoCo's data `[env, ...]`, or of the model `[1 or env, ...]`, at a fixed address."""
        raise NotImplementedError

    @property
    def _is_weightless(self) -> bool:
        """Whether gravity is disabled in the model."""
        return disabled(self._model_options, "GRAVITY")

    def _check_time_steps(self) -> None:
        """Raise ScheduleError if a time step was edited."""
        raise NotImplementedError

    def _compute(self, current: bool, ids: torch.Tensor | None = None) -> None:
        """Bring MuJoCo's fields up to date.

        Args:
            current: whether they must belong to the current state; otherwise to that of the previous tick.
            ids: environments whose fields change, as returned by `_selected`; None for all.
        """
        raise NotImplementedError

    def _keep_state(self, ids: torch.Tensor | None = None) -> None:
        """Store the current state of all envs or some, to which derived state belongs after the next step."""
        self._note_state(self._previous, ids)

    def _note_state(self, into: Mapping[str, torch.Tensor], ids: torch.Tensor | None = None) -> None:
        for name, kept in into.items():
            put(kept, self._state_view(name), ids)

    def _selected(self, env_ids: Any) -> torch.Tensor | None:
        """Return the selected environments, None for all."""
        return env_rows(env_ids, self.num_envs)

    def _check_shapes(self) -> None:
        """Raise ModelError if described shapes are no longer the same in all environments."""

    def _follow_offsets(self, ids: torch.Tensor | None = None) -> None:
        """Update the mounts of all envs or some from the model's poses on their bodies."""
        raise NotImplementedError

    def refresh(self) -> None:
        """Bring derived arrays up to the current tick (minus `lag`); no effect where they are up to date."""
        self._ensure()
        if not self._dirty:
            return
        current = self.fresh or self._needs_forward
        self._compute(current)
        if current:
            self._keep_state()
            self.lag = 0
        self._derived.convert()
        self._follow_offsets()
        self._dirty = self._needs_forward = False

    def forward(self) -> None:
        """Recompute derived state from the current state without advancing time; it is then current (`lag` 0)."""
        self._dirty = self._needs_forward = True
        self.refresh()

    def _refresh_reset(self, ids: torch.Tensor | None) -> None:
        """Bring the derived state of reset environments up to date, and leave that of the others unchanged."""
        if ids is None:
            self.forward()
            return
        if not self.fresh:
            self.refresh()  # the last tick of the other envs, because a later refresh would also read into these
        self._compute(True, ids)
        self._keep_state(ids)
        self._derived.convert(ids)
        self._follow_offsets(ids)
        self.lag = 0

    def _note_ticks(self) -> None:
        """Record that the state is newer than derived state."""
        self._dirty, self._needs_forward = True, False
        self.lag = 0 if self.fresh else 1

    def state(self) -> dict[str, Any]:
        """Return tick and derived arrays, and further data of a subclass to resume."""
        self.refresh()
        kept = {"arrays": copies(self._derived.arrays), "previous": copies(self._previous)}
        return {"tick": self.tick, "lag": self.lag, "diverged": torch.from_numpy(self._diverged.copy())} | kept

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state`."""
        self.tick, self.lag = int(state["tick"]), int(state["lag"])
        self._diverged[:] = state["diverged"].numpy()
        missing = restore(self._own_arrays(), state["arrays"]) + restore(self._previous, state["previous"])
        self._follow_offsets()
        self._dirty = self._needs_forward = bool(missing)

    def _own_arrays(self) -> Mapping[str, torch.Tensor]:
        """Return the derived arrays that are not restored with the state."""
        return self._derived.arrays

    def names(self, kind: NameKind) -> tuple[str, ...]:
        """Return all names of a kind in model order, without the world and hidden elements.

        Unnamed elements are named by kind and number, e.g. `actuator_0`; see `full_names`.
        """
        return self._elements.names(kind)

    @property
    def control_names(self) -> tuple[str, ...]:
        """Names of the controls, in the order of `ctrl`: those of the actuators, `name[0]`, ... of one with several."""
        counts = getattr(self.model, "actuator_ctrlnum", np.ones(self.nu, dtype=int)).tolist()
        named = zip(self._elements.ids["actuator"], counts, strict=True)
        return tuple(name if n == 1 else f"{name}[{k}]" for name, n in named for k in range(n))

    def frame(self, kind: NameKind, name: str) -> FrameOnBody:
        """Return the body of an element and the element's frame on it.

        The frame of a joint is its anchor with the body's axes. That of an actuator is the frame of the joint, site or
        body it acts on. That of a geom is the compiled one (MuJoCo moves a mesh geom to the mesh's inertial frame).
        `"world"` is body -1.

        Raises:
            UnknownNameError: there is no such element.
            ModelError: the element is not fixed to one body (a tracking camera, an actuator on a tendon).
        """
        return self._elements.frame(kind, name)

    def offsets(
        self, frames: Sequence[FrameOnBody], inner: Sequence[PoseOnBody]
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return live poses of mounts on sites, geoms, cameras and joints, relative to their bodies.

        They follow edits of the fields `site_pos`, `site_quat`, `geom_pos`, `geom_quat`, `cam_pos`, `cam_quat` and
        `jnt_pos`. None if all frames are those of bodies. See `Engine.offsets`.
        """
        if all(frame.element is None for frame in frames):
            return None
        pair = self._offsets.add(frames, inner)
        self._bind_offsets()
        self._offsets.follow()
        return pair

    def camera_lens(self, name: str) -> CameraLens | None:
        """Return the current image and lens of a camera of the model, per environment where they differ.

        An image of 1 x 1 pixel, MuJoCo's default, counts as no resolution.

        Raises:
            UnknownNameError: there is no such camera.
        """
        i, model = self._elements.row("camera", name), self.model
        width, height = (int(size) for size in model.cam_resolution[i])
        sensor = tuple(float(size) for size in model.cam_sensorsize[i])
        projection = mujoco.mjtProjection(int(model.cam_projection[i]))
        return CameraLens(
            resolution=(width, height) if width * height > 1 else None,
            fovy=self._model_values("cam_fovy")[:, i].astype(np.float64),
            sensor_size=(sensor[0], sensor[1]) if min(sensor) > 0.0 else None,
            intrinsic=self._model_values("cam_intrinsic")[:, i].astype(np.float64),
            is_orthographic=projection == mujoco.mjtProjection.mjPROJ_ORTHOGRAPHIC,
        )

    def _model_values(self, field: str) -> np.ndarray:
        """Return the current values of a field of the model, `[1 or env, ...]`."""
        return np.asarray(getattr(self.model, field))[None]

    def _bind_offsets(self) -> None:
        """Register the memory of the fields with the poses of mounts on their bodies."""
        raise NotImplementedError

    # Support ---------------------------------------------------------------------------------------------------------

    def supports(self, requirement: Requirement) -> str | None:
        """Return None if the engine supports the requirement, otherwise the reason and the fix."""
        kind, options = requirement.kind, self._model_options
        if requirement == SHAPES:
            return None
        if requirement not in NEEDS and kind not in ("NATIVE_SENSOR", "CONTACT_REPORT", "MODEL_ELEMENTS"):
            return "it is not supported by this engine yet."
        needs_sensor = self._needs_sensor(requirement)
        fix = "use fresh=True, or " if needs_sensor and self._computes_when_fresh else ""
        why = None
        if needs_sensor and disabled(options, "SENSOR"):
            return f'the model has <flag sensor="disable"/>, which disables all sensors: {fix}remove it.'
        if kind == "NATIVE_SENSOR":
            why = reason(requirement, self.prepared, self._declared_types(), self._model, options)
        elif kind == "CONTACT_REPORT":
            why = contact_reason(self, requirement, self._elements)
        elif requirement == JOINT_TORQUE:
            held = needs_sensor and sleeps(options)
            why = torque_fault(self.model, friction_known=self._reads_friction, held=held)
        if why is not None or not self._lacks(requirement):
            return why
        missing = f"the elements that {kind} needs are not in the model"
        if needs_sensor and sleeps(options):
            missing = "MuJoCo computes this for sleeping bodies only with a sensor on each of them"
        elif needs_sensor:
            missing = "MuJoCo computes body accelerations and wrenches only for a sensor that needs them"
        elif kind == "NATIVE_SENSOR":
            missing = "this sensor is not in the model"
        return self._cannot_change(missing, f"{fix}call sn.prepare(spec, sensors) on the MjSpec before compiling it")

    def supports_on(self, requirement: Requirement, body: int) -> str | None:
        """Return None if a supported requirement is available for one body, otherwise the reason and the fix."""
        if requirement != JOINT_WRENCH or self._computes_wrenches or body < 0:
            return None
        return static_wrench_fault(self.model, self._elements.body_ids[body])

    @property
    def _computes_wrenches(self) -> bool:
        """Whether accelerations and wrenches of bodies are computed independently of the model's sensors."""
        return self.fresh and self._computes_when_fresh

    @property
    def _model_options(self) -> Any:
        """Options of the model, compiled or not."""
        return self._model.opt

    def _needs_sensor(self, requirement: Requirement) -> bool:
        """Whether a requirement depends on native sensors to be computed, or to be held for sleeping bodies."""
        needs = is_held(requirement) if sleeps(self._model_options) else needs_wrenches(requirement)
        return needs and not self._computes_wrenches

    def _lacks(self, requirement: Requirement) -> bool:
        """Whether the compiled model must change for a requirement, or must be compiled first."""
        model = self._model
        if model is None:
            return True
        if requirement.kind == "MODEL_ELEMENTS":
            return not has_elements(model, requirement)
        if requirement.kind == "NATIVE_SENSOR":
            return sensor_id(model, requirement) < 0
        if is_contact(requirement):
            return min(contact_sensors(model, requirement)) < 0
        if not self._needs_sensor(requirement):
            return False
        return lacks_held(model, requirement) if sleeps(model.opt) else not computes_acceleration(model)

    def _cannot_change(self, why: str, fix: str) -> str | None:
        """Return the message for a model that lacks something and cannot be changed, otherwise None."""
        return f"{why}, and a compiled model cannot be changed: {fix}."

    # State -----------------------------------------------------------------------------------------------------------

    def _state_view(self, name: str) -> torch.Tensor:
        """Return a field of the state, or of the model's options (`"opt.gravity"`), `[env, ...]`."""
        raise NotImplementedError

    @property
    def qpos(self) -> torch.Tensor:
        """Positions `[env, nq]`, m and rad: the live state; a write takes effect after `forward()` or a step."""
        return self._state_view("qpos")

    @property
    def qvel(self) -> torch.Tensor:
        """Velocities `[env, nv]`, m/s and rad/s, as `qpos`."""
        return self._state_view("qvel")

    @property
    def act(self) -> torch.Tensor:
        """Actuator activations `[env, na]`, as `qpos`."""
        return self._state_view("act")

    @property
    def ctrl(self) -> torch.Tensor:
        """Controls `[env, nu]`, in the actuators' units, as `qpos`."""
        return self._state_view("ctrl")

    @property
    def mocap_pos(self) -> torch.Tensor:
        """Positions of mocap bodies `[env, mocap, 3]`, m, world, as `qpos`."""
        return self._state_view("mocap_pos")

    @property
    def mocap_quat(self) -> torch.Tensor:
        """Orientations of mocap bodies `[env, mocap, 4]`, wxyz, world, as `qpos`."""
        return self._state_view("mocap_quat")

    @property
    def gravity(self) -> torch.Tensor:
        """Gravity of each environment `[env, 3]`, m/s^2, world, as `qpos`; a reset keeps it."""
        return self._state_view("opt.gravity")

    @property
    def magnetic(self) -> torch.Tensor:
        """Magnetic flux of each environment `[env, 3]`, world, in the model's unit, as `gravity`."""
        return self._state_view("opt.magnetic")

    # Model -----------------------------------------------------------------------------------------------------------

    def slide_joints(self) -> tuple[str, ...]:
        """Return the names of the sliding scalar joints."""
        return self._elements.slide_joints()

    def parent_body(self, body: int) -> int:
        """Return the index of a body's parent, -1 for the world."""
        elements = self._elements
        return elements.body_row[int(self.model.body_parentid[elements.body_ids[body]])]

    def native_sensors(self) -> tuple[NativeSensor, ...]:
        """Return the sensors declared in the model, in model order; hidden and unnamed sensors are omitted."""
        return self._declared(self.model)

    def native_sensor(self, requirement: Requirement) -> NativeSensor | None:
        """Return a native sensor, declared or added; None if the model does not contain it."""
        return describe(self.model, requirement)

    def _declared_types(self) -> Mapping[str, str]:
        """Return the model's own sensors: name to type, as in MuJoCo's XML."""
        return {sensor.name: sensor.type for sensor in self._declared(self._model)}

    def _declared(self, model: Any) -> tuple[NativeSensor, ...]:
        """Return the model's own sensors, described once per model."""
        if self._described is None or self._described[0] is not model:
            self._described = model, declared(model)
        return self._described[1]

    def shapes(self) -> tuple[Shape, ...]:
        """Return all geoms and flexes as shapes in model order, without those added for sensors.

        Unnamed geoms and flexes are named as in `names`, e.g. `flex_0`. Shapes on the world and on bodies welded
        to it are static; mocap bodies and their descendants are not. Flexes and signed distance fields have a `fault`.
        Shapes are described once per model: later edits have no effect on them.

        Raises:
            ModelError: a mesh has no triangle with an area, or shapes differ between environments.
        """
        model = self.model
        if self._shapes is None or self._shapes[0] is not model:
            self._shapes = model, model_shapes(self._shape_model(), self._elements.body_row)
        return self._shapes[1]

    def decorations(self) -> tuple[Shape, ...]:
        """Return spatial tendons, sites and skins in this order, without those added for sensors; see `shapes`.

        Unnamed elements are named by type and id, e.g. `tendon_3`. Skins have a `fault`.

        Raises:
            ModelError: a mesh has no triangle with an area.
        """
        model = self.model
        if self._decorations is None or self._decorations[0] is not model:
            poses = self._model_values("site_pos"), self._model_values("site_quat")
            shapes = model_decorations(self._shape_model(), self._elements.body_row, poses, self.supports(TENDON_PATHS))
            self._decorations = model, shapes
        return self._decorations[1]

    def lighting(self) -> Lighting:
        """Return the lights, the sky, the fog and the textures of the model."""
        own = [shape.material.texture for shape in self.shapes() if shape.material.texture is not None]
        return model_lighting(self.model, self._elements.body_row, model_textures(self.model, own))

    def looks(self) -> Varied:
        """Return the current colours, materials and lights of the model, per environment where they differ."""
        return model_looks(self.model, visible_geoms(self.model), self._look_values)

    def _look_values(self, field: str) -> np.ndarray:
        """Return the current values of a field that colours depend on, `[1 or env, ...]`."""
        try:
            return self._model_values(field)
        except AttributeError:  # not every simulator of MuJoCo's models has it
            return np.asarray(getattr(self.model, field))[None]

    def _shape_model(self) -> Any:
        return self.model

    @property
    def entities(self) -> tuple[str, ...]:
        """Prefixes of body names before the first `/`, in order; empty for a model without prefixes."""
        return tuple(dict.fromkeys(name.split("/")[0] for name in self.names("body") if "/" in name))

    @property
    def nu(self) -> int:
        """Number of controls."""
        return int(self.model.nu)

    @property
    def ctrl_range(self) -> torch.Tensor:
        """Lowest and highest control `[nu, 2]`, float64, in the actuators' units; infinite where unlimited."""
        model = self.model
        limited = np.asarray(model.actuator_ctrllimited, dtype=bool).reshape(-1)
        span = np.array(model.actuator_ctrlrange, dtype=np.float64).reshape(-1, 2)
        span[~limited] = (-np.inf, np.inf)
        return torch.from_numpy(span)

    @property
    def keyframes(self) -> tuple[str, ...]:
        """Names of the model's keyframes, in order; `key_{id}` for an unnamed one."""
        model, key = self.model, mujoco.mjtObj.mjOBJ_KEY
        return tuple(mujoco.mj_id2name(model, key, i) or f"key_{i}" for i in range(model.nkey))

    def grants_late(self, requirement: Requirement) -> bool:
        """Whether a requirement may be prepared late: state of bodies and joints, gravity and magnetic flux.

        With `fresh=False` this is not possible after the first tick, because new data would be one tick newer than the
        rest.
        """
        return (requirement in NEEDS and (self.fresh or self.tick == 0)) or super().grants_late(requirement)

    def array(self, name: str) -> torch.Tensor:
        """Return a derived array by name, float32 on `device`; always the same tensor at the same address.

        Raises:
            UnknownNameError: there is no such array, or its requirement was not prepared (a KeyError).
        """
        if name not in self._derived.arrays:
            bringer = next((str(requirement) for requirement, arrays in ARRAYS.items() if name in arrays), None)
            if name.startswith(NATIVE_ARRAY):
                bringer = f"NATIVE_SENSOR({name.removeprefix(NATIVE_ARRAY)!r})"
            if name.startswith("contact:"):
                bringer = "a CONTACT_REPORT, whose array contact_array(requirement) names"
            fix = f"It comes with {bringer}: prepare that first." if bringer else ""
            raise UnknownNameError("derived array", name, self._derived.arrays, fix)
        return self._derived.arrays[name]

    def capture(self, on: bool) -> None:
        """Replay the conversion of MuJoCo's fields as a captured graph, or launch each kernel separately."""
        self._derived.compute.capture = on


def _shared(values: np.ndarray | torch.Tensor) -> torch.Tensor:
    """Return a tensor on the same memory, also for a read-only array, which torch does not support."""
    if isinstance(values, torch.Tensor):
        return values
    face = values.__array_interface__
    owner = SimpleNamespace(keeps=values, __array_interface__=face | {"data": (face["data"][0], False)})
    return torch.from_numpy(np.asarray(owner))


def keyframe_id(keyframe: str | int | None, names: Sequence[str], label: str) -> int:
    """Return the index of a keyframe given by name or index; -1 (the model's default state) for None.

    Raises:
        UnknownNameError: there is no such keyframe.
    """
    if keyframe is None:
        return -1
    if isinstance(keyframe, str) and keyframe in names:
        return list(names).index(keyframe)
    if isinstance(keyframe, int) and not isinstance(keyframe, bool) and 0 <= keyframe < len(names):
        return keyframe
    raise UnknownNameError(f"keyframe of {label}", str(keyframe), names)


def engine_fault(why: str, where: str, after: str) -> str:
    """Return the message for an error that MuJoCo raised during a computation.

    Args:
        why: text of the error.
        where: affected environments.
        after: state after the error.
    """
    lines = [line.strip() for line in why.splitlines() if line.strip()]
    fix = 'Raise <size memory="..."/> of the model. ' if "<size memory" in why else ""
    return f"MuJoCo failed in {where}: {'; '.join(lines)}. {fix}{after}"


def model_time_step(value: float, label: str) -> float:
    """Return the time step of a model's options, s.

    Raises:
        ModelError: it is zero, negative, not finite or out of range.
    """
    try:
        return time_step(float(value), "timestep")
    except ArgumentError as error:
        raise ModelError(f'{label}: {error} Write <option timestep="0.002"/>.') from None

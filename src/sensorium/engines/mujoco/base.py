"""What both MuJoCo engines share: names, frames, and the float32 arrays derived from MuJoCo's float64 fields."""

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
from sensorium.engines.contact import is_contact
from sensorium.engines.envs import copies, env_rows, put, restore, time_step
from sensorium.engines.mujoco.contacts import contact_reason, contact_sensors, contacts
from sensorium.engines.mujoco.derived import Derived
from sensorium.engines.mujoco.elements import Elements
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
from sensorium.engines.mujoco.shapes import model_shapes
from sensorium.engines.mujoco.sleep import disabled, is_held, lacks_held, sleeps, static_wrench_fault
from sensorium.engines.mujoco.spec import computes_acceleration, has_elements
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
from sensorium.geometry.shapes import Shape
from sensorium.spec import JOINT_TORQUE, JOINT_WRENCH, SHAPES, Requirement

_WARNING = mujoco.mjtWarning
LIMITS = {
    int(_WARNING.mjWARN_CONTACTFULL): "contacts, and those beyond it were dropped: no report has them",
    int(_WARNING.mjWARN_CNSTRFULL): "constraints, and all were dropped: contacts have no force",
}
"""MuJoCo's warnings that its memory was too small, and for what."""


BAD_STATE = [int(getattr(_WARNING, f"mjWARN_BAD{what}")) for what in ("QPOS", "QVEL", "QACC")]
"""MuJoCo's warnings that the state became NaN, infinite or huge, which are side by side."""


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
    - JOINT_TORQUE: `joint_torque [env, joint]`, N m (slide: N), at the gearbox output: the effort without what the
      armature, the dampers and the dry friction of the joint and its actuators take.
    - JOINT_WRENCH: `body_parent_force_w [env, body, 3]` N, `body_parent_torque_w` N m about the body frame origin,
      world axes: what MuJoCo's force and torque sensors measure; gravity compensation counts as held by the parent.
    - NATIVE_SENSOR: `native:NAME [env, dim]`: MuJoCo's sensordata of that sensor.
    - SHAPES: no array; see `shapes`.
    - CONTACT_REPORT: `contact_array(requirement) [env, primary, slot, column]`. `found` also counts contacts in the gap
      zone of a geom, which have no force. With ``netforce``, dist is 0, normal and tangent are the x and y axes.

    State is open as `qpos`, `qvel`, `act`, `ctrl`, `mocap_pos`, `mocap_quat`, `gravity` and `magnetic`, in the type of
    the simulator: float64 of MuJoCo, float32 of mujoco_warp.

    Rows of bodies follow `names("body")`: the bodies of the model without the world. Rows of joints follow
    `names("scalar_joint")`: hinges and slides that have a name.
    """

    name = "mujoco"
    _model: Any
    _computes_when_fresh = True
    """Whether with `fresh=True` accelerations and wrenches of bodies are computed whatever sensors the model has."""
    _reads_friction = False
    """Whether the engine reads the dry friction at joints itself, instead of computing it."""
    _holds_asleep = True
    """Whether native sensors hold what is not computed of bodies that sleep, see `mujoco.sleep`."""

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
        """The highest mjtStage that a prepared requirement needs."""
        self._dirty = self._needs_forward = True
        self._previous: dict[str, torch.Tensor] = {}  # state of one tick ago, where derived state is that old
        self._fields: tuple[str, ...] = ()
        self._model_fields: tuple[str, ...] = ()
        self._named: Elements | None = None
        self._described: tuple[Any, tuple[NativeSensor, ...]] | None = None
        self._shapes: tuple[Any, tuple[Shape, ...]] | None = None
        self._told: set[str] = set()  # what was warned of already
        self._diverged = np.zeros(num_envs, dtype=bool)

    def _ensure(self) -> None:
        """Make sure that the environments exist."""

    def _new_derived(self, threads: int | None) -> Derived:
        return Derived(self.num_envs, self.device, Compute("cpu", self.num_envs, threads))

    @property
    def model(self) -> Any:
        """The compiled MjModel. Editing it does not reach a batch of environments."""
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
        """The named elements of the compiled model."""
        model = self.model
        if self._named is None or self._named.model is not model:
            self._named = Elements(model)
        return self._named

    def _report_limits(self, counts: np.ndarray) -> None:
        """Warn where MuJoCo ran out of memory, once for each of `LIMITS`.

        Args:
            counts: how often `[env, limit]`, in the order of `LIMITS`.
        """
        fix = f'<size memory="..."/> of the model, now {int(self.model.narena)} bytes'
        for column, lost in enumerate(LIMITS.values()):
            self._warn_too_small(np.flatnonzero(counts[:, column]), "at", f"MuJoCo's {lost}", fix)

    def _warn_too_small(self, envs: np.ndarray, when: str, what: str, larger: str) -> None:
        """Warn that the memory of some environments was too small, once for each thing that was lost.

        Args:
            envs: their numbers; empty where all is well.
            when: "at" the tick now, or "by".
            what: what the memory is for, and what was lost.
            larger: what to raise.
        """
        if what in self._told or not len(envs):
            return
        self._told.add(what)
        warnings.warn(
            f"the memory of env {listed(map(str, envs), 8)} was too small {when} tick {self.tick} for {what}. "
            f"Raise {larger}. This is said once.",
            SensoriumWarning,
            stacklevel=5,
        )

    def _check_time_step(self, step: float, where: str) -> None:
        """Raise where a time step is not the one that the engine and its scene count time by.

        Args:
            step: the time step that is set now, s.
            where: whose it is.

        Raises:
            ScheduleError: it was edited.
        """
        if step != self.dt:
            raise ScheduleError(
                f"{where}: the time step is {step:g} s now, and was {self.dt:g} s when the engine was made. Sensors "
                'count time by that. Set <option timestep="..."/> in the model, and make a new engine and scene.'
            )

    def _note_diverged(self, envs: np.ndarray) -> None:
        """Mark environments whose state became NaN, infinite or huge, and warn of those that are new.

        Args:
            envs: bool `[env]`.
        """
        new = envs & ~self._diverged
        if not new.any():
            return
        self._diverged |= new
        put_back = " and MuJoCo put it back to the model's default state" if self._resets_itself else ""
        warnings.warn(
            f"the state of env {listed(map(str, np.flatnonzero(new)), 8)} became NaN, infinite or huge by tick "
            f"{self.tick}{put_back}: lower the time step, soften contacts or gains, or check the control. Its samples "
            "are not valid, and engine.diverged marks it, until it is reset.",
            NonFiniteStateWarning,
            stacklevel=5,
        )

    @property
    def _resets_itself(self) -> bool:
        """Whether MuJoCo replaces a state that diverged."""
        return not disabled(self.model.opt, "AUTORESET")

    @property
    def diverged(self) -> torch.Tensor:
        """Bool `[env]`: environments whose state became NaN, infinite or huge since their last reset."""
        return torch.from_numpy(self._diverged.copy())

    def replaced(self) -> torch.Tensor | None:
        """Return the environments that MuJoCo put back to the default state since their reset; None without any."""
        if not self._diverged.any() or not self._resets_itself:
            return None
        return self.diverged.to(self.device)

    def _check_unfresh(self, options: Any) -> None:
        """Raise ModelError where `fresh` is False and a step of MuJoCo leaves derived state that belongs to no tick."""
        if not self.fresh and int(options.integrator) == int(mujoco.mjtIntegrator.mjINT_RK4):
            raise ModelError(
                "fresh=False with the RK4 integrator: it leaves bodies at an intermediate state that belongs to no "
                "tick. Use fresh=True or another integrator."
            )

    def _derive(self, prepared: frozenset[Requirement]) -> None:
        """Make the derived arrays of requirements that the model meets."""
        self._fields = fields_of(prepared, held=self._holds_asleep and sleeps(self._model.opt))
        self._model_fields = model_fields_of(prepared)
        self._sensors = bool(native(prepared) or contacts(prepared))
        self._wrenches = any(map(needs_wrenches, prepared))
        self._bind(prepared)
        self._needs_forward = self._dirty = True  # fields hold nothing yet

    def _bind(self, prepared: frozenset[Requirement]) -> None:
        """Read the fields that are needed from where they are now."""
        sources = {name: _shared(self._source(name)) for name in (*self._fields, *self._model_fields)}
        if JOINT_TORQUE in prepared and self._reads_friction:
            sources[FRICTION] = _shared(self._source(FRICTION))
        if not self.fresh:  # a step leaves the state one tick newer than what is derived from it
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
        """Return a field of MuJoCo's data `[env, ...]`, or of the model `[1 or env, ...]`, at an address that stays."""
        raise NotImplementedError

    @property
    def _is_weightless(self) -> bool:
        """Whether the model has gravity switched off."""
        return disabled(self._model_options, "GRAVITY")

    def _check_time_steps(self) -> None:
        """Raise ScheduleError where a time step was edited."""
        raise NotImplementedError

    def _compute(self, current: bool, ids: torch.Tensor | None = None) -> None:
        """Bring MuJoCo's fields up to date.

        Args:
            current: whether they must be of the state now; else of the tick before.
            ids: environments, as `_selected` returns them, whose fields change; None for all.
        """
        raise NotImplementedError

    def _keep_state(self, ids: torch.Tensor | None = None) -> None:
        """Note the state now, of all envs or of some, which derived state belongs to after the next step."""
        self._note_state(self._previous, ids)

    def _note_state(self, into: Mapping[str, torch.Tensor], ids: torch.Tensor | None = None) -> None:
        for name, kept in into.items():
            put(kept, self._state_view(name), ids)

    def _selected(self, env_ids: Any) -> torch.Tensor | None:
        """Return the environments that an argument means, None for all."""
        return env_rows(env_ids, self.num_envs)

    def _check_shapes(self) -> None:
        """Raise ModelError where shapes were described, and are not the same in all environments any more."""

    def _follow_offsets(self, ids: torch.Tensor | None = None) -> None:
        """Bring mounts of all envs, or of some, to where the model has them on their bodies."""
        raise NotImplementedError

    def refresh(self) -> None:
        """Bring derived arrays up to the current tick (minus `lag`); nothing happens where they already are."""
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
        """Recompute derived state from the state as it is now, without taking time; it is then current (`lag` 0)."""
        self._dirty = self._needs_forward = True
        self.refresh()

    def _refresh_reset(self, ids: torch.Tensor | None) -> None:
        """Bring the derived state of environments that were reset up to date; that of the others stays as it is."""
        if ids is None:
            self.forward()
            return
        if not self.fresh:
            self.refresh()  # the last tick of the others, which a later refresh would read into these as well
        self._compute(True, ids)
        self._keep_state(ids)
        self._derived.convert(ids)
        self._follow_offsets(ids)
        self.lag = 0

    def _note_ticks(self) -> None:
        """Note that the state is newer than what is derived from it."""
        self._dirty, self._needs_forward = True, False
        self.lag = 0 if self.fresh else 1

    def state(self) -> dict[str, Any]:
        """Return tick and derived arrays, and what else a subclass needs to resume."""
        self.refresh()
        kept = {"arrays": copies(self._derived.arrays), "previous": copies(self._previous)}
        return {"tick": self.tick, "lag": self.lag, "diverged": torch.from_numpy(self._diverged.copy())} | kept

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self.tick, self.lag = int(state["tick"]), int(state["lag"])
        self._diverged[:] = state["diverged"].numpy()
        missing = restore(self._own_arrays(), state["arrays"]) + restore(self._previous, state["previous"])
        self._follow_offsets()
        self._dirty = self._needs_forward = bool(missing)

    def _own_arrays(self) -> Mapping[str, torch.Tensor]:
        """Return the derived arrays that are not restored with the state."""
        return self._derived.arrays

    def names(self, kind: NameKind) -> tuple[str, ...]:
        """Return all names of a kind in the order of the model, without the world and without hidden elements.

        Elements without a name are left out, except bodies, which are called `body_{id}`.
        """
        return self._elements.names(kind)

    def frame(self, kind: NameKind, name: str) -> FrameOnBody:
        """Return the body that an element sits on and its frame there.

        A joint's frame is its anchor with the body's axes; an actuator's that of the joint, site or body it acts on; a
        geom's that of the compiled model (MuJoCo moves a mesh geom to the mesh's inertial frame). `"world"` is body -1.

        Raises:
            UnknownNameError: no element has that name.
            ModelError: the element is not fixed to one body (a tracking camera, an actuator on a tendon).
        """
        return self._elements.frame(kind, name)

    def offsets(
        self, frames: Sequence[FrameOnBody], inner: Sequence[PoseOnBody]
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return where mounts on sites, geoms, cameras and joints are on their bodies, now and from now on.

        They follow the fields `site_pos`, `site_quat`, `geom_pos`, `geom_quat`, `cam_pos`, `cam_quat` and `jnt_pos`
        where their owner writes them. None where all frames are those of bodies. See `Engine.offsets`.
        """
        if all(frame.element is None for frame in frames):
            return None
        pair = self._offsets.add(frames, inner)
        self._bind_offsets()
        self._offsets.follow()
        return pair

    def camera_lens(self, name: str) -> CameraLens | None:
        """Return image and lens of a camera of the model as they are now, of each environment where they differ.

        An image of 1 x 1 pixel, MuJoCo's default, states no resolution.

        Raises:
            UnknownNameError: no camera has that name.
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
        """Return a field of the model as it is now, `[1 or env, ...]`."""
        return np.asarray(getattr(self.model, field))[None]

    def _bind_offsets(self) -> None:
        """Note where the fields are that say where mounts are on their bodies."""
        raise NotImplementedError

    # Support ---------------------------------------------------------------------------------------------------------

    def supports(self, requirement: Requirement) -> str | None:
        """Return None where the engine can give the requirement, else the reason and the fix."""
        kind, options = requirement.kind, self._model_options
        if requirement == SHAPES:
            return None
        if requirement not in NEEDS and kind not in ("NATIVE_SENSOR", "CONTACT_REPORT", "MODEL_ELEMENTS"):
            return "it is not available from this engine yet."
        needs_sensor = self._needs_sensor(requirement)
        fix = "use fresh=True, or " if needs_sensor and self._computes_when_fresh else ""
        why = None
        if needs_sensor and disabled(options, "SENSOR"):
            return f'the model has <flag sensor="disable"/>, with which MuJoCo computes none: {fix}remove it.'
        if kind == "NATIVE_SENSOR":
            why = reason(requirement, self.prepared, self._declared_types(), self._model, options)
        elif kind == "CONTACT_REPORT":
            why = contact_reason(self, requirement, self.model)
        elif requirement == JOINT_TORQUE:
            held = needs_sensor and sleeps(options)
            why = torque_fault(self.model, friction_known=self._reads_friction, held=held)
        if why is not None or not self._lacks(requirement):
            return why
        missing = f"what {kind} needs is not in the model"
        if needs_sensor and sleeps(options):
            missing = "MuJoCo computes this of bodies that sleep only for sensors on each of them"
        elif needs_sensor:
            missing = "MuJoCo computes body accelerations and wrenches only for a sensor that needs them"
        elif kind == "NATIVE_SENSOR":
            missing = "this sensor is not in the model"
        return self._cannot_change(missing, f"{fix}call sn.prepare(spec, sensors) on the MjSpec before you compile it")

    def supports_on(self, requirement: Requirement, body: int) -> str | None:
        """Return None where the engine can give a supported requirement of one body, else the reason and the fix."""
        if requirement != JOINT_WRENCH or self._computes_wrenches or body < 0:
            return None
        return static_wrench_fault(self.model, self._elements.body_ids[body])

    @property
    def _computes_wrenches(self) -> bool:
        """Whether accelerations and wrenches of bodies are computed whatever sensors the model has."""
        return self.fresh and self._computes_when_fresh

    @property
    def _model_options(self) -> Any:
        """The model's options, compiled or not."""
        return self._model.opt

    def _needs_sensor(self, requirement: Requirement) -> bool:
        """Whether native sensors make MuJoCo compute what a requirement needs, or hold it while bodies sleep."""
        needs = is_held(requirement) if sleeps(self._model_options) else needs_wrenches(requirement)
        return needs and not self._computes_wrenches

    def _lacks(self, requirement: Requirement) -> bool:
        """Whether the compiled model must change for a requirement; where there is none yet, it must be made."""
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
        """Return what to say where the model lacks something and cannot be changed, else None."""
        return f"{why}, and a compiled model cannot be changed: {fix}."

    # State -----------------------------------------------------------------------------------------------------------

    def _state_view(self, name: str) -> torch.Tensor:
        """Return a field of the state, or of the model's options (`"opt.gravity"`), `[env, ...]`."""
        raise NotImplementedError

    @property
    def qpos(self) -> torch.Tensor:
        """Positions `[env, nq]`, m and rad: the live state; a write counts after `forward()` or a step."""
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
        """Return the scalar joints that slide."""
        return self._elements.slide_joints()

    def parent_body(self, body: int) -> int:
        """Return the index of a body's parent, -1 for the world."""
        elements = self._elements
        return elements.body_row[int(self.model.body_parentid[elements.body_ids[body]])]

    def native_sensors(self) -> tuple[NativeSensor, ...]:
        """Return the sensors that the model itself declares, in its order; hidden and nameless ones are left out."""
        return self._declared(self.model)

    def native_sensor(self, requirement: Requirement) -> NativeSensor | None:
        """Return what a native sensor is, declared or added; None where the model has none."""
        return describe(self.model, requirement)

    def _declared_types(self) -> Mapping[str, str]:
        """Return the model's own sensors: name to the word for the type."""
        return {sensor.name: sensor.type for sensor in self._declared(self._model)}

    def _declared(self, model: Any) -> tuple[NativeSensor, ...]:
        """Return the model's own sensors, described once for each model."""
        if self._described is None or self._described[0] is not model:
            self._described = model, declared(model)
        return self._described[1]

    def shapes(self) -> tuple[Shape, ...]:
        """Return all geoms and flexes as shapes, in the order of the model, without those that sensors added.

        A geom without a name is called `geom_{id}`, a flex `flex_{id}`. Static are those on the world and on bodies
        that are welded to it, mocap bodies and what hangs on them not. Flexes and signed distance fields have a
        `fault`. Shapes are described once for each model: what is edited in it later does not reach them.

        Raises:
            ModelError: a mesh has no triangle with an area, or environments have different shapes.
        """
        model = self.model
        if self._shapes is None or self._shapes[0] is not model:
            self._shapes = model, model_shapes(self._shape_model(), self._elements.body_row)
        return self._shapes[1]

    def _shape_model(self) -> Any:
        return self.model

    @property
    def entities(self) -> tuple[str, ...]:
        """Prefixes before the first `/` of body names, in order; empty for a model without prefixes."""
        return tuple(dict.fromkeys(name.split("/")[0] for name in self.names("body") if "/" in name))

    @property
    def nu(self) -> int:
        """Number of controls."""
        return int(self.model.nu)

    @property
    def ctrl_range(self) -> torch.Tensor:
        """Lowest and highest control `[nu, 2]`, float64, in the actuators' units; infinite where not limited."""
        model = self.model
        limited = np.asarray(model.actuator_ctrllimited, dtype=bool).reshape(-1)
        span = np.array(model.actuator_ctrlrange, dtype=np.float64).reshape(-1, 2)
        span[~limited] = (-np.inf, np.inf)
        return torch.from_numpy(span)

    @property
    def keyframes(self) -> tuple[str, ...]:
        """Names of the model's keyframes, in order; `key_{id}` for a nameless one."""
        model, key = self.model, mujoco.mjtObj.mjOBJ_KEY
        return tuple(mujoco.mj_id2name(model, key, i) or f"key_{i}" for i in range(model.nkey))

    def grants_late(self, requirement: Requirement) -> bool:
        """Whether a requirement may be prepared late: state of bodies and joints, gravity and magnetic flux.

        With `fresh=False` not after the first tick: what is computed then is one tick newer than the rest.
        """
        return (requirement in NEEDS and (self.fresh or self.tick == 0)) or super().grants_late(requirement)

    def array(self, name: str) -> torch.Tensor:
        """Return a derived array by name, float32 on `device`; the same tensor at the same address for life.

        Raises:
            UnknownNameError: (a KeyError) no such array, or the requirement that brings it was not prepared.
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
        """Replay the conversion of MuJoCo's fields as a captured graph, or launch each kernel by itself."""
        self._derived.compute.capture = on


def _shared(values: np.ndarray | torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same memory, also of an array that is read-only, which torch has no tensors for."""
    if isinstance(values, torch.Tensor):
        return values
    face = values.__array_interface__
    owner = SimpleNamespace(keeps=values, __array_interface__=face | {"data": (face["data"][0], False)})
    return torch.from_numpy(np.asarray(owner))


def keyframe_id(keyframe: str | int | None, names: Sequence[str], label: str) -> int:
    """Return the index of a keyframe given by name or index; -1 (the model's default state) for None.

    Raises:
        UnknownNameError: no such keyframe.
    """
    if keyframe is None:
        return -1
    if isinstance(keyframe, str) and keyframe in names:
        return list(names).index(keyframe)
    if isinstance(keyframe, int) and not isinstance(keyframe, bool) and 0 <= keyframe < len(names):
        return keyframe
    raise UnknownNameError(f"keyframe of {label}", str(keyframe), names)


def engine_fault(why: str, where: str, after: str) -> str:
    """Return what to say of an error that MuJoCo raised while it computed.

    Args:
        why: the text of the error.
        where: the environments.
        after: what is true now.
    """
    lines = [line.strip() for line in why.splitlines() if line.strip()]
    fix = 'Raise <size memory="..."/> of the model. ' if "<size memory" in why else ""
    return f"MuJoCo failed in {where}: {'; '.join(lines)}. {fix}{after}"


def model_time_step(value: float, label: str) -> float:
    """Return the time step of a model's options, s.

    Raises:
        ModelError: it is zero, negative, not finite, or absurd.
    """
    try:
        return time_step(float(value), "timestep")
    except ArgumentError as error:
        raise ModelError(f'{label}: {error} Write <option timestep="0.002"/>.') from None

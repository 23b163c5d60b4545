"""Common bases of the MuJoCo engines: names, frames, float32 arrays derived from MuJoCo's fields, and owned models."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Concatenate, ParamSpec, TypeVar

import mujoco
import numpy as np
import torch

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
from sensorium.engines.envs import (
    copies,
    env_rows,
    env_selection,
    positive_int,
    put,
    restore,
    row_values,
    time_step,
    write_controls,
)
from sensorium.engines.mujoco.contacts import contact_reason, contact_sensors
from sensorium.engines.mujoco.derived import FRICTION, NEEDS, STATE_SOURCES, Derived, Plan, needs_wrenches, plan_of
from sensorium.engines.mujoco.elements import Elements
from sensorium.engines.mujoco.native import declared, declared_types, describe, reason, sensor_id
from sensorium.engines.mujoco.sleep import disabled, is_held, lacks_held, sleeps, static_wrench_fault
from sensorium.engines.mujoco.source import Health, OwnedSource, Source, resets_itself
from sensorium.engines.mujoco.spec import (
    compile_spec,
    compose_spec,
    computes_acceleration,
    has_elements,
    label_of,
    load_spec,
    lost_visuals,
    prepare_spec,
)
from sensorium.engines.offsets import LiveOffsets
from sensorium.errors import ArgumentError, ModelError, ScheduleError, UnknownNameError
from sensorium.geometry.appearance import Lighting, Varied
from sensorium.geometry.shapes import Shape
from sensorium.spec import JOINT_TORQUE, JOINT_WRENCH, SHAPES, TENDON_PATHS, Requirement

_P = ParamSpec("_P")
_EngineT = TypeVar("_EngineT")
STATE_FIELDS = ("qpos", "qvel", "act", "ctrl", "mocap_pos", "mocap_quat")
"""State fields that `reset` writes and that are accessible as `engine.qpos` and so on."""


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
    _computes_when_fresh = True
    """Whether `fresh=True` computes accelerations and wrenches of bodies independently of the model's sensors."""
    _reads_friction = False
    """Whether the engine reads the dry friction at joints instead of computing it."""
    _holds_asleep = True
    """Whether native sensors hold values that MuJoCo does not compute for sleeping bodies, see `mujoco.sleep`."""

    def __init__(self, derived: Derived, fresh: bool) -> None:
        self.num_envs, self.device = derived.num_envs, derived.device
        self.fresh = fresh
        self.tick = 0
        self.lag = 0
        self.prepared: frozenset[Requirement] = frozenset()
        self._derived = derived
        self._offsets = LiveOffsets(derived.compute, self.device)
        self._health = Health(self.num_envs, lambda: self.tick)
        self._model: Any = None
        self._source: Any = None  # a Source, once the environments exist
        self._plan = Plan()
        self._dirty = self._needs_forward = True
        self._previous: dict[str, torch.Tensor] = {}  # state of the previous tick, where derived state lags
        self._newest: dict[str, torch.Tensor] = {}  # current state, which becomes the previous one of a live loop
        self._decorations: tuple[Any, tuple[Shape, ...]] | None = None

    def _ensure(self) -> Source:
        """Return the source; an engine that owns its model creates it on first use."""
        source: Source = self._source
        return source

    @property
    def model(self) -> Any:
        """Compiled MjModel. Edits do not affect the environments of a batch."""
        return self._ensure().model

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
        return self._ensure().elements

    def _check_time_steps(self) -> None:
        """Raise an error if a time step differs from the one that the engine and its scene use.

        Raises:
            ScheduleError: a time step was edited.
        """
        if (edited := self._source.edited_time_step(self.dt)) is not None:
            self._check_time_step(*edited)

    def _check_time_step(self, step: float, where: str) -> None:
        if step != self.dt:
            raise ScheduleError(
                f"{where}: the time step is {step:g} s now, and was {self.dt:g} s when the engine was created. Sensors "
                'count time by that value. Set <option timestep="..."/> in the model, and rebuild engine and scene.'
            )

    @property
    def diverged(self) -> torch.Tensor:
        """Bool `[env]`: environments whose state became NaN, infinite or huge since their last reset.

        mujoco_warp and MJX do not record this: those whose positions or velocities are currently not finite.
        """
        return self._ensure().diverged

    def replaced(self) -> torch.Tensor | None:
        """Return the environments that MuJoCo reset to the default state since their last reset, or None."""
        if not np.count_nonzero(self._health.diverged) or not resets_itself(self.model):
            return None
        return self.diverged.to(self.device)

    def _check_unfresh(self, options: Any) -> None:
        """Raise ModelError if `fresh` is False and a MuJoCo step leaves derived state that belongs to no tick."""
        if not self.fresh and int(options.integrator) == int(mujoco.mjtIntegrator.mjINT_RK4):
            raise ModelError(
                "fresh=False with the RK4 integrator: it leaves bodies at an intermediate state that belongs to no "
                "tick. Use fresh=True or another integrator."
            )
        if not self.fresh and not self._holds_asleep and sleeps(options):
            raise ModelError(
                f'fresh=False with <flag sleep="enable"/>: a step of {self.name} then leaves velocities that are newer '
                "than the positions. Use fresh=True or remove the flag."
            )

    def _derive(self, prepared: frozenset[Requirement]) -> None:
        """Create the derived arrays of requirements that the model fulfils."""
        held = self._holds_asleep and sleeps(self._model.opt)
        self._bind(prepared, plan_of(self._model, prepared, held=held))
        self._newest = {} if self.owns_time else copies(self._previous)
        self._needs_forward = self._dirty = True  # the fields are still empty

    def _bind(self, prepared: frozenset[Requirement], plan: Plan) -> None:
        """Read the fields of a plan from their current memory."""
        source, self._plan = self._source, plan
        source.bind(plan)
        names = [*plan.fields, *plan.model_fields]
        names += [FRICTION] if JOINT_TORQUE in prepared and self._reads_friction else []
        fields = {name: shared_memory(source.field(name)) for name in names}
        if not self.fresh:  # after a step the state is one tick newer than derived state
            for name in STATE_SOURCES:
                if name in fields:
                    self._previous.setdefault(name, fields[name].clone())
            fields |= self._previous
        if source.is_weightless and "opt.gravity" in fields:
            fields["opt.gravity"] = torch.zeros_like(fields["opt.gravity"])
        self._derived.build(source.elements, prepared, fields)

    def _update(self, is_current: bool, ids: torch.Tensor | None = None) -> None:
        """Bring MuJoCo's fields and derived state of all envs or some up to date, see `Source.compute`."""
        if self._source.was_moved():
            self._bind(self.prepared, self._plan)
        self._source.compute(ids, is_current=is_current, is_edited=self._needs_forward)
        if is_current:
            if self._previous:
                self._keep_state(ids)
            self.lag = 0
        self._derived.convert(ids)
        self._follow_offsets(ids)

    def _keep_state(self, ids: torch.Tensor | None = None) -> None:
        """Store the current state of all envs or some, to which derived state belongs after the next step."""
        for kept in (self._previous, self._newest):
            self._note_state(kept, ids)

    def _note_state(self, into: Mapping[str, torch.Tensor], ids: torch.Tensor | None = None) -> None:
        for name, kept in into.items():
            put(kept, self._source.state(name), ids)

    def _selected(self, env_ids: Any) -> torch.Tensor | None:
        """Return the selected environments, None for all."""
        choose = env_selection if self._source.takes_masks else env_rows
        return choose(env_ids, self.num_envs, self._derived.compute.device)

    def _follow_offsets(self, ids: torch.Tensor | None = None) -> None:
        """Update the mounts of all envs or some from the model's poses on their bodies."""
        if self._offsets.views:
            self._source.follow(self._offsets, ids)

    def refresh(self) -> None:
        """Bring derived arrays up to the current tick (minus `lag`); no effect where they are up to date."""
        self._ensure()
        if not self._dirty:
            return
        self._update(self.fresh or self._needs_forward)
        self._dirty = self._needs_forward = False

    def forward(self) -> None:
        """Recompute derived state from the current state without advancing time; it is then current (`lag` 0)."""
        self._dirty = self._needs_forward = True
        self.refresh()

    def _refresh_reset(self, ids: torch.Tensor | None) -> None:
        """Bring the derived state of reset environments up to date, and leave that of the others unchanged."""
        if ids is None or (self.fresh and self._source.updates_all):
            self.forward()
            return
        if not self.fresh:
            self.refresh()  # the last tick of the other envs, because a later refresh would also read into these
        self._update(True, ids)

    def _note_ticks(self) -> None:
        """Record that the state is newer than derived state."""
        self._dirty, self._needs_forward = True, False
        self.lag = 0 if self.fresh else 1

    def state(self) -> dict[str, Any]:
        """Return tick and derived arrays, and further data of a subclass to resume."""
        self.refresh()
        kept = {"arrays": copies(self._derived.arrays), "previous": copies(self._previous)}
        return {"tick": self.tick, "lag": self.lag, "diverged": torch.from_numpy(self._health.diverged.copy())} | kept

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state`."""
        self._source.forget(None)
        self.tick, self.lag = int(state["tick"]), int(state["lag"])
        self._health.diverged[:] = state["diverged"].numpy()
        live = {self._source.state(name).untyped_storage().data_ptr() for name in STATE_SOURCES}
        arrays = self._derived.arrays.items()  # those on the memory of the state are restored with it
        own = {name: values for name, values in arrays if values.untyped_storage().data_ptr() not in live}
        missing = restore(own, state["arrays"]) + restore(self._previous, state["previous"])
        self._follow_offsets()
        self._dirty = self._needs_forward = bool(missing)

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
        self._source.place(self._offsets)
        self._offsets.start()
        return pair

    def camera_lens(self, name: str) -> CameraLens | None:
        """Return the current image and lens of a camera of the model, per environment where they differ.

        An image of 1 x 1 pixel, MuJoCo's default, counts as no resolution.

        Raises:
            UnknownNameError: there is no such camera.
        """
        i, model, values = self._elements.row("camera", name), self.model, self._source.values
        width, height = (int(size) for size in model.cam_resolution[i])
        sensor = tuple(float(size) for size in model.cam_sensorsize[i])
        projection = mujoco.mjtProjection(int(model.cam_projection[i]))
        return CameraLens(
            resolution=(width, height) if width * height > 1 else None,
            fovy=values("cam_fovy")[:, i].astype(np.float64),
            sensor_size=(sensor[0], sensor[1]) if min(sensor) > 0.0 else None,
            intrinsic=values("cam_intrinsic")[:, i].astype(np.float64),
            is_orthographic=projection == mujoco.mjtProjection.mjPROJ_ORTHOGRAPHIC,
        )

    # Support ---------------------------------------------------------------------------------------------------------

    def supports(self, requirement: Requirement) -> str | None:
        """Return None if the engine supports the requirement, otherwise the reason and the fix."""
        kind, options = requirement.kind, self._model_options
        why: str | None = None if self._source is None else self._source.fault(requirement)
        if why is not None or requirement == SHAPES:
            return why
        if requirement not in NEEDS and kind not in ("NATIVE_SENSOR", "CONTACT_REPORT", "MODEL_ELEMENTS"):
            return "it is not supported by this engine yet."
        needs_sensor = self._needs_sensor(requirement)
        fix = "use fresh=True, or " if needs_sensor and self._computes_when_fresh else ""
        if needs_sensor and disabled(options, "SENSOR"):
            return f'the model has <flag sensor="disable"/>, which disables all sensors: {fix}remove it.'
        if kind == "NATIVE_SENSOR":
            why = reason(requirement, self.prepared, self._declared_types(), self._model, options)
        elif kind == "CONTACT_REPORT":
            why = contact_reason(self, requirement, self._elements)
        elif requirement == JOINT_TORQUE:
            from sensorium.engines.mujoco.torque import torque_fault

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
        return self._source.options

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

    @property
    def qpos(self) -> torch.Tensor:
        """Positions `[env, nq]`, m and rad: the live state; a write takes effect after `forward()` or a step."""
        return self._ensure().state("qpos")

    @property
    def qvel(self) -> torch.Tensor:
        """Velocities `[env, nv]`, m/s and rad/s, as `qpos`."""
        return self._ensure().state("qvel")

    @property
    def act(self) -> torch.Tensor:
        """Actuator activations `[env, na]`, as `qpos`."""
        return self._ensure().state("act")

    @property
    def ctrl(self) -> torch.Tensor:
        """Controls `[env, nu]`, in the actuators' units, as `qpos`."""
        return self._ensure().state("ctrl")

    @property
    def mocap_pos(self) -> torch.Tensor:
        """Positions of mocap bodies `[env, mocap, 3]`, m, world, as `qpos`."""
        return self._ensure().state("mocap_pos")

    @property
    def mocap_quat(self) -> torch.Tensor:
        """Orientations of mocap bodies `[env, mocap, 4]`, wxyz, world, as `qpos`."""
        return self._ensure().state("mocap_quat")

    @property
    def gravity(self) -> torch.Tensor:
        """Gravity of each environment `[env, 3]`, m/s^2, world, as `qpos`; a reset keeps it."""
        return self._ensure().state("opt.gravity")

    @property
    def magnetic(self) -> torch.Tensor:
        """Magnetic flux of each environment `[env, 3]`, world, in the model's unit, as `gravity`."""
        return self._ensure().state("opt.magnetic")

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
        return self._ensure().sensors

    def native_sensor(self, requirement: Requirement) -> NativeSensor | None:
        """Return a native sensor, declared or added; None if the model does not contain it."""
        return describe(self.model, requirement)

    def _declared_types(self) -> Mapping[str, str]:
        """Return the model's own sensors: name to type, as in MuJoCo's XML."""
        sensors = declared(self._model) if self._source is None else self._source.sensors
        return {sensor.name: sensor.type for sensor in sensors}

    def shapes(self) -> tuple[Shape, ...]:
        """Return all geoms and flexes as shapes in model order, without those added for sensors.

        Unnamed geoms and flexes are named as in `names`, e.g. `flex_0`. Shapes on the world and on bodies welded
        to it are static; mocap bodies and their descendants are not. Flexes and signed distance fields have a `fault`.
        Shapes are described once per model: later edits have no effect on them.

        Raises:
            ModelError: a mesh has no triangle with an area, or shapes differ between environments.
        """
        return self._ensure().shapes

    def decorations(self) -> tuple[Shape, ...]:
        """Return spatial tendons, sites and skins in this order, without those added for sensors; see `shapes`.

        Unnamed elements are named by type and id, e.g. `tendon_3`. Skins have a `fault`.

        Raises:
            ModelError: a mesh has no triangle with an area.
        """
        from sensorium.engines.mujoco.shapes import model_decorations

        source = self._ensure()
        if self._decorations is None or self._decorations[0] is not source:
            poses = source.values("site_pos"), source.values("site_quat")
            fault = self.supports(TENDON_PATHS)
            self._decorations = source, model_decorations(source.shape_model(), source.elements.body_row, poses, fault)
        return self._decorations[1]

    def lighting(self) -> Lighting:
        """Return the lights, the sky, the fog and the textures of the model."""
        from sensorium.engines.mujoco.looks import model_lighting, model_textures

        own = [shape.material.texture for shape in self.shapes() if shape.material.texture is not None]
        return model_lighting(self.model, self._elements.body_row, model_textures(self.model, own))

    def looks(self) -> Varied:
        """Return the current colours, materials and lights of the model, per environment where they differ."""
        from sensorium.engines.mujoco.looks import model_looks
        from sensorium.engines.mujoco.shapes import visible_geoms

        return model_looks(self.model, visible_geoms(self.model), self._source.values)

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


def state_size(model: mujoco.MjModel) -> int:
    """Return the least count of numbers in the state of one environment: MuJoCo's state, poses and sensors."""
    integrated = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_INTEGRATION)
    return int(integrated + 7 * model.nbody + model.nsensordata)


class OwnedModelEngine(MujocoModelEngine):
    """An engine that compiles its MuJoCo model, with the elements that sensors need.

    Args:
        model: path to an MJCF or URDF file, XML text, an MjSpec, or a compiled MjModel, which cannot be changed.
        derived: the derived arrays.
        fresh: whether to bring derived state up to the current tick on read.
        keyframe: name or index of the keyframe with the initial state.

    Raises:
        ModelError: the file is missing or invalid, `model` has another type, or `fresh=False` with the RK4 integrator.
        UnknownNameError: there is no such keyframe.
    """

    owns_time = True
    _own_call = "MujocoEngine.from_mj(model, data)"
    """Call, for messages, that wraps live objects."""

    def __init__(self, model: Any, derived: Derived, fresh: bool, keyframe: str | int | None) -> None:
        super().__init__(derived, fresh)
        if isinstance(model, mujoco.MjData):
            raise ModelError(f"an MjData is not a model: wrap live objects with {self._own_call}.")
        self._label = label_of(model)
        self._spec: Any = None
        if isinstance(model, mujoco.MjModel):
            self._sealed, self._model = model, model
            options = model.opt
            keys = [mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_KEY, i) or f"key_{i}" for i in range(model.nkey)]
        else:
            self._sealed, self._spec, self.merged_hint = None, load_spec(model), ""
            options = self._spec.option
            keys = [key.name or f"key_{i}" for i, key in enumerate(self._spec.keys)]
        self._check_unfresh(options)
        self._key = keyframe_id(keyframe, keys, self._label)
        self.dt = model_time_step(options.timestep, self._label)

    @classmethod
    def compose(
        cls: Callable[Concatenate[Any, _P], _EngineT],
        entities: Mapping[str, Any],
        terrain: Any = None,
        *args: _P.args,
        **options: _P.kwargs,
    ) -> _EngineT:
        """Combine several models in one world, each under the prefix `name/`.

        Args:
            entities: name to a model (path, XML text or MjSpec), or to `(model, pos)` or `(model, pos, quat)` that
                places it (m, wxyz). The time step and other options are those of the first entity, unless `terrain` is
                given; a warning lists differing options of other entities.
            terrain: model that becomes the world itself, with its options.
            args: further positional arguments of the class.
            options: keyword arguments of the class; an entity's keyframe is named `entity/name`.

        Raises:
            ModelError: an entity's name or model is invalid; the message names the entity.
        """
        return cls(compose_spec(entities, terrain), *args, **options)

    def __repr__(self) -> str:
        if self._model is None:
            return self._repr(self._spec.modelname, len(self._spec.bodies) - 1)
        return super().__repr__()

    @abc.abstractmethod
    def _new_source(self, model: Any) -> OwnedSource:
        """Return new environments of a compiled model."""

    def _install(self, model: Any, prepared: frozenset[Requirement]) -> OwnedSource:
        """Create the environments of a model; the state of earlier ones, before the first tick, is carried over."""
        source = self._new_source(model)
        if self._source is not None:
            source.take_over(self._source)
        self._source, self._model = source, model
        self._previous = {}
        self.dt = model_time_step(model.opt.timestep, self._label)
        if self._offsets.views:
            source.place(self._offsets)
            self._offsets.follow()
        self._derive(prepared)
        return source

    def _ensure(self) -> OwnedSource:
        source: OwnedSource | None = self._source
        return self._install(self._compiled(frozenset()), self.prepared) if source is None else source

    def _compiled(self, new: frozenset[Requirement]) -> Any:
        if self._sealed is not None:
            return self._sealed
        spec = self._spec.copy()
        wanted = self.prepared | new
        if self._computes_wrenches:
            wanted = frozenset(requirement for requirement in wanted if not is_held(requirement))
        prepare_spec(spec, wanted)
        return compile_spec(spec, self._label)

    def camera_notice(self) -> str:
        """Return a warning if MuJoCo dropped the visual shapes of a URDF file, or an empty text."""
        return "" if self._spec is None else lost_visuals(self._spec)

    @property
    def _model_options(self) -> Any:
        if self._source is not None:
            return self._source.options
        return self._spec.option if self._model is None else self._model.opt

    def _declared_types(self) -> Mapping[str, str]:
        return declared_types(self._spec) if self._model is None else super()._declared_types()

    def _cannot_change(self, why: str, fix: str) -> str | None:
        if self._sealed is not None:
            return (
                f"{why}, and an MjModel cannot be changed: {fix}, or give the engine the spec or its file "
                "instead of the MjModel."
            )
        if self.tick > 0:
            return (
                f"{why}, and after {self.tick} ticks the model cannot be changed. Reserve sensors that will "
                "be added later: Scene(..., reserve=[...])."
            )
        return None

    def _apply(self, requirements: frozenset[Requirement]) -> None:
        prepared = self.prepared | requirements
        if self._model is not None:
            self._check_time_step(float(self._model.opt.timestep), "engine.model")
        if self._source is None or any(map(self._lacks, requirements)):
            self._install(self._compiled(requirements), prepared)
        else:
            self._derive(prepared)

    def step(self, ctrl: Any = None, substeps: int = 1) -> None:
        """Advance `substeps` ticks with one control.

        Args:
            ctrl: `[env, nu]`, or `[nu]` for all environments; None keeps `engine.ctrl`.
            substeps: number of ticks.

        Raises:
            ArgumentError: the control has a wrong shape.
            ScheduleError: the time step was edited.
            ModelError: MuJoCo failed, e.g. because its memory was too small.

        Warns:
            NonFiniteStateWarning: once per environment and episode, when MuJoCo put back a state that had become NaN,
                infinite or huge.
            SensoriumWarning: once for each kind, when the simulator's memory was too small, e.g. for all contacts.
        """
        source = self._ensure()
        substeps = positive_int(substeps, "substeps")
        self._check_time_steps()
        if ctrl is not None:
            write_controls(ctrl, source.state("ctrl"), self._controls)
        if self._previous:
            if substeps > 1:
                source.step(substeps - 1)
            self._keep_state()
            source.step(1)
        else:
            source.step(substeps)
        self.tick += substeps
        self._note_ticks()
        source.check()

    def _controls(self) -> str:
        count = len(self.names("actuator"))
        return f": {self.num_envs} environments, {self.nu} controls of {count} actuators"

    def reset(self, env_ids: Any, state: Mapping[str, Any] | None = None) -> None:
        """Reset environments, write `state` into them, and update their derived state; others are unchanged.

        With `fresh=False` the derived state of the reset environments is then current and `lag` is 0 until the next
        step, while that of the others is unchanged.

        Args:
            env_ids: None for all, integers, or a bool mask `[env]`. With a mask on the engine's device and no `state`,
                the host does not wait for a GPU.
            state: values for `qpos, qvel, act, ctrl, mocap_pos, mocap_quat`, each `[n, ...]` for the n environments in
                the order given, or values that broadcast to it. Omitted fields take the values of the model's default
                state or the keyframe. Fields of the model, gravity and magnetic flux are kept.

        Raises:
            ArgumentError: env ids or values do not fit.
            UnknownNameError: a key is not a state field.
            ModelError: described shapes are no longer the same in all environments. On CUDA the host does not wait for
                this check: a later step or reset raises it.
        """
        source = self._ensure()
        source.check_shapes()
        device = self._derived.compute.device
        ids = env_rows(env_ids, self.num_envs, device) if state else self._selected(env_ids)
        if ids is not None and len(ids) == 0:
            return
        targets = {name: source.state(name) for name in STATE_FIELDS}
        values = row_values(state or {}, targets, self.num_envs if ids is None else len(ids), "state")
        if not self.fresh and ids is not None:
            self.refresh()  # the last tick of the other envs, which the reset would otherwise lose
        source.reset(ids)
        for name, value in values.items():
            targets[name][slice(None) if ids is None else ids] = value
        self._refresh_reset(ids)

    def state(self) -> dict[str, Any]:
        """Return everything needed to resume: state, gravity and flux of each env, derived arrays and tick.

        A resumed run is bit-identical; on CUDA this requires `deterministic=True`.
        """
        return super().state() | {"rows": copies(self._source.rows()), "options": self._source.separate_options()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state`, in an engine with the same model and number of environments.

        Raises:
            ArgumentError: the state belongs to another model or number of environments.
        """
        source = self._ensure()
        source.separate(state["options"])
        rows, saved = source.rows(), state["rows"]
        shapes, given = ({name: tuple(each.shape) for name, each in part.items()} for part in (rows, saved))
        if shapes != given:
            differ = next(name for name in {**shapes, **given} if shapes.get(name) != given.get(name))
            raise ArgumentError(
                f"saved state: got {differ} of shape {given.get(differ)}, expected {shapes.get(differ)}: it belongs to "
                "another model or number of environments, or to other sensors."
            )
        restore(rows, saved)
        for name, values in state["options"].items():
            source.state(name).copy_(values)
        super().load_state(state)


def shared_memory(values: np.ndarray | torch.Tensor) -> torch.Tensor:
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


def model_time_step(value: float, label: str) -> float:
    """Return the time step of a model's options, s.

    Raises:
        ModelError: it is zero, negative, not finite or out of range.
    """
    try:
        return time_step(float(value), "timestep")
    except ArgumentError as error:
        raise ModelError(f'{label}: {error} Write <option timestep="0.002"/>.') from None

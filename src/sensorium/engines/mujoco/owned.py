"""Common base of engines that own their MuJoCo model: the model before it is compiled, and its requirements."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

import mujoco

from sensorium.engines.envs import copies, env_rows, positive_int, restore, row_values, write_controls
from sensorium.engines.mujoco.base import MujocoModelEngine, keyframe_id, model_time_step
from sensorium.engines.mujoco.derived import Derived
from sensorium.engines.mujoco.native import declared_types
from sensorium.engines.mujoco.sleep import is_held
from sensorium.engines.mujoco.source import OwnedSource
from sensorium.engines.mujoco.spec import compile_spec, compose_spec, label_of, load_spec, lost_visuals, prepare_spec
from sensorium.errors import ArgumentError, ModelError
from sensorium.spec import Requirement

_P = ParamSpec("_P")
_EngineT = TypeVar("_EngineT")
STATE_FIELDS = ("qpos", "qvel", "act", "ctrl", "mocap_pos", "mocap_quat")
"""State fields that `reset` writes and that are accessible as `engine.qpos` and so on."""


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
        if self._offsets:
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

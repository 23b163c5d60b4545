"""MuJoCo on the CPU: N environments on `mujoco.batch.Batch`, and (`from_mj`) a user's live MjModel and MjData.

With `fresh=True`, derived state is that of `mj_forward` on the state after the last tick, under the last control. This
does not alter the physics, bit for bit. The batch is stepped one tick ahead (see `lookahead`), so that the computation
is repeated only where something changed before the next tick, such as the control. With `fresh=False` nothing is
repeated: positions, velocities and accelerations are those before the last tick, and `lag` is 1.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import mujoco
import numpy as np
import torch

from sensorium.compute import check_envs
from sensorium.engines.envs import positive_int
from sensorium.engines.mujoco.base import BAD_STATE, LIMITS, engine_fault, model_time_step
from sensorium.engines.mujoco.live import LiveMujocoEngine
from sensorium.engines.mujoco.owned import STATE_FIELDS, OwnedModelEngine, state_size
from sensorium.engines.mujoco.shapes import SHAPE_FIELDS, check_shared, shared_model
from sensorium.engines.mujoco.sleep import sleeps
from sensorium.engines.mujoco.spec import prepare_spec
from sensorium.errors import MissingDependencyError, ModelError, SensoriumWarning, listed
from sensorium.spec import Requirement

__all__ = ["LiveMujocoEngine", "MujocoEngine", "prepare_spec"]

PERSISTENT_UP_TO = 32
"""Maximum number of environments with a separate MjData each, which lets a step continue from a forward computation.

A step under a new control then repeats only the acceleration stage. Beyond this number they no longer fit in the cache,
and sharing is faster. CPU time of a fresh tick of a 12-joint quadruped on one core, shared and persistent, in units of
a bare step, for a control that is held, changes every 10 ticks, every 4 ticks and at each tick:

- 32 environments: 1.10 and 1.10, 1.22 and 1.25, 1.35 and 1.20, 2.08 and 1.63,
- 64: 1.06 and 1.13, 1.18 and 1.15, 1.39 and 1.26, 2.05 and 1.43; with other data in the cache, persistent 1.34 to 1.63,
- 1024: 1.07 and 1.69, 1.21 and 1.74, 1.32 and 1.81, 2.06 and 2.40.

Sensors leave less of the cache to the data. On a busy machine, persistent data change the time of a control step of 5
ticks with an IMU, encoders, contacts and a height scan by 0.96 at 32 environments, 1.27 at 40 and 1.26 at 64.
"""
_BAD_CTRL = int(mujoco.mjtWarning.mjWARN_BADCTRL)
_NONE = int(mujoco.mjtStage.mjSTAGE_NONE)
_OPTIONS = ("opt.gravity", "opt.magnetic")


class MujocoEngine(OwnedModelEngine):
    """N parallel environments of one MuJoCo model, stepped on all cores.

    Args:
        model: path to an MJCF or URDF file, XML text (starts with ``<``), an MjSpec, or a compiled MjModel. A path or
            spec is compiled on first use, so that sensors can add the elements they require; an MjModel cannot be
            changed.
        num_envs: number of environments.
        device: torch device of the derived arrays; the physics runs on the CPU.
        fresh: whether to bring derived state up to the current tick on read; False leaves it one tick old, at no cost.
        threads: number of CPU threads; None for all that torch uses. Results do not depend on it.
        keyframe: name or index of the keyframe with the initial state and the state after a reset; None for the model's
            default state.

    Raises:
        ModelError: the file is missing or invalid, `model` has another type, or `fresh=False` with the RK4 integrator.
        MissingDependencyError: the installed MuJoCo has no `mujoco.batch` (older than 3.17).
        ArgumentError: `num_envs` or `threads` is not an integer of at least 1.
        UnknownNameError: there is no such keyframe.
    """

    _computes_when_fresh = False

    def __init__(
        self,
        model: Any,
        num_envs: int = 1,
        *,
        device: str = "cpu",
        fresh: bool = True,
        threads: int | None = None,
        keyframe: str | int | None = None,
    ) -> None:
        _batch_module()
        self._batch: Any = None
        threads = None if threads is None else positive_int(threads, "threads")
        super().__init__(model, positive_int(num_envs, "num_envs"), device, fresh, threads, keyframe)
        self._shared: list[str] = []  # fields that mounts depend on and that are shared by all envs
        self._has_models = self._moves = False
        self._views: dict[str, torch.Tensor] = {}
        self._bad_ctrl = np.zeros(num_envs, dtype=bool)
        self._models: Any = None

    @staticmethod
    def from_mj(model: Any, data: Any, *, device: str = "cpu", fresh: bool = True) -> LiveMujocoEngine:
        """Wrap a live MjModel and its MjData, or a sequence of MjData, one for each environment.

        The caller steps and resets them, and calls `scene.update()` after each step. The data is only read.

        Args:
            model: compiled MjModel.
            data: one MjData, or a sequence of them.
            device: torch device of the derived arrays.
            fresh: whether to recompute derived state of the state after the last step, on a private copy; False reads
                the state that mj_step left, one tick old.

        Raises:
            ModelError: an argument has a wrong type, or an MjData belongs to another model.
        """
        return LiveMujocoEngine(model, data, device=device, fresh=fresh)

    # Model -------------------------------------------------------------------------------------------------------

    @property
    def batch(self) -> Any:
        """The `mujoco.batch.Batch` of the environments, e.g. for `batch.get_data(env)`, `batch.expand(field)`.

        Use the engine to step; the batch does not count ticks.
        """
        self._ensure()
        return self._batch

    def _shape_model(self) -> Any:
        model = shared_model(self.batch)
        self._built = {field: np.array(getattr(model, field)) for field in SHAPE_FIELDS}
        return model

    def _model_values(self, field: str) -> np.ndarray:
        values, models = self.batch.expanded(field), self.batch.models
        return _of_models(self._model if models is None else models, field) if values is None else np.asarray(values)

    def _bind_offsets(self) -> None:
        models = self._batch.models
        fields = {name: self._batch.expanded(name) for name in self._offsets.fields}
        self._shared = [name for name, values in fields.items() if values is None]
        self._has_models = models is not None
        self._moves = self._moves or self._has_models or len(self._shared) < len(fields)
        for name in self._shared:
            fields[name] = _of_models(models if self._has_models else self._model, name)
        self._offsets.bind(self._elements.row, fields)

    def _follow_offsets(self, ids: torch.Tensor | None = None) -> None:
        """Update the mounts of all envs or some from their poses on their bodies, if any was ever moved."""
        if not self._offsets:
            return
        has_models = self._has_models or self._batch.models is not None
        if has_models or any(self._batch.expanded(name) is not None for name in self._shared):
            self._bind_offsets()
        if self._moves:
            self._offsets.follow(ids)

    def _install(self, model: Any, prepared: frozenset[Requirement]) -> None:
        """Create the batch of a model; the state of an earlier batch, before the first tick, is carried over."""
        old = self._batch
        check_envs("MujocoEngine", self.num_envs, 8 * state_size(model), "cpu")
        from sensorium.engines.mujoco.lookahead import LookaheadBatch  # needs mujoco.batch

        # sleeping bodies keep state outside the row, so MuJoCo needs an MjData per env
        persistent = sleeps(model.opt) or self.num_envs <= PERSISTENT_UP_TO
        batch = LookaheadBatch(model, self.num_envs, self._derived.compute.threads, persistent)
        batch.reset(keyframe=self._key, stage=_NONE)
        if old is not None:
            self._carry_over(old, batch)
        self._is_installed, self._batch, self._model = True, batch, model
        self._previous = {}
        self.dt, self._options = model_time_step(model.opt.timestep, self._label), model.opt
        self._derive(prepared)
        if self._offsets:
            self._bind_offsets()
            self._offsets.follow()
        for name, view in self._views.items():
            view.set_(self._view_of(name))  # type: ignore[call-overload]  # tensors returned earlier show the new state

    def _carry_over(self, old: Any, new: Any) -> None:
        changed = [f for f in STATE_FIELDS if old.bind(f).shape != new.bind(f).shape]
        if changed:
            start = _batch_module().Batch(old.model, 1)
            start.reset(keyframe=self._key, stage=_NONE)
            if any(
                not np.array_equal(old.bind(f), np.broadcast_to(start.bind(f), old.bind(f).shape)) for f in STATE_FIELDS
            ):
                raise ModelError(
                    f"a sensor's MODEL_ELEMENTS changed the size of {', '.join(changed)}, which was written before the "
                    "scene was created: write the state after Scene(...)."
                )
        else:
            for name in STATE_FIELDS:
                new.bind(name)[...] = old.bind(name)
        if old.models is not None:
            raise ModelError(
                "batch.set_models was called before the scene was created, which then changed the model: call it after "
                "Scene(...), with models that contain the elements its sensors need (sn.prepare)."
            )
        for name in sorted(_batch_module().MODEL_FIELDS):
            values = old.expanded(name)
            if values is None or np.array_equal(values, np.broadcast_to(_shared_value(old.model, name), values.shape)):
                continue
            into = new.expand(name)
            if into.shape != values.shape:
                raise ModelError(
                    f"a sensor changed the size of {name}, which was expanded and written before the scene was "
                    f"created: expand and write it after Scene(...)."
                )
            into[...] = values

    def _source(self, name: str) -> np.ndarray:
        is_of_model = name in self._model_fields or name in _OPTIONS
        values: np.ndarray = self._batch.expand(name) if is_of_model else self._batch.bind(name)
        return values

    # State -------------------------------------------------------------------------------------------------------

    def _state_view(self, name: str) -> torch.Tensor:
        self._ensure()
        if name not in self._views:
            self._views[name] = self._view_of(name)
        return self._views[name]

    def _view_of(self, name: str) -> torch.Tensor:
        with torch.inference_mode(False):  # tensors created in that mode cannot be written outside it
            return torch.from_numpy(self._source(name))

    # Time --------------------------------------------------------------------------------------------------------

    def _advance(self, ticks: int) -> None:
        self._run(self._batch.advance, nstep=ticks)

    def _run(self, call: Callable[..., None], **given: Any) -> None:
        """Run a computation of the batch.

        Raises:
            ModelError: MuJoCo failed in some environments, e.g. because its memory was too small.
        """
        try:
            call(**given)
        except RuntimeError as error:
            if not hasattr(error, "ids"):
                raise
            which = f"env {listed(map(str, error.ids), 8)}"
            why = self._batch.error(error.ids[0])
            after = "Their state is unchanged; all others were computed. Reset, or create a new engine."
            raise ModelError(engine_fault(why, which, after)) from error

    def _check_time_steps(self) -> None:
        batch = self._batch
        self._check_time_step(self._options.timestep, "engine.model")
        if (each := batch.expanded("opt.timestep")) is not None:
            for step in {float(each.min()), float(each.max())}:
                self._check_time_step(step, 'engine.batch.expand("opt.timestep")')
        if batch.models is not None and batch.models is not self._models:
            self._models = batch.models
            for step in np.unique(_of_models(self._models, "opt.timestep")):
                self._check_time_step(float(step), "engine.batch.set_models")

    def _check_state(self) -> None:
        counters = self._batch.warning
        if not np.count_nonzero(counters):
            return
        self._report_limits(counters[:, list(LIMITS), 1])
        diverged, bad_ctrl = counters[:, BAD_STATE, 1].any(axis=1), counters[:, _BAD_CTRL, 1] > 0
        counters[...] = 0  # counts of earlier steps were reported
        self._note_diverged(diverged)
        if (new := bad_ctrl & ~self._bad_ctrl).any():
            self._bad_ctrl |= new
            warnings.warn(
                f"the controls of env {listed(map(str, np.flatnonzero(new)), 8)} were NaN, infinite or huge by tick "
                f"{self.tick}, and MuJoCo applied zeros instead: check ctrl. This warning is issued once per env and "
                "episode.",
                SensoriumWarning,
                stacklevel=4,
            )

    def _compute(self, current: bool, ids: torch.Tensor | None = None) -> None:
        if not current or not self.stage:
            return
        if ids is None and not self._needs_forward:
            self._run(self._batch.observe, stage=self.stage)
        else:
            self._run(self._batch.forward, ids=_sorted(ids), stage=self.stage)
        if np.count_nonzero(counters := self._batch.warning):
            self._report_limits(counters[:, list(LIMITS), 1])

    def _check_shapes(self) -> None:
        if self._shapes is not None:
            check_shared(self._model, self._batch.expanded, self._built)

    def _put_back(self, ids: torch.Tensor | None) -> None:
        rows = _sorted(ids)
        self._batch.reset(ids=rows, keyframe=self._key, stage=_NONE)
        for flags in (self._diverged, self._bad_ctrl):
            flags[slice(None) if rows is None else rows] = False

    def _rows(self) -> dict[str, torch.Tensor]:
        return {"state": torch.from_numpy(self._batch.state)}

    def _own_options(self) -> dict[str, torch.Tensor]:
        expanded = {name: self._batch.expanded(name) for name in _OPTIONS}
        return {name: torch.tensor(values, device="cpu") for name, values in expanded.items() if values is not None}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state`, in an engine with the same model and number of environments.

        Raises:
            ArgumentError: the state belongs to another model or number of environments.
        """
        super().load_state(state)
        self._batch.warning[...] = 0
        for name in _OPTIONS:
            if name not in state["options"] and (values := self._batch.expanded(name)) is not None:
                values[...] = _shared_value(self._model, name)


def _sorted(ids: torch.Tensor | None) -> np.ndarray | None:
    """Return environments in the order that a batch requires."""
    return None if ids is None else np.sort(ids.numpy())


def _batch_module() -> Any:
    try:
        from mujoco import batch
    except ImportError as error:
        raise MissingDependencyError(
            f"MujocoEngine needs mujoco.batch of MuJoCo 3.17 or newer; {mujoco.__version__} is installed. "
            "Upgrade (pip install 'mujoco>=3.17'), or step a live model yourself: MujocoEngine.from_mj(model, data)."
        ) from error
    return batch


def _shared_value(model: Any, name: str) -> np.ndarray:
    return np.asarray(getattr(model.opt, name[4:]) if name.startswith("opt.") else getattr(model, name))


def _of_models(models: Any, name: str) -> np.ndarray:
    """Return a field of one model shared by all environments `[1, ...]`, or of the models of all `[env, ...]`."""
    each = models if isinstance(models, list | tuple) else [models]
    return np.stack([_shared_value(model, name) for model in each])

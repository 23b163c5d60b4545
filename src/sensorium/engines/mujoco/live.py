"""A live MjModel and MjData of the user as an engine: read only, stepped and reset by their owner."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
import torch

from sensorium.compute import keeps_current
from sensorium.engines.mujoco.base import BAD_STATE, LIMITS, engine_fault, model_time_step
from sensorium.engines.mujoco.needs import FRICTION
from sensorium.engines.mujoco.sleep import AWAKE, disabled
from sensorium.engines.mujoco.torque import dry_friction
from sensorium.engines.mujoco.wrapped import WrappedModelEngine
from sensorium.errors import ModelError, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPTIONS = {"opt.gravity", "opt.magnetic"}
_SPEC = int(mujoco.mjtState.mjSTATE_INTEGRATION)
_QUIET = np.zeros(len(BAD_STATE), dtype=np.int32).tobytes()
_POS, _VEL, _ACC = (int(getattr(mujoco.mjtStage, f"mjSTAGE_{stage}")) for stage in ("POS", "VEL", "ACC"))


class LiveMujocoEngine(WrappedModelEngine):
    """Live MjData of one MjModel, one for each environment; created by `MujocoEngine.from_mj`.

    The state is float64: with one environment the owner's arrays themselves, with several a copy. Gravity and magnetic
    flux are always a copy (write `model.opt`).

    The owner calls mj_step and then `scene.update()`. Edits by the owner (state, model, gravity) take effect at the
    next `scene.update()`. The engine writes nothing of the owner's: with `fresh=True` the state is copied into a
    private MjData, where MuJoCo's forward computation runs without the owner's control callback.

    Args:
        model: compiled MjModel.
        data: one MjData, or a sequence of them.
        device: torch device of the derived arrays.
        fresh: whether to recompute derived state after each step; False reads the state that mj_step left (`lag` 1).

    Raises:
        ModelError: an argument has a wrong type, an MjData belongs to another model, or `fresh=False` with the RK4
            integrator.
    """

    _data, _step_call = "MjData", "mujoco.mj_step(model, data)"
    _reset_fix = "set {} in your data (mujoco.mj_resetData(model, data); data.qpos[:] = ...)"
    _reads_friction = True
    _is_weightless = False  # the owner may change gravity at any time, so `_compute` checks it

    @keeps_current
    def __init__(self, model: Any, data: Any, *, device: str = "cpu", fresh: bool = True) -> None:
        if not isinstance(model, mujoco.MjModel):
            raise ModelError(f"from_mj: got {shown(model)} as the model, expected a compiled mujoco.MjModel.")
        datas = list(data) if isinstance(data, list | tuple) else [data]
        for item in datas:
            if not isinstance(item, mujoco.MjData):
                raise ModelError(f"from_mj: got {shown(item)}, expected a mujoco.MjData or a sequence of them.")
            if (item.qpos.size, item.ctrl.size, len(item.xpos)) != (model.nq, model.nu, model.nbody):
                raise ModelError(
                    "from_mj: the sizes of an MjData differ from the model: create it with mujoco.MjData(model)."
                )
        if not datas or len({id(item) for item in datas}) != len(datas):
            raise ModelError("from_mj: expected one distinct mujoco.MjData for each environment.")
        super().__init__(len(datas), device, fresh, None)
        self._check_unfresh(model.opt)
        self._model, self._datas = model, datas
        self.dt, self._time = model_time_step(model.opt.timestep, "from_mj"), model.opt
        self._scratch = self._new_scratch()
        self._row = np.empty(mujoco.mj_stateSize(model, _SPEC))
        self._sources: dict[str, np.ndarray] = {}
        self._places: list[np.ndarray] = []  # fields with the poses of mounts on their bodies, and their last values
        self._placed: list[bytes] = []
        self._bad = [data.warning.number[BAD_STATE[0] : BAD_STATE[-1] + 1] for data in datas]  # live views
        self._counted, self._times = self._warned()
        self._derive(frozenset())

    @property
    def datas(self) -> tuple[Any, ...]:
        """MjData of the owner, one for each environment."""
        return tuple(self._datas)

    def _source(self, name: str) -> np.ndarray:
        """Return an array that `_compute` fills, or the owner's own values where all envs share them."""
        if name in self._model_fields and not name.startswith("opt."):
            return np.asarray(getattr(self._model, name))[None]
        owner, field = (self._model.opt, name[4:]) if name.startswith("opt.") else (self._scratch, name)
        like = self._scratch.qvel if name == FRICTION else getattr(owner, field)
        return self._sources.setdefault(name, np.zeros((self.num_envs, *like.shape), like.dtype))

    def _bind_offsets(self) -> None:
        sources = {name: getattr(self._model, name)[None] for name in self._offsets.fields}
        self._places, self._placed = list(sources.values()), []
        self._offsets.bind(self._elements.row, sources)

    def _follow_offsets(self, ids: torch.Tensor | None = None) -> None:
        """Update the mounts of all envs or some from their poses on their bodies, if these changed."""
        placed = [values.tobytes() for values in self._places]
        if placed != self._placed:
            self._offsets.follow(ids)
            self._placed = placed if ids is None else []

    def _state_view(self, name: str) -> torch.Tensor:
        if name.startswith("opt."):
            values = getattr(self._model.opt, name.removeprefix("opt."))
            return torch.tensor(values, device="cpu").repeat(self.num_envs, 1)
        if self.num_envs == 1:
            return torch.from_numpy(getattr(self._datas[0], name))[None]
        return torch.from_numpy(np.stack([getattr(data, name) for data in self._datas]))

    def _check_time_steps(self) -> None:
        self._check_time_step(self._time.timestep, "the wrapped MjModel")

    def _forget(self, ids: torch.Tensor | None) -> None:
        rows = slice(None) if ids is None else ids.numpy()
        self._diverged[rows] = False
        counts, times = self._warned()
        self._counted[rows], self._times[rows] = counts[rows], times[rows]

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state`, after the owner restored the physics."""
        self._forget(None)
        super().load_state(state)

    def _newly_bad(self) -> np.ndarray | None:
        """Return where MuJoCo found a bad state since the last call; any reset restarts the counts.

        None if none was ever found, which is fastest.
        """
        if all(bad.tobytes() == _QUIET for bad in self._bad):
            self._counted[...] = 0
            return None
        counts, times = self._warned()
        again = (counts > 0) & (times < self._times)[:, None]
        bad: np.ndarray = np.any((counts > self._counted) | again, axis=1)
        self._counted, self._times = counts, times
        return bad

    def _warned(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of bad states `[env, warning]`, in the order of `BAD_STATE`, and the times `[env]`, s."""
        return np.array(self._bad), np.array([data.time for data in self._datas])

    def _compute(self, current: bool, ids: torch.Tensor | None = None) -> None:
        """Copy the required fields into the source arrays, from the live data or computed from its state."""
        if ids is None and (bad := self._newly_bad()) is not None:
            self._note_diverged(bad)
        option = self._model.opt
        weightless = disabled(option, "GRAVITY")
        full = np.zeros((self.num_envs, len(LIMITS)), dtype=np.int64)
        with _without_callbacks():
            for env in range(self.num_envs) if ids is None else ids.tolist():
                for name in _OPTIONS & self._sources.keys():
                    is_off = weightless and name == "opt.gravity"
                    self._sources[name][env] = 0.0 if is_off else getattr(option, name.removeprefix("opt."))
                data = self._forwarded(env) if current and self._fields else self._datas[env]
                for name in self._fields:
                    self._sources[name][env] = getattr(data, name)
                if FRICTION in self._sources:
                    self._sources[FRICTION][env] = dry_friction(self._model, data)
                numbers = data.warning.number
                full[env] = [numbers[limit] for limit in LIMITS]
        self._report_limits(full)

    def _forwarded(self, env: int) -> Any:
        """Compute derived state of one environment in private data.

        Raises:
            ModelError: MuJoCo failed, e.g. because its memory was too small.
        """
        try:
            return self._computed(self._datas[env], self._scratch)
        except mujoco.FatalError as error:
            self._scratch = self._new_scratch()  # data is unusable after an error
            raise ModelError(engine_fault(str(error), f"env {env}", "Your MjData is unchanged.")) from error

    def _new_scratch(self) -> Any:
        data = mujoco.MjData(self._model)
        data.tree_asleep[:] = AWAKE  # including trees that start asleep: only mj_step puts bodies to sleep
        return data

    def _computed(self, live: Any, data: Any) -> Any:
        model, stage = self._model, self.stage
        mujoco.mj_getState(model, live, self._row, _SPEC)
        mujoco.mj_setState(model, data, self._row, _SPEC)
        if stage >= _ACC:
            mujoco.mj_forward(model, data)
            if self._wrenches:
                mujoco.mj_rnePostConstraint(model, data)  # even if no sensor of the model requires it
        elif self._sensors:
            mujoco.mj_fwdPosition(model, data)
            mujoco.mj_sensorPos(model, data)
            mujoco.mj_fwdVelocity(model, data)  # also for position sensors: e_kinetic is then recomputed
            mujoco.mj_sensorVel(model, data)
        elif stage >= _POS:
            mujoco.mj_kinematics(model, data)
            if stage >= _VEL or self._tendons:
                mujoco.mj_comPos(model, data)
            if stage >= _VEL:
                mujoco.mj_comVel(model, data)
            if self._tendons:
                mujoco.mj_tendon(model, data)
        return data


@contextmanager
def _without_callbacks() -> Iterator[None]:
    """Disable control and sensor callbacks, which may count their calls, within the block."""
    control, sensor = mujoco.get_mjcb_control(), mujoco.get_mjcb_sensor()
    if control is None and sensor is None:
        yield
        return
    mujoco.set_mjcb_control(None)
    mujoco.set_mjcb_sensor(None)
    try:
        yield
    finally:
        mujoco.set_mjcb_control(control)
        mujoco.set_mjcb_sensor(sensor)

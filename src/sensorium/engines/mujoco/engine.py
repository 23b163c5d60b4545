"""MuJoCo on the CPU: N environments on `mujoco.batch.Batch`, and (`from_mj`) a user's live MjModel and MjData.

With `fresh=True`, derived state is that of `mj_forward` on the state after the last tick, under the last control. This
does not alter the physics, bit for bit. The batch is stepped one tick ahead (see `batch`), so that the computation
is repeated only where something changed before the next tick, such as the control. With `fresh=False` nothing is
repeated: positions, velocities and accelerations are those before the last tick, and `lag` is 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mujoco

from sensorium.compute import Compute, check_envs, keeps_current, resolve_device
from sensorium.engines.envs import positive_int
from sensorium.engines.mujoco.base import OwnedModelEngine, state_size
from sensorium.engines.mujoco.derived import Derived
from sensorium.engines.mujoco.sleep import sleeps
from sensorium.engines.mujoco.source import OwnedSource
from sensorium.errors import MissingDependencyError

if TYPE_CHECKING:
    from sensorium.engines.mujoco.live import LiveMujocoEngine

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


class MujocoEngine(OwnedModelEngine):
    """N parallel environments of one MuJoCo model, stepped on all cores.

    Args:
        model: path to an MJCF or URDF file, XML text (starts with ``<``), an MjSpec, or a compiled MjModel. A path or
            spec is compiled on first use, so that sensors can add the elements they require; an MjModel cannot be
            changed.
        num_envs: number of environments.
        device: torch device of the derived arrays; the physics runs on the CPU.
        fresh: whether to bring derived state up to the current tick on read; False leaves it one tick old, at no cost.
            Behind position servos, only the forces and accelerations of False integrate to the motion.
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

    @keeps_current
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
        try:
            from mujoco import batch  # noqa: F401
        except ImportError as error:
            raise MissingDependencyError(
                f"MujocoEngine needs mujoco.batch of MuJoCo 3.17 or newer; {mujoco.__version__} is installed. Upgrade "
                "(pip install 'mujoco>=3.17'), or step a live model yourself: MujocoEngine.from_mj(model, data)."
            ) from error
        threads = None if threads is None else positive_int(threads, "threads")
        num_envs = positive_int(num_envs, "num_envs")
        derived = Derived(num_envs, resolve_device(device), Compute("cpu", num_envs, threads))
        super().__init__(model, derived, fresh, keyframe)

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
        from sensorium.engines.mujoco.live import LiveMujocoEngine

        return LiveMujocoEngine(model, data, device=device, fresh=fresh)

    @property
    def batch(self) -> Any:
        """The `mujoco.batch.Batch` of the environments, e.g. for `batch.get_data(env)`, `batch.expand(field)`.

        Use the engine to step; the batch does not count ticks.
        """
        source: Any = self._ensure()
        return source.batch

    def _new_source(self, model: Any) -> OwnedSource:
        from sensorium.engines.mujoco.batch import BatchSource  # needs mujoco.batch

        check_envs("MujocoEngine", self.num_envs, 8 * state_size(model), "cpu")
        # sleeping bodies keep state outside the row, so MuJoCo needs an MjData per env
        persistent = sleeps(model.opt) or self.num_envs <= PERSISTENT_UP_TO
        threads = self._derived.compute.threads
        return BatchSource(model, self.num_envs, threads, persistent, self._key, self._health)

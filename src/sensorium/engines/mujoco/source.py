"""Sources: the memory of a simulation of an MjModel, and the computations on it, for one backend and kind of owner.

`MujocoModelEngine` is composed of a source and of the arrays that are derived from its fields (`Derived`). The sources
are `BatchSource` and `DataSource` of MuJoCo, `WarpSource` of mujoco_warp and `MjxSource` of MJX.
"""

from __future__ import annotations

import abc
import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any

import mujoco
import numpy as np
import torch

from sensorium.engines.base import NativeSensor
from sensorium.engines.mujoco.derived import Plan
from sensorium.engines.mujoco.elements import Elements
from sensorium.engines.mujoco.native import declared
from sensorium.engines.mujoco.sleep import disabled
from sensorium.engines.offsets import LiveOffsets
from sensorium.errors import NonFiniteStateWarning, SensoriumWarning, listed
from sensorium.geometry.shapes import Shape
from sensorium.spec import Requirement

_WARNING = mujoco.mjtWarning
LIMITS = {
    int(_WARNING.mjWARN_CONTACTFULL): "contacts, and those beyond it were dropped: no report has them",
    int(_WARNING.mjWARN_CNSTRFULL): "constraints, and all were dropped: contacts have no force",
}
"""MuJoCo's warnings that its memory was too small, each with the affected items."""
BAD_STATE = [int(getattr(_WARNING, f"mjWARN_BAD{what}")) for what in ("QPOS", "QVEL", "QACC")]
"""MuJoCo's warnings, with consecutive indices, that the state became NaN, infinite or huge."""
OPTIONS = ("opt.gravity", "opt.magnetic")
"""Options of the model that environments may have separately."""


class Health:
    """Problems of a simulation, each reported once.

    Args:
        num_envs: number of environments.
        tick: returns the current tick, for messages.

    Attributes:
        diverged: bool `[env]`: environments whose state became NaN, infinite or huge since their last reset.
        issued: warnings already issued.
        tick: see above.
    """

    def __init__(self, num_envs: int, tick: Callable[[], int]) -> None:
        self.diverged = np.zeros(num_envs, dtype=bool)
        self.issued: set[str] = set()
        self.tick = tick

    def report_limits(self, counts: np.ndarray, model: Any) -> None:
        """Warn if MuJoCo ran out of memory, once for each of `LIMITS`.

        Args:
            counts: number of warnings `[env, limit]`, in the order of `LIMITS`.
            model: the MjModel.
        """
        if not np.count_nonzero(counts):
            return
        fix = f'<size memory="..."/> of the model, now {int(model.narena)} bytes'
        for column, lost in enumerate(LIMITS.values()):
            self.report_small(np.flatnonzero(counts[:, column]), "at", f"MuJoCo's {lost}", fix)

    def report_small(self, envs: np.ndarray, when: str, what: str, larger: str) -> None:
        """Warn that the memory of some environments was too small, once per kind of loss.

        Args:
            envs: indices of the environments; empty if none is affected.
            when: "at" the current tick, or "by" it.
            what: purpose of the memory, and the lost data.
            larger: setting to increase.
        """
        if what in self.issued or not len(envs):
            return
        self.issued.add(what)
        warnings.warn(
            f"the memory of env {listed(map(str, envs), 8)} was too small {when} tick {self.tick()} for {what}. "
            f"Raise {larger}. This warning is issued once.",
            SensoriumWarning,
            stacklevel=6,
        )

    def report_diverged(self, envs: np.ndarray, model: Any) -> None:
        """Mark environments whose state became NaN, infinite or huge, and warn of newly affected ones.

        Args:
            envs: bool `[env]`.
            model: the MjModel.
        """
        new = envs & ~self.diverged
        if not new.any():
            return
        self.diverged |= new
        put_back = " and MuJoCo reset it to the model's default state" if resets_itself(model) else ""
        warnings.warn(
            f"the state of env {listed(map(str, np.flatnonzero(new)), 8)} became NaN, infinite or huge by tick "
            f"{self.tick()}{put_back}: lower the time step, soften contacts or gains, or check the control. Its "
            "samples are not valid, and engine.diverged marks it, until it is reset.",
            NonFiniteStateWarning,
            stacklevel=6,
        )


def resets_itself(model: Any) -> bool:
    """Whether MuJoCo replaces a diverged state."""
    return not disabled(model.opt, "AUTORESET")


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


class Source(abc.ABC):
    """Memory of a simulation of one compiled MjModel, and the computations on it.

    Args:
        model: the MjModel.
        num_envs: number of environments.

    Attributes:
        model: see above.
        num_envs: see above.
        model_options: options of the model.
        elements: named elements of the model.
        plan: data that `compute` brings up to date.
    """

    updates_all = False
    """Whether a computation of the current state is one of all environments."""
    takes_masks = False
    """Whether environments may be selected by a mask on the device, for which the host does not wait."""

    def __init__(self, model: Any, num_envs: int) -> None:
        self.model, self.num_envs, self.elements = model, num_envs, Elements(model)
        self.model_options = model.opt
        self.plan = Plan()

    # Memory ----------------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def field(self, name: str) -> np.ndarray | torch.Tensor:
        """Return a field of MuJoCo's data `[env, ...]`, or of the model `[1 or env, ...]`, at a fixed address."""

    @abc.abstractmethod
    def state(self, name: str) -> torch.Tensor:
        """Return a field of the state, or of the model's options (`"opt.gravity"`), `[env, ...]`."""

    @property
    def options(self) -> Any:
        """Options of the model, as the simulation uses them."""
        return self.model_options

    @property
    def is_weightless(self) -> bool:
        """Whether `field("opt.gravity")` does not act, because gravity is disabled."""
        return disabled(self.options, "GRAVITY")

    @property
    def diverged(self) -> torch.Tensor:
        """Bool `[env]`: environments whose positions or velocities are currently not finite."""
        return ~(self.state("qpos").isfinite().all(1) & self.state("qvel").isfinite().all(1))

    def bind(self, plan: Plan) -> None:
        """Use a plan; its fields are read from their current memory."""
        self.plan = plan

    def was_moved(self) -> bool:
        """Whether fields have other memory than when `bind` was called."""
        return False

    def given(self, field: str) -> np.ndarray | None:
        """Return current values of a field of the model, with or without an env axis; None for those of `model`."""
        return None

    def values(self, field: str) -> np.ndarray:
        """Return the current values of a field of the model, `[1 or env, ...]`."""
        own = np.asarray(getattr(self.model, field))
        values = self.given(field)
        if values is None:
            return own[None]
        return values if values.ndim > own.ndim else values[None]

    # Computations ----------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def compute(self, ids: torch.Tensor | None, *, is_current: bool, is_edited: bool) -> None:
        """Bring the fields of the plan up to date.

        Args:
            ids: environments whose fields change; None for all.
            is_current: whether the fields must belong to the current state; otherwise to that of the previous tick.
            is_edited: whether the state may have changed since the last step.
        """

    def edited_time_step(self, dt: float) -> tuple[float, str] | None:
        """Return a current time step, s, that is not `dt`, with its location for messages; None if there is none."""
        return None

    def check(self) -> None:  # noqa: B027
        """Warn of problems in the last steps."""

    def forget(self, ids: torch.Tensor | None) -> None:  # noqa: B027
        """Discard records of environments from before their owner reset them."""

    # Mounts ----------------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def place(self, offsets: LiveOffsets) -> None:
        """Register the memory of the fields with the poses of mounts on their bodies."""

    def follow(self, offsets: LiveOffsets, ids: torch.Tensor | None) -> None:  # noqa: B027
        """Update the mounts of all envs or some from the model's poses on their bodies; by default these are fixed."""

    # Shapes and sensors of the model ---------------------------------------------------------------------------------

    @cached_property
    def sensors(self) -> tuple[NativeSensor, ...]:
        """The model's own sensors."""
        return declared(self.model)

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """The geoms and flexes of the model."""
        from sensorium.engines.mujoco.shapes import model_shapes

        return model_shapes(self.shape_model(), self.elements.body_row)

    def shape_model(self) -> Any:
        """Return a model with the shapes that all environments share.

        Raises:
            ModelError: shapes differ between environments.
        """
        from sensorium.engines.mujoco.shapes import with_values

        return with_values(self.model, self.given)

    def check_shapes(self) -> None:  # noqa: B027
        """Raise ModelError if `shapes` are no longer the same in all environments."""

    def fault(self, requirement: Requirement) -> str | None:
        """Return why the backend does not provide a requirement that MuJoCo provides, or None."""
        return None


class OwnedSource(Source):
    """A source that the engine steps and resets."""

    @abc.abstractmethod
    def take_over(self, old: Any) -> None:
        """Replace another source, of the same model before sensors added to it, and keep the values written there.

        Tensors that were returned earlier show this source from now on.

        Raises:
            ModelError: a written value does not fit.
        """

    @abc.abstractmethod
    def step(self, ticks: int) -> None:
        """Take steps."""

    @abc.abstractmethod
    def reset(self, ids: torch.Tensor | None) -> None:
        """Reset environments to the initial state."""

    @abc.abstractmethod
    def rows(self) -> dict[str, torch.Tensor]:
        """Return all tensors that a step starts from `[env, ...]`, by name, live."""

    @abc.abstractmethod
    def separate_options(self) -> dict[str, torch.Tensor]:
        """Return a copy of `"opt.gravity"` and `"opt.magnetic"` `[env, 3]` where they are set per environment."""

    @abc.abstractmethod
    def separate(self, options: Any) -> None:
        """Give each environment separate values of the options in a mapping, and of no others."""

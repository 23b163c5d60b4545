"""mujoco_warp itself: its import, its worlds on one device, and its functions replayed as graphs.

A function of mujoco_warp is a hundred small launches, which cost the host far more than the device. So each is run once
as it is, which loads its kernels, then captured, then replayed (on the CPU too, bit for bit the same). Scalars, sizes
and addresses are frozen in a graph: it is captured anew when an array or option of the model was replaced.
"""

from __future__ import annotations

import functools
import gc
import operator
from collections.abc import Callable
from contextlib import nullcontext
from importlib import metadata
from typing import Any

import mujoco
import numpy as np
import torch
import warp as wp

from sensorium.compute import Compute, graph
from sensorium.engines.mujoco_spec import reason_of
from sensorium.errors import MissingDependencyError, ModelError

STATE = (
    "time", "qpos", "qvel", "act", "history", "plastic", "qacc_warmstart", "ctrl", "qfrc_applied", "xfrc_applied",
    "eq_active", "mocap_pos", "mocap_quat", "userdata", "tree_asleep",
)  # fmt: skip
"""Fields of the Data that a step starts from; those that this version has."""
LOST = {
    "NEFC": ("njmax", "constraints: some were dropped, so contacts lack forces"),
    "NJMAX_NNZ": ("njmax_nnz", "the constraint Jacobian: constraints were dropped"),
    "BROADPHASE": ("nconmax", "pairs that may touch: contacts were dropped, no report has them"),
    "NARROWPHASE": ("nconmax", "contacts: those beyond it were dropped, no report has them"),
    "CCD": ("nccdmax", "contacts of convex shapes: those beyond it were dropped"),
    "HFIELD": ("nconmax", "contacts with a height field: those beyond it were dropped"),
    "CONTACT_MATCH": ("contact_sensor_maxmatch", "matches of one contact sensor: those beyond it were dropped"),
    "NVMAX": ("nvmax", "degrees of freedom that are awake"),
    "TACTILE": ("nconmax", "contacts of a tactile sensor"),
}
"""mujoco_warp's overflow flags that lose something: the size to raise, and what was lost."""


@functools.cache
def mujoco_warp() -> Any:
    """Return the module.

    Raises:
        MissingDependencyError: it is not installed, or belongs to another MuJoCo than the installed one.
    """
    versions = {}
    for package in ("mujoco", "mujoco-warp"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = ""
    versions["mujoco"] = versions["mujoco"] or mujoco.__version__
    if (fault := pair_fault(versions["mujoco"], versions["mujoco-warp"])) is not None:
        raise MissingDependencyError(fault)
    try:
        import mujoco_warp as module
    except ImportError as error:
        raise MissingDependencyError(
            f"mujoco-warp {versions['mujoco-warp']} cannot be imported beside mujoco {versions['mujoco']}: "
            f"{reason_of(error)}. pip install 'sensorium[warp]' brings a pair that works."
        ) from error
    return module


def pair_fault(engine: str, warp: str) -> str | None:
    """Return why a version of mujoco and one of mujoco-warp (empty: none) do not work together, or None.

    The two are released together, under the same number, and read each other's structures.
    """
    if not warp:
        release = ".".join(engine.split(".")[:2])
        return (
            "MujocoWarpEngine needs mujoco-warp, which is not installed: pip install 'sensorium[warp]', or for the "
            f"installed mujoco {engine}: pip install 'mujoco-warp=={release}.*'."
        )
    if engine.split(".")[:2] == warp.split(".")[:2]:
        return None
    newer = max((engine, warp), key=_numbers)
    release = ".".join(newer.split(".")[:2])
    return (
        f"mujoco {engine} and mujoco-warp {warp} do not match: they work in pairs of the same release. Install one: "
        f"pip install 'mujoco=={release}.*' 'mujoco-warp=={release}.*' (beside mjlab 1.6: 'mujoco==3.11.*' "
        "'mujoco-warp==3.11.*')."
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in version.split(".")[:2])


def put_model(mjm: Any, label: str, device: Any) -> Any:
    """Return a model on a device.

    Raises:
        ModelError: it has a feature that mujoco_warp lacks; the message has its name.
    """
    module = mujoco_warp()
    try:
        with wp.ScopedDevice(device):
            return module.put_model(mjm)
    except (NotImplementedError, ValueError) as error:
        raise ModelError(
            f"mujoco_warp {module.__version__} cannot simulate {label}: {reason_of(error)} MuJoCo on the CPU can: "
            "MujocoEngine."
        ) from error


class Worlds:
    """A model and its data on one device, and what is done with them.

    Args:
        mjm: the MjModel.
        m: mujoco_warp's Model.
        d: mujoco_warp's Data.
        compute: the device, its streams, and whether graphs are replayed.
    """

    def __init__(self, mjm: Any, m: Any, d: Any, compute: Compute) -> None:
        self.mjm, self.m, self.d = mjm, m, d
        self._compute = compute
        self._module = mujoco_warp()
        self._graphs: dict[Any, _Graph] = {}
        self.device = d.qpos.device

    def __repr__(self) -> str:
        return f"Worlds({self.d.nworld} on {self.device}, naconmax={self.d.naconmax}, njmax={self.d.njmax})"

    def field(self, name: str) -> Any:
        """Return the Warp array of a field: of the options (`"opt.gravity"`), of the data, or of the model."""
        if name.startswith("opt."):
            return getattr(self.m.opt, name.removeprefix("opt."))
        return getattr(self.d if hasattr(self.d, name) else self.m, name)

    def tensor(self, name: str) -> torch.Tensor:
        """Return a field as a tensor, without a copy: vectors, quaternions and matrices have axes of their own."""
        array = self.field(name)
        if 0 in array.shape:
            width = tuple(getattr(array.dtype, "_shape_", ()))
            return torch.zeros((*array.shape, *width), dtype=torch.float32, device=wp.device_to_torch(array.device))
        tensor: torch.Tensor = wp.to_torch(array)
        return tensor

    def edited(self, pristine: Any) -> dict[str, Any]:
        """Return the fields of the model that its owner wrote or replaced, as Warp arrays.

        Args:
            pristine: the same model as it was put on the device.
        """
        pairs = [("", self.m, pristine), ("opt.", self.m.opt, pristine.opt)]
        found = {}
        for prefix, mine, first in pairs:
            for name, array in vars(mine).items():
                other = getattr(first, name, None)
                if not isinstance(array, wp.array) or not isinstance(other, wp.array) or not array.size:
                    continue
                if array.shape != other.shape or not np.array_equal(array.numpy(), other.numpy(), equal_nan=True):
                    found[prefix + name] = array
        return found

    def states(self) -> dict[str, torch.Tensor]:
        """Return the fields that a step starts from, as tensors without a copy; empty ones are left out."""
        fields = {name: getattr(self.d, name, None) for name in STATE}
        return {name: wp.to_torch(array) for name, array in fields.items() if array is not None and array.size}

    def step(self, count: int) -> None:
        """Take steps."""
        graph = self._graph("step", lambda: self._module.step(self.m, self.d))
        for _ in range(count):
            graph.run()

    def forward(self, stage: str, *, sensors: bool, wrenches: bool) -> None:
        """Compute what follows from the state, up to a stage.

        Args:
            stage: `"pos"`, `"vel"` or `"acc"`; `"acc"` computes everything.
            sensors: with the native sensors of that stage. `"acc"` always computes them.
            wrenches: also what mj_rnePostConstraint computes, where no sensor of the model makes it run.
        """
        module, m, d = self._module, self.m, self.d

        def compute() -> None:
            if stage == "acc":
                module.forward(m, d)
                if wrenches and not m.sensor_rne_postconstraint:
                    module.rne_postconstraint(m, d)
            elif sensors:
                module.fwd_position(m, d)
                d.sensordata.zero_()
                module.sensor_pos(m, d)
                module.fwd_velocity(m, d)
                module.sensor_vel(m, d)
            else:
                module.kinematics(m, d)
                if stage == "vel":
                    module.com_pos(m, d)
                    module.com_vel(m, d)

        self._graph((stage, sensors, wrenches), compute).run()

    def reset(self, mask: torch.Tensor) -> None:
        """Put worlds back to the model's default state.

        Args:
            mask: bool [env], of which the address is taken the first time.
        """
        rows = wp.from_torch(mask, dtype=wp.bool)
        self._graph("reset", lambda: self._module.reset_data(self.m, self.d, reset=rows)).run()

    def _graph(self, key: Any, work: Callable[[], None]) -> _Graph:
        if key not in self._graphs:
            self._graphs[key] = _Graph(self, self._compute, work)
        return self._graphs[key]

    def parts(self) -> list[Any]:
        """Return all arrays and options that a graph may have frozen."""
        m, d = self.m, self.d
        return [value for part in (m, m.opt, d, d.contact, d.efc) for value in vars(part).values()]

    def overflow(self) -> torch.Tensor:
        """Return int32 [env]: mujoco_warp's overflow flags since each world's reset."""
        flags: torch.Tensor = wp.to_torch(self.d.overflow)
        return flags

    def lost(self, flags: int) -> list[tuple[str, str]]:
        """Return the size to raise and what was lost, for each overflow among some flags."""
        kinds = self._module.OverflowType
        return [LOST[kind.name] for kind in kinds if kind.name in LOST and flags & int(kind)]


class _Graph:
    """One function of mujoco_warp: run as it is the first time, then captured, then replayed."""

    def __init__(self, worlds: Worlds, compute: Compute, work: Callable[[], None]) -> None:
        self._worlds, self._compute, self._work = worlds, compute, work
        self._graph: Any = None
        self._frozen: list[Any] | None = None

    def run(self) -> None:
        """Do the work once."""
        compute, parts = self._compute, self._worlds.parts()
        if self._frozen is None or not compute.capture or not self._holds(parts):
            with graph.launching, wp.ScopedDevice(compute.wp_device), self._stream():
                self._work()
            self._graph, self._frozen = None, self._worlds.parts()
            return
        if self._graph is None:
            self._capture()
        with graph.launching:
            wp.capture_launch(self._graph, None if compute.is_cpu else compute.stream)

    def _stream(self) -> Any:
        return nullcontext() if self._compute.is_cpu else wp.ScopedStream(self._compute.stream)

    def _holds(self, parts: list[Any]) -> bool:
        """Whether nothing was replaced since the last run."""
        assert self._frozen is not None
        return len(parts) == len(self._frozen) and all(map(operator.is_, parts, self._frozen))

    def _capture(self) -> None:
        device = self._compute.wp_device
        stream = None if device.is_cpu else wp.Stream(device)
        collects = gc.isenabled()
        gc.disable()  # memory freed during a capture would spoil it
        try:
            with (
                graph.launching.alone(),
                wp.ScopedDevice(device),
                nullcontext() if stream is None else wp.ScopedStream(stream),
                wp.ScopedCapture(device=device, force_module_load=False) as captured,
            ):
                self._work()
        finally:
            if collects:
                gc.enable()
        self._graph = captured.graph


def sizes(mjm: Any, module: Any, nconmax: int | None, njmax: int | None) -> dict[str, int]:
    """Return how many contacts and constraints each world gets memory for.

    What is not given is mujoco_warp's own guess from the model, or twice what the default state and the keyframes have,
    whichever is more.

    Args:
        mjm: the MjModel.
        module: mujoco_warp.
        nconmax: contacts, or None.
        njmax: constraints, or None.
    """
    data = mujoco.MjData(mjm)
    contacts, constraints = 0, 0
    for key in range(-1, mjm.nkey):
        if key >= 0:
            mujoco.mj_resetDataKeyframe(mjm, data, key)
        mujoco.mj_forward(mjm, data)
        contacts, constraints = max(contacts, int(data.ncon)), max(constraints, int(data.nefc))
    with wp.ScopedDevice("cpu"):
        guess = module.make_data(mjm, nworld=1)
    return {
        "nconmax": max(int(guess.naconmax), 2 * contacts) if nconmax is None else nconmax,
        "njmax": max(int(guess.njmax), 2 * constraints) if njmax is None else njmax,
    }


def default_state(mjm: Any, key: int) -> dict[str, np.ndarray]:
    """Return the state of a keyframe (-1: the model's default state), by name of the state field."""
    data = mujoco.MjData(mjm)
    if key >= 0:
        mujoco.mj_resetDataKeyframe(mjm, data, key)
    names = ("qpos", "qvel", "act", "ctrl", "mocap_pos", "mocap_quat")
    state = {name: np.array(getattr(data, name), dtype=np.float32) for name in names}
    state["time"] = np.array(data.time, dtype=np.float32)
    return state

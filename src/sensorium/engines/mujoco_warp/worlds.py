"""mujoco_warp itself: its import, its worlds on one device, and its functions replayed as graphs.

A function of mujoco_warp consists of about a hundred small launches, see `WorkGraphs`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from typing import Any

import mujoco
import numpy as np
import torch
import warp as wp

from sensorium.compute import Compute, graph
from sensorium.engines.graphs import WorkGraphs
from sensorium.engines.mujoco.base import STATE_FIELDS
from sensorium.engines.mujoco.sleep import AWAKE, disabled, sleeps
from sensorium.engines.mujoco.spec import reason_of
from sensorium.errors import ArgumentError, MissingDependencyError, ModelError, UnknownNameError

STATE = (
    "time", "qpos", "qvel", "act", "history", "plastic", "qacc_warmstart", "ctrl", "qfrc_applied", "xfrc_applied",
    "eq_active", "mocap_pos", "mocap_quat", "userdata", "tree_asleep",
)  # fmt: skip
"""Fields of the Data that a step starts from, if this version has them."""
SHOWN = ("xpos", "xquat", "qfrc_actuator")
"""Other fields of the Data that derived arrays are views of; their memory must outlive the Data."""
ASLEEP = (
    "tree_asleep", "tree_awake", "body_awake", "body_awake_ind", "dof_awake_ind", "ntree_awake", "nbody_awake",
    "nv_awake",
)  # fmt: skip
"""Fields with the sleep state of bodies; the forward computation wakes some of them."""
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
"""mujoco_warp's overflow flags with a loss of data: the size to increase, and the lost data."""


@functools.cache
def mujoco_warp() -> Any:
    """Return the module mujoco_warp.

    Raises:
        MissingDependencyError: it is not installed, or does not match the installed MuJoCo.
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
            f"{reason_of(error)}. Install a matching pair: pip install 'sensorium[warp]'."
        ) from error
    return module


def pair_fault(engine: str, warp: str) -> str | None:
    """Return why a version of mujoco and one of mujoco-warp (empty: none) do not work together, or None.

    Both are released together under the same number, and read each other's structures.
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


@graph.launching
def put_model(mjm: Any, label: str, device: Any) -> Any:
    """Return a model on a device.

    Raises:
        ModelError: the model uses a feature that mujoco_warp lacks; the message names it.
    """
    module = mujoco_warp()
    try:
        with wp.ScopedDevice(device):
            return module.put_model(mjm)
    except (NotImplementedError, ValueError) as error:
        flags = _lacking_flags(module, mjm.opt)
        why = f"{', '.join(flags)} not supported." if flags else reason_of(error)
        raise ModelError(
            f"mujoco_warp {module.__version__} cannot simulate {label}: {why} MuJoCo on the CPU can: MujocoEngine."
        ) from error


def _lacking_flags(module: Any, options: Any) -> list[str]:
    """Return the names of flags that mujoco_warp does not support."""
    found = []
    for flags, kind, known in (
        (int(options.disableflags), mujoco.mjtDisableBit, module.DisableBit),
        (int(options.enableflags), mujoco.mjtEnableBit, module.EnableBit),
    ):
        bits = (getattr(kind, name) for name in dir(kind) if name.startswith(("mjDSBL_", "mjENBL_")))
        supported = functools.reduce(operator.or_, map(int, known))
        found += [bit.name for bit in bits if flags & int(bit) & ~supported]
    return found


class Worlds:
    """A model and its data on one device, with the functions that run on them.

    Args:
        mjm: the MjModel.
        m: mujoco_warp's Model.
        d: mujoco_warp's Data.
        compute: device, streams, and whether to replay graphs.
    """

    def __init__(self, mjm: Any, m: Any, d: Any, compute: Compute) -> None:
        self.mjm, self.m, self.d = mjm, m, d
        self._module = mujoco_warp()
        self._graphs = WorkGraphs(compute, self._parts)
        self._tensors: dict[str, tuple[Any, torch.Tensor]] = {}
        self._kept: dict[str, Any] = {}

    def field(self, name: str) -> Any:
        """Return the Warp array of a field: of the options (`"opt.gravity"`), of the data, or of the model."""
        if "." not in name and hasattr(self.d, name):
            return getattr(self.d, name)
        owner, name = _owner(self.m, name)
        return getattr(owner, name)

    def tensor(self, name: str) -> torch.Tensor:
        """Return a field as a tensor without a copy; vectors, quaternions and matrices become further axes."""
        array = self.field(name)
        bound, tensor = self._tensors.get(name, (None, None))
        if tensor is None or bound is not array:
            with torch.inference_mode(False):  # tensors created in that mode cannot be written outside it
                if 0 in array.shape:
                    width = tuple(getattr(array.dtype, "_shape_", ()))
                    device = wp.device_to_torch(array.device)
                    tensor = torch.zeros((*array.shape, *width), dtype=torch.float32, device=device)
                else:
                    tensor = wp.to_torch(array)
            self._tensors[name] = array, tensor
        return tensor

    def expand(self, field: str) -> torch.Tensor:
        """Give each world separate values in a field of the model and return them; see `MujocoWarpEngine.expand`."""
        owner, name = _owner(self.m, field)
        array = getattr(owner, name, None)
        if not isinstance(array, wp.array):
            known = [prefix + each for prefix, part in parts_of(self.m).items() for each in batched(part)]
            raise UnknownNameError("field of mujoco_warp's Model", field, known)
        worlds = int(self.d.nworld)
        if name not in batched(owner) or field == "opt.timestep":
            raise ArgumentError(
                f"{field}: got a field that all environments of mujoco_warp share, expected one with a value for each."
            )
        if array.shape[0] != worlds:
            setattr(owner, name, wp.from_torch(self.of_each(field), dtype=array.dtype))
        return self.tensor(field)

    def of_each(self, field: str) -> torch.Tensor:
        """Return a copy of each world's values `[world, ...]` in a batched field of the model."""
        values = self.tensor(field)
        return values[torch.arange(int(self.d.nworld), device=values.device) % len(values)]

    def take_over(self, old: Worlds, pristine: Any, start: dict[str, np.ndarray]) -> None:
        """Replace other worlds, of the same model before sensors added to it, and keep the values written there.

        Tensors that were returned earlier show these worlds from now on.

        Args:
            old: the other worlds.
            pristine: their model as it was put on the device.
            start: their initial state.

        Raises:
            ModelError: a written field differs in size now.
        """
        fix = "and a sensor then changed its size: write it after Scene(...)."
        for name in (*STATE, *SHOWN):
            mine, previous = getattr(self.d, name, None), getattr(old.d, name, None)
            if mine is None or previous is None:
                continue
            if mine.shape == previous.shape:
                if name in SHOWN:
                    wp.copy(previous, mine)
                setattr(self.d, name, previous)
            elif name in start and not np.array_equal(
                old.tensor(name).cpu(), np.broadcast_to(start[name], tuple(old.tensor(name).shape))
            ):
                raise ModelError(f"{name} was written before the scene was created, {fix}")
        for field, value in old.edited(pristine).items():
            owner, name = _owner(self.m, field)
            if isinstance(value, wp.array):
                shared = 1 if name in batched(owner) else 0
                if getattr(owner, name).shape[shared:] != value.shape[shared:]:
                    raise ModelError(f"{field} of mujoco_warp's Model was written before the scene was created, {fix}")
            setattr(owner, name, value)
        for name, (_, tensor) in old._tensors.items():
            tensor.set_(self.tensor(name))  # type: ignore[call-overload]
            self._tensors[name] = self.field(name), tensor

    def edited(self, pristine: Any) -> dict[str, Any]:
        """Return the fields of the model that its owner wrote or replaced: Warp arrays, options and callbacks.

        Args:
            pristine: the same model as it was put on the device.
        """
        found: dict[str, Any] = {"callback": self.m.callback}
        first = parts_of(pristine)
        for prefix, mine in parts_of(self.m).items():
            for name, value in vars(mine).items():
                other = getattr(first[prefix], name, None)
                if isinstance(value, wp.array) and isinstance(other, wp.array):
                    same = value.shape == other.shape and (
                        not value.size or np.array_equal(value.numpy(), other.numpy(), equal_nan=True)
                    )
                else:
                    same = (
                        not prefix or value == other
                    )  # values of the options; the model's other numbers are its sizes
                if not same:
                    found[prefix + name] = value
        return found

    def states(self) -> dict[str, torch.Tensor]:
        """Return the fields that a step starts from, as tensors without a copy; empty ones are omitted."""
        fields = {name: getattr(self.d, name, None) for name in STATE}
        return {name: wp.to_torch(array) for name, array in fields.items() if array is not None and array.size}

    def step(self, count: int) -> None:
        """Take steps."""
        for _ in range(count):
            self._graphs.run("step", lambda: self._module.step(self.m, self.d))

    def forward(self, functions: Sequence[str]) -> None:
        """Compute derived state by functions of mujoco_warp, see `Plan.functions`.

        The state is preserved, including sleep, the history of delayed sensors, and the controls, which a callback
        writes. The whole forward computation treats all bodies as awake: mujoco_warp has no contacts of sleeping
        bodies.
        """
        module, m, d = self._module, self.m, self.d

        def compute() -> None:
            control, m.callback.control = m.callback.control, None
            try:
                with self._keeping():
                    if "forward" in functions and sleeps(m.opt):
                        d.tree_asleep.fill_(AWAKE)
                    for name in functions:
                        if name == "sensor_pos":
                            d.sensordata.zero_()
                        if name != "rne_postconstraint" or not self._computes_wrenches:
                            getattr(module, name)(m, d)
            finally:
                m.callback.control = control

        self._graphs.run(functions, compute)

    @property
    def _computes_wrenches(self) -> bool:
        """Whether mujoco_warp.forward computes accelerations and wrenches of bodies."""
        asked = self.m.sensor_rne_postconstraint and not disabled(self.m.opt, "SENSOR")
        return bool(asked or getattr(self.m.opt, "run_rne_postconstraint", False))

    @contextmanager
    def _keeping(self) -> Iterator[None]:
        """Restore state that the forward computation overwrites within the block."""
        names = (*(ASLEEP if sleeps(self.m.opt) else ()), "history")
        fields = {name: array for name in names if (array := getattr(self.d, name, None)) is not None and array.size}
        for name, array in fields.items():
            if name not in self._kept:
                self._kept[name] = wp.empty_like(array)
            wp.copy(self._kept[name], array)
        yield
        for name, array in fields.items():
            wp.copy(array, self._kept[name])

    def reset(self, mask: torch.Tensor) -> None:
        """Reset worlds to the model's default state.

        Args:
            mask: bool [env]; its address is fixed by the first call.
        """
        rows = wp.from_torch(mask, dtype=wp.bool)
        self._graphs.run("reset", lambda: self._module.reset_data(self.m, self.d, reset=rows))

    def _parts(self) -> list[Any]:
        """Return all arrays and options that a graph may have frozen."""
        m, d = self.m, self.d
        parts = (*parts_of(m).values(), m.callback, d, d.contact, d.efc)
        return [value for part in parts for value in vars(part).values()]

    def losses(self) -> list[tuple[int, str, str]]:
        """Return the overflow flags with a loss of data, each with the size to increase and the lost data."""
        kinds = getattr(self._module, "OverflowType", None)
        if kinds is None:  # not exported by 3.11
            kinds = importlib.import_module("mujoco_warp._src.types").OverflowType
        return [(int(kind), *LOST[kind.name]) for kind in kinds if kind.name in LOST]


def parts_of(m: Any) -> dict[str, Any]:
    """Return mujoco_warp's Model and the parts of it that have fields, by the prefix of their names."""
    return {"": m, "opt.": m.opt} | ({"stat.": m.stat} if hasattr(m, "stat") else {})


def _owner(m: Any, field: str) -> tuple[Any, str]:
    """Return the part of the Model that contains a field, and the field's name in it."""
    prefix, dot, name = field.partition(".")
    parts = parts_of(m)
    return (parts[prefix + dot], name) if dot and prefix + dot in parts else (m, field)


def batched(owner: Any) -> list[str]:
    """Return the fields of a mujoco_warp Model, or of a part of it, that may hold values per world."""
    return [
        spec.name for spec in dataclasses.fields(owner) if tuple(getattr(spec.type, "shape", None) or ())[:1] == ("*",)
    ]


def sizes(mjm: Any, module: Any, nconmax: int | None, njmax: int | None) -> dict[str, int]:
    """Return the numbers of contacts and constraints per world for which memory is allocated.

    The default is mujoco_warp's own estimate from the model, or twice the numbers in the default state and the
    keyframes, whichever is greater.

    Args:
        mjm: the MjModel.
        module: the module mujoco_warp.
        nconmax: number of contacts, or None for the default.
        njmax: number of constraints, or None for the default.
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
    state = {name: np.array(getattr(data, name), dtype=np.float32) for name in STATE_FIELDS}
    state["time"] = np.array(data.time, dtype=np.float32)
    return state

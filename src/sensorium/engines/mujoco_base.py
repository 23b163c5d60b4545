"""What both MuJoCo engines share: names, frames, and the float32 arrays derived from MuJoCo's float64 fields.

With `d = p - subtree_com[body_rootid]` (p: body frame origin), and MuJoCo's spatial vectors about that centre of mass,
in world axes, rotation first (`cvel = [w, v]`, `cacc = [alpha, a]`, where `a` holds minus gravity):

    velocity at p                     v + w x d
    coordinate acceleration at p      a + alpha x d + w x (v + w x d) + gravity

as in mj_objectVelocity and mj_objectAcceleration. Bodies welded to the world and mocap bodies are at rest by
definition: MuJoCo knows no velocity of theirs, also when their pose is edited between steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import mujoco
import numpy as np
import torch
import warp as wp

from sensorium.compute import Compute, Rows, Segment
from sensorium.engines.base import Engine, FrameOnBody, NameKind
from sensorium.engines.mujoco_spec import hidden
from sensorium.errors import ModelError, UnknownNameError
from sensorium.spec import BODY_ACCELERATION, BODY_POSE, BODY_VELOCITY, GRAVITY, MAGNETIC, Requirement

wp.set_module_options({"enable_backward": False, "fuse_fp": False})

ARRAYS: dict[Requirement, dict[str, tuple[int, ...]]] = {
    BODY_POSE: {"body_pos_w": (3,), "body_quat_w": (4,)},
    BODY_VELOCITY: {"body_lin_vel_w": (3,), "body_ang_vel_w": (3,)},
    BODY_ACCELERATION: {"body_lin_acc_w": (3,), "body_ang_acc_w": (3,)},
    GRAVITY: {"gravity_w": (3,)},
    MAGNETIC: {"magnetic_w": (3,)},
}
"""The arrays that a requirement brings, with the sizes of their last axis; those of bodies are `[env, body, ...]`."""
FIELDS: dict[Requirement, tuple[str, ...]] = {
    BODY_POSE: ("xpos", "xquat"),
    BODY_VELOCITY: ("xpos", "cvel", "subtree_com"),
    BODY_ACCELERATION: ("xpos", "cvel", "cacc", "subtree_com"),
}
"""The MjData fields that they are computed from."""
STAGES = {
    BODY_POSE: int(mujoco.mjtStage.mjSTAGE_POS),
    BODY_VELOCITY: int(mujoco.mjtStage.mjSTAGE_VEL),
    BODY_ACCELERATION: int(mujoco.mjtStage.mjSTAGE_ACC),
}
"""The stage of MuJoCo's forward computation that makes them current."""
_BITS = {requirement: wp.constant(1 << bit) for bit, requirement in enumerate(ARRAYS)}
POSE_BIT, VELOCITY_BIT, ACCELERATION_BIT, GRAVITY_BIT, MAGNETIC_BIT = _BITS.values()
_OBJECTS = {
    "body": mujoco.mjtObj.mjOBJ_BODY,
    "site": mujoco.mjtObj.mjOBJ_SITE,
    "geom": mujoco.mjtObj.mjOBJ_GEOM,
    "joint": mujoco.mjtObj.mjOBJ_JOINT,
    "camera": mujoco.mjtObj.mjOBJ_CAMERA,
    "actuator": mujoco.mjtObj.mjOBJ_ACTUATOR,
}


@wp.kernel
def convert(
    rows: Rows,
    wanted: wp.int32,
    body_ids: wp.array[wp.int32],
    root_ids: wp.array[wp.int32],
    weld_ids: wp.array[wp.int32],
    xpos: wp.array2d[wp.vec3d],
    xquat: wp.array2d[wp.vec4d],
    subtree_com: wp.array2d[wp.vec3d],
    cvel: wp.array3d[wp.vec3d],
    cacc: wp.array3d[wp.vec3d],
    gravity: wp.array[wp.vec3d],
    magnetic: wp.array[wp.vec3d],
    # output
    pos_out: wp.array2d[wp.vec3],
    quat_out: wp.array2d[wp.vec4],
    lin_vel_out: wp.array2d[wp.vec3],
    ang_vel_out: wp.array2d[wp.vec3],
    lin_acc_out: wp.array2d[wp.vec3],
    ang_acc_out: wp.array2d[wp.vec3],
    gravity_out: wp.array[wp.vec3],
    magnetic_out: wp.array[wp.vec3],
) -> None:
    """Compute one body's derived state in float64 and store it as float32; the first thread also does the env's."""
    i, item = wp.tid()
    env = rows.start + i
    if rows.mask[env] == wp.uint8(0):
        return
    if item == 0:
        if wanted & GRAVITY_BIT:
            gravity_out[env] = wp.vec3(gravity[env])
        if wanted & MAGNETIC_BIT:
            magnetic_out[env] = wp.vec3(magnetic[env])
    if item >= body_ids.shape[0]:
        return
    body = body_ids[item]
    if wanted & POSE_BIT:
        pos_out[env, item] = wp.vec3(xpos[env, body])
        quat_out[env, item] = wp.vec4(xquat[env, body])
    ang_vel = wp.vec3d()
    lin_vel = wp.vec3d()
    ang_acc = wp.vec3d()
    lin_acc = wp.vec3d()
    if weld_ids[item] != 0 and (wanted & (VELOCITY_BIT | ACCELERATION_BIT)) != 0:
        arm = xpos[env, body] - subtree_com[env, root_ids[item]]
        ang_vel = cvel[env, body, 0]
        lin_vel = cvel[env, body, 1] + wp.cross(ang_vel, arm)
        if wanted & ACCELERATION_BIT:
            ang_acc = cacc[env, body, 0]
            lin_acc = cacc[env, body, 1] + wp.cross(ang_acc, arm) + wp.cross(ang_vel, lin_vel) + gravity[env]
    if wanted & VELOCITY_BIT:
        lin_vel_out[env, item] = wp.vec3(lin_vel)
        ang_vel_out[env, item] = wp.vec3(ang_vel)
    if wanted & ACCELERATION_BIT:
        lin_acc_out[env, item] = wp.vec3(lin_acc)
        ang_acc_out[env, item] = wp.vec3(ang_acc)


@dataclass(slots=True)
class Derived:
    """The derived arrays of one engine and the launch that fills them.

    Attributes:
        arrays: name to float32 tensor on the engine's device; a tensor object is never replaced.
        host: the same on the CPU, where the kernel writes; the same tensors where the device is the CPU.
    """

    num_envs: int
    device: str
    compute: Compute
    arrays: dict[str, torch.Tensor] = field(default_factory=dict)
    host: dict[str, torch.Tensor] = field(default_factory=dict)
    _all: Segment | None = None
    _masked: Segment | None = None
    _sources: list[Any] = field(default_factory=list)

    def build(
        self, model: Any, body_ids: Sequence[int], prepared: frozenset[Requirement], sources: dict[str, np.ndarray]
    ) -> None:
        """Allocate what `prepared` brings and record the launch that reads `sources`.

        Args:
            model: the MjModel.
            body_ids: MuJoCo's body id of each row.
            prepared: requirements granted.
            sources: float64 arrays `[env, ...]` at fixed addresses: the FIELDS needed, `gravity`, `magnetic`.
        """
        for requirement in prepared & ARRAYS.keys():
            for name, size in ARRAYS[requirement].items():
                shape = (self.num_envs, *([len(body_ids)] if name.startswith("body_") else []), *size)
                self._allocate(name, shape)
        ids = np.asarray(body_ids, dtype=np.int32)
        per_row = (ids, model.body_rootid[ids], model.body_weldid[ids])
        maps: list[Any] = [wp.array(values, dtype=wp.int32, device="cpu") for values in per_row]
        vec3, vec4 = wp.vec3d, wp.vec4d
        views = [
            _source(sources.get("xpos"), vec3, 2),
            _source(sources.get("xquat"), vec4, 2),
            _source(sources.get("subtree_com"), vec3, 2),
            _source(sources.get("cvel"), vec3, 3),
            _source(sources.get("cacc"), vec3, 3),
            _source(sources.get("gravity"), vec3, 1),
            _source(sources.get("magnetic"), vec3, 1),
        ]
        wanted = sum(int(bit) for requirement, bit in _BITS.items() if requirement in prepared)
        outputs = [self._output(name, size[0]) for arrays in ARRAYS.values() for name, size in arrays.items()]

        def launch() -> None:
            self.compute.launch(convert, (max(len(ids), 1),), [wanted, *maps, *views], outputs)

        self._sources = [*sources.values(), maps]
        self._all = self.compute.record(launch)
        self._masked = self.compute.record(launch, mask=self.compute.reset_envs)

    def _allocate(self, name: str, shape: tuple[int, ...]) -> None:
        if name in self.arrays and self.arrays[name].shape == shape:
            return
        fresh = torch.zeros(shape, dtype=torch.float32)
        if name.startswith("body_quat"):
            fresh[..., 0] = 1.0
        host = fresh if self.compute.device == self.device else fresh.pin_memory()
        self.host[name] = host
        array = host if self.compute.device == self.device else host.to(self.device)
        if name in self.arrays:
            self.arrays[name].set_(array)  # type: ignore[call-overload]  # the same tensor object, new memory
            if self.compute.device == self.device:
                self.host[name] = self.arrays[name]
        else:
            self.arrays[name] = array

    def _output(self, name: str, size: int) -> Any:
        dtype = wp.vec4 if size == 4 else wp.vec3
        ndim = 2 if name.startswith("body_") else 1
        if name not in self.host or 0 in self.host[name].shape:
            return wp.empty(shape=(0,) * ndim, dtype=dtype, device="cpu")
        return wp.from_torch(self.host[name], dtype=dtype)

    def convert(self, env_ids: torch.Tensor | None = None) -> None:
        """Fill the arrays, of all envs or of some, from the source fields as they are now."""
        assert self._all is not None and self._masked is not None
        if env_ids is None:
            self._all.run()
        else:
            mask = self.compute.reset_envs
            mask.zero_()
            mask[env_ids] = 1
            self._masked.run()
            mask.zero_()
        if self.compute.device != self.device:
            for name, array in self.arrays.items():
                array.copy_(self.host[name])


def _source(field: np.ndarray | None, dtype: Any, ndim: int) -> Any:
    """View a float64 array (possibly read-only) as a Warp array of vectors, without a copy."""
    if field is None or field.size == 0:
        return wp.empty(shape=(0,) * ndim, dtype=dtype, device="cpu")
    assert field.dtype == np.float64 and field.flags.c_contiguous
    shape = (*field.shape[:-1], 2) if ndim == 3 else field.shape[:-1]  # a spatial vector is two vectors
    return wp.array(ptr=field.ctypes.data, dtype=dtype, shape=shape, device="cpu")


class MujocoModelEngine(Engine):
    """Names, frames and derived arrays of an MjModel; the base of `MujocoEngine` and `LiveMujocoEngine`.

    Derived arrays, by requirement (see `array`), float32 on `device`:

    - BODY_POSE: `body_pos_w [env, body, 3]` m, `body_quat_w [env, body, 4]` wxyz, of the body frame in the world.
    - BODY_VELOCITY: `body_lin_vel_w [env, body, 3]` m/s at the body frame origin, `body_ang_vel_w` rad/s, world axes.
    - BODY_ACCELERATION: `body_lin_acc_w [env, body, 3]` m/s^2 at the body frame origin, coordinate acceleration,
      `body_ang_acc_w` rad/s^2, world axes.
    - GRAVITY: `gravity_w [env, 3]` m/s^2. MAGNETIC: `magnetic_w [env, 3]`, in the model's unit.

    Rows of bodies follow `names("body")`: the bodies of the model without the world.
    """

    name = "mujoco"

    def __init__(self, num_envs: int, device: str, fresh: bool, threads: int | None) -> None:
        self.num_envs = num_envs
        self.device = str(torch.device(device))
        self.fresh = fresh
        self.tick = 0
        self.lag = 0
        self.prepared: frozenset[Requirement] = frozenset()
        self._derived = Derived(num_envs, self.device, Compute("cpu", num_envs, threads))
        self._dirty = True
        self._body_row: dict[int, int] = {}
        self._names: dict[str, dict[str, int]] = {}

    @property
    def model(self) -> Any:
        """The compiled MjModel. Editing it does not reach a batch of environments."""
        raise NotImplementedError

    def __repr__(self) -> str:
        model = self.model
        return self._repr(_string(model, 0), model.nbody - 1)

    def _repr(self, model_name: str, bodies: int) -> str:
        return (
            f"{type(self).__name__}({model_name!r}, num_envs={self.num_envs}, dt={self.dt:g} s, bodies={bodies}, "
            f"device={self.device!r}, fresh={self.fresh}, tick={self.tick})"
        )

    def _read_names(self, model: Any) -> None:
        """Index the model's names; bodies without a name are called `body_{id}`, other nameless elements nothing."""
        self._names = {}
        for kind, obj in _OBJECTS.items():
            named = ((i, mujoco.mj_id2name(model, obj, i) or "") for i in range(_count(model, kind)))
            self._names[kind] = {name: i for i, name in named if name}
        bodies = self._names["body"]
        taken = set(bodies.values())
        for i in range(model.nbody):
            if i not in taken and f"body_{i}" not in bodies:
                bodies[f"body_{i}"] = i
        named_by = {i: name for name, i in bodies.items()}
        ids = sorted(range(1, model.nbody), key=lambda i: (hidden(named_by.get(i, "")), i))  # hidden bodies come last
        self._body_row = {0: -1, **{body: row for row, body in enumerate(ids)}}
        self._names["body"] = dict(sorted(bodies.items(), key=lambda item: self._body_row[item[1]]))

    @property
    def _body_ids(self) -> list[int]:
        return [body for body, row in self._body_row.items() if row >= 0]

    def names(self, kind: NameKind) -> tuple[str, ...]:
        """Return all names of a kind in the order of the model, without the world and without hidden elements.

        Elements without a name are left out, except bodies, which are called `body_{id}`.
        """
        model = self.model
        if kind not in _OBJECTS:
            raise UnknownNameError("kind of name", kind, _OBJECTS)
        assert model is not None
        return tuple(name for name, i in self._names[kind].items() if not hidden(name) and (kind != "body" or i > 0))

    def frame(self, kind: NameKind, name: str) -> FrameOnBody:
        """Return the body that an element sits on and its frame there.

        A joint's frame is its anchor with the body's axes; an actuator's that of the joint, site or body it acts on; a
        geom's that of the compiled model (MuJoCo moves a mesh geom to the mesh's inertial frame). `"world"` is body -1.

        Raises:
            UnknownNameError: no element has that name.
            ModelError: the element is not fixed to one body (a tracking camera, an actuator on a tendon).
        """
        model = self.model
        if kind not in _OBJECTS:
            raise UnknownNameError("kind of name", kind, _OBJECTS)
        if name not in self._names[kind]:
            raise UnknownNameError(kind, name, self.names(kind))
        i = self._names[kind][name]
        if kind == "actuator":
            return self._actuator_frame(model, name, i)
        return self._frame(model, kind, name, i)

    def _frame(self, model: Any, kind: str, name: str, i: int) -> FrameOnBody:
        if kind == "body":
            return FrameOnBody(self._body_row[i])
        if kind == "joint":
            return FrameOnBody(self._body_row[int(model.jnt_bodyid[i])], _triple(model.jnt_pos[i]))
        short = {"site": "site", "geom": "geom", "camera": "cam"}[kind]
        if kind == "camera" and model.cam_mode[i] != int(mujoco.mjtCamLight.mjCAMLIGHT_FIXED):
            raise ModelError(f'camera {name!r} is not fixed to its body: give it mode="fixed" in the model.')
        body, pos, quat = (getattr(model, f"{short}_{part}")[i] for part in ("bodyid", "pos", "quat"))
        w, x, y, z = (float(value) for value in quat)
        return FrameOnBody(self._body_row[int(body)], _triple(pos), (w, x, y, z))

    def _actuator_frame(self, model: Any, name: str, i: int) -> FrameOnBody:
        kind = {
            int(mujoco.mjtTrn.mjTRN_JOINT): "joint",
            int(mujoco.mjtTrn.mjTRN_JOINTINPARENT): "joint",
            int(mujoco.mjtTrn.mjTRN_SITE): "site",
            int(mujoco.mjtTrn.mjTRN_SLIDERCRANK): "site",
            int(mujoco.mjtTrn.mjTRN_BODY): "body",
        }.get(int(model.actuator_trntype[i]))
        if kind is None:
            raise ModelError(f"actuator {name!r} acts on no single joint, site or body, so it has no frame.")
        return self._frame(model, kind, name, int(model.actuator_trnid[i, 0]))

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

    def array(self, name: str) -> torch.Tensor:
        """Return a derived array by name, float32 on `device`; the same tensor at the same address for life.

        Raises:
            UnknownNameError: (a KeyError) no such array, or the requirement that brings it was not prepared.
        """
        if name not in self._derived.arrays:
            bringer = next((str(requirement) for requirement, names in ARRAYS.items() if name in names), None)
            fix = f"It comes with {bringer}: prepare that first." if bringer else ""
            raise UnknownNameError("derived array", name, self._derived.arrays, fix)
        return self._derived.arrays[name]

    @property
    def stage(self) -> int:
        """The highest mjtStage that a prepared requirement needs."""
        return max((STAGES[requirement] for requirement in self.prepared if requirement in STAGES), default=0)

    def _fields(self, requirements: frozenset[Requirement]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for needs, names in FIELDS.items() if needs in requirements for name in names))


def _count(model: Any, kind: str) -> int:
    if kind == "actuator":
        return int(getattr(model, "nactuator", model.nu))
    return int(getattr(model, {"joint": "njnt", "camera": "ncam"}.get(kind, f"n{kind}")))


def _string(model: Any, address: int) -> str:
    return bytes(model.names)[address:].split(b"\0", 1)[0].decode()


def _triple(values: Any) -> tuple[float, float, float]:
    x, y, z = (float(value) for value in values)
    return x, y, z


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

"""Ray casts without sensors: casts at the shapes of a `TensorEngine`, and the slow reference for each environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from reference import CastComparison, compare_casts, reference_cast

import sensorium as sn
from sensorium.cfg import OffsetCfg
from sensorium.compute import Clock, Compute
from sensorium.engines.base import Engine, FrameOnBody
from sensorium.geometry.shapes import Shape
from sensorium.geometry.transforms import rotation
from sensorium.shapes.query import QueryContext
from sensorium.shapes.ray_cast import RayCast, RaySpec
from sensorium.shapes.scene import ShapeScene
from sensorium.spec import BODY_POSE, SHAPES
from sensorium.world.mount import MountView

Array = NDArray[np.float64]
OUTPUTS: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
    "distance": (torch.float32, ()), "shape": (torch.int32, ()), "face": (torch.int32, ()),
    "normal": (torch.float32, (3,)), "point": (torch.float32, (3,)), "cosine": (torch.float32, ()),
    "start": (torch.float32, (3,)), "direction": (torch.float32, (3,)),
}  # fmt: skip
"""Outputs of a cast: type, and shape after the ray axis."""


class World:
    """A ray scene on an engine, without sensors.

    Args:
        engine: the engine whose shapes the rays hit.
        mounts: starts of the rays: row of a body (-1: the world) and position on it.
        threads: see `Compute`.
        capture: see `Compute`.
    """

    def __init__(
        self,
        engine: Engine,
        mounts: Sequence[tuple[Any, ...]] = ((-1, (0.0, 0.0, 0.0)),),
        threads: int = 1,
        capture: bool = False,
    ) -> None:
        engine.prepare({BODY_POSE: "test", SHAPES: "test"})
        engine.refresh()
        self.engine = engine
        self.compute = Compute("cpu", engine.num_envs, threads, capture)
        self.clock = Clock(self.compute, engine.dt_exact)
        frames = [FrameOnBody(*mount) for mount in mounts]
        self.bad = torch.zeros((engine.num_envs, len(frames)), dtype=torch.uint8)
        names = [f"mount {i}" for i in range(len(frames))]
        self.mount = MountView(engine, self.compute, self.clock, names, frames, OffsetCfg(), lambda: self.bad)
        self.scene = ShapeScene(SimpleNamespace(engine=engine, compute=self.compute, semantics=None))

    def rays(self, starts: ArrayLike, directions: ArrayLike, **options: Any) -> RayCast:
        """Return rays from all mounts; see `RayCast`."""
        context = QueryContext(self.scene, self.engine, self.compute, self.clock, self.mount, "RayCast")
        return RayCast(context, RaySpec(starts=np.asarray(starts), directions=np.asarray(directions), **options))

    def outputs(self, cast: RayCast, names: Sequence[str] = tuple(OUTPUTS)) -> dict[str, torch.Tensor]:
        """Return outputs for a cast, filled with values that no cast writes."""
        lead = (self.compute.num_envs, self.mount.count, cast.count)
        return {name: torch.full((*lead, *OUTPUTS[name][1]), -77, dtype=OUTPUTS[name][0]) for name in names}

    def cast(self, cast: RayCast, names: Sequence[str] = tuple(OUTPUTS)) -> dict[str, Array]:
        """Cast once and return the outputs, `[env, mount, ray, ...]`."""
        outputs = self.outputs(cast, names)
        self.clock.set(self.clock.tick, 0, 0)
        cast.cast(outputs)
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    def poses(self, env: int) -> tuple[Array, Array]:
        """Return positions and quaternions of all bodies of an env."""
        arrays = [self.engine.array(name)[env].numpy() for name in ("body_pos_w", "body_quat_w")]
        return arrays[0].astype(np.float64), arrays[1].astype(np.float64)

    def mount_pose(self, env: int, mount: int) -> tuple[Array, Array]:
        """Return the position of a mount and its rotation matrix, in float64, from its body's pose."""
        body = int(self.mount.body[mount])
        pos = self.mount.offset_pos[env, mount].numpy().astype(np.float64)
        turn = rotation(self.mount.offset_quat[env, mount].numpy().astype(np.float64))
        if body < 0:
            return pos, turn
        at, quat = (part[body] for part in self.poses(env))
        own = rotation(quat / np.linalg.norm(quat))
        return at + own @ pos, own @ turn

    def compare(
        self,
        got: Mapping[str, Array],
        env: int,
        mount: int,
        *,
        max_distance: float = np.inf,
        include: ArrayLike | None = None,
        most_left_out: float = 1e-3,
        starts: Array | None = None,
        directions: Array | None = None,
    ) -> CastComparison:
        """Compare a cast of one mount of one env with the reference, and check that points and cosines are consistent.

        Args:
            got: what `cast` returned.
            env: index of the env.
            mount: index of the mount.
            max_distance: greatest distance of the cast, m.
            include: bool `[shape]`, the visible shapes; None for all.
            most_left_out: see `compare_casts`.
            starts: starts of the rays, world frame, m; None for those that the cast reports.
            directions: directions of the rays; None for those that the cast reports.
        """
        here = {name: values[env, mount] for name, values in got.items()}
        o = here["start"].astype(np.float64) if starts is None else starts
        d = here["direction"].astype(np.float64) if directions is None else directions
        shapes = self.scene.shapes
        hits = reference_cast(
            shapes, o, d, poses=self.poses(env), max_distance=max_distance,
            include=None if include is None else np.asarray(include),
        )  # fmt: skip
        report = compare_casts(
            hits, here["distance"], here["shape"], normal=here["normal"], face=here["face"],
            most_left_out=most_left_out,
        )  # fmt: skip
        hit = np.isfinite(here["distance"])
        np.testing.assert_array_equal(np.isfinite(here["point"]).all(axis=1), hit)
        ends = here["start"] + np.where(hit, here["distance"], 0.0)[:, None] * here["direction"]
        np.testing.assert_allclose(here["point"][hit], ends[hit], atol=2e-5, rtol=1e-6)
        cosine = -(here["normal"] * here["direction"]).sum(axis=1)
        np.testing.assert_allclose(here["cosine"], cosine, atol=1e-5)
        assert (here["normal"][~hit] == 0.0).all() and (here["shape"][~hit] == -1).all()
        return report


def tensor_engine(shapes: Sequence[Shape], bodies: int, envs: int, poses: Sequence[Any] = ()) -> sn.TensorEngine:
    """Return an engine with bodies b0, b1, ... in the given poses of each env (positions, quaternions)."""
    names = tuple(f"b{i}" for i in range(bodies)) or ("none",)
    engine = sn.TensorEngine(envs, bodies=names, shapes=list(shapes), provides=("pose", "velocity", "gravity"))
    if poses:
        engine.body_pos_w = np.stack([np.asarray(pos, np.float32) for pos, _ in poses])
        engine.body_quat_w = np.stack([np.asarray(quat, np.float32) for _, quat in poses])
    return engine


def same_bits(a: Mapping[str, Array], b: Mapping[str, Array]) -> bool:
    """Return whether two casts wrote identical bits."""
    return all(np.array_equal(a[name], b[name]) and a[name].tobytes() == b[name].tobytes() for name in a)


__all__ = ["OUTPUTS", "World", "same_bits", "tensor_engine"]

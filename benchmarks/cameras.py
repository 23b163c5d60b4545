"""Visibility of cameras against mujoco_warp's renderer, per core-second, in the same run."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import mujoco
import mujoco_warp
import numpy as np
import torch
import warp as wp

from benchmarks.camera_scenes import SCENES, poses_of
from benchmarks.rays import on_tensors
from benchmarks.timing import interleaved, repeats_of, wall_and_cpu
from sensorium import CameraCfg, EventCameraCfg, MujocoWarpEngine, Scene
from sensorium.cameras.annotators import distances
from sensorium.cameras.render.cast import cast_pixels
from sensorium.cameras.render.lighting import place_lights
from sensorium.cameras.render.paths import trace_paths
from sensorium.cameras.render.place import place_cameras
from sensorium.cameras.render.raster import draw_analytic, draw_clusters, list_shapes
from sensorium.cameras.render.shade import shade
from sensorium.cameras.render.shadows import cast_shadows
from sensorium.lenses import PinholeLensCfg

PASS = (place_cameras, list_shapes, draw_analytic, draw_clusters, distances._measure)
"""Kernels of a pinhole image of depth."""
COLORS = (place_lights, shade, cast_shadows["drawn"], trace_paths)
"""Kernels of colours."""
Row = tuple[str, str, str]


class Worlds:
    """One scene in some environments, for both renderers.

    Args:
        scene: name of the scene.
        envs: number of environments.
        image: height and width, px.
    """

    def __init__(self, scene: str, envs: int, image: tuple[int, int]) -> None:
        self.name, self.envs, self.image = scene, envs, image
        self.model = SCENES[scene]().compile()
        self.engine = MujocoWarpEngine(SCENES[scene](), envs, device="cpu", fresh=False)
        for name, values in zip(("mocap_pos", "mocap_quat"), poses_of(scene, self.model, envs), strict=True):
            getattr(self.engine, name)[:] = torch.from_numpy(values).float()
        self.engine.forward()

    @cached_property
    def fovy(self) -> float:
        """Vertical angle of view, degrees."""
        return float(self.model.camera("eye").fovy[0])

    def ours(
        self,
        threads: int,
        data_types: Sequence[str] = ("depth",),
        *,
        shadows: bool = False,
        cfg_class: type[CameraCfg] = CameraCfg,
    ) -> Scene:
        """Return a scene with a camera that computes some data types, on some cores."""
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        (height, width), lens = self.image, PinholeLensCfg(fovy=self.fovy)
        offset = CameraCfg.OffsetCfg(rot=(1.0, 0.0, 0.0, 0.0), convention="opengl")
        cfg = cfg_class(
            name="eye", body="eye", width=width, height=height, lens=lens, offset=offset, data_types=tuple(data_types),
            shadows=shadows, clipping_range=(0.01, 1e3), evaluate="always",
        )  # fmt: skip
        try:
            return Scene(on_tensors(self.engine), [cfg])
        finally:
            torch.set_num_threads(before)

    def their_colors(self, *, shadows: bool) -> Callable[[], None]:
        """Return a call that renders colour, depth and ids with mujoco_warp."""
        m, d = self.engine.m, self.engine.d
        for update in (mujoco_warp.kinematics, mujoco_warp.com_pos, mujoco_warp.camlight):
            update(m, d)
        context = mujoco_warp.create_render_context(
            self.model, nworld=self.envs, cam_res=self.image[::-1], render_rgb=True, render_depth=True,
            render_seg=True, use_shadows=shadows, enabled_geom_groups=[0, 1, 2],
        )  # fmt: skip

        def call() -> None:
            mujoco_warp.refit_bvh(m, d, context)
            mujoco_warp.render(m, d, context)

        return call

    def gl(self) -> mujoco.Renderer:
        """Return MuJoCo's OpenGL renderer, with the first environment."""
        height, width = self.image
        self.model.vis.global_.offwidth, self.model.vis.global_.offheight = width, height
        data = mujoco.MjData(self.model)
        data.mocap_pos[:], data.mocap_quat[:] = (values[0] for values in poses_of(self.name, self.model, self.envs))
        mujoco.mj_forward(self.model, data)
        renderer = mujoco.Renderer(self.model, height, width)
        renderer.update_scene(data, "eye")
        return renderer

    def theirs(self) -> tuple[Any, Any]:
        """Return a call that renders depth with mujoco_warp, and its image `[env, height * width]`."""
        m, d = self.engine.m, self.engine.d
        mujoco_warp.kinematics(m, d)
        mujoco_warp.camlight(m, d)
        context = mujoco_warp.create_render_context(
            self.model, nworld=self.envs, cam_res=self.image[::-1], render_rgb=False, render_depth=True,
            render_seg=False, use_textures=False, enabled_geom_groups=[0, 1, 2],
        )  # fmt: skip

        def call() -> None:
            mujoco_warp.refit_bvh(m, d, context)
            mujoco_warp.render(m, d, context)

        return call, wp.to_torch(context.depth_data)


def depth(scene: str, envs: int, image: tuple[int, int] = (64, 64), goal: float = 3.5) -> list[Row]:
    """Depth against mujoco_warp's renderer, per core-second, and on two cores against one."""
    envs = repeats_of(envs)  # one with --once
    worlds = Worlds(scene, envs, image)
    one, two = worlds.ours(1), worlds.ours(2)
    call, theirs = worlds.theirs()
    for _ in range(repeats_of(40)):
        one.update()
        two.update()
    call()
    mine = one["eye"].data.output["depth"].reshape(envs, -1)
    assert torch.equal(mine, two["eye"].data.output["depth"].reshape(envs, -1))
    expected = torch.where(theirs.reshape(envs, -1) <= 0.0, torch.inf, theirs.reshape(envs, -1))
    agree = float((((mine - expected).abs() <= 1e-3 * mine) | (mine == expected)).float().mean())
    taken = wall_and_cpu({"one": one.update, "two": two.update, "mujoco_warp": call}, rounds=7)
    pixels = envs * image[0] * image[1]
    speed = {name: pixels / rounds[:, 1].min() / 1e6 for name, rounds in taken.items()}
    wall = {name: rounds[:, 0].min() for name, rounds in taken.items()}
    what = f"depth {image[1]}x{image[0]}, {scene}, {envs} envs"
    ratio = f"{speed['one'] / speed['mujoco_warp']:.1f} x (at least {goal:g}); {agree:.2%} of pixels agree"
    cores = f"{wall['one'] / wall['two']:.2f} x one core (at least 1.7)"
    return [
        (f"{what}: mujoco_warp", f"{speed['mujoco_warp']:.2f} Mpix per core-second", "baseline"),
        (f"{what}: one core", f"{speed['one']:.2f} Mpix per core-second, {wall['one'] * 1e3:.2f} ms", ratio),
        (f"{what}: two cores", f"{wall['two'] * 1e3:.2f} ms", cores),
    ]


def annotators(scene: str, envs: int, image: tuple[int, int] = (64, 64)) -> list[Row]:
    """CPU time of depth with ids and normals against depth alone, with the camera of the package, on one core."""
    envs = repeats_of(envs)  # one with --once
    worlds = Worlds(scene, envs, image)
    scenes = {"depth": worlds.ours(1), "with ids and normals": worlds.ours(1, ("depth", "geom_ids", "normals"))}
    for each in scenes.values():
        for _ in range(repeats_of(40)):
            each.update()
    taken = wall_and_cpu({name: each.update for name, each in scenes.items()}, rounds=15)
    cpu = {name: float(rounds[:, 1].min()) for name, rounds in taken.items()}
    ratio = cpu["with ids and normals"] / cpu["depth"]
    what = f"depth, ids and normals {image[1]}x{image[0]}, {scene}, {envs} envs"
    return [(what, f"{cpu['with ids and normals'] * 1e3:.2f} ms of CPU", f"{ratio:.2f} x depth alone (at most 1.25)")]


def colors(scene: str, envs: int) -> list[Row]:
    """Color, depth and ids of 64 x 64 pixels, with and without shadows, against mujoco_warp's renderer."""
    envs = repeats_of(envs)  # one with --once
    worlds = Worlds(scene, envs, (64, 64))
    types = ("rgb", "depth", "geom_ids")
    scenes = {
        "depth": worlds.ours(1),
        "colors": worlds.ours(1, types),
        "shadows": worlds.ours(1, types, shadows=True),
    }
    calls: dict[str, Callable[[], object]] = {name: each.update for name, each in scenes.items()}
    for shadows, name in ((False, "mujoco_warp"), (True, "mujoco_warp, shadows")):
        calls[name] = worlds.their_colors(shadows=shadows)
    for name in scenes:
        for _ in range(repeats_of(40)):
            calls[name]()
    taken = wall_and_cpu(calls, rounds=9)
    cpu = {name: float(np.median(times[:, 1])) / (envs * 64 * 64) * 1e9 for name, times in taken.items()}
    what = f"rgb + depth + ids 64x64, {scene}, {envs} envs"

    def row(name: str, other: str, goal: float, title: str) -> Row:
        ratio = f"{cpu[other] / cpu[name]:.1f} x mujoco_warp (at least {goal:g})"
        return f"{what}{title}", f"{cpu[name]:.0f} ns per pixel and core", ratio

    share = f"{cpu['colors'] / cpu['depth']:.2f} x depth alone (at most 1.7)"
    return [
        row("colors", "mujoco_warp", 2.5, ""),
        row("shadows", "mujoco_warp, shadows", 1.5, ", shadows"),
        (f"{what}: share of depth", f"{cpu['depth']:.0f} ns per pixel and core for depth", share),
    ]


def events(scene: str, envs: int) -> list[Row]:
    """CPU time of the events of a swaying camera of 64 x 64 pixels against that of its images, on one core."""
    envs = repeats_of(envs)  # one with --once
    worlds = Worlds(scene, envs, (64, 64))
    scenes = {
        "images": worlds.ours(1, ("linear_rgb",)),
        "events": worlds.ours(1, (), cfg_class=EventCameraCfg),
    }

    def sway(each: Scene) -> Callable[[], None]:
        def call() -> None:
            each.engine.array("body_pos_w")[:] += 0.002 * (-1) ** (each.tick % 2)
            each.update()

        return call

    calls = {name: sway(each) for name, each in scenes.items()}
    for call in calls.values():
        for _ in range(repeats_of(40)):
            call()
    count = scenes["events"]["eye"].data.count.float().mean()
    cpu = {name: float(np.median(rounds[:, 1])) for name, rounds in wall_and_cpu(calls, rounds=15).items()}
    what = f"events 64x64, {scene}, {envs} envs, {count:.0f} events per image"
    ratio = f"{cpu['events'] / cpu['images']:.2f} x its images (at most 1.3)"
    return [(what, f"{cpu['events'] * 1e3:.2f} ms of CPU", ratio)]


def colors_large(scene: str) -> list[Row]:
    """Color of 640 x 480 pixels against MuJoCo's OpenGL renderer on the CPU (llvmpipe)."""
    if "MUJOCO_GL" not in os.environ:
        return [(f"rgb 640x480, {scene}", "not measured", "needs EGL (Debian: libegl1 libegl-mesa0 libgl1-mesa-dri)")]
    worlds = Worlds(scene, 1, (480, 640))
    renderer = worlds.gl()
    rows = []
    for shadows, goal in ((False, 1.0), (True, 1.1)):
        ours = worlds.ours(1, ("rgb",), shadows=shadows)
        renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = shadows
        for _ in range(repeats_of(40)):
            ours.update()
        taken = wall_and_cpu({"ours": ours.update, "OpenGL": renderer.render}, rounds=9)
        cpu = {name: float(np.median(times[:, 1])) for name, times in taken.items()}
        what = f"rgb 640x480, {scene}{', shadows' if shadows else ''}"
        ratio = f"{cpu['OpenGL'] / cpu['ours']:.1f} x MuJoCo's OpenGL renderer (at least {goal:g})"
        rows.append((what, f"{cpu['ours'] * 1e3:.0f} ms per core", ratio))
    renderer.close()
    return rows


def fixed() -> list[Row]:
    """Cost of a frame of 4 x 4 pixels, one environment, and of a camera that is never read."""
    scene = Worlds("tabletop", 1, (4, 4)).ours(2)
    seconds = interleaved({"frame": scene.update}, repeats=200)["frame"]
    rows = [("a frame of 4x4 pixels, tabletop, one env", f"{seconds * 1e3:.3f} ms", "under 0.3 ms")]
    worlds = Worlds("tabletop", 64, (128, 128))
    unread, empty = worlds.ours(2), Scene(on_tensors(worlds.engine))
    unread.reconfigure("eye", evaluate="on_access", update_period=4 * unread.engine.dt)
    taken = interleaved({"unread": unread.update, "empty": empty.update}, repeats=200)
    goal = f"that of a scene without sensors: {taken['empty'] * 1e6:.0f} us"
    rows.append(("a tick of 64 unread 128x128 cameras, on access", f"{taken['unread'] * 1e6:.0f} us", goal))
    return rows


def memory() -> list[Row]:
    """Memory of one camera beyond its image, and of the clusters of triangles."""
    rows = []
    for scene, envs, image in (("tabletop", 16, (64, 64)), ("tabletop", 256, (64, 64)), ("terrain", 1, (480, 640))):
        sensor = Worlds(scene, envs, image).ours(2)["eye"]
        cast = sensor.cast
        flying = cast.record.inverse.shape[0] * cast.count
        what = f"memory of the pass, {scene}, {envs} envs, {image[1]}x{image[0]}"
        size = f"{cast.nbytes / 1024:.0f} KiB, {cast.nbytes / flying:.1f} B per pixel in flight"
        rows.append((what, size, f"12 B; image: {4 * envs * cast.count / 1024:.0f} KiB"))
    return rows


def cold() -> list[Row]:
    """CPU time of compiling the kernels of the pass, each in an empty cache."""
    rows, total = [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        kernels = (*PASS, *COLORS, cast_pixels)
        for made in kernels[: repeats_of(len(kernels))]:
            began = time.process_time()
            wp.compile_aot_module(made.module, device="cpu", module_dir=folder)
            taken = time.process_time() - began
            total += taken
            rows.append((f"compiling {made.key}", f"{taken:.1f} s", ""))
            if made in (PASS[-1], COLORS[-1]):
                what, goal = ("with depth", 10) if made is PASS[-1] else ("with colors", 20)
                rows.append((f"compiling the pass of a pinhole, {what}", f"{total:.1f} s", f"under {goal} s"))
    return rows

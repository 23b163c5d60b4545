"""Motion during the exposure: the scene at several instants before the capture, and their mean in each row.

The exposure of a frame takes from the start of the first row's to the capture, at which the last row's ends. This time
is divided into equal parts, and the scene is rendered as it was in the middle of each. A row shows the parts in which
it is exposed, each by its share of the row's exposure.

Poses are kept at each physics tick, and interpolated in between. Before the first tick of an episode, nothing moved.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import warp as wp

from sensorium.cameras.annotators.colors import LinearLight
from sensorium.cameras.render.structs import Cameras, Placed
from sensorium.cameras.stages.image_sensor import LINEAR, ImageSensor
from sensorium.compute import Rows, is_first, kernel, masked_tid, tick_now
from sensorium.geometry.ray_poses import slot_of
from sensorium.geometry.transforms import quat_rotate
from sensorium.measurement.record import Record

if TYPE_CHECKING:
    from sensorium.cameras.camera import Camera


@wp.struct
class Past:
    """Poses at the last ticks, `[env, tick, mount or moving shape]`: cameras first, then shapes.

    Attributes:
        pos: positions, m.
        quat: orientations.
        mounts: number of cameras.
    """

    pos: wp.array3d[wp.vec3]
    quat: wp.array3d[wp.vec4]
    mounts: wp.int32


@wp.struct
class Shutter:
    """Timing of a frame.

    Attributes:
        exposure: exposure time of a row `[env, 1 or mount]`, s.
        line_time: time from a row to the next, s.
        height: number of rows.
        parts: number of rendered instants.
        dt: duration of a tick, s.
    """

    exposure: wp.array2d[wp.float32]
    line_time: wp.float32
    height: wp.int32
    parts: wp.int32
    dt: wp.float32


@wp.func
def duration(shutter: Shutter, env: int) -> float:
    """Return the time from the start of the first row's exposure to the capture, s; the longest of all mounts."""
    longest = wp.float32(0.0)
    for mount in range(shutter.exposure.shape[1]):
        longest = wp.max(longest, shutter.exposure[env, mount])
    return float(longest + shutter.line_time * float(shutter.height - 1))


@kernel(group="shutter")
def keep_past(rows: Rows, cameras: Cameras, placed: Placed, past: Past) -> None:
    """Keep the current poses; at the first tick of an episode, also in place of all earlier ones."""
    env, k = masked_tid(rows)
    depth = past.pos.shape[1]
    pos = wp.vec3()
    quat = wp.vec4()
    if k < past.mounts:
        pos = cameras.pos[env, k]
        quat = cameras.quat[env, k]
    else:
        pos = placed.pos[env, k - past.mounts]
        quat = placed.quat[env, k - past.mounts]
    slots = 1
    if is_first(rows, env):
        slots = depth
    for ago in range(slots):
        slot = slot_of(tick_now(rows) - wp.int64(ago), depth)
        past.pos[env, slot, k] = pos
        past.quat[env, slot, k] = quat


@kernel(group="shutter")
def place_past(rows: Rows, part: int, shutter: Shutter, past: Past, cameras: Cameras, placed: Placed) -> None:
    """Place cameras and shapes as they were in the middle of a part of the exposure; 0 is the last one."""
    env, k = masked_tid(rows)
    ago = (float(part) + 0.5) / float(shutter.parts) * duration(shutter, env) / shutter.dt
    depth = past.pos.shape[1]
    whole = wp.min(int(ago), depth - 2)
    share = wp.min(ago - float(whole), 1.0)
    newer = slot_of(tick_now(rows) - wp.int64(whole), depth)
    older = slot_of(tick_now(rows) - wp.int64(whole + 1), depth)
    pos = wp.lerp(past.pos[env, newer, k], past.pos[env, older, k], share)
    a = past.quat[env, newer, k]
    b = past.quat[env, older, k]
    if wp.dot(a, b) < 0.0:
        b = -b
    quat = wp.normalize(wp.lerp(a, b, share))
    if k < past.mounts:
        cameras.pos[env, k] = pos
        cameras.quat[env, k] = quat
        return
    moving = k - past.mounts
    placed.pos[env, moving] = pos
    placed.quat[env, moving] = quat
    placed.centre[env, moving] = pos + quat_rotate(quat, placed.instances.centre[placed.instances.moving + moving])


@kernel(group="shutter")
def add_part(rows: Rows, part: int, shutter: Shutter, source: wp.array3d[wp.vec3], total: wp.array3d[wp.vec3]) -> None:
    """Add the light of a part of the exposure to a row."""
    env, mount, piece = masked_tid(rows)
    row = rows.first + piece
    exposure = shutter.exposure[env, mount % shutter.exposure.shape[1]]
    end = float(shutter.height - 1 - row) * shutter.line_time
    length = duration(shutter, env) / float(shutter.parts)
    first = wp.max(float(part) * length, end)
    last = wp.min(float(part + 1) * length, end + exposure)
    share = wp.max(last - first, 0.0) / exposure
    width = source.shape[2] / shutter.height
    for pixel in range(row * width, (row + 1) * width):
        light = share * source[env, mount, pixel]
        if part > 0:
            light += total[env, mount, pixel]
        total[env, mount, pixel] = light


class ShutterMotion:
    """Rendering of the motion during the exposure of a camera.

    Args:
        camera: the camera, whose visibility pass exists.
        stage: the image sensor of its config.
    """

    def __init__(self, camera: Camera, stage: ImageSensor) -> None:
        self._camera, self._stage = camera, stage
        cast, mounts = camera.cast, camera.mount.count
        self._items = mounts + len(cast.moving)
        time = stage.longest_exposure + stage.line_time * (camera.image_shape[0] - 1)
        depth = math.ceil(camera.clock.ticks(time) - 1e-6) + 2
        self._past = past = Past()
        past.mounts = mounts
        for name, size, dtype in (("pos", 3, wp.vec3), ("quat", 4, wp.vec4)):
            memory = camera.new_state(f"past_{name}", (depth, self._items, size))
            setattr(past, name, wp.from_torch(memory, dtype=dtype))
        self._light = LinearLight(camera)

    def observe(self) -> None:
        """Keep the poses of a tick (launches)."""
        cast = self._camera.cast
        cast.place()
        self._camera.compute_on.launch(keep_past, (self._items,), [cast.cameras, cast.placed], [self._past])

    def render(self, slot: Record) -> None:
        """Replace the linear colours by their mean over the exposure (launches, one visibility pass per instant)."""
        camera, cast = self._camera, self._light.cast
        run = next(run for run in camera.buffers.stages if run.cfg is self._stage)
        shutter = Shutter()
        shutter.exposure = self._stage.exposure_of(run.states, run.key, LINEAR)[0]
        shutter.line_time, shutter.height = self._stage.line_time, camera.image_shape[0]
        shutter.parts, shutter.dt = self._stage.subposes, camera.clock.dt
        images: list[Any] = []
        for image in (self._light.image, slot[LINEAR]):
            view = image.view(camera.num_envs, camera.mount.count, -1, 3)
            images.append(wp.from_torch(view, dtype=wp.vec3))
        launch = camera.compute_on.launch
        for part in range(shutter.parts):
            launch(place_past, (self._items,), [part, shutter, self._past], [cast.cameras, cast.placed])
            self._light.render(is_placed=True)
            launch(add_part, (camera.mount.count, shutter.height), [part, shutter, images[0]], [images[1]], split=True)
        camera.cast.place()

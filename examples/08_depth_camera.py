"""A depth camera on a moving head: its point cloud must match the room, and its noise that of a D435."""

import math

import sensorium as sn
from sensorium.cameras.geometry import transform_points

ENVS, WALL = 4, 3.0  # m

shapes = {
    "floor": sn.engines.Shape("plane", ""),
    "wall": sn.engines.Shape("box", "", (0.1, 9.0, 9.0), pos=(WALL + 0.1, 0.0, 0.0)),
    "crate": sn.engines.Shape("box", "", (0.2, 0.2, 0.2), pos=(2.0, 0.8, 0.2)),
}
device = sn.preset(
    "d435",
    name="depth",
    body="head",
    res=(212, 120),
    data_types=("distance_to_image_plane", "points_b", "geom_ids"),
    evaluate="always",
)


def nod(time: float) -> dict[str, tuple[float, ...]]:
    """Return the head's pose at a time: it moves forward and nods."""
    pitch = 0.15 + 0.1 * math.sin(6.0 * time)
    return {"body_pos_w": (0.3 * time, 0.0, 1.2), "body_quat_w": (math.cos(pitch / 2), 0.0, math.sin(pitch / 2), 0.0)}


engine = sn.TensorEngine(ENVS, dt=1.0 / 120.0, bodies=("head",), shapes=shapes, motion=nod)
scene = sn.Scene(engine, [device], seed=0)
sensor = scene["depth"]
for _ in range(40):
    scene.step(substeps=4)

# The true points, transformed to the world frame with the pose of the image, lie on the shapes that the ids name.
truth, measured = sensor.ground_truth, sensor.data
names = sensor.geom_names
points = transform_points(truth.points_b.flatten(1, 2), truth.pos_w, truth.quat_w_ros)
ids = truth.geom_ids.flatten()
seen = truth.distance_to_image_plane.flatten() > 0.0  # the device reports 0 for missing depth
points = points.reshape(-1, 3)
on_wall, on_floor = (points[seen & (ids == names.index(name))] for name in ("wall", "floor"))
print(f"{len(on_wall)} points on the wall, {len(on_floor)} on the floor, image {sensor.image_shape}")
assert (on_wall[:, 0] - WALL).abs().max() < 1e-3 and on_floor[:, 2].abs().max() < 1e-3

# The measured depth of the wall has the deviation s z^2 / (f B) of a D435: 0.08 px of disparity at f B = 21.2 px m.
wall = (truth.geom_ids == names.index("wall")) & (measured.distance_to_image_plane > 0.0)
z = truth.distance_to_image_plane[wall]
error = measured.distance_to_image_plane[wall] - z
expected = (0.08 * z**2 / (424.0 * 0.05)).square().mean().sqrt()
near = error[error.abs() < 6.0 * expected]  # near the edges of the crate, depth jumps between both surfaces
print(f"error on the wall: {1e3 * near.std():.1f} mm, expected {1e3 * expected:.1f} mm")
assert abs(near.std() / expected - 1.0) < 0.1 and len(near) > 0.99 * len(error)

"""A camera above a table: the position of each cup from labels and depth, compared with the true position."""

import math

import sensorium as sn
from sensorium.cameras.geometry import transform_points

ENVS, RADIUS, HEIGHT = 8, 0.04, 0.1  # m

shapes = {
    "table": sn.engines.Shape("box", "", (0.6, 0.4, 0.02), pos=(0.0, 0.0, -0.02)),
    "cup_1": sn.engines.Shape("cylinder", "", (RADIUS, HEIGHT / 2), body="cup_1", labels=("cup", "color:red")),
    "cup_2": sn.engines.Shape("cylinder", "", (RADIUS, HEIGHT / 2), body="cup_2", labels=("cup", "color:blue")),
}
camera = sn.CameraCfg(
    name="camera",
    body="world",
    width=160,
    height=120,
    lens=sn.lenses.PinholeLensCfg(fovy=50.0),
    offset=sn.CameraCfg.OffsetCfg.from_view(pos=(0.0, -0.5, 1.0), lookat=(0.0, 0.0, 0.0)),
    data_types=("points_b", "instance_segmentation"),
    colorize_instance_segmentation=False,
    semantic_filter="class: cup",
)
engine = sn.TensorEngine(ENVS, bodies=("cup_1", "cup_2"), shapes=shapes)
for env in range(ENVS):
    angle = 2.0 * math.pi * env / ENVS
    engine.body_pos_w[env, 0, :2] = 0.2 * engine.body_pos_w.new_tensor([math.cos(angle), math.sin(angle)])
    engine.body_pos_w[env, 1, :2] = -engine.body_pos_w[env, 0, :2]
engine.body_pos_w[..., 2] = HEIGHT / 2
scene = sn.Scene(engine, [camera], seed=0)
scene.update()
data = scene["camera"].data

names = data.info[0]["instance_segmentation"]["idToLabels"]
ids = data.output["instance_segmentation"].flatten(1)
points = transform_points(data.points_b.flatten(1, 2), data.pos_w, data.quat_w_ros)
worst = 0.0
for number, name in names.items():
    if int(number) < 2:  # the background, and surfaces without a label
        continue
    body = engine.names("body").index(name)
    for env in range(ENVS):
        top = points[env][(ids[env] == int(number)) & (points[env, :, 2] > HEIGHT - 1e-3)]
        error = (top[:, :2].mean(dim=0) - engine.body_pos_w[env, body, :2]).norm()
        worst = max(worst, float(error))
print(f"{ENVS} environments, image {data.image_shape}, labels {names}")
print(f"largest error of a cup's centre: {1e3 * worst:.1f} mm")
assert worst < 0.003

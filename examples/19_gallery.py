"""Pictures of every data type and every lens of a camera beside the demo's robot, one file each."""

import sys
from pathlib import Path

import torch

import sensorium as sn
from sensorium import math, pictures
from sensorium.demo import SEMANTICS, Trot, model_path

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else "gallery")
IDS = ("semantic_segmentation", "instance_segmentation", "instance_id_segmentation")
COLORS = ("rgb", "rgba", "albedo")
TYPES = ("depth", "distance_to_camera", "points_b", "normals", "geom_ids", "face_ids", *IDS, "motion_vectors",
         "optical_flow", "bounding_box_2d_tight", "bounding_box_2d_loose", "bounding_box_3d")  # fmt: skip
LENSES = {
    "pinhole": sn.lenses.PinholeLensCfg(fovy=60.0),
    "brown_conrady": sn.lenses.BrownConradyLensCfg(fovy=75.0, k1=-0.25, k2=0.05),
    "kannala_brandt": sn.lenses.KannalaBrandtLensCfg(fovy=117.0, k1=0.01, max_fov_deg=180.0),
    "f_theta": sn.lenses.FThetaLensCfg(coefficients=(0.012, 0.0, 1e-6), nominal_size=(240, 180), max_fov_deg=220.0),
    "equirectangular": sn.lenses.EquirectangularLensCfg(),
    "orthographic": sn.lenses.OrthographicLensCfg(view_height=1.2),
}
common = {"body": "world", "width": 240, "height": 180,
          "offset": sn.CameraCfg.OffsetCfg.from_view(pos=(-0.4, -0.85, 0.65), lookat=(0.45, 0.3, 0.25)),
          "semantic_filter": "class: robot | crate | pole",
          **{f"colorize_{name}": False for name in IDS}, "data_types": ("rgb", *TYPES[1:3], IDS[0])}  # fmt: skip
cameras = [sn.CameraCfg(name=name, lens=lens, **common) for name, lens in LENSES.items()]
cameras[0] = cameras[0].replace(data_types=TYPES + COLORS, rate_hz=50.0)  # motion since the frame 20 ms before
scene, trot = sn.Scene(sn.MujocoEngine(model_path(), keyframe="home"), cameras, semantics=SEMANTICS), Trot()
for step in range(36):
    scene.step(trot.targets(0.01 * step), substeps=5)

for name, lens in LENSES.items():
    data = scene[name].data
    images = {each: image[0] for each, image in data.output.items()}
    k, pos, quat = data.intrinsic_matrices[0], data.pos_w[0], data.quat_w_ros[0]
    points = math.unproject_depth(images["distance_to_camera"], k, is_ortho=False, lens=lens)  # as the camera's own
    torch.testing.assert_close(points, images["points_b"].reshape(-1, 3), atol=1e-3, rtol=1e-4)
    colors = images["rgb"].numpy()
    pictures.save_image(FOLDER / f"lens_{name}.png", colors)
    labels = {label["class"]: int(id) for id, label in data.info[0]["semantic_segmentation"]["idToLabels"].items()}
    assert (images["semantic_segmentation"] == labels["robot"]).float().mean() > 0.005
    if name == "pinhole":
        edges = torch.from_numpy(pictures.box_edges(images["bounding_box_3d"])).float().reshape(-1, 3)
        lines = math.project_points(math.quat_apply_inverse(quat, edges - pos), k, lens)[:, :2].reshape(-1, 24, 2)
        height = math.transform_points(points, pos, quat)[:, 2].reshape(180, 240, 1)
        shown = {each: pictures.colorize_depth(images[each]) for each in TYPES[:2]}
        shown |= {each: images[each].numpy() for each in COLORS}
        shown |= {each: pictures.colorize_ids(images[each], 2 * (each in IDS)) for each in (*TYPES[4:6], *IDS)}
        shown |= {each: pictures.colorize_flow(images[each]) for each in ("motion_vectors", "optical_flow")}
        shown |= {each: pictures.draw_boxes(colors, images[each]) for each in TYPES[-3:-1]}
        shown |= {"bounding_box_3d": pictures.draw_lines(colors, lines)}
        shown |= {"normals": pictures.colorize_normals(images["normals"])}
        shown |= {"points_b": pictures.colorize_depth(3.0 - height, 1.5, 3.0)}  # high is bright
        for each, picture in shown.items():
            pictures.save_image(FOLDER / f"{each}.png", picture)
print(f"wrote {len(shown)} data types and {len(LENSES)} lenses to {FOLDER}")

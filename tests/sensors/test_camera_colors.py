"""Colors of the camera against formulas written out here, their independence of the engine, and looks set at reset."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import pytest
import torch

import sensorium as sn
from sensorium.cameras.annotators import colors
from tests.conformance.test_colors_mujoco import PRIMITIVES

TYPES = ("rgb", "rgba", "albedo", "linear_rgb", "depth", "geom_ids")
SUN = sn.engines.Light("directional", "sun", direction=(0.0, 0.6, -0.8), diffuse=(0.9, 0.8, 0.7), specular=(0.5,) * 3)


def scene_of(shapes: Any, lights: Any = (SUN,), envs: int = 1, parts: Any = None, **options: Any) -> sn.Scene:
    """Return a scene with a camera 2 m above the origin that looks down, with a view of 90 degrees."""
    lighting = options.pop("lighting", sn.engines.Lighting(lights))
    more = {name: options.pop(name) for name in ("appearance", "seed", "first_env") if name in options}
    engine = sn.TensorEngine(envs, provides=("pose",), shapes=shapes, lighting=lighting, **(parts or {}))
    options = {"data_types": TYPES, "width": 9, "height": 9, "lens": sn.lenses.PinholeLensCfg(fovy=90.0)} | options
    down = sn.CameraCfg.OffsetCfg(pos=(0.0, 0.0, 2.0), rot=(1.0, 0.0, 0.0, 0.0), convention="opengl")
    cfg = sn.CameraCfg(name="eye", body="world", offset=down, **options)
    return sn.Scene(engine, [cfg], discover=False, **more)


def images(*args: Any, **options: Any) -> Any:
    """Return the data of the camera of `scene_of`."""
    return scene_of(*args, **options)["eye"].data


@pytest.mark.parametrize("shininess", [0.25, 0.3])
def test_light_follows_the_formula_of_blinn_and_phong(shininess: float) -> None:
    """A plane in the light of the sun and of a spot: diffuse and specular light per pixel, in float64."""
    rgb, material = np.array([0.4, 0.5, 0.6]), sn.engines.Material(emission=0.1, specular=0.8, shininess=shininess)
    spot = {"pos": (0.5, 0.0, 1.0), "attenuation": (1.0, 0.2, 0.1), "cutoff_deg": 60.0, "exponent": 2.5}
    lamp = sn.engines.Light("spot", "lamp", direction=(0.0, 0.0, -1.0), diffuse=(0.6,) * 3, casts_shadow=False, **spot)
    data = images([sn.engines.Shape("plane", "ground", rgba=(*rgb, 1.0), material=material)], (SUN, lamp), width=35)
    u, v = np.meshgrid(np.arange(35) - 17.0, np.arange(9) - 4.0)
    back = np.stack([-u / 4.5, v / 4.5, np.ones_like(u)], axis=-1)
    point = np.array([0.0, 0.0, 2.0]) - 2.0 * back
    back /= np.linalg.norm(back, axis=-1, keepdims=True)

    def light_of(light: Any, to: Any, share: Any) -> Any:
        half = back + to
        half /= np.linalg.norm(half, axis=-1, keepdims=True)
        gleam = 0.8 * np.array(light.specular) * half[..., 2:] ** (128.0 * shininess)
        return share * (to[..., 2:] * rgb * light.diffuse + gleam)

    to = np.array(lamp.pos) - point
    far = np.linalg.norm(to, axis=-1, keepdims=True)
    to /= far
    share = np.where(to[..., 2:] >= 0.5, to[..., 2:] ** 2.5, 0.0) / (1.0 + 0.2 * far + 0.1 * far**2)
    near = 0.1 * rgb + light_of(lamp, to, share)
    sun = light_of(SUN, np.array([0.0, -0.6, 0.8]), 1.0)
    shown = np.clip(np.clip(near, 0.0, 1.0) + np.clip(sun, 0.0, 1.0), 0.0, 1.0)
    np.testing.assert_allclose(data.rgb[0].numpy(), 255.0 * shown, atol=0.51)
    raw = near + sun
    linear = np.where(raw <= 0.04045, raw / 12.92, ((raw + 0.055) / 1.055) ** 2.4)
    np.testing.assert_allclose(data.linear_rgb[0].numpy(), linear, rtol=2e-4)
    np.testing.assert_allclose(data.albedo[0, 4, 4].numpy(), [102, 128, 153, 255], atol=0)
    assert torch.equal(data.rgba[..., :3], data.rgb) and (data.rgba[..., 3] == 255).all()


def test_a_light_behind_a_surface_makes_no_highlight() -> None:
    """The direction halfway between the viewer and a light just below the ground is that of a highlight."""
    ground = [sn.engines.Shape("plane", "ground", material=sn.engines.Material(specular=1.0, shininess=0.02))]
    for height, is_lit in ((0.1, True), (-0.1, False)):
        light: Any = {"direction": (0.0, 1.0, -height), "diffuse": (0.0,) * 3, "casts_shadow": False}
        data = images(ground, [sn.engines.Light("directional", "sun", specular=(1.0,) * 3, **light)])
        assert bool((data.rgb > 20).all()) == is_lit == bool(data.rgb.any())


def test_a_miss_is_black_and_clear() -> None:
    data = images([sn.engines.Shape("sphere", "ball", (0.1,))])
    assert not data.rgba[0, 0, 0].any() and not data.albedo[0, 0, 0].any() and not data.linear_rgb[0, 0, 0].any()
    assert int(data.rgba[0, 4, 4, 3]) == 255


SKY = """<mujoco><asset><texture name="sky" type="skybox" builtin="flat" rgb1=".3 .5 .7" width="8" height="48"/>
  <texture name="squares" type="2d" builtin="checker" rgb1="1 1 1" rgb2="0 0 0" width="64" height="64"/>
  <material name="squares" texture="squares" texrepeat="40 40"/></asset>
  <worldbody><geom name="ground" type="plane" size="9 9 1" material="squares"/></worldbody></mujoco>"""


def test_pixels_beyond_the_field_of_view_are_black_and_clear() -> None:
    """A fisheye of 100 degrees shows the pixels of one of 170 degrees within its circle, and nothing beyond, no sky."""
    types = (*TYPES, "semantic_segmentation", "motion_vectors", "distance_to_camera", "points_b")
    offset = sn.CameraCfg.OffsetCfg.from_view(pos=(0.0, 0.0, 1.0), lookat=(1.0, 0.0, 0.6))
    cfgs = [
        sn.CameraCfg(
            name=str(fov), body="world", width=40, height=30, offset=offset, data_types=types, **{
                "lens": sn.lenses.KannalaBrandtLensCfg(fovy=90.0, max_fov_deg=fov), "depth_clipping_behavior": clip},
        )
        for fov, clip in ((100.0, "none"), (170.0, "none"), (101.0, "max"), (102.0, "zero"))
    ]  # fmt: skip
    scene = sn.Scene(sn.MujocoEngine(SKY), cfgs)
    scene.update()
    narrow, wide = (scene[name].data.output for name in ("100.0", "170.0"))
    rows, columns = np.mgrid[:30, :40] + 0.5
    inside = torch.from_numpy(np.hypot(rows - 15.0, columns - 20.0) / 15.0 < np.radians(50.0))
    assert 0.3 < inside.float().mean() < 0.6
    for name in types:
        beyond = narrow[name][0][~inside]
        expected = {"depth": np.inf, "distance_to_camera": np.inf, "points_b": np.inf, "geom_ids": -1}.get(name, 0)
        assert (beyond == expected).all(), name
        difference = (narrow[name][0][inside].float() - wide[name][0][inside].float()).abs().nan_to_num()
        if name in ("rgb", "rgba", "albedo", "linear_rgb"):  # textures are filtered by the distance to a neighbour
            assert float(difference.max()) < (4.0 if narrow[name].dtype == torch.uint8 else 2e-3), name
        else:
            assert not difference.any(), name
    assert (narrow["rgba"][0][inside][:, 3] == 255).all() and wide["rgba"][0, 0, 20].tolist() == [76, 127, 178, 255]
    for name, value in (("101.0", 1e6), ("102.0", 0.0)):
        assert (scene[name].data.output["depth"][0, 0, 0] == value).all()  # type: ignore[attr-defined]


def test_a_spot_and_a_point_light_fall_off() -> None:
    """Below a light 1.5 m above the ground: attenuation, and for a spot the cone."""
    ground = [sn.engines.Shape("plane", "ground", rgba=(1.0,) * 4, material=sn.engines.Material(specular=0.0))]
    common = {"pos": (0.0, 0.0, 1.5), "attenuation": (0.5, 0.4, 0.3), "diffuse": (0.6,) * 3, "casts_shadow": False}
    point = images(ground, [sn.engines.Light("point", "lamp", **common)])
    spot = images(ground, [sn.engines.Light("spot", "lamp", cutoff_deg=20.0, exponent=3.0, **common)])
    for column in (4, 5, 8):
        x = 2.0 * (column - 4) / 4.5
        far = np.hypot(x, 1.5)
        cosine = 1.5 / far
        value = 0.6 * cosine / (0.5 + 0.4 * far + 0.3 * far**2)
        assert float(point.rgb[0, 4, column, 0]) == pytest.approx(255.0 * value, abs=0.51)
        inside = cosine**3 if cosine >= np.cos(np.radians(20.0)) else 0.0
        assert float(spot.rgb[0, 4, column, 0]) == pytest.approx(255.0 * value * inside, abs=0.51)


def test_a_shadow_takes_the_light_and_its_ambient_part() -> None:
    """A ball between lamp and ground; where rays towards the lamp meet it, the ground is black."""
    lamp = sn.engines.Light("point", "lamp", pos=(1.5, 0.0, 1.5), ambient=(0.2,) * 3, diffuse=(0.5,) * 3)
    shapes = [sn.engines.Shape("plane", "ground"), sn.engines.Shape("sphere", "ball", (0.3,), pos=(0.0, 0.0, 0.4))]
    dark, bright = (images(shapes, [lamp], width=33, height=33, shadows=on) for on in (True, False))
    u, v = np.meshgrid((np.arange(33) - 16.0) / 16.5, (np.arange(33) - 16.0) / 16.5)
    at = np.stack([2.0 * u, -2.0 * v, 0.0 * u], axis=-1)
    way = np.array(lamp.pos) - at
    way /= np.linalg.norm(way, axis=-1, keepdims=True)
    to = np.array([0.0, 0.0, 0.4]) - at
    gap = np.linalg.norm(to - (to * way).sum(-1, keepdims=True) * way, axis=-1)
    on_ground = dark.geom_ids[0, :, :, 0].numpy() == 0
    assert not dark.rgb[0].numpy()[on_ground & (gap < 0.299)].any()
    lit = on_ground & (gap > 0.301)
    assert np.array_equal(dark.rgb[0].numpy()[lit], bright.rgb[0].numpy()[lit])
    assert (on_ground & (gap < 0.299)).sum() > 20 and bright.rgb[0].numpy()[on_ground].min() > 0


def test_the_light_of_several_lamps_adds_up() -> None:
    """Each of three lamps has its own shadows of a ball and of a box."""
    ways = [(1.0, 0.0, -1.0), (-1.0, 0.2, -1.0), (0.0, -1.0, -1.5)]
    lamps = [
        sn.engines.Light("directional", f"lamp {k}", direction=way, diffuse=(0.3,) * 3) for k, way in enumerate(ways)
    ]
    shapes = [
        sn.engines.Shape("plane", "ground"),
        sn.engines.Shape("sphere", "ball", (0.3,), pos=(0.5, 0.1, 0.4)),
        sn.engines.Shape("box", "box", (0.2, 0.3, 0.1), pos=(-0.6, -0.2, 0.3)),
    ]
    size = {"width": 33, "height": 33, "shadows": True}
    together, *alone = (
        images(shapes, lights, **size).rgb[0].numpy().astype(int) for lights in (lamps, *([lamp] for lamp in lamps))
    )
    np.testing.assert_allclose(together, sum(alone), atol=2)
    lit = [each[..., 0] > 5 for each in alone]
    assert all((one & ~other).sum() > 10 for one in lit for other in lit if one is not other)


@pytest.mark.parametrize(
    ("lens", "distance"),
    [(sn.lenses.PinholeLensCfg(fovy=90.0), "depth"), (sn.lenses.EquirectangularLensCfg(), "distance_to_camera")],
)
def test_fog_mixes_with_the_light_by_the_distance_of_the_clipping_range(lens: Any, distance: str) -> None:
    """A ball whose lights with shadows add up to more than white."""
    fog = sn.engines.Fog(0.5, 2.0, (0.1, 0.6, 0.2))
    none = (0.0,) * 3
    light: Any = {"pos": (0.0, 0.0, 9.0), "diffuse": none, "specular": none, "ambient": (0.7, 0.5, 0.3)}
    lighting = sn.engines.Lighting(
        (sn.engines.Light("point", "a", **light), sn.engines.Light("point", "b", **light)), fog=fog
    )
    ball = [sn.engines.Shape("sphere", "ball", (1.5,), pos=(0.0, 0.0, -0.5), rgba=(1.0,) * 4)]
    data = images(ball, lighting=lighting, lens=lens, fog=True, width=33, data_types=("rgb", distance, "geom_ids"))
    seen = data.geom_ids[0, ..., 0] == 0
    share = ((data.output[distance][0][seen].double() - 0.5) / 1.5).clamp(0.0, 1.0)
    assert len(share) > 10 and float(share.max()) > 0.4
    both = 2.0 * torch.tensor(light["ambient"], dtype=torch.float64)
    shown = ((1.0 - share) * both + share * torch.tensor(fog.rgb, dtype=torch.float64)).clamp(0.0, 1.0)
    np.testing.assert_allclose(data.rgb[0][seen].numpy(), 255.0 * shown.numpy(), atol=0.51)


def nearest_triangle(starts: Any, ways: Any, triangles: Any) -> Any:
    """Return t (inf for a miss) and the triangle of rays `[ray, 3]` against `[triangle, 3, 3]` (Moeller, Trumbore)."""
    a, ab, ac = triangles[:, 0], triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]
    p = np.cross(ways[:, None], ac)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 1.0 / (p * ab).sum(-1)
        to = starts[:, None] - a
        q = np.cross(to, ab)
        u, v, t = (p * to).sum(-1) * scale, (q * ways[:, None]).sum(-1) * scale, (q * ac).sum(-1) * scale
        t = np.where((u >= 0.0) & (v >= 0.0) & (u + v <= 1.0) & (t >= 0.0), t, np.inf)
    return t.min(axis=1), t.argmin(axis=1)


@pytest.mark.parametrize(
    "lamp",
    [
        sn.engines.Light("directional", "lamp", direction=(0.7, 0.3, -0.6), ambient=(0.4,) * 3),
        sn.engines.Light("point", "lamp", pos=(1.2, -0.8, 0.9), ambient=(0.4,) * 3),
        sn.engines.Light("point", "lamp", pos=(0.05, 0.35, 0.3), ambient=(0.4,) * 3),
        sn.engines.Light("point", "lamp", pos=(0.0, 0.5, -3.0), ambient=(0.4,) * 3),
    ],
    ids=["directional", "point", "near", "below"],
)
@pytest.mark.parametrize("variant", ["drawn", "rays"])
def test_shadows_of_triangles_equal_those_of_rays(
    lamp: sn.engines.Light, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rough ground under a scaled and turned mesh: float64 rays against all triangles, except at edges of shadows."""
    if variant == "rays":  # that of a GPU, in its tiles
        monkeypatch.setattr(colors, "SIDE", colors.SIDE_ON_GPU)
        monkeypatch.setattr(colors, "cast_shadows", {"drawn": colors.cast_shadows[variant]})
    rng, side = np.random.default_rng(0), np.linspace(-2.5, 2.5, 19)
    x, y = (axis.ravel() for axis in np.meshgrid(side, side + 0.037))
    i = (np.arange(18)[:, None] * 19 + np.arange(18)).ravel()
    faces = np.concatenate([np.stack([i, i + 1, i + 20], -1), np.stack([i, i + 20, i + 19], -1)])
    ground = sn.engines.Mesh(np.stack([x, y, rng.normal(scale=0.06, size=x.size)], -1), faces, "ground")
    corners = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0], [-1, 0, 0], [0, -1, 0], [0, 0, -1]], float)
    sides = [[0, 1, 2], [0, 2, 3], [0, 3, 4], [0, 4, 1], [5, 2, 1], [5, 3, 2], [5, 4, 3], [5, 1, 4]]
    scale, angle = np.array([0.5, 0.2, -0.3]), 0.4
    turn = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
    at, quat = np.array([-0.3, 0.2, 0.6]), (np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2))
    thing = {"mesh": sn.engines.Mesh(corners, sides, "thing"), "scale": tuple(scale), "pos": tuple(at), "quat": quat}
    size = 24
    shapes = [sn.engines.Shape("mesh", "ground", mesh=ground), sn.engines.Shape("mesh", "thing", **thing)]
    image = images(shapes, [lamp], width=size, height=size).rgb[0].numpy().reshape(-1, 3)

    placed = (corners * scale) @ turn.T + at
    triangles = np.concatenate([ground.vertices[ground.faces], placed[sides]])
    v, u = (np.stack(np.mgrid[:size, :size]).reshape(2, -1) + 0.5) / (size / 2) - 1.0
    ways = np.stack([u, -v, -np.ones_like(u)], -1)
    t, face = nearest_triangle(np.broadcast_to([0.0, 0.0, 2.0], ways.shape), ways, triangles)
    points = np.array([0.0, 0.0, 2.0]) + t[:, None] * ways
    normals = np.cross(*(triangles[face, k] - triangles[face, 0] for k in (1, 2)))
    normals /= np.linalg.norm(normals, axis=-1, keepdims=True)
    if lamp.kind == "directional":
        to = np.broadcast_to(-np.array(lamp.direction), points.shape)
    else:
        to = np.array(lamp.pos) - points
    outward = np.where(face[:, None] >= len(faces), points - at, [0.0, 0.0, 1.0])
    normals *= np.sign((normals * outward).sum(-1, keepdims=True))
    lit = []
    limit = np.inf if lamp.kind == "directional" else 1.0
    for shift in np.array([[0, 0], [1, 1], [-1, -1], [1, -1], [-1, 1]]) * 0.002:
        shift = np.broadcast_to([*shift, 0.0], points.shape)
        shift = shift - (shift * normals).sum(-1, keepdims=True) * normals
        blocked = nearest_triangle(points + 2e-4 * normals + shift, to, triangles)[0] < limit
        lit.append(((normals * to).sum(-1) > 0.0) & ~blocked)
    sure = np.all(lit, axis=0) | ~np.any(lit, axis=0)
    assert sure.mean() > 0.8
    assert lamp.pos[2] < 0.0 or min(lit[0][sure].mean(), 1.0 - lit[0][sure].mean()) > 0.01
    np.testing.assert_array_equal((image > 0).any(axis=-1)[sure], lit[0][sure])


def test_a_transparent_shape_is_blended_twice_in_color_and_opaque_in_depth() -> None:
    """As MuJoCo does: ground c, glass g of opacity a gives c (1 - a)^2 + g (1 - (1 - a)^2), in light without shadow."""
    lamp = sn.engines.Light("directional", "lamp", ambient=(1.0,) * 3, diffuse=(0.0,) * 3, specular=(0.0,) * 3)
    ground = sn.engines.Shape("plane", "ground", rgba=(0.2, 0.4, 0.6, 1.0))
    glass = sn.engines.Shape(
        "box", "glass", (9.0, 9.0, 0.1), pos=(0.0, 0.0, 0.5), rgba=(0.8, 0.1, 0.3, 0.4), casts_shadow=False
    )
    data = images([ground, glass], [lamp])
    keeps = 0.6**2
    expected = 255.0 * (keeps * np.array([0.2, 0.4, 0.6]) + (1.0 - keeps) * np.array([0.8, 0.1, 0.3]))
    np.testing.assert_allclose(data.rgb[0].numpy(), np.broadcast_to(expected, (9, 9, 3)), atol=0.51)
    assert (data.geom_ids == 1).all()
    assert float(data.distance_to_image_plane[0, 4, 4, 0]) == pytest.approx(1.4, rel=1e-6)
    alone = images([glass], [lamp])
    assert int(alone.rgba[0, 4, 4, 3]) == round(255 * (1.0 - keeps))


def test_depth_and_ids_do_not_depend_on_colors() -> None:
    shapes = [
        sn.engines.Shape("plane", "ground"),
        sn.engines.Shape("sphere", "ball", (0.3,), rgba=(1.0, 0.0, 0.0, 0.5)),
    ]
    with_colors, without = images(shapes), images(shapes, data_types=("depth", "geom_ids"))
    for name in ("distance_to_image_plane", "geom_ids"):
        assert torch.equal(getattr(with_colors, name), getattr(without, name))


@pytest.mark.parametrize("size", [(64, 48), (7, 5)])
def test_colors_have_the_same_bits_on_all_engines(size: tuple[int, int]) -> None:
    """MuJoCo, MuJoCo Warp and tensors, with textures, mirrors, shadows and transparent shapes."""
    owner = sn.MujocoEngine(mujoco.MjSpec.from_string(PRIMITIVES), 2)
    warp = sn.MujocoWarpEngine(mujoco.MjSpec.from_string(PRIMITIVES), 2, device="cpu")
    frame = owner.frame("camera", "cam")
    tensors = sn.TensorEngine(2, bodies=(), provides=("pose",), shapes=owner.shapes(), lighting=owner.lighting())
    offset = sn.CameraCfg.OffsetCfg(pos=frame.pos, rot=frame.quat, convention="opengl")
    cfg = sn.CameraCfg(name="eye", body="world", offset=offset, width=size[0], height=size[1],
                       lens=sn.lenses.PinholeLensCfg(fovy=55.0), data_types=("rgb", "linear_rgb"))  # fmt: skip
    found = [sn.Scene(engine, [cfg], discover=False)["eye"].read() for engine in (owner, warp, tensors)]
    for other in found[1:]:
        assert torch.equal(other.rgb, found[0].rgb) and torch.equal(other.linear_rgb, found[0].linear_rgb)
    assert found[0].rgb.float().std() > 20.0


# Looks of each environment --------------------------------------------------------------------------------------------

BALLS = [sn.engines.Shape("sphere", name, (0.4,), pos=(x, 0.0, 0.0)) for name, x in (("left", -0.7), ("right", 0.7))]


@pytest.mark.parametrize("quat", [(1.0, 0.0, 0.0, 0.0), (0.5**0.5, 0.0, 0.0, 0.5**0.5)])
def test_a_texture_around_a_sphere_has_no_seam(quat: tuple[float, float, float, float]) -> None:
    """Rings around the axis look the same from all sides, also where the ends of the image meet."""
    rings = np.arange(64)[:, None, None] // 4 % 2 * np.full((64, 64, 3), 255)
    material = sn.engines.Material(texture=sn.engines.Texture(rings.astype(np.uint8), "rings"))
    shape = sn.engines.Shape("sphere", "ball", (0.8,), material=material, pos=(0.0, 0.0, 0.2), quat=quat)
    image = images([shape], width=41, height=41, lens=sn.lenses.PinholeLensCfg(fovy=60.0)).albedo[0].numpy().astype(int)
    assert image.std() > 40.0
    image[17:24, 17:24] = 0  # at the pole, the texture is sampled too coarsely
    for turns in (1, 2, 3):
        assert np.abs(np.rot90(image, turns) - image).max() <= 10


CHECKS = sn.engines.Texture(np.indices((8, 8)).sum(0)[..., None].repeat(3, -1).astype(np.uint8) % 2 * 255, "checks")
DOTS = sn.engines.Texture(np.full((4, 4, 3), (9, 200, 30), np.uint8), "dots")
LOOKS = [
    sn.ShapeLookCfg(shapes="left", rgba=sn.Uniform((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))),
    sn.ShapeLookCfg(shapes="right", texture=("checks", "dots", "")),
    sn.LightLookCfg(
        lights="sun", diffuse=sn.Uniform(0.2, 0.9), direction=sn.Uniform((-1.0, -1.0, -1.0), (1.0, 1.0, -0.5))
    ),
]


def random_scene(envs: int, **options: Any) -> sn.Scene:
    """Return a scene whose looks are drawn at reset."""
    lighting = sn.engines.Lighting((SUN,), textures=(CHECKS, DOTS))
    return scene_of(BALLS, envs=envs, lighting=lighting, appearance=LOOKS, data_types=("rgb", "albedo"), **options)


def test_looks_are_a_function_of_seed_env_and_episode() -> None:
    scene = random_scene(7)
    first = scene["eye"].read().rgb
    assert torch.equal(random_scene(3)["eye"].read().rgb, first[:3])
    assert torch.equal(random_scene(2, first_env=5)["eye"].read().rgb, first[5:])
    assert not torch.equal(random_scene(7, seed=1)["eye"].read().rgb, first)
    assert len({image.numpy().tobytes() for image in first}) == 7
    state = scene.state()
    scene.reset([1, 4])
    second = scene["eye"].read().rgb
    changed = [i for i in range(7) if not torch.equal(first[i], second[i])]
    assert changed == [1, 4]
    scene.load_state(state)
    assert torch.equal(scene["eye"].read().rgb, first)
    scene.reset([1, 4])
    assert torch.equal(scene["eye"].read().rgb, second)


def test_normal_looks_are_clipped_and_others_are_rejected_beyond_their_range() -> None:
    """Colors of 0.5 +- 5 are black or white in each component, but for 8 %, also in the albedo."""
    look = sn.ShapeLookCfg(shapes="left", rgba=sn.Normal((0.5,) * 3, 5.0), emission=sn.Normal(-9.0, 1.0))
    data = scene_of(BALLS, envs=40, appearance=[look])["eye"].data
    values = data.albedo[:, 4, 2, :3].flatten()
    share = [float((values == end).float().mean()) for end in (0, 255)]
    assert min(share) > 0.3 and sum(share) > 0.85 and float(data.linear_rgb.min()) >= 0.0
    with pytest.raises(sn.ConfigError, match=r"rgba.*from 0 to 1"):
        sn.ShapeLookCfg(rgba=sn.Uniform(0.0, 255.0))
    with pytest.raises(sn.ConfigError, match=r"diffuse.*>= 0"):
        sn.LightLookCfg(diffuse=-0.1)
    with pytest.raises(
        sn.ConfigError, match=r"Scene.appearance\[0\]: got 'red', expected ShapeLookCfg or LightLookCfg"
    ):
        scene_of(BALLS, appearance=["red"])


def test_a_mirror_and_an_opacity_that_are_set_at_reset_are_shown() -> None:
    """A box mirrors the ball above it, and a clear ball shows the box; neither is so in the engine's own looks."""
    shapes = [
        sn.engines.Shape("box", "box", (1.0, 1.0, 0.1)),
        sn.engines.Shape("sphere", "ball", (0.2,), pos=(0.6, 0.0, 0.6)),
    ]
    looks = {
        "mirror": sn.ShapeLookCfg(shapes="box", mirror=0.5),
        "clear": sn.ShapeLookCfg(shapes="ball", rgba=(1, 0, 0, 0.2)),
    }
    lamp = [sn.engines.Light("directional", "lamp", ambient=(0.4,) * 3)]
    plain = images(shapes, lamp, width=33, height=33)
    on_ball = plain.geom_ids[0, :, :, 0] == 1
    for name, look in looks.items():
        scene = scene_of(shapes, lamp, width=33, height=33, appearance=[look])
        changed = (scene["eye"].data.rgb != plain.rgb).any(dim=-1)[0]
        assert bool((changed & (on_ball if name == "clear" else ~on_ball)).any())
    np.testing.assert_allclose(scene["eye"].data.albedo[0][on_ball].numpy(), [[255, 0, 0, 255]] * int(on_ball.sum()))


def test_an_env_has_its_own_colors_and_lights_of_the_engine() -> None:
    """Values of a tensor engine per environment give what an engine with only these values gives."""
    rng = np.random.default_rng(0)
    rgba = rng.uniform(0.2, 1.0, (3, 2, 4)).astype(np.float32)
    rgba[..., 3] = 1.0
    light = rng.uniform(0.2, 0.9, (3, 1, 3)).astype(np.float32)
    together = images(BALLS, envs=3, parts={"looks": {"rgba": rgba, "light_diffuse": light}}).rgb
    for env in range(3):
        looks = {"rgba": rgba[env : env + 1], "light_diffuse": light[env : env + 1]}
        assert torch.equal(images(BALLS, parts={"looks": looks}).rgb[0], together[env])
    assert not torch.equal(together[0], together[1])


def test_colors_of_a_batch_are_read_at_reset() -> None:
    xml = "<mujoco><worldbody><geom name='a' size='.5'/><camera name='c' pos='0 0 2'/></worldbody></mujoco>"
    engine = sn.MujocoEngine(mujoco.MjSpec.from_string(xml), 2)
    colors = engine.batch.expand("geom_rgba")
    colors[1, 0] = (1.0, 0.0, 0.0, 1.0)
    scene = sn.Scene(engine, [sn.CameraCfg(name="c", camera="c", width=5, height=5, data_types=("albedo",))])
    assert scene["c"].data.albedo[:, 2, 2].tolist() == [[128, 128, 128, 255], [255, 0, 0, 255]]
    colors[:, 0] = (0.0, 0.0, 1.0, 1.0)
    scene.reset([0])
    assert scene["c"].data.albedo[:, 2, 2].tolist() == [[0, 0, 255, 255], [255, 0, 0, 255]]


def test_lights_of_a_batch_may_differ_after_the_scene_was_built() -> None:
    """MuJoCo gives each environment its own lights as soon as masses differ; each is lit as in a model of its own."""

    def scene_with(x: float, envs: int) -> sn.Scene:
        parts = f"<light pos='{x} 0 3'/><geom name='a' size='.5'/><camera name='c' pos='0 0 2'/>"
        spec = mujoco.MjSpec.from_string(f"<mujoco><worldbody>{parts}</worldbody></mujoco>")
        return sn.Scene(
            sn.MujocoEngine(spec, envs), [sn.CameraCfg(name="c", camera="c", width=9, height=9, data_types=("rgb",))]
        )

    scene = scene_with(0.0, 2)
    scene.engine.batch.set_const()
    scene.engine.batch.expand("light_pos")[1, 0, 0] = 2.0
    scene.reset()
    for env, x in enumerate((0.0, 2.0)):
        assert torch.equal(scene["c"].data.rgb[env], scene_with(x, 1)["c"].data.rgb[0])


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"appearance": [sn.ShapeLookCfg(shapes="lefd", rgba=0.5)]}, sn.SelectionError, "lefd.*left"),
        ({"appearance": [sn.LightLookCfg(lights="moon", diffuse=0.5)]}, sn.SelectionError, "moon.*sun"),
        ({"appearance": [sn.ShapeLookCfg(texture=("wood",))]}, sn.ConfigError, "texture.*wood"),
        ({"appearance": [sn.ShapeLookCfg(rgba=(1.0, 0.0))]}, sn.ConfigError, "rgba.*3 or 4 numbers"),
        ({"lens": sn.lenses.EquirectangularLensCfg(), "samples": 4}, sn.ConfigError, "samples.*1 for this lens"),
        ({"parts": {"looks": {"color": 1}}}, sn.ArgumentError, "looks.*color.*rgba"),
        ({"parts": {"looks": {"rgba": np.ones((1, 3, 4))}}}, sn.ArgumentError, r"looks\['rgba'\].*\(1, 2, 4\)"),
    ],
)
def test_what_does_not_fit_is_named(options: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=f"(?s){says}"):
        scene_of(BALLS, **options)

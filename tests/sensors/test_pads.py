"""Pads: sums of taxels by hand, in closed form, and checked against plain sums in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from no_waiting import nobody_waits

import sensorium as sn
from sensorium.errors import ConfigError, UnknownNameError

ROW = sn.patterns.taxel_list([(0.0, 0.0, 0.01), (0.01, 0.0, 0.01), (0.02, 0.0, 0.01), (0.03, 0.0, 0.01)])


def random_forces(*lead: int, layout: sn.patterns.TaxelLayout, seed: int = 0) -> torch.Tensor:
    """Return forces of about 1 N in all directions."""
    return torch.randn(*lead, *layout.shape, 3, generator=torch.Generator().manual_seed(seed))


def test_pad_reads_the_sum_and_torque_of_its_taxels() -> None:
    """Two taxels by hand: 2 N and 1 N along z at x = 0 and 0.01 m, and 3 N along y at x = 0.03 m, z = 0.01 m."""
    pads = sn.Pads(ROW, {"left": slice(0, 2), "right": [3]})
    force = torch.tensor([[[0.0, 0.0, 2.0], [0.0, 0.0, 1.0], [9.0, 9.0, 9.0], [0.0, 3.0, 0.0]]])
    felt = pads(force)
    np.testing.assert_allclose(felt.force[0], [[0, 0, 3], [0, 3, 0]], atol=1e-7)
    np.testing.assert_allclose(felt.torque[0], [[0, -0.01, 0], [-0.03, 0, 0.09]], atol=1e-8)
    np.testing.assert_allclose(felt.load[0], [3.0, 0.0])
    np.testing.assert_allclose(felt.centre[0], [[0.01 / 3.0, 0, 0.01], [0.03, 0, 0.01]], atol=1e-9)
    assert felt.valid.tolist() == [[True, False]]  # the right taxel is sheared, not pressed
    assert felt.active.tolist() == [[2, 0]] and felt.active.dtype == torch.int32


@pytest.mark.parametrize("about", ["link", "pad", (0.1, -0.2, 0.3)])
@pytest.mark.parametrize("twisted", [False, True])
def test_pads_agree_with_plain_sums_on_a_dome(about: Any, twisted: bool) -> None:
    """Normals of all directions, overlapping pads and mounts match loops in float64."""
    layout = sn.patterns.taxel_dome(0.01, 5, 8, origin=(0.0, 0.01, 0.0), normal=(1.0, 2.0, 2.0))
    groups = {"top": np.s_[:2], "front": np.s_[:, :4], "one": np.s_[4, 7]}
    force = random_forces(3, 2, layout=layout)
    own = torch.linalg.cross(torch.tensor(layout.positions, dtype=torch.float32).expand_as(force), force)
    own += 0.01 * random_forces(3, 2, layout=layout, seed=1)
    felt = sn.Pads(layout, groups, about=about)(force, own if twisted else None)
    x, n = (np.reshape(part, (-1, 3)) for part in (layout.positions, layout.normals))
    f, t = (part.double().numpy().reshape(3, 2, -1, 3) for part in (force, own))
    for pad, index in enumerate(groups.values()):
        rows = np.arange(40).reshape(5, 8)[index].ravel()
        o = {"link": np.zeros(3), "pad": x[rows].mean(axis=0)}[about] if isinstance(about, str) else np.array(about)
        net = sum(f[..., i, :] for i in rows)
        moment = sum(np.cross(x[i] - o, f[..., i, :]) for i in rows)
        if twisted:
            moment = sum(t[..., i, :] for i in rows) - np.cross(o, net)
        weight = np.stack([np.abs(f[..., i, :] @ n[i]) for i in rows], axis=-1)
        np.testing.assert_allclose(felt.force[:, :, pad], net, atol=1e-5)
        np.testing.assert_allclose(felt.torque[:, :, pad], moment, atol=1e-5)
        np.testing.assert_allclose(felt.load[:, :, pad], weight.sum(axis=-1), rtol=1e-5)
        centre = (weight[..., None] * x[rows]).sum(axis=-2) / weight.sum(axis=-1)[..., None]
        np.testing.assert_allclose(felt.centre[:, :, pad], centre, atol=1e-8)
    assert felt.valid.all() and (felt.active == torch.tensor([16, 20, 1])).all()


def test_centre_of_a_linear_pressure_matches_the_closed_form() -> None:
    """For p = a + b x on a strip of length L, the centre is b L^2 / (12 a) off its middle; N taxels give (1 - 1 / N^2)
    of it.
    """
    a, b, length, n = 2000.0, 30000.0, 0.06, 30
    layout = sn.patterns.taxel_grid(4, n, size=(length, 0.01), origin=(0.2, 0.0, 0.0))
    x = torch.tensor(layout.positions)[..., 0] - 0.2
    force = torch.zeros(1, 4, n, 3)
    force[0, ..., 2] = (a + b * x) * torch.tensor(layout.areas)
    felt = sn.Pads(layout, {"all": ...})(force)
    expected = b * length**2 / (12.0 * a)
    assert felt.centre[0, 0, 0] - 0.2 == pytest.approx(expected * (1.0 - 1.0 / n**2), rel=1e-5)
    assert felt.centre[0, 0, 0] - 0.2 == pytest.approx(expected, rel=2e-3)
    assert felt.centre[0, 0, 1:].abs().max() < 1e-8
    assert felt.load[0, 0] == pytest.approx(a * length * 0.01, rel=1e-5)
    assert felt.torque[0, 0, 1] == pytest.approx(-float(felt.centre[0, 0, 0]) * a * length * 0.01, rel=1e-5)


def test_the_centre_of_a_small_load_far_from_the_link_keeps_its_digits() -> None:
    layout = sn.patterns.taxel_grid(3, 3, 0.001, origin=(2.0, -3.0, 1.0))
    force = torch.zeros(1, 3, 3, 3)
    force[0, 1, 2, 2], force[0, 1, 1, 2] = 3e-6, 1e-6
    felt = sn.Pads(layout, {"all": ...})(force)
    middle = torch.tensor([2.0, -3.0, 1.0])
    np.testing.assert_allclose(felt.centre[0, 0] - middle, [0.00075, 0.0, 0.0], atol=3e-7)  # 2 m in float32


def test_unloaded_pad_shows_the_centre_of_its_taxels_and_is_invalid() -> None:
    pads = sn.Pads(ROW, {"all": slice(None), "ends": [0, 3]}, loaded_above=0.5, active_above=0.1)
    felt = pads(torch.zeros(2, 4, 3)).clone()
    assert not felt.valid.any() and felt.active.sum() == 0 and felt.load.sum() == 0.0
    np.testing.assert_allclose(felt.centre, np.broadcast_to([0.015, 0.0, 0.01], (2, 2, 3)), atol=1e-8)
    force = torch.zeros(1, 4, 3)
    force[0, 0, 2], force[0, 1, 2] = -0.3, 0.05  # either sign presses: weights are magnitudes
    felt = pads(force)
    assert not felt.valid.any() and felt.centre[0, 1, 0] == pytest.approx(0.015)
    assert felt.active.tolist() == [[1, 1]] and felt.load[0].tolist() == pytest.approx([0.35, 0.3])
    force[0, 0, 2] = -0.6
    felt = pads(force)
    assert felt.valid.all() and felt.centre[0, 1, 0] == pytest.approx(0.0, abs=1e-9)


def test_taxels_are_indexed_as_numpy_does_on_the_axes_of_the_layout() -> None:
    layout = sn.patterns.taxel_grid(3, 4, 0.002)
    mask = np.zeros((3, 4), bool)
    mask[2, 1:3] = True
    pads = sn.Pads(layout, {
        "row": 1, "rows": [0, 2], "column": np.s_[:, 3], "block": np.s_[1:, :2], "mask": mask,
        "torch": torch.tensor(mask), "each": ([0, 2], [3, 0]),
    })  # fmt: skip
    assert pads.names == ("row", "rows", "column", "block", "mask", "torch", "each") and len(pads) == 7
    found = {name: sorted(pads.taxels(name)) for name in pads.names}
    assert found == {
        "row": [4, 5, 6, 7], "rows": [0, 1, 2, 3, 8, 9, 10, 11], "column": [3, 7, 11], "block": [4, 5, 8, 9],
        "mask": [9, 10], "torch": [9, 10], "each": [3, 8],
    }  # fmt: skip
    assert pads.index("column") == 2
    assert repr(sn.Pads(layout, {"tip": 0})) == "Pads(tip: 4 of 12 taxels)"


def test_grid_is_split_into_even_blocks() -> None:
    layout = sn.patterns.taxel_grid(5, 4, 0.002)
    blocks = sn.pad_blocks(layout, 2, 2)
    assert list(blocks) == ["0,0", "0,1", "1,0", "1,1"]
    pads = sn.Pads(layout, blocks)
    assert sorted(sum((pads.taxels(name) for name in pads.names), ())) == list(range(20))
    assert [len(pads.taxels(name)) for name in pads.names] == [4, 4, 6, 6]
    felt = pads(torch.ones(1, 5, 4, 3))
    assert felt.force[0, :, 0].tolist() == [4.0, 4.0, 6.0, 6.0]


def test_any_axes_before_those_of_the_taxels_are_kept() -> None:
    layout = sn.patterns.taxel_grid(2, 3, 0.002)
    pads = sn.Pads(layout, {"all": ..., "first": 0})
    for lead in ((), (5,), (5, 2), (5, 4, 2)):
        force = random_forces(*lead, layout=layout)
        felt = pads(force)
        assert felt.force.shape == (*lead, 2, 3) and felt.centre.shape == (*lead, 2, 3)
        assert felt.load.shape == felt.valid.shape == felt.active.shape == (*lead, 2)
        np.testing.assert_allclose(felt.force[..., 0, :], force.sum(dim=(-3, -2)), atol=1e-5)
    late = random_forces(2, 5, layout=layout).transpose(0, 1)  # not contiguous
    np.testing.assert_allclose(pads(late).force[..., 1, :], late[..., 0, :, :].sum(dim=-2), atol=1e-5)


def test_reading_reuses_its_memory_and_a_clone_persists() -> None:
    pads = sn.Pads(ROW, {"all": slice(None)})
    first = pads(torch.ones(3, 4, 3))
    kept, place, nbytes = first.clone(), first.centre.data_ptr(), pads.nbytes
    again = pads(2.0 * torch.ones(3, 4, 3))
    assert again.centre.data_ptr() == place and pads.nbytes == nbytes
    assert first.force[0, 0].tolist() == [8.0, 8.0, 8.0] and kept.force[0, 0].tolist() == [4.0, 4.0, 4.0]


def test_pads_do_not_synchronise_and_work_after_inference_mode() -> None:
    pads = sn.Pads(ROW, {"all": slice(None)}, loaded_above=0.1)
    force = torch.ones(3, 4, 3)
    with torch.inference_mode():
        pads(force)
    with nobody_waits(cuda=False):
        felt = pads(force, torch.zeros_like(force))
    assert felt.valid.all()
    assert not pads(force.clone().requires_grad_()).force.requires_grad


def test_pads_of_a_finger_on_a_box_sum_the_sensors_taxels() -> None:
    """A flat skin sunk 2 mm into a box reads k s n for each taxel in it, pressed at the position of the box."""
    layout = sn.patterns.taxel_grid(4, 6, 0.01, normal=(0.0, 0.0, -1.0), x_axis=(1.0, 0.0, 0.0))
    engine = sn.TensorEngine(
        2, bodies=("finger",), provides=("pose", "velocity"),
        shapes=[sn.engines.Shape("box", "anvil", (0.5, 0.5, 0.1), pos=(0.5, 0.0, -0.1))],
    )  # fmt: skip
    engine.body_pos_w[:, 0, 2] = 0.003
    cfg = sn.KinematicTactileSensorCfg(
        name="skin",
        link_name="finger",
        probe_radius=0.005,
        normal_stiffness=1000.0,
        noise={"force": 0.01},
        **layout.cfg(),
    )
    scene = sn.Scene(engine, [cfg], seed=0)
    scene.update()
    pads = sn.Pads.of(scene[cfg], {"over": np.s_[:, 3:], "beside": np.s_[:, :2]}, loaded_above=0.5)
    true = pads(scene[cfg].ground_truth.force, scene[cfg].ground_truth.torque).clone()
    # The normal is -z, into the box; a taxel reads +k s n.
    np.testing.assert_allclose(true.force[:, 0], np.broadcast_to([0.0, 0.0, -2.0 * 12], (2, 3)), rtol=1e-4, atol=1e-4)
    assert true.valid.tolist() == [[True, False]] * 2 and true.active[:, 0].tolist() == [12, 12]
    np.testing.assert_allclose(true.centre[:, 0], np.broadcast_to([0.015, 0.0, 0.0], (2, 3)), atol=1e-6)
    np.testing.assert_allclose(true.torque[:, 0, 1], 24.0 * 0.015, rtol=1e-4)
    measured = pads(scene[cfg].data.force)
    np.testing.assert_allclose(measured.force[:, 0], true.force[:, 0], atol=5 * 0.01 * 12**0.5)
    assert not torch.equal(measured.force, true.force)


# Errors ---------------------------------------------------------------------------------------------------------------


GRID = sn.patterns.taxel_grid(2, 3, 0.002)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sn.Pads(ROW, {}), "at least one pad"),
        (lambda: sn.Pads(ROW, {"tip": []}), r"Pads.pads.tip: got array\(\[\].*integer"),
        (lambda: sn.Pads(ROW, {"tip": slice(7, 9)}), r"Pads.pads.tip: .*at least one taxel"),
        (lambda: sn.Pads(ROW, {"tip": [0, 9]}), r"Pads.pads.tip: .*out of bounds"),
        (lambda: sn.Pads(ROW, {"tip": [0, 0]}), r"Pads.pads.tip: .*each taxel once"),
        (lambda: sn.Pads(ROW, {"tip": "left"}), r"Pads.pads.tip: got 'left', expected a NumPy index of taxels"),
        (lambda: sn.Pads(GRID, {"tip": np.ones(6, bool)}), r"a mask of shape \(2, 3\)"),
        (lambda: sn.Pads(ROW, {"tip": 0}, loaded_above=-1.0), r"Pads.loaded_above: got -1.0"),
        (lambda: sn.Pads(ROW, {"tip": 0}, active_above=float("nan")), r"Pads.active_above: got nan"),
        (lambda: sn.Pads(ROW, {"tip": 0}, about="tip"), r"Pads.about: got 'tip'"),  # type: ignore[arg-type]
        (lambda: sn.Pads(ROW, {"tip": 0}, about=(1.0, 2.0)), r"Pads.about: .*a point"),
        (lambda: sn.Pads(ROW, {"tip": 0})(torch.zeros(2, 5, 3)), r"force: got \(2, 5, 3\), .*\[\.\.\., 4, 3\]"),
        (lambda: sn.Pads(ROW, {"tip": 0})(torch.zeros(3)), r"force: got \(3,\)"),
        (lambda: sn.Pads(ROW, {"tip": 0})(torch.zeros(2, 4, 3, dtype=torch.float64)), "float64 on cpu"),
        (lambda: sn.Pads(ROW, {"tip": 0})(torch.zeros(2, 4, 3), torch.zeros(1, 4, 3)), "the shape of force"),
        (lambda: sn.pad_blocks(ROW, 1, 2), "a grid"),
        (lambda: sn.pad_blocks(GRID, 3, 1), r"pad_blocks.rows: got 3, expected a number of blocks from 1 to 2"),
    ],
)  # fmt: skip
def test_bad_input_error_names_the_argument(call: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call()


def test_an_unknown_pad_and_a_sensor_without_taxels_are_errors() -> None:
    with pytest.raises(UnknownNameError, match="tip"):
        sn.Pads(ROW, {"tip": 0}).index("tipp")
    engine = sn.TensorEngine(1, bodies=("body",), provides=("pose", "velocity", "acceleration", "gravity"))
    scene = sn.Scene(engine, [sn.ImuCfg(name="imu", body="body")])
    with pytest.raises(ConfigError, match=r"Pads.sensor: got 'Imu', expected a sensor with probe_local_pos"):
        sn.Pads.of(scene["imu"], {"tip": 0})

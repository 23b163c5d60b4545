"""Live objects of mjlab's MuJoCo and of its mujoco_warp, in the same state, give the same arrays.

The bounds are those of tests/conformance/test_engines_agree.py, which compares the engines of later versions.
"""

from __future__ import annotations

import mujoco
import mujoco_warp
import pytest
import torch
from two_engines import (
    ENVS,
    MODEL,
    STATE,
    assert_need_agrees,
    assert_report_agrees,
    reports,
    stacked,
    start,
)

import sensorium as sn
from sensorium.engines.base import ARRAYS
from sensorium.engines.mujoco.derived import NEEDS
from sensorium.spec import contact_array

TICKS = 40
BOTH_SIDES = 5
"""Slots of the reports whose primary is the first geom of some contacts and the second of others. mujoco_warp before 4
sorts contacts without their directions, so the sign of some normals is wrong there.
"""
REPORTS = [report for report in reports() if report.args[4] != BOTH_SIDES]


@pytest.fixture(scope="module")
def trajectory() -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], torch.Tensor]:
    """The arrays of MuJoCo and of mujoco_warp, `[tick, env, ...]`, and the contact flags."""
    requirements = dict.fromkeys([*NEEDS, *REPORTS], "test")
    model = sn.prepare(mujoco.MjSpec.from_file(str(MODEL)), requirements).compile()
    m, d = mujoco_warp.put_model(model), mujoco_warp.make_data(model, nworld=ENVS, nconmax=40, njmax=200)
    datas = [mujoco.MjData(model) for _ in range(ENVS)]
    engines = sn.MujocoEngine.from_mj(model, datas), sn.MujocoWarpEngine.from_mjw(model, m, d)
    for engine in engines:
        engine.prepare(requirements)
    start(engines[1], own_options=False)
    seen: tuple[list[dict[str, torch.Tensor]], list[dict[str, torch.Tensor]]] = ([], [])
    touching = []
    for tick in range(TICKS):
        generator = torch.Generator().manual_seed(tick)
        engines[1].ctrl[:] = 2.0 * torch.rand(ENVS, model.nu, generator=generator) - 1.0
        mujoco_warp.step(m, d)
        for env, data in enumerate(datas):
            for name in STATE:
                getattr(data, name)[...] = getattr(engines[1], name)[env].numpy()
            mujoco.mj_forward(model, data)
        for side, engine in zip(seen, engines, strict=True):
            engine.forward()
            side.append({name: engine.array(name).clone() for name in names()})
        touching.append(torch.tensor([data.ncon > 0 for data in datas]))
    return stacked(seen[0]), stacked(seen[1]), torch.stack(touching)


def names() -> list[str]:
    return [name for arrays in ARRAYS.values() for name in arrays] + [contact_array(report) for report in REPORTS]


@pytest.mark.parametrize("requirement", NEEDS, ids=lambda requirement: requirement.kind)
def test_requirement_gives_equal_arrays(requirement, trajectory) -> None:
    assert_need_agrees(requirement, *trajectory)


@pytest.mark.parametrize("report", REPORTS, ids=contact_array)
def test_contact_reports_are_equal(report, trajectory) -> None:
    """A sum over no contacts is 0 throughout on both, although both assign it the axes of the world."""
    cpu, warp, touching = trajectory
    array = contact_array(report)
    assert_report_agrees(report, cpu[array], warp[array], touching)

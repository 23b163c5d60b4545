"""Readings have the same bits in whatever order the threads of each launch run, so no kernel has a race."""

from __future__ import annotations

import dump_readings
import pytest
import torch
import warp as wp
from selection import gate
from shuffled import shuffled

from sensorium.compute import Compute, Rows, kernel, masked_tid

PERMUTATIONS = 20
KINDS = [
    "terrain_height",
    "imu,joint,joint_torque,joint_wrench,body_state,motor_current,frame_transformer,builtin,gnss,barometer,force_torque",
    "contact,contact_force,touch,elastomer_taxel,kinematic_tactile,proximity_taxel,surface_distance_probe",
    "ray_caster,lidar,radar,terrain_height,obstacle",
    "camera,depth_camera,event_camera,ray_caster_camera",
    "",
]
"""Kinds that run together; the last entry is all of them."""


@pytest.mark.parametrize("kinds", gate(KINDS, {KINDS[0]}))
def test_readings_have_the_same_bits_in_any_order_of_threads(kinds: str) -> None:
    """Each launch runs in another order at each of 20 steps, with noise, delays, stages, resets and a saved state."""
    cfgs, _ = dump_readings.configs(dump_readings.World("mujoco").engine, tuple(filter(None, kinds.split(","))))
    ordered = dump_readings.run("tensor", cfgs, PERMUTATIONS)
    with shuffled(0) as ran:
        found = dump_readings.run("tensor", cfgs, PERMUTATIONS)
    assert len(ran) > 10 and found["sensors"]
    for label, sensor in found["sensors"].items():
        for key, shots in sensor["shots"].items():
            for step, values in shots.items():
                assert values.tobytes() == ordered["sensors"][label]["shots"][key][step].tobytes(), (label, key, step)


@kernel
def _count_up(rows: Rows, total: wp.array[wp.int32], out: wp.array[wp.int32]) -> None:
    env = masked_tid(rows)
    total[0] = total[0] + 1  # a race, planted for the test
    out[env] = total[0]


def test_a_race_between_environments_is_found() -> None:
    compute = Compute("cpu", 6, threads=1)
    total, out = torch.zeros(1, dtype=torch.int32), torch.zeros(6, dtype=torch.int32)
    segment = compute.record(lambda: compute.launch(_count_up, (), [total], [out]))
    with shuffled(1) as ran:
        segment.run()
    assert sorted(out.tolist()) == [1, 2, 3, 4, 5, 6] and out.tolist() != [1, 2, 3, 4, 5, 6]
    assert any(name.endswith("_count_up") for name in ran)

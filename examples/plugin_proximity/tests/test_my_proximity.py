"""The proximity sensor: its value, its knobs, and every rule of `check_sensor`."""

from typing import Any

import pytest
import sensorium as sn
import torch
from sensorium.testing import check_sensor, tumbling_engine

from my_proximity import MyProximityCfg


def engine() -> sn.TensorEngine:
    """Three environments have the body at 0.5 m, 0.7 m and 13 m from the origin."""
    made = sn.TensorEngine(num_envs=3, dt=0.01, bodies=("hand", "foot"))
    made.body_pos_w[:, 0] = torch.tensor([[0.3, 0.4, 0.0], [0.2, 0.3, 0.6], [3.0, 4.0, 12.0]])
    return made


def test_the_distance_ends_at_max_range() -> None:
    cfg = MyProximityCfg(body="hand")
    scene = sn.Scene(engine(), [cfg])
    torch.testing.assert_close(scene[cfg].data.distance, torch.tensor([0.5, 0.7, 1.0]))


def test_max_range_can_be_set_per_env() -> None:
    """Hooks read numbers of the config through `self.params`."""
    cfg = MyProximityCfg(body="hand")
    scene = sn.Scene(engine(), [cfg])
    scene[cfg].set("max_range", 0.6, env_ids=[1])
    scene.update()
    torch.testing.assert_close(scene[cfg].data.distance, torch.tensor([0.5, 0.6, 1.0]))


def test_a_list_of_mounts_gives_a_mount_axis() -> None:
    """The foot remains at the origin."""
    cfg = MyProximityCfg(bodies=("hand", "foot"), max_range=20.0)
    scene = sn.Scene(engine(), [cfg])
    torch.testing.assert_close(scene[cfg].data.distance, torch.tensor([[0.5, 0.0], [0.7, 0.0], [13.0, 0.0]]))


def test_the_imperfections_are_inherited() -> None:
    """A bias, a resolution of 0.25 m and a delay of two ticks have no effect on the truth."""
    cfg = MyProximityCfg(body="hand", bias=0.1, resolution=0.25, delay=0.02)
    scene = sn.Scene(engine(), [cfg])
    scene.engine.body_pos_w[:, 0] = 0.0  # the body jumps to the origin, which the reading shows two ticks later
    scene.update()
    assert scene[cfg].data.distance.tolist() == [0.5, 0.75, 1.0]  # 0.6, 0.8 and 1.1 on the grid
    assert scene[cfg].ground_truth.distance.tolist() == [0.0, 0.0, 0.0]
    scene.update()
    scene.update()
    assert scene[cfg].data.distance.tolist() == [0.0, 0.0, 0.0]


def test_a_range_of_nothing_is_refused() -> None:
    with pytest.raises(sn.ConfigError, match=r"MyProximityCfg\.max_range: got 0\.0, expected greater than 0"):
        MyProximityCfg(body="hand", max_range=0.0)


@pytest.mark.parametrize("given", [{"body": "body"}, {"sites": "site", "rate_hz": 200.0, "max_range": 0.3}], ids=str)
def test_check_sensor_passes(given: dict[str, Any]) -> None:
    check_sensor(MyProximityCfg(**given))


def test_two_scenes_of_one_seed_agree() -> None:
    cfg = MyProximityCfg(body="body", noise=0.01)
    scenes = [sn.Scene(tumbling_engine(4), [cfg], seed=7) for _ in range(2)]
    for scene in scenes:
        scene.step(substeps=5)
    assert torch.equal(scenes[0][cfg].data.distance, scenes[1][cfg].data.distance)

"""MuJoCo's memory too small for a state: an error or a warning that names `<size memory>`."""

from __future__ import annotations

import mujoco
import pytest

import sensorium as sn
from sensorium.engines.mujoco.engine import PERSISTENT_UP_TO, MujocoEngine
from sensorium.spec import BODY_POSE

PILE = 20


def pile(memory, apart):
    """Return boxes, far from each other or all at one position."""
    boxes = "".join(
        f'<body name="b{i}" pos="{i * apart} 0 .3"><freejoint/><geom type="box" size=".1 .1 .1"/>'
        f'<site name="s{i}"/></body>'
        for i in range(PILE)
    )
    return f'<mujoco><size memory="{memory}"/><worldbody><geom type="plane" size="5 5 .1"/>{boxes}</worldbody></mujoco>'


SENSORS = [
    sn.ImuCfg(name="imu", site="s0"),
    sn.ContactSensorCfg(name="contact", primary=sn.ContactMatch(mode="body", pattern="b0"), fields=("found", "force")),
]
CROWD = [[0.05 * (i % 5), 0.05 * (i // 5), 0.1, 1, 0, 0, 0] for i in range(PILE)]
MESSAGE = r'MuJoCo failed in env {}.*stackAlloc.*Raise <size memory="..."/> of the model'


@pytest.fixture(autouse=True)
def _log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its log to the working directory


@pytest.mark.parametrize("num_envs", [2, PERSISTENT_UP_TO + 1])
def test_engine_out_of_memory_reports_it_and_can_be_reset(num_envs):
    """The error names the environments and the size; the others were stepped, and a reset works."""
    engine = MujocoEngine(pile("60K", 1.0), num_envs)
    scene = sn.Scene(engine, SENSORS)
    scene.step(substeps=2)
    engine.qpos[1] = engine.qpos.new_tensor(CROWD).flatten()
    with pytest.raises(sn.ModelError, match=MESSAGE.format(1)):
        scene.step()
    scene.reset()
    scene.step(substeps=3)
    assert scene["imu"].valid.all() and not scene["contact"].data.found.any()
    with pytest.raises(sn.ModelError, match=MESSAGE.format("0, 1")):
        sn.Scene(MujocoEngine(pile("60K", 0.01), num_envs), SENSORS)


@pytest.mark.parametrize("num_envs", [2, PERSISTENT_UP_TO + 1])
def test_observation_out_of_memory_changes_no_state(num_envs):
    """An error while the engine observes a tick changes no state; the same tick can be observed again."""
    engine = MujocoEngine(pile("60K", 1.0), num_envs)
    engine.prepare({BODY_POSE: "probe"})
    engine.step()
    written = engine.qpos[1].clone()
    engine.qpos[1] = engine.qpos.new_tensor(CROWD).flatten()
    before = engine.batch.state.copy()
    with pytest.raises(sn.ModelError, match=MESSAGE.format(1)):
        engine.refresh()
    assert engine.batch.state.tobytes() == before.tobytes()
    engine.qpos[1] = written
    engine.refresh()
    engine.step()
    assert engine.qpos[0].equal(engine.qpos[1])


def test_wrapped_state_out_of_memory_reports_it_and_recovers():
    """The private data are recreated; the owner's are not modified."""
    model = sn.prepare(mujoco.MjSpec.from_string(pile("60K", 1.0)), SENSORS).compile()
    data = mujoco.MjData(model)
    scene = sn.Scene(MujocoEngine.from_mj(model, data), SENSORS)
    mujoco.mj_step(model, data)
    before = data.qpos.copy()
    data.qpos[:] = [number for pose in CROWD for number in pose]
    with pytest.raises(sn.ModelError, match=MESSAGE.format(0) + r".*Your MjData is unchanged"):
        scene.update()
    data.qpos[:] = before
    scene.reset()
    mujoco.mj_step(model, data)
    scene.update()
    assert scene["imu"].valid.all() and scene["imu"].data.lin_acc_b.isfinite().all()


def test_dropped_contacts_are_warned_of_with_the_size():
    """If MuJoCo drops contacts and constraints and continues, a warning names the losses and the size."""
    with pytest.warns(sn.SensoriumWarning) as caught:
        scene = sn.Scene(MujocoEngine(pile("300K", 0.03)), SENSORS)
        scene.step()
        assert scene["imu"].data is not None
    texts = [str(warning.message) for warning in caught]
    assert any("contacts, and those beyond it were dropped" in text and "<size memory=" in text for text in texts)

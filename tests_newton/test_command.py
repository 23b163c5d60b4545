"""`sensorium run`, `explain`, `serve` and `warmup` simulate a file on Newton."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import quadruped

import sensorium as sn
from sensorium.cli import main
from sensorium.errors import MissingDependencyError, ModelError
from sensorium.jobs.control import control_for
from sensorium.jobs.models import load_model
from sensorium.record import load

RIG = """
[[sensor]]
kind = "imu"
name = "trunk"
site = "imu"

[[sensor]]
kind = "joint"
name = "hips"
joints = ".*_hip"
"""
HIPS = [f"{leg}_hip" for leg in quadruped.LEGS]
MESH = """
<mujoco>
  <asset><mesh name="wedge" vertex="0 0 0  1 0 0  0 2 0  0 0 1"/></asset>
  <worldbody><body name="stone"><freejoint/><geom type="mesh" mesh="wedge"/></body></worldbody>
</mujoco>
"""


@pytest.fixture
def robot(tmp_path: Path) -> Path:
    path = tmp_path / "robot.xml"
    path.write_text(quadruped.ROBOT.replace("<worldbody>", '<option timestep="0.004"/><worldbody>', 1))
    return path


@pytest.fixture
def rig(tmp_path: Path) -> Path:
    path = tmp_path / "rig.toml"
    path.write_text(RIG)
    return path


def test_file_on_newton(robot: Path) -> None:
    engine = load_model(robot, 4, "cpu", "newton")
    assert (engine.name, engine.num_envs, engine.dt, engine.nu) == ("newton", 4, 0.004, 8)
    scene = sn.Scene(engine)
    control, every = control_for("random", scene)
    assert control(scene, 0.0).shape == (4, 8) and every == 2
    assert control_for("hold", scene)[0](scene, 0.0) is None


def test_run_records_what_the_scene_reads(robot: Path, rig: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ["--engine", "newton", "--envs", "2", "--seconds", "0.02", "--seed", "3"]
    assert main(["run", str(robot), "--rig", str(rig), "--out", str(out), *options]) == 0
    recorded = load(out / "readings.npz")["trunk"].truth["lin_acc_b"]
    scene = sn.Scene(load_model(robot, 2, "cpu", "newton"), [sn.ImuCfg(name="trunk", site="imu")])
    for _ in range(5):
        scene.step()
    np.testing.assert_array_equal(recorded[-1], scene["trunk"].ground_truth.lin_acc_b.numpy())


def test_explain(robot: Path, rig: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["explain", str(robot), "--rig", str(rig), "--engine", "newton", "--envs", "2"]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["engine"], found["num_envs"], found["dt"]) == ("newton", 2, 0.004)
    assert found["sensors"]["trunk"]["mounts"] == [{"name": "imu", "body": "base"}]
    assert "BODY_ACCELERATION" in found["sensors"]["trunk"]["needs"]
    assert found["sensors"]["hips"]["constants"]["joint_names"] == HIPS
    rig.write_text(RIG.replace('".*_hip"', '"hip"'))
    assert main(command) == 2
    assert "FL_hip" in capsys.readouterr().err


def test_serve_in_lockstep(robot: Path, rig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    address = f"ipc://{tmp_path}/robot"
    seen: list[Any] = []

    def drive() -> None:
        with sn.connect(address, timeout=60.0) as client:
            for _ in range(2):
                client.step(np.full(8, 0.2), substeps=2)
                data = client.sensors["hips"].read()
                seen.append((data.tick, data["position"].copy()))
            client.step(np.zeros(8), substeps=1)

    driver = threading.Thread(target=drive)
    driver.start()
    options = ["--engine", "newton", "--envs", "2", "--lockstep", "--seconds", "0.02", "--address", address]
    assert main(["serve", str(robot), "--rig", str(rig), *options]) == 0
    driver.join(60.0)
    scene = sn.Scene(load_model(robot, 2, "cpu", "newton"), [sn.JointSensorCfg(name="hips", joints=".*_hip")])
    for tick, position in seen:
        scene.step(np.full(8, 0.2), substeps=2)
        assert tick == scene.tick
        np.testing.assert_array_equal(position, scene["hips"].data.position.numpy())
    assert len(seen) == 2 and "2 envs, 4 ms per tick" in capsys.readouterr().out


def test_warmup_compiles_the_kernels_of_a_model(robot: Path) -> None:
    from sensorium.cli.warmup import _simulate

    _simulate(robot, 2, "cpu", "newton")
    assert _simulate(robot, 2, "cpu", "newton") == 0


def test_missing_and_invalid_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        load_model(tmp_path / "robot.xml", 1, "cpu", "newton")
    path = tmp_path / "robot.xml"
    path.write_text("<mujoco><worldbody>")
    with pytest.raises(ModelError, match=r"robot\.xml. cannot be read: XML parse error"):
        load_model(path, 1, "cpu", "newton")
    path.write_text(MESH)
    assert load_model(path, 1, "cpu", "newton").names("body") == ("stone",)
    monkeypatch.setitem(sys.modules, "scipy.spatial", None)
    with pytest.raises(MissingDependencyError, match=r"Newton cannot read.*scipy.*pip install 'newton\[importers\]'"):
        load_model(path, 1, "cpu", "newton")

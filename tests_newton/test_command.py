"""`sensorium run --engine newton` simulates a file."""

from __future__ import annotations

from pathlib import Path

import pytest
import quadruped

from sensorium.cli.control import control_for
from sensorium.cli.simulation import load_run_model
from sensorium.errors import ModelError


def test_file_on_newton(tmp_path: Path) -> None:
    path = tmp_path / "robot.xml"
    path.write_text(quadruped.ROBOT.replace("<worldbody>", '<option timestep="0.004"/><worldbody>', 1))
    engine = load_run_model(path, 4, "cpu", "newton")
    assert (engine.name, engine.num_envs, engine.dt, engine.nu) == ("newton", 4, 0.004, 8)
    control, every = control_for("random", engine, 0)
    assert control(None, 0.0).shape == (4, 8) and every == 2  # type: ignore[arg-type]
    assert control_for("hold", engine, 0)[0](None, 0.0) is None  # type: ignore[arg-type]


def test_missing_and_invalid_files(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        load_run_model(tmp_path / "robot.xml", 1, "cpu", "newton")
    path = tmp_path / "robot.xml"
    path.write_text("<mujoco><worldbody>")
    with pytest.raises(ModelError, match="Newton cannot read"):
        load_run_model(path, 1, "cpu", "newton")

"""`sensorium plot` and `sensorium report`: what they read, print, write and reject."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import sensorium as sn
from sensorium.cli import main
from sensorium.cli.reports import loaded
from sensorium.record import NpzRecorder

pytest.importorskip("matplotlib")

DT = 0.005
CART = """<mujoco><worldbody><body><joint name="x" type="slide"/><geom size=".1"/></body></worldbody>
<actuator><motor name="push" joint="x"/><motor name="pull" joint="x"/></actuator></mujoco>"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run as run.mcap and run.npz: environments 1 and 3 of four, of which 3 is reset after 0.25 s."""
    made = tmp_path_factory.mktemp("reports")
    engine = sn.TensorEngine(num_envs=4, dt=DT, bodies=["base", "arm"])
    imu = sn.ImuCfg(
        name="robot/imu", bodies=["base", "arm"], gyro_noise_density=0.01, delay=0.01, fields=("ang_vel_b", "lin_acc_b")
    )
    scene = sn.Scene(engine, [imu, sn.BarometerCfg(name="air", body="arm", rate_hz=50.0)], seed=3)
    collected = NpzRecorder()
    with scene.record(made / "run.mcap", envs=[1, 3]):
        for tick in range(200):
            scene.update()
            if tick == 50:
                scene.reset([3])
    with sn.replay(made / "run.mcap") as replay:
        for reading in replay:
            collected.add(reading)
        collected.save(made / "run.npz", replay.description)
    return made


def run(*args: object) -> int:
    return main([*map(str, args)])


def test_a_report_is_printed_and_written(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("report", folder / "run.mcap", "--to", tmp_path / "new/report.html") == 0
    captured = capsys.readouterr()
    out = re.sub(" +", " ", captured.out)
    assert "environment 1, 0 to 1 s at 5 ms per tick, engine tensor, seed 3" in out
    assert "robot/imu imu 201 200 200 0 0 10.00 10 ms" in out and "air barometer 51 50 50 0 0 0.00" in out
    assert "ang_vel_b base x N, white noise 0.01 0.0" in out and "arm z N, white noise 0.01" in out
    assert "robot/imu.lin_acc_b: no noise" in captured.err and "reset" not in captured.err
    text = (tmp_path / "new/report.html").read_text(encoding="utf-8")
    assert "robot/imu.ang_vel_b" in text and "N, white noise" in text and text.count("<img") > 4


def test_the_same_figures_for_npz(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = []
    for file in ("run.mcap", "run.npz"):
        assert run("report", folder / file, "--env", 1, "--sensor", "robot/imu", "--start", 0.1, "--end", 0.9) == 0
        tables.append(capsys.readouterr().out.partition("\n")[2])
        assert "air" not in tables[-1] and "0.1 to 0.9 s" in tables[-1]
    assert tables[0] == tables[1]


def test_noise_is_analysed_between_resets(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("report", folder / "run.mcap", "--env", 3, "--sensor", "robot/imu") == 0
    assert "env 3 was reset once" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("suffix", ["png", "svg", "html"])
def test_fields_are_drawn(folder: Path, tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"new/x.{suffix}"
    fields = ["robot/imu.lin_acc_b", "air"]
    assert run("plot", folder / "run.mcap", *fields, "--to", path, "--env", 3, "--start", 0.2, "--end", 0.5) == 0
    assert f"wrote {path}" in capsys.readouterr().out
    data = path.read_bytes()
    if suffix == "png":
        assert data.startswith(b"\x89PNG")
        return
    text = data.decode("utf-8")
    assert "lin_acc_b" in text and "ang_vel_b" not in text and "env 3" in text
    assert suffix == "svg" or text.count("<img") > 2


def test_a_picture_of_all_fields_names_those_that_do_not_fit(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sensorium.cli.reports.MAX_FIELDS", 1)
    assert run("plot", folder / "run.npz", "--to", tmp_path / "x.svg") == 0
    err = " ".join(capsys.readouterr().err.split())
    assert "not drawn: robot/imu.lin_acc_b, air.pressure, air.altitude." in err and "x.html" in err
    assert run("plot", folder / "run.npz", "--to", tmp_path / "x.html", "--end", 0.1) == 0
    assert "not drawn" not in capsys.readouterr().err


def test_controls_and_logged_values_are_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Controls hold until the next ones; logged values are drawn where they were logged, also without a sensor."""
    engine = sn.MujocoEngine(CART, 2)
    scene = sn.Scene(engine, [])
    file = tmp_path / "run.mcap"
    with scene.record(file) as recorder:
        for number in range(20):
            scene.step(np.array([[0.0, -0.0], [1.0, 2.0]]) * (1 + (number >= 10)), 5)
            recorder.log("reward", np.array([number, -number]))
            recorder.log("done", np.array([False, number == 7]))
    spans = {
        (None, None): ([0.0, 0.1, 0.2], [1.0, 2.0, 2.0], 20), (0.05, 0.15): ([0.05, 0.1, 0.15], [1.0, 2.0, 2.0], 11),
        (0.12, 0.16): ([0.12, 0.16], [2.0, 2.0], 5), (None, 0.08): ([0.0, 0.08], [1.0, 1.0], 8),
    }  # fmt: skip
    for (start, end), (times, values, count) in spans.items():
        recording, env, _ = loaded(file, (), 1, start, end, logs=True)
        assert [*recording] == ["control", "reward", "done"] and env == 1
        control, reward = recording["control"], recording["reward"]
        np.testing.assert_allclose(control.time, times, atol=1e-9)
        np.testing.assert_array_equal(control.measured["value"][:, 0], np.outer(values, [1.0, 2.0]))
        assert (
            len(reward.time) == count and (reward.measured["value"][:, 0] == -np.rint(reward.time / 0.01 - 1.0)).all()
        )
    assert run("plot", file, "control", "done.value", "--to", tmp_path / "x.svg") == 0
    text = (tmp_path / "x.svg").read_text(encoding="utf-8")
    for word in ("push", "pull", "logged", "done"):
        assert f"<!-- {word}" in text
    assert "reward" not in text and "<!-- true" not in text and "<!-- gap" not in text
    assert run("plot", file, "--to", tmp_path / "x.html") == 0
    assert (tmp_path / "x.html").read_text(encoding="utf-8").count("<img") == 3
    assert run("plot", file, "rewards", "--to", tmp_path / "y.png") == 2
    assert "'reward'" in (err := capsys.readouterr().err) and "Known: control, control.value, done" in " ".join(
        err.split()
    )
    assert run("report", file) == 0


def test_wrong_options_give_one_error(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, png = folder / "run.mcap", tmp_path / "x.png"
    cases: list[tuple[list[object], str]] = [
        (["plot", file, "--to", tmp_path / "x.txt"], "--to"),
        (["plot", file, "imu.lin_acc", "--to", png], "robot/imu.lin_acc_b"),
        (["plot", file, "robot/imu.x", "--to", png], "Known"),
        (["plot", file, "--to", png, "--env", 0], "a recorded environment: 1, 3"),
        (["plot", folder / "run.npz", "--to", png, "--env", 2], "a recorded environment: 1, 3"),
        (["plot", file, "--to", png, "--start", 7], "in this time span"),
        (["plot", file, "air", "--to", png, "--start", 7], "in this time span"),
        (["plot", tmp_path / "none.mcap", "--to", png], "does not exist"),
        (["plot", tmp_path / "none.npz", "--to", png], "none.npz"),
        (["plot", file, "air", "--to", file / "x.png"], "--to"),
        (["report", file, "--to", png], "--to"),
        (["report", file, "--sensor", "imu2"], "robot/imu"),
        (["report", file, "--to", file / "x.html"], "--to"),
    ]
    for args, part in cases:
        assert run(*args) == 2, args
        err = capsys.readouterr().err
        assert err.count("error:") == 1 and part in " ".join(err.split()) and "Traceback" not in err, (args, err)
    assert list(tmp_path.iterdir()) == []

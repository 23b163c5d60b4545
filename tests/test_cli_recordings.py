"""`sensorium run --record`, `replay`, `repair` and `serve --replay`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from nursery import COMMAND, Nursery, until

import sensorium as sn
from sensorium.cli import main
from sensorium.demo import model_path

RIG = """
[[sensor]]
kind = "imu"
name = "trunk"
site = "imu"
rate_hz = 200.0
delay = 0.004
gyro_noise = 0.01

[[sensor]]
kind = "joint"
name = "encoders"
joints = ".*"

[[sensor]]
kind = "camera"
name = "eye"
camera = "front"
width = 9
height = 7
data_types = ["depth", "normals", "geom_ids", "instance_id_segmentation", "optical_flow"]
rate_hz = 50.0
noise = 0.01
"""


@pytest.fixture
def rig(tmp_path: Path) -> Path:
    path = tmp_path / "rig.toml"
    path.write_text(RIG)
    return path


def run(*options: object) -> int:
    return main(["run", str(model_path()), *map(str, options)])


def test_a_recorded_run_is_replayed_as_the_same_npz(
    rig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same run with and without --record; the replay writes the same arrays and pictures."""
    common = ("--rig", rig, "--envs", 3, "--seconds", 0.1, "--seed", 5, "--control", "random")
    assert run(*common, "--out", tmp_path / "live") == 0
    assert run(*common, "--out", tmp_path / "unused", "--record", tmp_path / "run.mcap") == 0
    assert "wrote" in (out := capsys.readouterr().out) and "run.mcap" in out
    assert not (tmp_path / "unused").exists()
    assert main(["replay", str(tmp_path / "run.mcap"), "--out", str(tmp_path / "again")]) == 0
    out = capsys.readouterr().out
    assert "trunk" in out and "3 envs" in out and "also recorded: control" in out and "imu.png" in out
    with np.load(tmp_path / "live/readings.npz") as live, np.load(tmp_path / "again/readings.npz") as again:
        assert live.files == again.files
        for name in live.files:
            if name != "description":
                is_float = live[name].dtype.kind == "f"
                assert np.array_equal(live[name], again[name], equal_nan=is_float), name
    pictures = sorted(path.name for path in (tmp_path / "live").glob("*.png"))
    assert pictures == sorted(
        ["imu.png", "joint.png", "camera.png"]
        + [f"eye.{field}.png" for field in ("distance_to_image_plane", "normals", "geom_ids",
                                            "instance_id_segmentation", "optical_flow")]
    )  # fmt: skip
    for name in pictures:
        assert (tmp_path / "live" / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name
    with sn.replay(tmp_path / "run.mcap") as replay:
        assert replay.attachment("rig.toml") == RIG.encode()
        assert replay.description.seed == 5
    for name in ("depth", "distance_to_image_plane"):  # its name in data_types, and that of the field
        assert main(["plot", str(tmp_path / "run.mcap"), f"eye.{name}", "--to", str(tmp_path / f"{name}.png")]) == 0
    assert (tmp_path / "depth.png").read_bytes() == (tmp_path / "distance_to_image_plane.png").read_bytes()


def test_some_environments_of_the_demo_are_recorded_with_ros2_messages(tmp_path: Path) -> None:
    path = tmp_path / "sub/run.mcap"
    options = ["--envs", "3", "--seconds", "0.05", "--record", str(path), "--record-envs", "0,2"]
    assert main(["run", "demo", *options, "--ros2", "--states", "--no-truth"]) == 0
    with sn.replay(path) as replay:
        assert replay.env_ids.tolist() == [0, 2] and {"trunk", "foot", "lidar"} <= {*replay.description.sensors}
        assert replay.counts["trunk.states"] == 11 and not replay.at(replay.end)["trunk"].truth
        topics = {channel.topic for channel in replay._file.channels.values()}
    assert "/env_0002/trunk/data_raw" in topics or any(topic.startswith("/env_2/") for topic in topics)
    assert not any("env_0001" in topic for topic in topics)


def test_a_replay_shows_a_part(rig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "run.mcap")
    assert run("--rig", rig, "--seconds", 0.1, "--record", path) == 0
    capsys.readouterr()
    assert main(["replay", path, "--sensor", "trunk", "--end", "0.05"]) == 0
    out = capsys.readouterr().out
    assert "trunk" in out and "encoders" not in out
    assert main(["replay", path, "--speed", "100"]) == 0
    assert "encoders" in capsys.readouterr().out


def test_wrong_options_give_one_error(rig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "run.mcap")
    empty = str(tmp_path / "empty.mcap")
    with sn.Scene(sn.TensorEngine(1, 0.01), []).record(empty):
        pass
    cases: list[tuple[list[str], str]] = [
        (["serve", "--replay", empty, "--address", "tcp://127.0.0.1:0"], "a recording with sensors"),
        (["run", "demo", "--ros2"], "--record"),
        (["run", "demo", "--record-envs", "0"], "--record"),
        (["run", "demo", "--no-truth"], "--record"),
        (["run", "demo", "--record", path, "--images", "png"], "--images"),
        (["run", "demo", "--record", path, "--ros2-only", "--states"], "--states"),
        (["run", "demo", "--record", path, "--record-envs", "0,1"], "--record-envs"),
        (["run", "demo", "--record", path, "--record-envs", "a"], "--record-envs"),
        (["run", "demo", "--record", str(tmp_path)], "--record"),
        (["run", "demo", "--record", str(tmp_path / "run.npz")], "such as run.mcap"),
        (["run", str(model_path())], "--rig"),
        (["replay", path], "does not exist"),
        (["replay", str(rig)], "not an MCAP file"),
        (["replay", path, "--speed", "-1"], "--speed"),
        (["replay", path, "--out", str(rig)], "--out"),
        (["repair", path], "does not exist"),
        (["repair", str(rig)], "not an MCAP file"),
        (["serve"], "--replay"),
        (["serve", "demo", "--replay", path], "--replay"),
        (["serve", "--replay", path, "--lockstep"], "--lockstep"),
        (["serve", "--replay", path, "--address", "tcp://127.0.0.1:0"], "does not exist"),
    ]
    for args, part in cases:
        assert main(args) == 2, args
        err = capsys.readouterr().err
        assert err.count("error:") == 1 and part in " ".join(err.split()) and "Traceback" not in err, (args, err)
    assert main(["run", "demo", "--record", path, "--envs", "0,3"]) == 2
    assert "a whole number. To record some of them: --record-envs 0,3" in re.sub(
        r"[\s│]+", " ", capsys.readouterr().err
    )


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("on_terminal", [False, True])
def test_names_send_no_commands_to_the_terminal(
    on_terminal: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of sensors, bodies, logs, marks and kinds from files of others, in results, notes, warnings and errors."""
    evil = "a\x1b]0;title\x07\x1b[2J\x9b31m\x85\rb"
    if on_terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    file, rig = tmp_path / "run.mcap", tmp_path / "rig.toml"
    engine = sn.TensorEngine(num_envs=1, dt=0.01, bodies=[evil])
    imu = sn.ImuCfg(name=evil, body=evil, gyro_noise=0.01)
    scene = sn.Scene(engine, [imu])
    with scene.record(file) as recorder:
        for _ in range(20):
            scene.update()
        recorder.log(evil, np.zeros(1))
        recorder.mark(evil, evil)
    quoted = json.dumps(evil)
    rig.write_text(f"[[sensor]]\nkind = 'imu'\nname = {quoted}\nsite = 'imu'\nrate_hz = 1e9\n")
    wrong, kind = tmp_path / "wrong.toml", tmp_path / "kind.toml"
    wrong.write_text(f"[[sensor]]\nkind = 'imu'\nname = {quoted}\nsite = {quoted}\n{quoted} = 1\n")
    kind.write_text(f"[[sensor]]\nkind = {quoted}\n")
    file.with_name("cut.mcap").write_bytes(file.read_bytes()[:-100])
    for code, *words in (
        (0, "replay", file), (0, "replay", file, "--speed", 1000), (0, "replay", tmp_path / "cut.mcap"),
        (2, "replay", file, "--sensor", "b"), (0, "report", file), (2, "plot", file, "b", "--to", tmp_path / "x.png"),
        (0, "export", file, "--to", tmp_path / "csv", "--format", "csv"),
        (0, "export", file, "--to", tmp_path / "tum", "--format", "tum"),
        (0, "calib", file, "--to", tmp_path / "calib"),
        (0, "run", model_path(), "--rig", rig, "--seconds", 0.1, "--out", tmp_path / "out"),
        *((code, what, model_path(), "--rig", each) for what in ("run", "explain")
          for code, each in ((0, rig), (2, wrong), (2, kind)) if what == "explain" or code),
        (2, "list", evil),
    ):  # fmt: skip
        assert main([*map(str, words)]) == code, words
        both = "".join(capsys.readouterr())
        assert "title" in both or words[0] in ("export", "plot"), words
        rest = re.sub(r"\x1b\[[0-9;]*[mAK]|\x1b\[\?25[lh]|\r" if on_terminal else "$^", "", both)
        assert not re.search(r"[^\n\t\x20-\x7e\xa0-\U0010ffff]", rest), words


def test_repair_completes_a_cut_file(rig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.mcap"
    assert run("--rig", rig, "--seconds", 0.1, "--record", path) == 0
    path.write_bytes(path.read_bytes()[:-100])
    capsys.readouterr()
    with pytest.warns(sn.SensoriumWarning, match="sensorium repair"):
        assert main(["replay", str(path)]) == 0
    assert "trunk" in capsys.readouterr().out
    cut, copy = path.read_bytes(), tmp_path / "run.repaired.mcap"
    assert main(["repair", str(path)]) == 0
    assert f"wrote {copy}: " in capsys.readouterr().out and path.read_bytes() == cut
    assert main(["repair", str(path), "--in-place"]) == 0
    assert f"wrote {path}: " in capsys.readouterr().out and path.read_bytes() == copy.read_bytes()
    assert main(["repair", str(path)]) == 0
    assert "already complete" in capsys.readouterr().err
    assert main(["replay", str(path)]) == 0
    assert "repair" not in capsys.readouterr().err


def test_a_recording_is_served_until_its_end(rig: Path, tmp_path: Path, nursery: Nursery) -> None:
    """It starts with the first listener, and the server ends with the recording."""
    path = tmp_path / "run.mcap"
    assert run("--rig", rig, "--seconds", 0.1, "--record", path) == 0
    server = nursery.program(COMMAND, "serve", "--replay", str(path), "--address", "tcp://127.0.0.1:0")
    until(lambda: "\n" in server.out, "the address")
    frames: list[float] = []
    with sn.connect(server.out.splitlines()[0].split()[-1], timeout=120.0) as client:
        client.sensors["encoders"].listen(lambda data: frames.append(data.time), policy="lossless")
        assert server.wait() == 0, server.err
        until(lambda: frames and max(frames) == pytest.approx(0.1), "the last frame")
    assert len(frames) > 30 and max(frames) == pytest.approx(0.1)

"""Trajectories from files and arrays: all formats, and every fault named with its place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import sensorium as sn
from sensorium.errors import ArgumentError, ModelError

HALF = np.sqrt(0.5)
TUM = """# timestamp tx ty tz qx qy qz qw
1305031098.6659 1.0 2.0 3.0 0 0 0 1

1305031098.6758 1.1 2.0 3.0 0 0 0.7071067811865476 0.7071067811865476
1305031098.6859 1.2 2.1 3.0 0 0 -0.7071067811865476 -0.7071067811865476
1305031098.6959001 1.3 2.1 3.1 0 0 1 1e-9
"""
EUROC = """#timestamp, p_RS_R_x [m], p_RS_R_y [m], p_RS_R_z [m], q_RS_w [], q_RS_x [], q_RS_y [], q_RS_z [], v_RS_R_x
1403636580838555648,4.688319,-1.786938,0.783338,0.534108,-0.153029,-0.827383,-0.082152,-0.027876
1403636580843555328,4.688177,-1.786770,0.787350,0.534640,-0.152990,-0.826976,-0.082863,-0.029272
1403636580848555520,4.688028,-1.786598,0.791382,0.535178,-0.152945,-0.826562,-0.083605,-0.030043
1403636580853555456,4.687878,-1.786421,0.795429,0.535715,-0.152884,-0.826146,-0.084391,-0.030230
"""


def written(folder: Path, text: str, name: str = "path.txt") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


def test_tum_file(tmp_path: Path) -> None:
    found = sn.Trajectory.from_file(written(tmp_path, TUM))
    assert found.start_ns == 1305031098665900000  # a float64 of seconds is off by up to 120 ns
    np.testing.assert_allclose(found.times, [0.0, 0.0099, 0.02, 0.0300001], atol=1e-12)
    np.testing.assert_array_equal(found.pos, [[1.0, 2.0, 3.0], [1.1, 2.0, 3.0], [1.2, 2.1, 3.0], [1.3, 2.1, 3.1]])
    turned = [[1.0, 0.0, 0.0, 0.0], [HALF, 0.0, 0.0, HALF], [-HALF, 0.0, 0.0, -HALF], [0.0, 0.0, 0.0, 1.0]]
    np.testing.assert_allclose(found.quat, turned, atol=2e-9)


def test_euroc_file(tmp_path: Path) -> None:
    found = sn.Trajectory.from_file(written(tmp_path, EUROC, "data.csv"))
    assert found.start_ns == 1403636580838555648
    np.testing.assert_allclose(found.times, [0.0, 0.00499968, 0.009999872, 0.014999808], atol=1e-12)
    np.testing.assert_array_equal(found.pos[3], [4.687878, -1.786421, 0.795429])
    np.testing.assert_allclose(found.quat[0], [0.534108, -0.153029, -0.827383, -0.082152], atol=1e-6)


@pytest.mark.parametrize("text", [TUM.replace("\n", "\r\n"), f"\ufeff{TUM}", TUM.replace(" ", "\t  "), TUM.strip()])
def test_line_ends_and_spaces_do_not_matter(text: str, tmp_path: Path) -> None:
    found, plain = (
        sn.Trajectory.from_file(written(tmp_path, each, name)) for each, name in ((text, "a.tum"), (TUM, "b.tum"))
    )
    np.testing.assert_array_equal(found.times, plain.times)
    np.testing.assert_array_equal(found.quat, plain.quat)


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        (" 0 0 0 1\n", " 0 0 1\n", ["line 2", "7 columns", "t x y z qx qy qz qw"]),
        (" 0 0 0 1\n", " 0 0 0 1 5\n", ["line 2", "9 columns"]),
        (" 1.1 ", " one ", ["line 4", "'one'", "a number"]),
        (" 1.1 ", " nan ", ["line 4", "position: got nan 2 3", "finite numbers"]),
        (" 1.1 ", " inf ", ["line 4", "position: got inf 2 3"]),
        (" 1.1 ", " 1e6 ", ["line 4", "1000000", "100000 m", "Subtract"]),
        ("1305031098.6758", "nan", ["line 4", "time: got 'nan'", "seconds"]),
        ("1305031098.6758", "1e30", ["line 4", "time: got '1e30'"]),
        ("1305031098.6758", "1e400000", ["line 4", "time: got '1e400000'"]),
        ("1305031098.6758", "1e999999", ["line 4", "time: got '1e999999'"]),
        ("1305031098.6758", "1305031098.6659", ["line 4", "time: got 1305031098.6659,", "Sort"]),
        ("1305031098.6859", "1305031098.6", ["line 5", "time", "Sort"]),
        ("0 0 0 1\n", "0 0 0 0\n", ["line 2", "quaternion (w x y z): got 0 0 0 0", "unit quaternion"]),
        ("0 0 0 1\n", "0 0 0 2\n", ["line 2", "quaternion (w x y z): got 2 0 0 0", "order of the columns"]),
        ("0 0 0 1\n", "0 0 nan 1\n", ["line 2", "quaternion (w x y z): got 1 0 0 nan"]),
        (TUM.splitlines(keepends=True)[1], "", ["got 3", "at least 4"]),
        ("098.6959001", "100.0", ["line 6", "time: got 1305031100.0, 1.3141 s after", "0.101 s", "--max-gap 1.32"]),
    ],
)
def test_a_fault_is_named_with_file_line_value_and_fix(old: str, new: str, parts: list[str], tmp_path: Path) -> None:
    assert old in TUM
    path = written(tmp_path, TUM.replace(old, new, 1))
    with pytest.raises(ModelError) as caught:
        sn.Trajectory.from_file(path)
    message = str(caught.value)
    for part in [str(path), *parts]:
        assert part in message, message


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("1403636580843555328", "1403636580843555328.5", ["line 3", "'1403636580843555328.5'", "whole number of ns"]),
        ("1403636580843555328", "9" * 30, ["line 3", "whole number of ns"]),
        ("1403636580843555328", "9" * 5000, ["line 3", "999..., expected a whole number of ns"]),
        ("1403636580843555328", "1403636580838555647", ["line 3", "time: got 1403636580838555647,", "Sort"]),
        (",0.787350,", ",,", ["line 3", "number: got ''"]),
        (
            "4.688028,-1.786598,0.791382,0.535178,-0.152945,-0.826562,-0.083605,-0.030043",
            "4 5",
            ["line 4", "2 columns"],
        ),
    ],
)
def test_a_fault_of_a_csv_file_is_named(old: str, new: str, parts: list[str], tmp_path: Path) -> None:
    assert old in EUROC
    with pytest.raises(ModelError) as caught:
        sn.Trajectory.from_file(written(tmp_path, EUROC.replace(old, new, 1)))
    for part in parts:
        assert part in str(caught.value), caught.value


ROWS = np.array([
    [1e9, 1, 2, 3, 1, 0, 0, 0], [1e9 + 2, 2, 2, 3, HALF, 0, 0, HALF], [1e9 + 2, 9, 9, 9, HALF, 0, 0, HALF],
    [1e9 + 5, 3, 2, 3, 0.5, 0.5, -0.5, 0.5], [1e9 + 6, 4, 2, 5, 0.5, 0.5, -0.5, 0.5],
])  # fmt: skip
"""t (s), x, y, z, qw, qx, qy, qz; the third repeats the time of the second."""
KEPT = [0, 1, 3, 4]


def table(header: str, columns: list[int], mark: str = ",", digits: int = 0, length: float = 1.0) -> str:
    """Return the rows in the order of columns, -1 for another value, with times in 10^-digits s and
    lengths in `length` m."""
    scale = np.array([1, *[1.0 / length] * 3, 1, 1, 1, 1])
    lines = [mark.join("odom" if c < 0 else f"{each * scale[c]:.12f}" if c else str(int(each) * 10**digits)
                       for c in columns for each in row[[c]]) for row in ROWS]  # fmt: skip
    return "\n".join([header, *lines, ""])


ORDER, XYZW = [0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 5, 6, 7, 4]
ECHO = "%time,field.header.stamp,field.header.frame_id,field.pose.pose.position.x,field.pose.pose.position.y," \
       "field.pose.pose.position.z,field.pose.pose.orientation.x,field.pose.pose.orientation.y," \
       "field.pose.pose.orientation.z,field.pose.pose.orientation.w,field.twist.twist.linear.x"  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        table("t,x,y,z,qx,qy,qz,qw", XYZW),
        table("# t,x,y,z,qx,qy,qz,qw", XYZW),
        table("timestamp [ns];pos_x [mm];pos_y [mm];pos_z [mm];qw;qx;qy;qz", ORDER, ";", 9, 1e-3),
        table("tx(cm) ty(cm) tz(cm) qw qx qy qz time_us", [*ORDER[1:], 0], " ", 6, 1e-2),
        table(ECHO, [1, 0, -1, *XYZW[1:], 1], digits=9),
        table("env,tick,time,pose_pos.x,pose_pos.y,pose_pos.z,pose_quat.w,pose_quat.x,pose_quat.y,pose_quat.z",
              [1, 1, *ORDER]),
        table("#timestamp, p_RS_R_x [m], p_RS_R_y [m], p_RS_R_z [m], q_RS_w [], q_RS_x [], q_RS_y [], q_RS_z [], "
              "v_RS_R_x [m s^-1]", [*ORDER, 3], digits=9),
    ],
)  # fmt: skip
def test_columns_are_found_by_their_names_and_units(text: str, tmp_path: Path) -> None:
    path = written(tmp_path, text, "poses.csv")
    with pytest.raises(ModelError, match=r"line 4, time: got .* --drop-repeated"):
        sn.Trajectory.from_file(path)
    found = sn.Trajectory.from_file(path, drop_repeated=True)
    assert found.start_ns == 10**18
    np.testing.assert_allclose(found.times, [0.0, 2.0, 5.0, 6.0], atol=1e-9)
    np.testing.assert_allclose(found.pos, ROWS[KEPT, 1:4], atol=1e-12)
    np.testing.assert_allclose(found.quat, ROWS[KEPT, 4:], atol=1e-9)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (table("t,x,y,z,roll,pitch,yaw,frame", ORDER), ["no column qw, qx, qy, qz", "roll", "Name the columns t, x"]),
        (table("t [d],x,y,z,qw,qx,qy,qz", ORDER), ["the unit of 't [d]' is 'd'", "ns"]),
        (table("t,x [ft],y,z,qw,qx,qy,qz", ORDER), ["the unit of 'x [ft]' is 'ft', expected m"]),
        (
            table("t,x,y,z,qw,qx,qy,qz", ORDER, digits=6),
            ["the unit of 't' is 'us or ms'", "stated in a header, such as 't [us]'"],
        ),
        (table("t,x,y,z,qw,qx,qy,qz,pos_x", [*ORDER, 1]), ["two columns for x: 'x' and 'pos_x'"]),
        (table("t,x,y,z,qw,qx,qy,qz,a", ORDER), ["line 2: got 8 columns", "expected 9: t x"]),
    ],
)
def test_faults_of_a_header_are_named(text: str, parts: list[str], tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        sn.Trajectory.from_file(written(tmp_path, text))
    for part in parts:
        assert part in str(caught.value), caught.value


def test_kitti_file(tmp_path: Path) -> None:
    """A car that drives along x and turns left about z, as its camera (z forward, y down) sees it."""
    times = np.arange(6) * 0.1 + 3.0
    turned = Rotation.from_rotvec(np.outer(times - 3.0, [0.0, 0.0, 0.8]))
    pos = np.stack([times - 3.0, (times - 3.0) ** 2, 0.1 * (times - 3.0)], axis=1)
    lines = []
    for place, each in zip(pos, turned.as_matrix(), strict=True):
        camera = np.array([[0.0, -1.0, 0.0], [0.0, 0.0, -1.0], [1.0, 0.0, 0.0]])
        transform = np.concatenate([camera @ each @ camera.T, (camera @ place)[:, None]], axis=1)
        lines.append(" ".join(f"{value:.9e}" for value in transform.ravel()))
    (tmp_path / "poses").mkdir()
    path = written(tmp_path / "poses", "\n".join(lines), "07.txt")
    with pytest.raises(ModelError, match=r"without times, .* --rate 10 or --times FILE"):
        sn.Trajectory.from_file(path)
    (tmp_path / "sequences/07").mkdir(parents=True)
    usual = written(tmp_path / "sequences/07", "\n".join(f"{time:e}" for time in times), "times.txt")
    side = written(tmp_path, usual.read_text(), "stamps")
    for given, start in (({}, 3), ({"rate_hz": 10.0}, 0), ({"times": side}, 3)):
        found = sn.Trajectory.from_file(path, **given)  # type: ignore[arg-type]
        assert found.start_ns == start * 10**9
        np.testing.assert_allclose(found.times, times - 3.0, atol=1e-9)
        np.testing.assert_allclose(found.pos, pos, atol=1e-9)
        np.testing.assert_allclose(found.quat, turned.as_quat()[:, [3, 0, 1, 2]], atol=1e-8)
    side.write_text("1 2 3")
    with pytest.raises(ModelError, match=r"got 1 times, expected 6, one for each pose"):
        sn.Trajectory.from_file(path, times=side)
    with pytest.raises(ModelError, match=r"got the rate 0, expected a number above 0"):
        sn.Trajectory.from_file(path, rate_hz=0)
    with pytest.raises(ModelError, match=r"got 10\.0 for its times, expected none: it has a column of times"):
        sn.Trajectory.from_file(written(tmp_path, TUM), rate_hz=10.0)
    path.write_text("\n".join([*lines[:2], lines[2].replace(" ", " 2", 1), *lines[3:]]))
    with pytest.raises(ModelError, match=r"line 3: rotation: got .* expected a rotation matrix"):
        sn.Trajectory.from_file(path)
    path.write_text("\n".join([*lines[:2], "1 2 3", *lines[3:]]))
    with pytest.raises(ModelError, match=r"line 3: got 3 columns \('1 2 3'\), expected 12 \(KITTI\)"):
        sn.Trajectory.from_file(path)


@pytest.mark.parametrize(
    ("head", "part"),
    [
        (b"#ROSBAG V2.0\n", "is a ROS 1 bag. Convert it: .*rosbags-convert"),
        (b"\x89MCAP0\r\n\1\2", "is an MCAP file.* sensorium export .*poses --to poses --format tum"),
        (b"\0\0\0\x20ftypisom", "is a video"),
        (b'{"configById": {}}', "is a JSON file, such as a layout of Foxglove"),
        (b"PK\3\4\0", "is an npz or ZIP file"),
    ],
)
def test_other_files_are_named(head: bytes, part: str, tmp_path: Path) -> None:
    (tmp_path / "poses").write_bytes(head)
    with pytest.raises(ModelError, match=part):
        sn.Trajectory.from_file(tmp_path / "poses")


def test_a_file_that_is_no_trajectory(tmp_path: Path) -> None:
    written(tmp_path, TUM, "flight.tum")
    with pytest.raises(ModelError, match=r"does not exist\. Did you mean 'flight\.tum'"):
        sn.Trajectory.from_file(tmp_path / "fligth.tum")
    with pytest.raises(ModelError, match="is a folder"):
        sn.Trajectory.from_file(tmp_path)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(ModelError, match="is not text"):
        sn.Trajectory.from_file(tmp_path / "bytes")
    with pytest.raises(ModelError, match="got 0, expected at least 4"):
        sn.Trajectory.from_file(written(tmp_path, "# nothing\n"))


def test_damaged_files_give_one_error_or_a_finite_path(tmp_path: Path) -> None:
    """Any bytes are damaged and the file ends anywhere, or only digits are changed, which some files survive."""
    path, read = tmp_path / "path.csv", 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        data = bytearray((TUM if seed % 2 else EUROC).encode())
        is_torn = seed % 4 < 2
        places = [k for k, byte in enumerate(data) if is_torn or chr(byte).isdigit()]
        for _ in range(int(rng.integers(1, 6))):
            data[int(rng.choice(places))] = int(rng.integers(256) if is_torn else rng.integers(48, 58))
        path.write_bytes(bytes(data[: int(rng.integers(1, len(data) + 1))] if is_torn else data))
        try:
            found = sn.Trajectory.from_file(path)
        except ModelError as error:
            assert str(path) in str(error)
        else:
            read += 1
            assert all(np.isfinite(values).all() for values in found.at(found.times))
    assert 5 <= read <= 20


# Arrays ---------------------------------------------------------------------------------------------------------------

TIMES, POS, QUAT = np.arange(5.0), np.zeros((5, 3)), np.tile([1.0, 0.0, 0.0, 0.0], (5, 1))


@pytest.mark.parametrize(
    ("times", "pos", "quat", "part"),
    [
        (TIMES[:3], POS[:3], QUAT[:3], "poses: got 3, expected at least 4"),
        (TIMES, POS[:4], QUAT, "different lengths"),
        (TIMES, POS[:, :2], QUAT, r"(?s)pos: got .* expected numbers \[n, 3\]"),
        (TIMES, POS, QUAT[:, :3], r"(?s)quat: got .* expected numbers \[n, 4\]"),
        ("now", POS, QUAT, r"times: got 'now', expected numbers \[n\]"),
        (None, POS, QUAT, "different lengths"),
        (TIMES[::-1], POS, QUAT, "pose 1, time: got 3, expected a time after"),
        (TIMES, POS, 0.0 * QUAT, r"pose 0, quaternion \(w x y z\): got 0 0 0 0"),
        (TIMES, POS, np.eye(4)[[0, 0, 3, 3, 3]], "pose 2, quaternion: got a turn of 180 degrees .* Add poses"),
    ],
)
def test_faults_of_arrays(times: object, pos: object, quat: object, part: str) -> None:
    with pytest.raises(ArgumentError, match=part):
        sn.Trajectory(times, pos, quat)  # type: ignore[arg-type]


def test_a_path_is_defined_from_its_first_to_its_last_pose() -> None:
    path = sn.Trajectory(TIMES + 7.0, POS, QUAT)
    assert path.duration == 4.0 and path.start_ns == 7_000_000_000
    assert path.at([0.0, 4.0]).pos.shape == (2, 3)
    for time in (-0.1, 4.1, np.nan):
        with pytest.raises(ArgumentError, match="expected 0 to 4 s"):
            path.at(time)


def test_a_gap_in_time_is_refused_unless_it_is_allowed(tmp_path: Path) -> None:
    """The turn within it has no effect: 150 degrees are accepted, and 0 degrees are not."""
    for turn in (0.0, 150.0):
        half = np.radians(0.5 * turn) * (TIMES > 2.0)
        quat = np.stack([np.cos(half), 0.0 * half, 0.0 * half, np.sin(half)], axis=1)
        times = np.where(TIMES > 2.0, TIMES + 20.0, TIMES)
        with pytest.raises(ArgumentError, match=r"pose 3, time: got 23, 21 s after .* at most 10 s .* --max-gap 21"):
            sn.Trajectory(times, POS, quat)
        assert sn.Trajectory(times, POS, quat, max_gap=21.0).duration == 24.0
    file = written(tmp_path, TUM.replace("098.6959001", "100.0"))
    assert sn.Trajectory.from_file(file, max_gap=1.5).duration == pytest.approx(1.3341)
    with pytest.raises(ArgumentError, match=r"max_gap: got 0\.0, expected a positive number"):
        sn.Trajectory(TIMES, POS, QUAT, max_gap=0.0)


def test_a_large_turn_between_poses_has_no_peak() -> None:
    """A body at rest turns by 170 degrees within 1 s and rests again."""
    times = np.arange(7.0)
    half = np.radians(85.0) * (times > 2.0)
    quat = np.stack([np.cos(half), 0.0 * half, 0.0 * half, np.sin(half)], axis=1)
    path = sn.Trajectory(times, np.zeros((7, 3)), quat)
    motion = path.at(np.linspace(2.0, 3.0, 101))
    turned = 2.0 * np.degrees(np.arctan2(motion.quat[:, 3], motion.quat[:, 0]))
    np.testing.assert_allclose(turned[[0, 50, 100]], [0.0, 85.0, 170.0], atol=1e-6)
    assert 170.0 < np.degrees(motion.ang_vel[:, 2]).max() < 340.0


def test_given_arrays_are_copied() -> None:
    pos = POS.copy()
    path = sn.Trajectory(TIMES, pos, QUAT)
    pos[:] = 1.0
    assert not path.at([2.0]).pos.any()
    with pytest.raises(ValueError, match="read-only"):
        path.pos[:] = 1.0

"""Bundled rigs: they fit the models of the MuJoCo Menagerie, by the names in these models or in a checkout."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

import mujoco
import pytest

import sensorium as sn
from sensorium.cli import main
from sensorium.jobs.job import Job
from sensorium.jobs.rig import RIGS, bundled_rigs, load_rig, rig_file

MENAGERIE = os.environ.get("MENAGERIE")
"""Folder of a checkout of the MuJoCo Menagerie, if there is one."""


def legs(names: str, root: str, parts: str, joints: str) -> Iterator[str]:
    """Yield the bodies of legs: ``names`` of the legs, ``parts`` from the root outwards, each with one of `joints`."""
    for leg in names.split():
        parent = root
        for part, joint in zip(parts.split(), joints.split(), strict=True):
            yield f"{parent} {leg}{part} {leg}{joint}"
            parent = leg + part


def chain(root: str, parts: str, joints: str) -> Iterator[str]:
    """Yield the bodies of one chain from the root, each with one of `joints`."""
    bodies = parts.split()
    for parent, body, joint in zip([root, *bodies[:-1]], bodies, joints.split(), strict=True):
        yield f"{parent} {body} {joint}"


G1_LEG = "hip_pitch hip_roll hip_yaw knee ankle_pitch ankle_roll"
ARM = "waist shoulder elbow forearm_roll wrist_angle wrist_rotate"
ALOHA = "shoulder_link upper_arm_link upper_forearm_link lower_forearm_link wrist_link gripper_link"
UR5E = "shoulder_link upper_arm_link forearm_link wrist_1_link wrist_2_link wrist_3_link"
UR5E_JOINTS = "shoulder_pan_joint shoulder_lift_joint elbow_joint wrist_1_joint wrist_2_joint wrist_3_joint"
LINKS = " ".join(f"fr3_link{k}" for k in range(1, 8))
NAMES = {
    "go2": [
        "* base site:imu",
        *legs("FL FR RL RR", "base", "_hip _thigh _calf", "_hip_joint _thigh_joint _calf_joint"),
    ],
    "g1": [
        "* pelvis site:imu_in_pelvis",
        *(each for side in ("left", "right") for each in chain(
            "pelvis", " ".join(f"{side}_{part}_link" for part in G1_LEG.split()),
            " ".join(f"{side}_{part}_joint" for part in G1_LEG.split()))),
        "pelvis torso_link waist_yaw_joint site:imu_in_torso",
    ],
    "spot": ["* body", *legs("fl fr hl hr", "body", "_hip _uleg _lleg", "_hx _hy _kn")],
    "anymal_c": ["* base", *legs("LF RF LH RH", "base", "_HIP _THIGH _SHANK", "_HAA _HFE _KFE")],
    "fr3": [
        "- fr3_link0", *chain("fr3_link0", LINKS, LINKS.replace("link", "joint")),
        "fr3_link7 flange site:attachment_site",
    ],
    "ur5e": ["- base", *chain("base", UR5E, UR5E_JOINTS)],
    "aloha": [
        each for side in ("left", "right") for each in (
            f"- {side}/base_link",
            *chain(f"{side}/base_link", " ".join(f"{side}/{part}" for part in ALOHA.split()),
                   " ".join(f"{side}/{part}" for part in ARM.split())),
            f"{side}/gripper_link {side}/gripper_base camera:wrist_cam_{side}",
            *(f"{side}/gripper_base {side}/{end}_finger_link {side}/{end}_finger" for end in ("left", "right")),
        )
    ],
    "skydio_x2": ["* x2 site:imu"],
    "crazyflie": ["* cf2"],
    "stretch": [
        "* base_link", "base_link laser", "base_link link_lift joint_lift", "base_link realsense",
        "link_lift rubber_tip_left rubber_left_x", "link_lift rubber_tip_right rubber_right_x",
    ],
}  # fmt: skip
"""Robot -> names in its model: parent (* of a free root, - of a fixed one), body, joint, site and camera."""


def skeleton(lines: list[str]) -> mujoco.MjSpec:
    """Return a model above a floor with the names of a robot; its bodies are small spheres 0.1 m apart."""
    spec = mujoco.MjSpec()
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[5.0, 5.0, 1.0])
    bodies = {"*": spec.worldbody, "-": spec.worldbody}
    for line in lines:
        parent, name, *parts = line.split()
        body = bodies[name] = bodies[parent].add_body(name=name, pos=[0.1, 0.0, 1.0 if parent in "*-" else 0.0])
        feet = {"FL_calf": "FL", "FR_calf": "FR", "RL_calf": "RL", "RR_calf": "RR"}
        geom = {"name": feet[name]} if name in feet else {}
        body.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.02, 0.0, 0.0], contype=0, **geom)
        if parent == "*":
            body.add_freejoint()
        for part in parts:
            kind, _, label = part.rpartition(":")
            {"site": body.add_site, "camera": body.add_camera, "": body.add_joint}[kind](name=label)
    return spec


@pytest.mark.parametrize("name", NAMES)
def test_rig_fits_the_model_of_its_robot(name: str, tmp_path: Path) -> None:
    path = RIGS / f"{name}.toml"
    about = tomllib.loads(path.read_text(encoding="utf-8"))["about"]
    if MENAGERIE is None:
        model = tmp_path / "model.xml"
        model.write_text(skeleton(NAMES[name]).to_xml())
    else:
        model = Path(MENAGERIE) / about["model"]
    configs, _ = load_rig(path)
    scene = sn.Scene(sn.MujocoEngine(model, 1), configs)
    scene.step()
    for cfg in configs:
        for field, value in scene[cfg.label].own_tensors(is_measured=True).items():
            assert not value.isnan().any(), (cfg.label, field)


def test_each_rig_has_a_model_and_a_source() -> None:
    rigs = bundled_rigs()
    assert rigs.keys() == NAMES.keys()
    for rig in rigs.values():
        assert rig["about"].keys() == {"title", "model", "source"} and rig["about"]["model"].endswith(".xml")


def test_rigs_are_found_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    job = Job(model="demo", rig="go2", envs=1, envs_per_shard=1, episode_seconds=1.0)
    assert rig_file(Path("go2")) == RIGS / "go2.toml" and job.rig == str(RIGS / "go2.toml")
    Path("go2").write_text("a file of that name")
    assert rig_file(Path("go2")) == Path("go2")
    Path("x2.xml").write_text(skeleton(NAMES["skydio_x2"]).to_xml())
    assert main(["explain", "x2.xml", "--rig", "skydio_x2", "--json"]) == 0
    assert '"gnss"' in capsys.readouterr().out
    assert main(["explain", "x2.xml", "--rig", "skydio"]) == 2
    assert "Did you mean 'skydio_x2'?" in " ".join(capsys.readouterr().err.split())
    assert main(["list", "--rigs"]) == 0
    assert "g1_29dof_rev_1_0.urdf" in capsys.readouterr().out

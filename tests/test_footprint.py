"""Only what is used is loaded: an IMU imports no other family, and each family runs without those it does not use.

One program imports torch, Warp and the core, with every family refused. Its forks then run an IMU, and each family.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_layers import BETWEEN_FAMILIES, FAMILIES

PROGRAM = """
import importlib, json, os, pkgutil, sys
import mujoco, torch, warp
import benchmarks.footprint as footprint
import sensorium as sn

families, edges = json.loads(sys.argv[1])
packages = {each: "sensorium.cameras" if each == "cameras" else f"sensorium.sensors.{each}" for each in families}
refused = set()

class Finder:
    def find_spec(self, name, path=None, target=None):
        if any(name == packages[each] or name.startswith(packages[each] + ".") for each in refused):
            raise ModuleNotFoundError(f"{name} is refused")

sys.meta_path.insert(0, Finder())

def loaded():
    return [name for name in sys.modules if any((name + ".").startswith(each + ".") for each in packages.values())]

def needed(family):
    return {family}.union(*(needed(other) for other in edges.get(family, ())))

def walk(package):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        importlib.import_module(module.name)

def core():
    for package in ("compute", "engines.mujoco", "world", "shapes", "measurement", "patterns", "sensors.core", "scene"):
        walk("sensorium." + package)

MODEL = '''<mujoco><worldbody><geom type="plane" size="5 5 .1"/><body name="base" pos="0 0 .3"><freejoint/>
<geom name="box" type="box" size=".1 .1 .1"/><site name="imu"/><body name="arm" pos=".2 0 0"><joint name="hinge"/>
<geom size=".05"/></body></body></worldbody></mujoco>'''

CFGS = {
    "inertial": lambda: sn.ImuCfg(name="it", site="imu"),
    "joints": lambda: sn.JointSensorCfg(name="it", joints=".*"),
    "contact": lambda: sn.ContactSensorCfg(name="it", primary=sn.ContactMatch(mode="body", pattern="base")),
    "rays": lambda: sn.RayCasterCfg(name="it", body="base", pattern=sn.patterns.GridPatternCfg(size=(0.2, 0.2))),
    "touch": lambda: sn.ContactDepthProbeCfg(name="it", body="base", probe_local_pos=((0.0, 0.0, -0.1),)),
    "frames": lambda: sn.BodyStateCfg(name="it", body="base"),
    "cameras": lambda: sn.DepthCameraCfg(
        name="it", body="base", pattern=sn.patterns.PinholeCameraPatternCfg(width=4, height=4)),
}

def alone(family):
    refused.update(set(families) - needed(family))
    walk(packages[family])
    cfg = CFGS[family]()
    scene = sn.Scene(sn.MujocoEngine(MODEL, num_envs=2), [cfg])
    scene.step()
    scene[cfg].read()
    return scene[cfg].valid.tolist()

def forked(work, *arguments):
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            answer = work(*arguments)
        except BaseException as error:
            answer = repr(error)
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        answer = json.loads(stream.read())
    os.waitpid(child, 0)
    return answer

answers = {case: forked(footprint.measured, case) for case in ("imu", "imu/mujoco")}
refused.update(families)
core()
answers["core"] = loaded()
refused.clear()
answers |= {family: forked(alone, family) for family in families}
sys.stdout.write(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    """Result of the program: the footprint of an IMU, families that the core loaded, readings of each family."""
    asked = json.dumps([sorted(FAMILIES), {family: sorted(others) for family, others in BETWEEN_FAMILIES.items()}])
    program, root = [sys.executable, "-c", PROGRAM, asked], Path(__file__).parents[1]
    threads = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(program, cwd=root, env=threads, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("case", ["imu", "imu/mujoco"])
def test_an_imu_loads_and_builds_only_what_it_uses(answers: dict[str, Any], case: str) -> None:
    imu = answers[case]
    unused = ("cameras", "shapes", "patterns", "stream", "record", "wire", "view", "client", "presets", "drawing")
    unused += ("geometry.trace", *(f"sensors.{family}" for family in FAMILIES - {"inertial", "cameras"}))
    others = [name for name in imu["modules"] if f"{name}.".startswith(tuple(f"sensorium.{each}." for each in unused))]
    assert others == [] and len(imu["modules"]) <= 75
    for phase, (functions, files) in {"build": (600, 80), "step and read": (110, 22)}.items():
        assert imu[phase][0] <= functions and imu[phase][1] <= files, phase


def test_the_core_imports_no_family(answers: dict[str, Any]) -> None:
    assert answers["core"] == []


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_family_runs_without_the_families_that_it_does_not_use(answers: dict[str, Any], family: str) -> None:
    assert answers[family] == [True, True]

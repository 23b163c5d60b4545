"""Start-up: CPU time of each family of sensors before its first reading, in separate processes."""

import json
import os
import subprocess
import sys
import tempfile

from benchmarks.timing import repeats_of

Row = tuple[str, str, str]

FAMILIES = {
    "inertial": 'sn.ImuCfg(name="imu", site="imu", acc_noise=0.1, delay=0.004)',
    "joints": 'sn.JointSensorCfg(name="joints", joints=".*", noise={"position": 0.001})',
    "contact": 'sn.ContactSensorCfg(name="feet", primary=sn.ContactMatch(mode="body", pattern=".*_shank"))',
    "rays": 'sn.RayCasterCfg(name="scan", body="trunk", pattern=sn.patterns.GridPatternCfg(size=(0.4, 0.4)))',
    "lidar and radar": 'sn.LidarCfg(name="lidar", site="lidar"), sn.RadarCfg(name="radar", site="lidar")',
    "cameras": 'sn.DepthCameraCfg(name="camera", site="camera")',
    "touch": 'sn.ContactDepthProbeCfg(name="foot", body="FL_shank", probe_local_pos=((0.0, 0.0, -0.22),))',
    "heat": 'sn.TemperatureGridCfg(name="skin", body="trunk", grid_size=(4, 4, 2))',
    "frames": (
        'sn.FrameTransformerCfg(name="feet", body="trunk", '
        'target_frames=[sn.FrameTransformerCfg.FrameCfg(body="FL_shank")])'
    ),
    "native": 'sn.BuiltinSensorCfg(name="gyro", sensor_type="gyro", obj=sn.ObjRef(type="site", name="imu"))',
}
"""Configs of each family, for the bundled quadruped."""

RIG = ("inertial", "joints", "contact", "rays", "lidar and radar", "cameras")

FIRST_READING = """
import json, time
import torch
import warp as wp
began = time.process_time()
import sensorium as sn
from sensorium.compute.loading import watch_loading
from sensorium.demo import model_path
compiled = []
with watch_loading(lambda done, total, name: compiled.append(name)):
    sensors = [{configs}]
    scene = sn.Scene(sn.MujocoEngine(model_path(), keyframe="home"), sensors)
    scene.step(None, 5)
    for cfg in sensors:
        scene[cfg].read()
print(json.dumps([time.process_time() - began, sum(map(bool, compiled))]))
"""


def _first_reading(configs: str, cache: str) -> tuple[float, int]:
    """Return CPU seconds to the first reading beyond the imports of torch and warp, and how many kernels it compiled.

    Args:
        configs: source of the sensors' configs, separated by commas.
        cache: folder of Warp's kernel cache.
    """
    command = [sys.executable, "-c", FIRST_READING.replace("{configs}", configs)]
    environment = {**os.environ, "WARP_CACHE_PATH": cache}
    done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    seconds, compiled = json.loads(done.stdout.splitlines()[-1])
    return seconds, compiled


def run() -> list[Row]:
    """Measure every family with an empty and with a warm kernel cache, then a rig of six kinds."""
    rows = []
    rig = ", ".join(FAMILIES[name] for name in RIG)
    cases = {**FAMILIES, f"a rig: {', '.join(RIG)}": rig}
    for family, configs in list(cases.items())[: repeats_of(len(cases))]:
        with tempfile.TemporaryDirectory() as cache:
            cold, compiled = _first_reading(configs, cache)
            warm, _ = _first_reading(configs, cache)
        what = f"CPU time to the first reading beyond importing torch and warp: {family}"
        rows.append((what, f"{cold:.1f} s cold, {warm:.2f} s warm", f"{compiled} kernels compiled"))
    return rows

"""Benchmarks as data: `python -m benchmarks` runs them and prints a table. A slow result is not a failure."""

import ctypes.util
import os

if ctypes.util.find_library("EGL"):
    os.environ.setdefault("MUJOCO_GL", "egl")  # read when mujoco is imported

"""Random numbers of one field at one tick, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sensorium.random import _words, normal_numpy, uniform_numpy


def uniforms_numpy(*counter: Any) -> NDArray[np.float32]:
    """Return uniform numbers in [0, 1), float32 [n, count], for key, tick, env, episode, field and count."""
    return uniform_numpy(_words(*counter))


def normals_numpy(*counter: Any) -> NDArray[np.float32]:
    """Return standard normal numbers, float32 [n, count]; see `uniforms_numpy`."""
    return normal_numpy(_words(*counter))

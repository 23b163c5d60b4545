"""Names of topics and frames: `/env_0003/<sensor>/...` and `env_0003/<sensor>`, without the prefix for a single env."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import count

OPTICAL = "_optical"
"""End of the frame of a camera's images, with axes right, down, forward (REP 103)."""
WORLD = "world"


def ros_name(text: str) -> str:
    """Return a text as a valid relative name: letters, digits, single underscores; slashes separate its parts."""
    parts = [re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9_]", "_", part)) for part in text.split("/") if part]
    return "/".join(f"_{part}" if part[0].isdigit() else part for part in parts) or "_"


def numbered(name: str) -> Iterator[str]:
    """Yield a name, and then the name with the numbers from 2 on, for the first one that is not taken."""
    yield name
    yield from (f"{name.rstrip('_')}_{number}" for number in count(2))


def env_prefixes(envs: Sequence[int], num_envs: int) -> list[str]:
    """Return the start of the names of each env, ``"env_0003/"``, all of one length; empty for a scene with one env."""
    if num_envs == 1:
        return [""] * len(envs)
    width = max(4, len(str(max(envs, default=0))))
    return [f"env_{env:0{width}d}/" for env in envs]

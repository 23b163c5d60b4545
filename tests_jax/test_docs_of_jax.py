"""The blocks of docs/jax.md run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "docs/jax.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```py\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def test_blocks_run(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for block in BLOCKS:
        exec(compile(block, "docs/jax.md", "exec"), names)
    assert "(4, 5) (4, 4)" in capsys.readouterr().out

"""The gallery page shows all pictures that its example makes, and the committed ones are those of the example."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from sensorium.cameras.annotators import TYPES
from sensorium.cameras.camera_data import ALIASES
from sensorium.cameras.lenses import LENSES

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs/gallery"


def test_page_shows_the_pictures_that_the_example_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every data type but mjlab's pair of ids and linear light, and every lens: names, and pixels but for edges."""
    monkeypatch.setattr(sys, "argv", ["19_gallery.py", str(tmp_path)])
    runpy.run_path(str(ROOT / "examples/19_gallery.py"))
    made = {path.name: path for path in tmp_path.iterdir()}
    fields = {ALIASES.get(path.stem, path.stem) for path in made.values()}
    assert fields == {*TYPES, *(f"lens_{kind}" for kind in LENSES)} - {"segmentation", "linear_rgb"}
    page = (ROOT / "docs/gallery.md").read_text(encoding="utf-8")
    shown = re.findall(r"!\[[^\]]{20,}\]\(gallery/(\w+\.png)\)", page)
    assert sorted(shown) == sorted(made) == sorted(path.name for path in FOLDER.iterdir())
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 1_000_000
    for name, path in made.items():
        now, then = (matplotlib.image.imread(each) for each in (path, FOLDER / name))
        assert now.shape == then.shape and (np.abs(now - then).max(axis=-1) > 0.02).mean() < 0.01, name

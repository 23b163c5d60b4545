"""Every sensor has a page with a picture, and every picture is drawn by a working script.

The page of a sensor is named after its kind, `docs/sensors/KIND.md`; it shows `docs/images/KIND.png`, which
`docs/pictures/KIND.py` draws. The picture of the IMU is written by the demo.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import matplotlib
import matplotlib.image
import numpy as np
import pytest
from selection import gate

import sensorium.sensors.all  # noqa: F401 - registers the kinds
from sensorium import registry
from sensorium.client import client_sensor
from sensorium.stream import streamed

DOCS = Path(__file__).parents[1] / "docs"
IMAGES = DOCS / "images"
WITH_OTHER_DEFAULTS = ("ray_cast",)
"""Kinds that differ from another kind in their defaults only and share its page."""
OF_SCENES = [
    cfg_class.kind()
    for cfg_class in registry.registered()
    if cfg_class.__module__.startswith(("sensorium.sensors.", "sensorium.cameras."))
    and cfg_class.kind() not in WITH_OTHER_DEFAULTS
]
OF_STREAMS = [
    cls.definition().kind
    for cls in (*streamed.REGISTRY.registered().values(), *client_sensor.REGISTRY.registered().values())
    if cls.__module__.startswith("sensorium.")
]
KINDS = sorted([*OF_SCENES, *OF_STREAMS])
TOPICS = ("stages", "patterns", "taxels", "streaming", "trajectories", "reports", "training", "fit")
"""Pages with a picture that do not describe a kind of sensor."""
FURTHER = ("colors", "depth_errors", "hall", "image_sensor", "skin_stages")
"""Further pictures of those pages."""
ON_THE_FRONT = ("overview",)
"""Pictures of the front page."""
OF_THE_VIEW = ("live_view", "live_view_images", "live_view_sensors")
"""Pictures that `tests/view/test_live.py` makes."""
RENDERED = (*ON_THE_FRONT, *OF_THE_VIEW, "hall")
"""Pictures of scenes, which are larger and have no white background."""
PAGES = [
    *sorted(page for page in (DOCS / "sensors").glob("*.md") if page.stem != "index"),
    *(DOCS / f"{topic}.md" for topic in TOPICS),
]
SCRIPTS = sorted((DOCS / "pictures").glob("*.py"))
SLOW = ("colors", "event_camera", "hall", "lane_invasion", "trajectories")
GATED = [script for script in SCRIPTS[::3] if script.stem not in SLOW]
BY_DEMO = ("imu",)
"""Kinds whose picture `sensorium demo` writes, so that no script draws it (tests/test_cli.py)."""
IMAGE = re.compile(r"^!\[([^\]]+)\]\(([^)\s]+)\)$", re.MULTILINE)


def pixels(path: Path) -> np.ndarray:
    """Return a PNG as grey values `[row, column]`, from 0 (black) to 1 (white)."""
    return matplotlib.image.imread(path)[..., :3].mean(axis=-1)


def check_picture(path: Path, largest: int, most_ink: float = 0.5) -> None:
    """Check that a file is a PNG that fits a page and is not blank."""
    assert path.stat().st_size < largest
    image = pixels(path)
    rows, columns = image.shape
    assert 300 <= rows <= 1000 and 700 <= columns <= 1500
    ink = np.mean(image < 0.9)
    assert 0.02 < ink <= most_ink, "next to nothing is drawn, or nearly all is dark"


def largest_size(name: str) -> int:
    """Return the largest size of the file of a picture, bytes."""
    return 450_000 if name in (*BY_DEMO, *RENDERED) else 150_000


def most_ink(name: str) -> float:
    """Return the largest share of a picture that is not white."""
    return 1.0 if name in RENDERED else 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_sensor_has_a_page_with_its_picture(kind: str) -> None:
    page = DOCS / "sensors" / f"{kind}.md"
    assert page.exists(), f"{kind} has no page: write docs/sensors/{kind}.md"
    assert f"../images/{kind}.png" in [target for _, target in IMAGE.findall(page.read_text(encoding="utf-8"))]


def test_every_page_belongs_to_a_kind_and_every_picture_to_a_page() -> None:
    assert [page.stem for page in PAGES] == [*KINDS, *TOPICS]
    drawn = [*KINDS, *TOPICS, *FURTHER, *ON_THE_FRONT]
    assert sorted(image.stem for image in IMAGES.iterdir()) == sorted([*drawn, *OF_THE_VIEW])
    assert sorted([script.stem for script in SCRIPTS] + [*BY_DEMO]) == sorted(drawn)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_shows_an_existing_picture_with_alt_text(page: Path) -> None:
    shown = IMAGE.findall(page.read_text(encoding="utf-8"))
    assert shown
    for says, target in shown:
        path = (page.parent / target).resolve()
        assert len(says.split()) >= 4
        check_picture(path, largest_size(path.stem), most_ink(path.stem))


@pytest.mark.parametrize("script", gate(SCRIPTS, GATED), ids=lambda script: script.stem)
def test_a_script_draws_the_picture_of_its_page(script: Path, tmp_path: Path) -> None:
    """The script writes to the given path, in the size of the picture in the documentation."""
    before = sorted(IMAGES.iterdir())
    drawn = tmp_path / "drawn.png"
    with matplotlib.rc_context():
        runpy.run_path(str(script))["draw"](drawn)
        assert matplotlib.get_backend().lower() == "agg"
    check_picture(drawn, largest_size(script.stem), most_ink(script.stem))
    assert pixels(drawn).shape == pixels(IMAGES / f"{script.stem}.png").shape
    assert list(tmp_path.iterdir()) == [drawn] and sorted(IMAGES.iterdir()) == before

"""Run all benchmarks, or those with one of the given words in their name: `python -m benchmarks chain idle`.

With --save the rows are also written to a file for `python -m benchmarks.compare`.
"""

import argparse
import os
import platform
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import warp
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.compare import Saved
from benchmarks.timing import ONCE

Rows = list[tuple[str, str, str]]


def _run(function: str, *args: Any, **options: Any) -> Rows:
    """Call a function of a module of benchmarks, imported only now: not every environment has all packages."""
    module, _, name = function.partition(".")
    rows: Rows = getattr(import_module(f"benchmarks.{module}"), name)(*args, **options)
    return rows


BENCHMARKS: list[tuple[str, Callable[[], Rows]]] = [
    ("view", partial(_run, "view.run")),
    ("chain/1", partial(_run, "chain.run", 1)),
    ("chain/64", partial(_run, "chain.run", 64)),
    ("chain/4096", partial(_run, "chain.run", 4096)),
    ("idle", partial(_run, "scene.idle")),
    ("two_imus", partial(_run, "scene.two_imus")),
    ("capture/step", partial(_run, "capture.step")),
    ("capture/shards", partial(_run, "capture.shards")),
    ("capture/many/1", partial(_run, "capture.many_small")),
    ("capture/many/1024", partial(_run, "capture.many_large")),
    ("many_imus", partial(_run, "sensors.many_imus")),
    ("encoders", partial(_run, "sensors.encoders")),
    ("contacts", partial(_run, "sensors.contacts")),
    ("engines/64", partial(_run, "engines.fresh", 64)),
    ("engines/1024", partial(_run, "engines.fresh", 1024)),
    ("engines/control/64", partial(_run, "engines.control_step", 64)),
    ("engines/control/1024", partial(_run, "engines.control_step", 1024)),
    ("engines/trajectory/1", partial(_run, "engines.trajectory", 1)),
    ("engines/trajectory/64", partial(_run, "engines.trajectory", 64)),
    ("engines/bound", partial(_run, "adapters.bound", 1024)),
    ("engines/newton", partial(_run, "adapters.newton", 1024)),
    ("contact_physics/64", partial(_run, "sensors.contact_physics", 64)),
    ("contact_physics/1024", partial(_run, "sensors.contact_physics", 1024)),
    ("kinds/1", partial(_run, "sensors.kinds", 1)),
    ("kinds/4096", partial(_run, "sensors.kinds", 4096)),
    ("observer/64", partial(_run, "observer.options", 64)),
    ("observer/4096", partial(_run, "observer.options", 4096)),
    ("rays/mesh/1", partial(_run, "rays.scan", "mesh", 1)),
    ("rays/mesh/1024", partial(_run, "rays.scan", "mesh", 1024)),
    ("rays/hfield/1024", partial(_run, "rays.scan", "hfield", 1024)),
    ("rays/lidar/mesh", partial(_run, "rays.lidar", "mesh")),
    ("rays/lidar/hfield", partial(_run, "rays.lidar", "hfield")),
    ("rays/room", partial(_run, "rays.room")),
    ("rays/memory", partial(_run, "rays.memory")),
    ("cameras/terrain/16", partial(_run, "cameras.depth", "terrain", 16)),
    ("cameras/terrain/256", partial(_run, "cameras.depth", "terrain", 256)),
    ("cameras/room/16", partial(_run, "cameras.depth", "room", 16)),
    ("cameras/tabletop/16", partial(_run, "cameras.depth", "tabletop", 16, goal=2.5)),
    ("cameras/tabletop/256", partial(_run, "cameras.depth", "tabletop", 256, goal=2.5)),
    ("cameras/terrain/large", partial(_run, "cameras.depth", "terrain", 1, (480, 640), goal=8.0)),
    ("cameras/annotators/terrain", partial(_run, "cameras.annotators", "terrain", 16)),
    ("cameras/annotators/room", partial(_run, "cameras.annotators", "room", 16)),
    ("cameras/annotators/tabletop", partial(_run, "cameras.annotators", "tabletop", 16)),
    ("cameras/colors/terrain", partial(_run, "cameras.colors", "terrain", 16)),
    ("cameras/colors/room", partial(_run, "cameras.colors", "room", 16)),
    ("cameras/colors/tabletop", partial(_run, "cameras.colors", "tabletop", 16)),
    ("cameras/colors/large", partial(_run, "cameras.colors_large", "tabletop")),
    ("cameras/colors/large/terrain", partial(_run, "cameras.colors_large", "terrain")),
    ("cameras/colors/large/room", partial(_run, "cameras.colors_large", "room")),
    ("cameras/events", partial(_run, "cameras.events", "tabletop", 16)),
    ("cameras/fixed", partial(_run, "cameras.fixed")),
    ("cameras/memory", partial(_run, "cameras.memory")),
    ("cameras/cold", partial(_run, "cameras.cold")),
    ("solids/mesh", partial(_run, "solids.mesh")),
    ("skin/1", partial(_run, "skin.small")),
    ("skin/1024", partial(_run, "skin.large")),
    ("skin/kinds", partial(_run, "skin.kinds")),
    ("proximity", partial(_run, "proximity.fingertip")),
    ("discovery", partial(_run, "scene.discovery")),
    ("with_physics", partial(_run, "scene.with_physics")),
    ("memory", partial(_run, "scene.memory")),
    ("start", partial(_run, "start.run")),
    ("footprint", partial(_run, "footprint.run")),
    ("commands", partial(_run, "scene.commands")),
    ("stream", partial(_run, "stream.run")),
    ("generate", partial(_run, "generate.run")),
    ("generate/workers", partial(_run, "generate.data_set", 28, 20.0)),
    ("fit_coverage", partial(_run, "fit_coverage.run")),
    ("record", partial(_run, "record.run")),
    ("record/ros2_messages", partial(_run, "ros2_messages.run")),
]


def main(arguments: list[str]) -> None:
    """Print a table of each chosen benchmark as soon as it is ready."""
    parser = argparse.ArgumentParser("python -m benchmarks", description="Measure speed and memory.")
    parser.add_argument("words", nargs="*", help="run only benchmarks with one of these words in their name")
    parser.add_argument("--once", action="store_true", help="repeat nothing: see whether the benchmarks work")
    parser.add_argument(
        "--save", nargs="?", type=Path, const=Path("out/benchmarks"), metavar="FOLDER",
        help="also write the rows to FOLDER (default: out/benchmarks) as JSON, named after commit and machine",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    words = options.words
    if options.once:
        os.environ[ONCE] = "1"
    console = Console()
    chosen = [item for item in BENCHMARKS if not words or any(word in item[0] for word in words)]
    if not chosen:
        console.print(f"No benchmark matches {words}. Available: {', '.join(name for name, _ in BENCHMARKS)}.")
        raise SystemExit(2)
    console.print(
        f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__} with {torch.get_num_threads()} "
        f"threads, warp {warp.__version__}. Fastest of several interleaved rounds."
    )
    saved = None if options.save is None else Saved.here(options.save)
    for name, benchmark in chosen:
        with console.status(name):
            rows = benchmark()
        table = Table("what", "time or size", "against", title=name, title_justify="left")
        for row in rows:
            table.add_row(*map(escape, row))
        console.print(table)
        if saved is not None:
            saved.add(rows)
    if saved is not None:
        console.print(f"The rows are in {saved.path}. Compare two files with python -m benchmarks.compare A B.")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Run all benchmarks, or those with one of the given words in their name: `python -m benchmarks chain idle`."""

import os
import platform
import sys
from collections.abc import Callable

import torch
import warp
from rich.console import Console
from rich.table import Table

from benchmarks import (
    adapters,
    cameras,
    capture,
    chain,
    engines,
    observer,
    proximity,
    rays,
    record,
    ros2_messages,
    scene,
    sensors,
    skin,
    solids,
    start,
    stream,
    view,
)

BENCHMARKS: list[tuple[str, Callable[[], list[tuple[str, str, str]]]]] = [
    ("view", view.run),
    ("chain/1", lambda: chain.run(1)),
    ("chain/64", lambda: chain.run(64)),
    ("chain/4096", lambda: chain.run(4096)),
    ("idle", scene.idle),
    ("two_imus", scene.two_imus),
    ("capture/step", capture.step),
    ("capture/shards", capture.shards),
    ("capture/many/1", capture.many_small),
    ("capture/many/1024", capture.many_large),
    ("many_imus", sensors.many_imus),
    ("encoders", sensors.encoders),
    ("contacts", sensors.contacts),
    ("engines/64", lambda: engines.fresh(64)),
    ("engines/1024", lambda: engines.fresh(1024)),
    ("engines/control/64", lambda: engines.control_step(64)),
    ("engines/control/1024", lambda: engines.control_step(1024)),
    ("engines/bound", lambda: adapters.bound(1024)),
    ("engines/newton", lambda: adapters.newton(1024)),
    ("contact_physics/64", lambda: sensors.contact_physics(64)),
    ("contact_physics/1024", lambda: sensors.contact_physics(1024)),
    ("kinds/1", lambda: sensors.kinds(1)),
    ("kinds/4096", lambda: sensors.kinds(4096)),
    ("observer/1", lambda: observer.gather(1)),
    ("observer/4096", lambda: observer.gather(4096)),
    ("rays/mesh/1", lambda: rays.scan("mesh", 1)),
    ("rays/mesh/1024", lambda: rays.scan("mesh", 1024)),
    ("rays/hfield/1024", lambda: rays.scan("hfield", 1024)),
    ("rays/lidar/mesh", lambda: rays.lidar("mesh")),
    ("rays/lidar/hfield", lambda: rays.lidar("hfield")),
    ("rays/memory", rays.memory),
    ("cameras/terrain/16", lambda: cameras.depth("terrain", 16)),
    ("cameras/terrain/256", lambda: cameras.depth("terrain", 256)),
    ("cameras/room/16", lambda: cameras.depth("room", 16)),
    ("cameras/tabletop/16", lambda: cameras.depth("tabletop", 16, goal=2.5)),
    ("cameras/tabletop/256", lambda: cameras.depth("tabletop", 256, goal=2.5)),
    ("cameras/terrain/large", lambda: cameras.depth("terrain", 1, (480, 640), goal=8.0)),
    ("cameras/annotators/terrain", lambda: cameras.annotators("terrain", 16)),
    ("cameras/annotators/room", lambda: cameras.annotators("room", 16)),
    ("cameras/annotators/tabletop", lambda: cameras.annotators("tabletop", 16)),
    ("cameras/colors/terrain", lambda: cameras.colors("terrain", 16)),
    ("cameras/colors/room", lambda: cameras.colors("room", 16)),
    ("cameras/colors/tabletop", lambda: cameras.colors("tabletop", 16)),
    ("cameras/colors/large", cameras.colors_large),
    ("cameras/events", lambda: cameras.events("tabletop", 16)),
    ("cameras/fixed", cameras.fixed),
    ("cameras/memory", cameras.memory),
    ("cameras/cold", cameras.cold),
    ("solids/mesh", solids.mesh),
    ("skin/1", skin.small),
    ("skin/1024", skin.large),
    ("skin/kinds", skin.kinds),
    ("proximity", proximity.fingertip),
    ("discovery", scene.discovery),
    ("with_physics", scene.with_physics),
    ("memory", scene.memory),
    ("start", start.run),
    ("commands", scene.commands),
    ("stream", stream.run),
    ("record", record.run),
    ("record/ros2_messages", ros2_messages.run),
]


def main(words: list[str]) -> None:
    """Print one table with the rows of the chosen benchmarks."""
    console = Console()
    chosen = [item for item in BENCHMARKS if not words or any(word in item[0] for word in words)]
    if not chosen:
        console.print(f"No benchmark matches {words}. Available: {', '.join(name for name, _ in BENCHMARKS)}.")
        raise SystemExit(2)
    console.print(
        f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__} with {torch.get_num_threads()} "
        f"threads, warp {warp.__version__}. Fastest of several interleaved rounds."
    )
    table = Table("what", "time or size", "against")
    for name, benchmark in chosen:
        with console.status(name):
            rows = benchmark()
        for row in rows:
            table.add_row(*row)
        table.add_section()
    console.print(table)


if __name__ == "__main__":
    main(sys.argv[1:])

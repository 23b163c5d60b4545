"""Child process of tests: records a scene until it is killed, and prints the wall clock of each recorded frame."""

from __future__ import annotations

import sys
import time

from mcap_scenes import scene


def main(path: str, ros2: str) -> None:
    made = scene()
    with made.record(path, ros2=bool(ros2)):
        print("ready", flush=True)
        while True:
            made.update()
            print(time.time_ns(), made.tick, flush=True)
            time.sleep(0.001)


if __name__ == "__main__":
    main(*sys.argv[1:])

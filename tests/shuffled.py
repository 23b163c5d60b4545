"""Launches whose threads run in random order and in random pieces, to find races without a GPU."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby, pairwise
from typing import Any

import pytest

from sensorium.compute import Segment
from sensorium.compute.program import _Launch, _Shard

Piece = Callable[[], object]


@contextmanager
def shuffled(seed: int) -> Iterator[set[str]]:
    """Run the recorded launches of this block in pieces of one environment and one task, in random order.

    The items of a launch that may be shared among cores are cut at random places. All pieces of a launch run before
    the next launch. Launches that share memory for some environments run one after another on each environment. Items
    that only one thread may compute in order keep theirs.

    Yields:
        Names of the kernels that ran.
    """
    rng, ran, made = random.Random(seed), set[str](), dict[Segment, list[list[Piece]]]()

    def run(segment: Segment) -> None:
        if segment not in made:
            made[segment] = list(_steps(segment, rng))
            ran.update(launch.kernel.key for launch in segment._launches)
        for pieces in made[segment]:
            for piece in rng.sample(pieces, len(pieces)):
                piece()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Segment, "run", run)
        yield ran


def _steps(segment: Segment, rng: random.Random) -> Iterator[list[Piece]]:
    """Yield the pieces of each launch, or of launches that share memory."""
    envs = [(env, env + 1) for env in range(segment.compute.num_envs)]

    def shard(launches: list[Any], piece: tuple[int, int], items: tuple[int, int] | None = None) -> Piece:
        made = _Shard(segment.compute, launches, segment._mask, piece, items)

        def run(_keep: object = launches) -> None:  # a launch owns the array of its tasks
            made.run()

        return run

    for part, group in groupby(segment._launches, lambda launch: launch.part):
        if part is not None:
            launches = list(group)
            yield [shard(launches, env) for env in envs]
            continue
        for launch in group:
            if launch.tasks:
                dim = (1, *launch.dim[1:])
                tasks = [_Launch(launch.kernel, dim, [], tasks=[task]) for task in launch.tasks]
                yield [shard([task], env) for task in tasks for env in envs]
            elif launch.split:
                count = launch.dim[-1]
                cuts = sorted({0, count, *rng.sample(range(count), min(3, count))})
                yield [shard([launch], env, items) for env in envs for items in pairwise(cuts)]
            else:
                yield [shard([launch], env) for env in envs]

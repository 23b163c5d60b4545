"""Split launches: with one environment, the items of a launch are shared among the cores."""

from __future__ import annotations

import threading

import pytest
import torch
import warp as wp
from nursery import PATIENCE

from sensorium.compute import Compute, Rows, program
from sensorium.compute.graph import LaunchWorkers

wp.set_module_options({"enable_backward": False})


@wp.kernel
def _squares(rows: Rows, values: wp.array2d[wp.float32], out: wp.array2d[wp.float32]) -> None:
    i, k = wp.tid()
    item = rows.first + k
    out[rows.start + i, item] = values[rows.start + i, item] * values[rows.start + i, item]


@wp.kernel
def _running(rows: Rows, values: wp.array2d[wp.float32], out: wp.array[wp.float32]) -> None:
    i, _one = wp.tid()
    total = float(0.0)
    for k in range(values.shape[1]):
        total += values[rows.start + i, k]
    out[rows.start + i] = total


@pytest.mark.parametrize("items", [1, 2, 5, 4096])
def test_split_launch_gives_equal_results_and_later_launches_see_all_pieces(
    items: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "SHARD_ABOVE_S", 0.0)
    compute = Compute("cpu", 1, threads=3)
    values = torch.arange(items, dtype=torch.float32)[None] % 7.0
    squares, total = torch.zeros_like(values), torch.zeros(1)

    def hook() -> None:
        arrays = [wp.from_torch(tensor, dtype=wp.float32) for tensor in (values, squares, total)]
        compute.launch(_squares, (items,), arrays[:1], arrays[1:2], split=True)
        compute.launch(_running, (1,), arrays[1:2], arrays[2:])

    segment = compute.record(hook)
    for _ in range(program.TIMED_RUNS + 2):
        squares.zero_()
        total.zero_()
        segment.run()
        assert torch.equal(squares, values**2)
        assert total.item() == (values**2).sum().item()
    assert segment.shards == min(3, items)


def test_unsplittable_launch_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "SHARD_ABOVE_S", 0.0)
    compute = Compute("cpu", 1, threads=3)
    values, total = torch.ones(1, 4096), torch.zeros(1)
    arrays = [wp.from_torch(tensor, dtype=wp.float32) for tensor in (values, total)]
    segment = compute.record(lambda: compute.launch(_running, (1,), arrays[:1], arrays[1:]))
    for _ in range(program.TIMED_RUNS + 2):
        segment.run()
    assert segment.shards == 1 and total.item() == 4096.0


def test_launches_by_the_same_index_run_piece_by_piece() -> None:
    """Two launches by one word are one step; a launch by another word, or of another size, waits for all pieces."""
    compute = Compute("cpu", 1, threads=3, shards=3)
    values = torch.arange(7, dtype=torch.float32)[None] % 3.0
    steps = [torch.zeros_like(values) for _ in range(4)]
    words = ["row", "row", "tile", True]

    def hook() -> None:
        for before, after, word in zip([values, *steps], steps, words, strict=False):
            compute.launch(_squares, (7,), [wp.from_torch(before)], [wp.from_torch(after)], split=word)
        compute.launch(_squares, (4,), [wp.from_torch(values)], [wp.from_torch(steps[0])], split="row")

    segment = compute.record(hook)
    for _ in range(program.TIMED_RUNS + 2):
        segment.run()
        assert all(torch.equal(step, values**power) for step, power in zip(steps, (2, 4, 8, 16), strict=True))
    assert [len(step) for step in segment._steps] == [3, 3, 3, 3]


def test_a_thread_that_is_done_takes_the_next_piece() -> None:
    """One of two threads waits until the other has run the last of three pieces."""
    is_done, ran = threading.Event(), []

    def wait_for_last() -> None:
        assert is_done.wait(PATIENCE)
        ran.append("waited")

    def last() -> None:
        ran.append("last")
        is_done.set()

    LaunchWorkers(1).run([lambda: ran.append("first"), wait_for_last, last])
    assert ran == ["first", "last", "waited"]

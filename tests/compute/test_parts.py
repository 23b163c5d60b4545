"""Launches by parts of the environments: memory for some environments at a time."""

from __future__ import annotations

import pytest
import torch
import warp as wp

from sensorium.compute import Compute, Rows, kernel, masked_tid, place_of, program


@kernel
def fill(rows: Rows, given: wp.array[wp.int32], shared: wp.array[wp.int32]) -> None:
    env, item = masked_tid(rows)
    shared[place_of(rows, env)] = given[env] + item


@kernel
def take(rows: Rows, shared: wp.array[wp.int32], out: wp.array[wp.int32]) -> None:
    env, item = masked_tid(rows)
    out[env] = 10 * shared[place_of(rows, env)] + item


@pytest.mark.parametrize("envs", [1, 7, 11, 53])
@pytest.mark.parametrize(("threads", "shards", "most"), [(1, None, 4), (2, 2, 3), (3, 3, 100), (2, 2, 1)])
def test_each_env_reads_what_was_written_for_it(envs: int, threads: int, shards: int | None, most: int) -> None:
    """Recorded, sharded, captured and immediate launches give the same result, with memory for some envs only."""
    compute = Compute("cpu", envs, threads, capture=True, shards=shards)
    part = compute.part_of(most)
    assert part.envs <= most and part.places <= most * max(threads, shards or 1)
    given, out = torch.arange(100, 100 + envs, dtype=torch.int32), torch.zeros(envs, dtype=torch.int32)
    shared = torch.zeros(part.places, dtype=torch.int32)

    def hook() -> None:
        with compute.by_parts(part):
            compute.launch(fill, (1,), [given], [shared])
            compute.launch(take, (1,), [shared], [out])

    segment = compute.record(hook)
    for _ in range(program.CAPTURE_AFTER + 2):
        out.fill_(-1)
        segment.run()
        assert torch.equal(out, 10 * given)
    assert segment.is_captured
    out.fill_(-1)
    hook()
    assert torch.equal(out, 10 * given)


def test_masked_envs_are_left_alone() -> None:
    compute = Compute("cpu", 5)
    part = compute.part_of(2)
    given, out = torch.arange(5, dtype=torch.int32), torch.full((5,), -1, dtype=torch.int32)
    shared = torch.zeros(part.places, dtype=torch.int32)
    compute.reset_envs[:] = torch.tensor([0, 1, 0, 0, 1], dtype=torch.uint8)
    with compute.masked(compute.reset_envs), compute.by_parts(part):
        compute.launch(fill, (1,), [given], [shared])
        compute.launch(take, (1,), [shared], [out])
    assert out.tolist() == [-1, 10, -1, -1, 40]


def test_pieces_are_no_more_than_the_memory_has_places_for() -> None:
    compute = Compute("cpu", 8, threads=1)
    part = compute.part_of(2)
    shared, out = torch.zeros(part.places, dtype=torch.int32), torch.zeros(8, dtype=torch.int32)

    def hook() -> None:
        with compute.by_parts(part):
            compute.launch(fill, (1,), [torch.arange(8, dtype=torch.int32)], [shared])
            compute.launch(take, (1,), [shared], [out])

    compute.shards = 4
    segment = compute.record(hook)
    for _ in range(program.TIMED_RUNS + 1):
        segment.run()
    assert segment.shards == part.places == 2 and torch.equal(out, 10 * torch.arange(8, dtype=torch.int32))


@pytest.mark.parametrize("envs", [5, 40])
def test_work_in_parts_is_shared_in_several_pieces_per_core(envs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images differ in cost: a core that is done takes another piece. Each piece has its own places."""
    monkeypatch.setattr(program, "SHARD_ABOVE_S", 0.0)
    compute = Compute("cpu", envs, threads=2)
    part = compute.part_of(20)
    given, out = torch.arange(envs, dtype=torch.int32), torch.zeros(envs, dtype=torch.int32)
    shared = torch.zeros(part.places, dtype=torch.int32)

    def hook() -> None:
        with compute.by_parts(part):
            compute.launch(fill, (1,), [given], [shared])
            compute.launch(take, (1,), [shared], [out])

    segment = compute.record(hook)
    for _ in range(program.CAPTURE_AFTER + 2):
        out.fill_(-1)
        segment.run()
        assert torch.equal(out, 10 * given)
    assert segment.shards == min(2 * program.PIECES, envs) and segment.is_captured

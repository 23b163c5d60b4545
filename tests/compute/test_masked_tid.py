"""`masked_tid`: the indices of a thread, which ends where its environment is masked out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import warp as wp

from sensorium.compute import Compute, Rows, kernel, masked_tid
from sensorium.errors import RegistrationError


@wp.struct
class CountTask:
    """One array to count in."""

    values: wp.array2d[wp.float32]


@kernel
def _count(rows: Rows, values: wp.array2d[wp.float32]) -> None:
    """Count the threads; the docstring and a condition surround the line that is replaced."""
    env, column = masked_tid(rows)
    if column > 0:
        values[env, column] = values[env, column] + 1.0


@kernel
def _count_task(rows: Rows, tasks: wp.array[CountTask]) -> None:
    k, env, column = masked_tid(rows)
    tasks[k].values[env, column] = tasks[k].values[env, column] + 10.0


def test_threads_of_masked_environments_end_and_others_know_their_environment() -> None:
    compute = Compute("cpu", 3)
    compute.reset_envs.copy_(torch.tensor([1, 0, 1]))
    values = torch.zeros(3, 2)
    task = CountTask()
    task.values = wp.from_torch(values)
    with compute.masked(compute.reset_envs):
        compute.launch(_count, (2,), [], [wp.from_torch(values)])
        compute.launch_task(_count_task, (2,), task)
    assert values.tolist() == [[10.0, 11.0], [0.0, 0.0], [10.0, 11.0]]


def test_masked_function_outside_a_kernel_raises() -> None:
    with pytest.raises(RuntimeError, match=r"sensorium\.compute\.kernel"):
        masked_tid(Rows())


def _with_another_name(rows: Rows, values: wp.array2d[wp.float32]) -> None:
    world, column = masked_tid(rows)
    values[world, column] = 1.0


def _with_a_comment(rows: Rows, values: wp.array2d[wp.float32]) -> None:
    env, column = masked_tid(rows)  # the first column
    values[env, column] = 1.0


@pytest.mark.parametrize("function", [_with_another_name, _with_a_comment])
def test_kernel_with_masked_tid_on_another_kind_of_line_is_refused(function: Any) -> None:
    with pytest.raises(RegistrationError, match=rf"{function.__name__} .*Write env, item = masked_tid\(rows\)"):
        kernel(function)

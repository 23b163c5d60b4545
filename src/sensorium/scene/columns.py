"""Values of one group of terms as columns: options and memory in torch, random numbers in one launch.

Each call concatenates the terms to one row per environment. Options apply to rows in this order: infinity, noise, clip,
scale. Terms with a delay or a history keep their last values in rings `[slot, env, element]`. Rings advance once per
tick, so a second call at the same tick returns the same values. An environment that was reset fills all its slots with
the first value of the new episode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import warp as wp

from sensorium.compute import Compute, Rows, keeps_current, kernel, masked_tid
from sensorium.compute.rows import floats_at
from sensorium.errors import ConfigError
from sensorium.random import U32, Distribution, Uniform, add_to_8_envs, draw, normal_table, philox, stream_key
from sensorium.scene.terms import NORMAL_CLIP, ObsTerm, TermPart

if TYPE_CHECKING:
    from sensorium.scene.scene import Scene

DELAY = 0xFFFFFFFF
"""Random block of the delay, beyond those of the noise."""
PIECES = 16
"""Number of tensors that are concatenated at a time; a processor prefetches from few more."""
LEAST_VARIANCE = 1e-8
"""Variance that is added where a value is normalised."""


@wp.struct
class DrawBlock:
    """Up to four columns of one term, which share a random block."""

    key0: wp.uint32
    key1: wp.uint32
    block: wp.uint32
    column: wp.int32
    count: wp.int32
    kind: wp.int32
    a: wp.float32
    b: wp.float32


@kernel
def _add(
    rows: Rows, tick: U32, out: wp.uint64, width: int, blocks: wp.array[DrawBlock], table: wp.array[wp.vec3]
) -> None:
    env, k = masked_tid(rows)
    b = blocks[k]
    words = philox(tick, wp.uint32(rows.first_env + env), wp.uint32(rows.episode[env]), b.block, b.key0, b.key1)
    values = floats_at(out, env * width + b.column, b.count)
    for j in range(b.count):
        values[j] += draw(b.kind, b.a, b.b, values, words[j], table)


@kernel
def _add_by_8(
    rows: Rows, tick: U32, out: wp.uint64, width: int, blocks: wp.array[DrawBlock], table: wp.array[wp.vec3]
) -> None:
    eighth, k = wp.tid()
    env = 8 * eighth
    b = blocks[k]
    add_to_8_envs(
        tick, rows.first_env, rows.episode, env, b.block, b.key0, b.key1, b.kind, b.a, b.b, table, out, width, b.column,
        b.count,
    )  # fmt: skip


class Draws:
    """Random numbers that one launch adds to columns of a tensor.

    Args:
        compute: device and environments.
        drawn: key, first column, number of columns, first random block and distribution of each term.
        width: number of columns of the tensor.
    """

    def __init__(
        self, compute: Compute, drawn: Sequence[tuple[tuple[int, int], int, int, int, Distribution]], width: int
    ) -> None:
        blocks = [
            (*key, block + q // 4, column + q, min(4, size - q), distribution.kind, *astuple(distribution))
            for key, column, size, block, distribution in drawn
            for q in range(0, size, 4)
        ]
        table: Any = np.array(blocks, dtype=DrawBlock.numpy_dtype())  # type: ignore[attr-defined]
        self._compute = compute
        self._memory = torch.from_numpy(table.view(np.uint8)).to(compute.device)  # in the order of torch's stream
        array: Any = wp.array(ptr=self._memory.data_ptr(), shape=table.shape, dtype=DrawBlock, device=compute.wp_device)
        arguments = [compute.rows(compute.all_envs), 0, wp.uint64(0), width, array, normal_table(compute.wp_device)]
        envs = -(-compute.num_envs // 8) if compute.is_cpu else compute.num_envs
        self._command = compute.command(_add_by_8 if compute.is_cpu else _add, (envs, len(table)), arguments)

    @keeps_current
    def add(self, out: torch.Tensor, tick: int) -> None:
        """Add the numbers of a tick to a contiguous float32 tensor `[env, column]`."""
        self._command.set_param_at_index(1, tick % 2**32)
        self._command.set_param_at_index(2, out.data_ptr())
        self._command.launch(self._compute.stream)


class TermRun:
    """Ring of one term, or of all terms of a group whose rows move as a whole.

    Args:
        parts: the terms.
        compute: device and environments.
    """

    def __init__(self, parts: Sequence[TermPart], compute: Compute) -> None:
        (self._least, most), entries = parts[0].term.delays, max(parts[0].term.history, 1)
        self.delays, self._entries, self._depth = most - self._least + 1, entries, _depth(parts[0].term)
        self.name, self.size = parts[0].name, sum(math.prod(part.shape) for part in parts)
        self.width = entries * self.size
        envs, device = compute.num_envs, compute.device
        self.ring = torch.zeros(self._depth, envs, self.size, device=device)
        self._slots = list(self.ring.unbind())
        self._backwards = 2 * self._slots[::-1]
        if self.delays > 1:
            copies = torch.zeros(entries, envs, self.size, device=device)
            self._envs, self._ages = (torch.arange(count, device=device) for count in (envs, entries))
            self._places = torch.zeros(entries, envs, dtype=torch.int64, device=device)
            self._index = torch.zeros_like(self._places)
            self._copied = self.ring.flatten(0, 1), self._index.flatten(), copies.flatten(0, 1)
            self._copies = list(copies.unbind())

    def slot(self, head: int) -> torch.Tensor:
        """Return the memory of the newest value `[env, element]`."""
        return self._slots[head % self._depth]

    def set_delays(self, drawn: torch.Tensor) -> None:
        """Set the delay of each environment from a number between 0 and `delays`, float32 [env]."""
        late = drawn.long().clamp_(max=self.delays - 1).add_(self._least)
        torch.sub(-self._ages[:, None], late, out=self._places)

    def shown(self, head: int) -> list[torch.Tensor]:
        """Return the values shown `[env, element]`, the newest first."""
        if self.delays == 1:
            first = self._depth - 1 - (head - self._least) % self._depth
            return self._backwards[first : first + self._entries]
        torch.add(self._places, head, out=self._index).remainder_(self._depth).mul_(len(self._envs)).add_(self._envs)
        source, index, copies = self._copied
        torch.index_select(source, 0, index, out=copies)
        return self._copies


class TermColumns:
    """Terms of one group of an observer, with their options and memory.

    Args:
        scene: scene of the sensors.
        group: name of the group: random numbers and saved memory depend on it.
        parts: the terms.
        far: finite value that replaces infinity, or infinity.
        stacked: number of values in the history if that is an axis before the columns, otherwise 0.

    Attributes:
        key: identification of the saved state; empty without memory.

    Raises:
        ConfigError: the noise or the scale of a term does not fit its field.
    """

    def __init__(self, scene: Scene, group: str, parts: Sequence[TermPart], far: float, stacked: int) -> None:
        compute, terms = scene.compute, [part.term for part in parts]
        self._clock, self._stacked, self._sizes = scene.clock, stacked, [math.prod(part.shape) for part in parts]
        self.key = ""
        self._counts, self._head, self._tick, self._episodes, self._is_cpu = False, 0, -1, -1, compute.is_cpu
        sizes, starts, device = self._sizes, np.cumsum([0, *self._sizes]).tolist(), compute.device
        keys = {part.name: stream_key(scene.seed, f"{group}/{part.name}", "observation") for part in parts}
        self._steps: list[Callable[[torch.Tensor], object]] = []
        if math.isfinite(far):
            self._steps.append(lambda row: row.nan_to_num_(math.nan, far, -far))
        drawn = zip(keys.values(), starts, sizes, map(_noise, parts), strict=False)
        if noisy := [(key, start, size, 0, noise) for key, start, size, noise in drawn if noise and size]:
            noise = Draws(compute, noisy, starts[-1])
            self._steps.append(lambda row: noise.add(row, scene.clock.tick))
        clips = np.array([term.clip or (-math.inf, math.inf) for term in terms], np.float32)
        if np.isfinite(clips).any():
            low, high = _numbers(clips.repeat(sizes, axis=0), device)
            self._steps.append(lambda row: row.clamp_(low, high))
        scales = np.concatenate([_scale(part) for part in parts])[:, None]
        if (scales != 1.0).any():
            (scale,) = _numbers(scales, device)
            self._steps.append(lambda row: row.mul_(scale))

        depths = [_depth(term) for term in terms]
        remembers = max(depths) > 1
        nbytes = 4 * compute.num_envs * int(np.dot(sizes, depths)) if remembers else 0
        compute.memory.check(nbytes, "history", max(depths), "Observer")
        is_whole = len({delay for term in terms for delay in term.delays}) == 1 and (
            stacked > 0 or all(term.history < 2 for term in terms)
        )
        self._runs = [TermRun(each, compute) for each in ([parts] if is_whole else zip(parts)) if remembers]
        self._drawn = [run for run in self._runs if run.delays > 1]
        self._seen = torch.full_like(scene.clock.episode, -2)
        late = [(keys[run.name], k, 1, DELAY, Uniform(0.0, run.delays)) for k, run in enumerate(self._drawn)]
        self._delay = Draws(compute, late, len(late)) if late else None

        normalises = np.repeat([term.normalise for term in terms], sizes)
        self._sums: torch.Tensor | None = None
        """float64 [4, element]: number of values, sum of squared deviations, mean and factor."""
        if normalises.any():
            spans = np.split(np.arange(starts[-1]), starts[1:-1])
            tiles = [np.tile(span, max(term.history, 1)) for span, term in zip(spans, terms, strict=True)]
            element = np.tile(np.arange(starts[-1]), stacked) if stacked else np.concatenate(tiles)
            limits = np.where(normalises, NORMAL_CLIP, math.inf).astype(np.float32)[element]
            self._limits = _numbers(np.stack([-limits, limits], 1), device)
            self._element = torch.from_numpy(element).to(device)
            self._sums = torch.zeros(4, starts[-1], dtype=torch.float64, device=device)
            self._sums[3] = 1.0
            self._moments = self._sums.unbind()
            self._bound, self._least, self._zero = (
                torch.from_numpy(np.asarray(each)).to(device)
                for each in (np.where(normalises, math.inf, 0.0), np.where(normalises, LEAST_VARIANCE, 1.0), 0.0)
            )
            self._away = torch.zeros(compute.num_envs, starts[-1], dtype=torch.float64, device=device)
            self._size, self._finite = torch.zeros_like(self._away), self._away > 0.0

        if self._runs or self._sums is not None:
            named = zip(keys, sizes, terms, strict=True)
            self.key = " ".join(f"{group}/{name}*{size}{term.delays}{term.history}" for name, size, term in named)
        self._by_rows = len(self._runs) < 2 or bool(self._steps) or self._sums is not None
        step = max(PIECES // max(max(term.history, 1) for term in terms), 1)
        parted = [self._runs[k : k + step] for k in range(0, len(self._runs), step)]
        self._joined = [
            (
                slice(k * step, (k + 1) * step),
                torch.empty(compute.num_envs, sum(run.width for run in runs), device=device),
            )
            for k, runs in enumerate(parted)
            if len(parted) > 1 and not stacked
        ]
        has_row = self._by_rows and len(self._runs) > 1  # otherwise rows are written into the ring or the result
        self._row = torch.empty(compute.num_envs, starts[-1], device=device) if has_row else None

    def bind(self, values: Sequence[torch.Tensor]) -> None:
        """Use new memory of the terms, tensors `[env, ...]` whose addresses do not change."""
        flat = [value.detach().view(len(value), size) for value, size in zip(values, self._sizes, strict=True)]
        self._sources = [each if each.dtype == torch.float32 else torch.empty_like(each).float() for each in flat]
        pairs = [pair for pair in zip(self._sources, flat, strict=True) if pair[0] is not pair[1]]
        self._converted, self._others = ([pair[k] for pair in pairs] for k in (0, 1))
        self._is_plain = not (pairs or self._steps or self._runs or self._stacked or self._sums is not None)
        self._values = self._sources
        if self._row is not None:
            self._values = list(torch.split(self._row, [run.size for run in self._runs], 1))

    # One observation --------------------------------------------------------------------------------------------------

    def run(self, learns: bool) -> torch.Tensor:
        """Return the values of the current tick in new memory, float32 `[env, column]` or `[env, history, column]`.

        Args:
            learns: whether running statistics follow new values.
        """
        if self._is_plain:
            return torch.cat(self._sources, 1)
        if is_new := self._clock.tick != self._tick:
            self._tick = self._clock.tick
            self._head += 1
        slots = [run.slot(self._head) for run in self._runs]
        if self._converted:
            torch._foreach_copy_(self._converted, self._others)
        if self._by_rows:
            out = row = torch.cat(self._sources, 1, out=slots[0] if len(slots) == 1 else self._row)
            for step in self._steps:
                step(row)
        if len(slots) > 1:
            torch._foreach_copy_(slots, self._values)
        if slots:
            if self._episodes != self._clock.episodes:
                self._start_again(slots)
            shown = [run.shown(self._head) for run in self._runs]
            for runs, joined in self._joined:
                torch.cat(list(chain.from_iterable(shown[runs])), 1, out=joined)
            pieces = chain.from_iterable(zip(*shown, strict=True) if self._stacked else shown)
            out = torch.cat([joined for _, joined in self._joined] or list(pieces), 1)
        if self._sums is not None:
            if is_new and learns and not self._counts:  # the first values are normalised with their own statistics
                self._learn(row)
            mean, factor = self._sums[2:].float().index_select(1, self._element)
            if is_new and learns and self._counts:
                self._learn(row)
            self._counts |= is_new and learns
            out.sub_(mean).mul_(factor).clamp_(*self._limits)
        return out.view(len(out), self._stacked, -1) if self._stacked else out

    def _start_again(self, slots: list[torch.Tensor]) -> None:
        """Fill the rings of new episodes with their first values, and draw their delays."""
        first, self._episodes = self._seen != self._clock.episode, self._clock.episodes
        chosen = first.nonzero()[:, 0] if self._is_cpu else None
        for run, newest in zip(self._runs, slots, strict=True):
            if chosen is not None:
                run.ring[:, chosen] = newest[chosen]
            else:  # the host would wait for the number of chosen environments
                torch.where(first[:, None], newest.clone(), run.ring, out=run.ring)
        self._seen.copy_(self._clock.episode)
        if self._delay is not None:
            drawn = torch.zeros(len(first), len(self._drawn), device=first.device)
            self._delay.add(drawn, 0)
            for run, delays in zip(self._drawn, drawn.T, strict=True):
                run.set_delays(delays)

    def _learn(self, row: torch.Tensor) -> None:
        """Include the finite values of all environments in the statistics."""
        count, squares, mean, factor = self._moments
        away = self._away.copy_(row)
        finite = torch.lt(torch.abs(away, out=self._size), self._bound, out=self._finite)
        new = finite.sum(0)
        if not self._counts:  # otherwise deviations are from the mean so far
            mean.copy_(torch.where(finite, away, self._zero).sum(0).div_(new.clamp(min=1)))
        total = torch.where(finite, away.sub_(mean), self._zero, out=away).sum(0)
        count += new
        divisor = count.clamp(min=1)
        share = total / divisor
        mean += share
        squares += away.square_().sum(0).sub_(share.mul_(total)).clamp_(min=0)
        torch.rsqrt(divisor.reciprocal_().mul_(squares).add_(self._least), out=factor)

    # State ------------------------------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Start all histories again at the next call; the statistics are kept."""
        self._seen.fill_(-2)
        self._tick = self._episodes = -1

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return all tensors that must be saved to resume."""
        rings = {f"ring/{k}": run.ring for k, run in enumerate(self._runs)}
        return rings | {"seen": self._seen} | ({} if self._sums is None else {"sums": self._sums})

    def counters(self) -> dict[str, int]:
        """Return the host's counters, which must be saved to resume."""
        return {"head": self._head, "tick": self._tick, "counts": int(self._counts)}

    def load(self, tensors: dict[str, torch.Tensor], counters: dict[str, int]) -> None:
        """Restore the results of `tensors` and `counters`."""
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])
        self._head, self._tick, self._counts = counters["head"], counters["tick"], bool(counters["counts"])
        self._episodes = -1


def _depth(term: ObsTerm) -> int:
    """Return the number of values that a term keeps."""
    return term.delays[1] + max(term.history, 1)


def _numbers(table: np.ndarray[Any, np.dtype[np.float32]], device: str) -> list[Any]:
    """Return each column of a table as a number if all its rows are equal, otherwise as a tensor."""
    is_same = bool((table == table[0]).all())
    return table[0].tolist() if is_same else list(torch.from_numpy(table.T.copy()).to(device))


def _noise(part: TermPart) -> Distribution | None:
    """Return the noise of a term."""
    noise = part.term.distribution
    if noise is not None and part.spec.kind in ("rotation", "id", "flag"):
        title, fix = f"ObsTerm({part.name!r})", "Give the noise of a rotation in the config of its sensor."
        raise ConfigError.single(title, "noise", part.term.noise, f"no noise for a {part.spec.kind}", fix)
    return noise


def _scale(part: TermPart) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the factor of each element of a term."""
    scale = 1.0 if part.term.scale is None else part.term.scale
    try:
        return np.broadcast_to(np.asarray(scale, np.float32), part.shape).flatten()
    except ValueError:
        expected = f"a number, or factors that fit {list(part.shape)}"
        raise ConfigError.single(f"ObsTerm({part.name!r})", "scale", scale, expected) from None

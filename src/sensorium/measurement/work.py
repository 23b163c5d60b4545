"""Work of one sample: ordered segments of launches, created from the plans and buffers of some sensors.

    raw -> physics imperfections -> transform -> hardware imperfections -> post-process -> frozen -> delay -> read

Truth takes the path raw -> transform -> post-process only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import warp as wp

from sensorium.compute import SAMPLE, Rows, is_first, kernel, masked_tid, mode_now
from sensorium.compute.graph import launching
from sensorium.compute.program import Call, Segment
from sensorium.measurement.buffers import NAN_VALUE, SensorBuffers
from sensorium.measurement.chain import EVERYTHING, NOISE, QUANTISE, WALK_AND_BIAS, ChainTable
from sensorium.measurement.plan import is_recorded
from sensorium.measurement.record import Record, copy_word, words_of
from sensorium.spec import FieldSpec

ALWAYS, ON_SAMPLE, ON_FIRST = 0, 1, 2
AFTER_NOISE = ("noise", "bias", "saturation", "dropout", "post")
"""Places of stages after the noise, in order."""
WORDS = wp.constant(32)
"""Number of words that one thread copies."""


@kernel
def _move(rows: Rows, when: int, count: int, wide: int, source: wp.uint64, target: wp.uint64) -> None:
    env, piece = masked_tid(rows)
    if when == wp.static(ON_SAMPLE) and mode_now(rows) != SAMPLE:
        return
    if when == wp.static(ON_FIRST) and not is_first(rows, env):
        return
    first = env * count + piece * WORDS
    for at in range(first, wp.min(first + WORDS, (env + 1) * count)):
        copy_word(wide, source, at, target, at)


@kernel
def _clear_flags(rows: Rows, bad: wp.array2d[wp.uint8]) -> None:
    env, mount = masked_tid(rows)
    bad[env, mount] = wp.uint8(0)


@kernel
def _flag_nan(
    rows: Rows, columns: int, values: wp.array2d[wp.float32], bad: wp.array2d[wp.uint8], any_bad: wp.array[wp.int32]
) -> None:
    env, block = masked_tid(rows)
    for column in range(block * 64, wp.min(block * 64 + 64, columns)):
        if wp.isnan(values[env, column]):
            mount = column * bad.shape[1] / columns
            if bad[env, mount] == wp.uint8(0):
                bad[env, mount] = wp.static(wp.uint8(NAN_VALUE))
            any_bad[0] = 1


BEGIN, END, AT_SAMPLE = 0, 1, 2
"""Calls of `_observed_flags`: before and after an observed tick, and at a sample."""


@kernel
def _observed_flags(
    rows: Rows, when: int, bad: wp.array2d[wp.uint8], shown: wp.array2d[wp.uint8], observed: wp.array2d[wp.uint8]
) -> None:
    """Keep the shown sample's flags while ticks are observed; a sample inherits those of the ticks that led to it."""
    env, mount = masked_tid(rows)
    if when == wp.static(BEGIN):
        shown[env, mount] = bad[env, mount]
    elif when == wp.static(END):
        observed[env, mount] = wp.max(observed[env, mount], bad[env, mount])
        bad[env, mount] = shown[env, mount]
    else:
        if not is_first(rows, env):
            bad[env, mount] = wp.max(bad[env, mount], observed[env, mount])
        observed[env, mount] = wp.uint8(0)


@launching
def pipeline_work(members: Sequence[SensorBuffers], mask: torch.Tensor) -> list[Segment | Call]:
    """Return the work of one sample of some sensors in order, with one launch of the chain for all of them.

    Args:
        members: buffers of the sensors.
        mask: mask of the envs, `Compute.all_envs` or `Compute.reset_envs`.

    Returns:
        Segments in order. The chain's table follows changes of the knobs as long as they exist.
    """
    if not members:
        return []
    compute = members[0].compute
    works = [SensorWork(member, mask) for member in members]
    segments = [segment for work in works for segment in work.before_chain()]
    fused = [member for member in members if member.plan.is_fused]
    table = ChainTable(compute, [chain for member in fused for chain in member.chain_fields()])
    if table.count:
        segments.append(compute.record(partial(table.launch, EVERYTHING), mask))
        for member in fused:
            member.tables.add(table)
    for member in members:
        if member.poses is not None:
            segments.append(compute.record(member.poses.keep, mask, owner=member))
    segments += [segment for work in works for segment in work.after_chain()]
    return segments


class SensorWork:
    """Collector of the segments of one sensor, in order.

    Args:
        buffers: memory of the sensor, with its plan.
        mask: mask of the envs.
    """

    def __init__(self, buffers: SensorBuffers, mask: torch.Tensor) -> None:
        self._buffers, self._plan, self._mask = buffers, buffers.plan, mask
        self._compute = buffers.compute
        self._segments: list[Segment | Call] = []

    # One sample -------------------------------------------------------------------------------------------------------

    def before_chain(self) -> list[Segment | Call]:
        """Return the work of a sample before the chain of its group."""
        buffers, plan, hooks = self._buffers, self._plan, self._plan.hooks
        if not plan.checks_state:
            self._add(self._clear_flags)
        for records in {id(buffers.truths): buffers.truths, id(buffers.slots): buffers.slots}.values():
            self._age(records)
        if hooks.observe:
            self._hook(hooks.observe)
        self._truth_and_slot()
        if not plan.checks_state:
            self._add(partial(self._flag_nan, buffers.truth))
        if buffers.observers:
            self._add(partial(self._observed_flags, AT_SAMPLE))
        self._stages(buffers.slot, "physics")
        if hooks.transform:
            self._add(partial(hold_first, buffers))
            self._hook(hooks.transform, buffers.truth, buffers.truth_timeline, is_measured=False)
            self._hook(hooks.transform, buffers.slot, buffers.slot_timeline, is_measured=True)
        self._add(partial(hold_first, buffers))
        if plan.has_hardware:
            is_copied = plan.has_own_chain or plan.has_scale
            plain = [name for name in buffers.slot if is_copied or name not in plan.chained]
            self._add(partial(move, buffers, buffers.slot, buffers.work, ALWAYS, plain))
            self._stages(buffers.work, "scale")
        if plan.has_own_chain:
            self._hardware()
        if hooks.derive:
            self._hook(hooks.derive, buffers.work)
        if hooks.post:
            self._post(hooks.post)
        return self._segments

    def _truth_and_slot(self) -> None:
        """Fill the truth and, where there are branches, the measured slot."""
        buffers, hooks = self._buffers, self._plan.hooks
        if hooks.compute:
            self._hook(hooks.compute, buffers.truth, buffers.slot)
        elif hooks.fused:
            self._hook(hooks.fused, buffers.truth, buffers.slot, buffers.slot_timeline)
        else:
            assert hooks.raw is not None
            self._hook(hooks.raw, buffers.truth)
            if self._plan.has_branches:
                self._add(partial(move, buffers, buffers.truth, buffers.slot, ALWAYS))
                if hooks.physics:
                    self._add(partial(hold_first, buffers))
                    self._hook(hooks.physics, buffers.slot, buffers.slot_timeline)

    def after_chain(self) -> list[Segment | Call]:
        """Return the work of a sample after the chain of its group: fields not frozen by it, and the stamps."""
        self._segments = []
        buffers, plan, ring = self._buffers, self._plan, self._buffers.ring
        if ring is not None:
            names = [spec.name for spec in plan.specs if not (plan.is_fused and spec.name in plan.chained)]
            self._add(partial(ring.freeze, buffers.work_out, names))
            self._add(ring.dispatch)
        return self._segments

    def between_samples(self) -> list[Segment | Call]:
        """Return the work of a tick between samples: the sensor's `observe`; for stages, the truth and their work."""
        buffers, plan, hooks = self._buffers, self._plan, self._plan.hooks
        for hook in (hooks.observe, hooks.between):
            if hook:
                self._hook(hook)
        if not buffers.observers:
            return self._segments
        assert hooks.raw is not None
        self._add(partial(self._observed_flags, BEGIN))
        if not plan.checks_state:
            self._add(self._clear_flags)
        self._hook(hooks.raw, buffers.scratch)
        if not plan.checks_state:
            self._add(partial(self._flag_nan, buffers.scratch))
        for run in buffers.observers:
            self._add(partial(run.cfg.observe, buffers.scratch, run.states, run.key), run.cfg.is_recorded)
        self._add(partial(self._observed_flags, END))
        return self._segments

    # Segments ---------------------------------------------------------------------------------------------------------

    def _add(self, work: Callable[[], object], recorded: bool = True) -> None:
        """Add launches that are recorded now, or a call."""
        compute, owner = self._compute, self._buffers
        self._segments.append(compute.record(work, self._mask, owner) if recorded else Call(compute, work, self._mask))

    def _hook(self, hook: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        self._add(partial(hook, *args, **kwargs), is_recorded(hook))

    def _stages(self, record: Record, *places: str) -> None:
        """Add the stages at the given places of the chain."""
        for run in self._buffers.stages_at(*places):
            self._add(partial(run.cfg.apply, record, self._buffers.truth, run.states, run.key), run.cfg.is_recorded)

    # Parts of a sample ------------------------------------------------------------------------------------------------

    def _age(self, records: Sequence[Record]) -> None:
        """Shift every record to the next older one."""
        for newer, older in reversed(list(pairwise(records))):
            self._add(partial(move, self._buffers, newer, older, ON_SAMPLE))

    def _hardware(self) -> None:
        """Add the chain in launches of this sensor, or the hook that replaces it, between the stages."""
        buffers, hook = self._buffers, self._plan.hooks.hardware
        table = buffers.own_table
        assert table is not None
        if hook:
            self._hook(hook, buffers.work)
            self._stages(buffers.work, *AFTER_NOISE)
            return
        pending = 0
        for parts, places in ((NOISE, AFTER_NOISE[:1]), (WALK_AND_BIAS, AFTER_NOISE[1:3]), (QUANTISE, AFTER_NOISE[3:])):
            pending |= parts
            if parts == QUANTISE or buffers.stages_at(*places):
                if buffers.knobs.tables:
                    self._add(partial(table.launch, pending))
                pending = 0
            self._stages(buffers.work, *places)

    def _post(self, post: Callable[..., Any]) -> None:
        buffers = self._buffers
        branches = ((buffers.truth, buffers.truth_out), (buffers.work, buffers.work_out))
        for branch, (source, target) in enumerate(branches):
            self._age([target, *buffers.posts[branch]])
            self._add(partial(self._post_process, post, source, target, branch), is_recorded(post))

    def _post_process(self, post: Callable[..., Any], source: Record, target: Record, branch: int) -> None:
        timeline = self._buffers.post_timeline(branch)
        made = as_fields(post(source, timeline, is_measured=bool(branch)), self._plan.specs)
        if is_recorded(post):
            self._copy(made, target)
        else:
            target.copy_from(made)

    # Launches ---------------------------------------------------------------------------------------------------------

    def _clear_flags(self) -> None:
        self._compute.launch(_clear_flags, (self._buffers.bad.shape[1],), [self._buffers.bad])

    def _flag_nan(self, truth: Record) -> None:
        """Flag the envs whose truth contains NaN (infinity is a miss), for hooks that do not check it."""
        buffers = self._buffers
        for spec in self._plan.mid_specs:
            if spec.dtype == "float32" and spec.columns:
                values = truth[spec.name].view(self._compute.num_envs, -1)
                inputs = [spec.columns, values, buffers.bad, buffers.clock.bad]
                self._compute.launch(_flag_nan, (-(-spec.columns // 64),), inputs)

    def _observed_flags(self, when: int) -> None:
        buffers = self._buffers
        self._compute.launch(_observed_flags, (buffers.bad.shape[1],), [when, buffers.bad, *buffers.flags])

    def _copy(self, source: Mapping[str, torch.Tensor] | Record, target: Record) -> None:
        """Copy the result of a recorded `post_process`, tensors at fixed addresses."""
        for name in target:
            given, wanted = source[name], target[name]
            if given.shape != wanted.shape or given.dtype != wanted.dtype:
                got, expected = f"{tuple(given.shape)} {given.dtype}", f"{tuple(wanted.shape)} {wanted.dtype}"
                raise ValueError(f"post_process returned {name!r} as {got}, expected {expected}.")
            _move_tensor(self._buffers, given, wanted, ALWAYS)


def move(buffers: SensorBuffers, source: Record, target: Record, when: int, names: Sequence[str] | None = None) -> None:
    """Copy fields of a record to another (recordable launches): always, at samples, or at first samples only."""
    for name in source if names is None else names:
        _move_tensor(buffers, source[name], target[name], when)


def _move_tensor(buffers: SensorBuffers, source: torch.Tensor, target: torch.Tensor, when: int) -> None:
    words = words_of(source)
    inputs = [when, *words, words_of(target).address]
    buffers.compute.launch(_move, (-(-words.per_row // int(WORDS)),), inputs)


def hold_first(buffers: SensorBuffers) -> None:
    """Fill the older records, if any, with the first sample of an episode (launches)."""
    for records in (buffers.truths, buffers.slots):
        for older in records[1:]:
            move(buffers, records[0], older, ON_FIRST)


def begin_measured(buffers: SensorBuffers, raw: Record, slot: Record) -> None:
    """Initialise the measured branch with the truth (launches)."""
    move(buffers, raw, slot, ALWAYS)
    hold_first(buffers)


def as_fields(value: Any, specs: Sequence[FieldSpec]) -> Mapping[str, torch.Tensor] | Record:
    """Return the result of a `post_process` as field -> tensor: from a mapping, record, data object or lone tensor."""
    if isinstance(value, torch.Tensor):
        if len(specs) != 1:
            raise TypeError(f"post_process returned one tensor, expected the fields {[spec.name for spec in specs]}")
        return {specs[0].name: value}
    if isinstance(value, Mapping | Record):
        return value
    return {spec.name: getattr(value, spec.name) for spec in specs}

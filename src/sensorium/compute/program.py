"""Launches, segments of launches, and programs of segments.

A kernel in this package takes `rows: Rows` as its first argument and its thread index starts with the environment:

    @kernel
    def scale(rows: Rows, x_in: wp.array2d(dtype=float), x_out: wp.array2d(dtype=float)):
        i, column = wp.tid()
        env = rows.start + i
        if rows.mask[env] == wp.uint8(0):
            return
        x_out[env, column] = 2.0 * x_in[env, column]

It reads and writes only the rows of its own env. One recorded launch therefore serves three purposes: all envs at once,
a shard of envs on one core, or, with another mask, only the envs that were just reset.

A kernel used by many sensors takes each sensor's arguments as a task, a struct, so that one launch serves all of them
(`Compute.launch_task`):

    @kernel
    def scale_task(rows: Rows, tasks: wp.array[ScaleTask]):
        k, i, column = wp.tid()
        env = rows.start + i
        t = tasks[k]
        if rows.mask[env] == wp.uint8(0) or column >= t.x_in.shape[1]:
            return
        t.x_out[env, column] = 2.0 * t.x_in[env, column]

A `Segment` is a sequence of consecutive Warp launches with fixed arguments. A `Call` is one Python call, such as a
torch hook. A `Program` is an ordered list of segments and calls.

Launches are recorded once. The first runs of a segment replay the recorded launches individually. They are timed to
decide whether sharding pays. Once the segment has run often enough for a capture to pay as well, each shard is captured
as a graph and replayed by one call. The results of a segment are bit-identical in all cases: arguments are fixed, and
values that change are in device arrays, which are written in place.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain, groupby, pairwise
from math import inf, prod
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import torch
import warp as wp

from sensorium.compute import graph, loading
from sensorium.compute.devices import keeps_current, resolve_device
from sensorium.compute.memory import Memory, check_envs
from sensorium.compute.rows import Rows
from sensorium.errors import ConfigError, RegistrationError

if TYPE_CHECKING:
    from collections.abc import Iterator

if wp.config.log_level == wp.LOG_INFO:  # hides messages on kernel caches at the default log level
    wp.config.log_level = wp.LOG_WARNING

SHARD_ABOVE_S = 0.6e-3
"""Duration of a segment's recorded launches on one core above which it is split over the cores, s.

A captured segment is up to 0.1 ms faster, and passing work to another thread costs about 0.02 ms.
"""
TIMED_RUNS = 4
"""Timed runs of a segment before that decision; the first run, which may load a kernel, does not count."""
CAPTURE_AFTER = 32
"""Runs of a segment before it is captured on the CPU: a capture costs as much as it saves in about this many runs.

It costs 0.13 ms for each launch and saves 4 us in each run. On CUDA it costs little, and `TIMED_RUNS` are enough.
"""

_RUN = attrgetter("run")
ENV_BYTES = 256
"""Minimum memory of an environment, bytes; the state of every robot is larger."""

Function = TypeVar("Function", bound=Callable[..., Any])
Hook: TypeAlias = Callable[[], object]


def recorded(hook: Function) -> Function:
    """Mark a hook that only launches Warp kernels with fixed arguments: it is called once and its launches replayed."""
    hook.__recorded__ = True  # type: ignore[attr-defined]
    return hook


@dataclass(frozen=True, eq=False, slots=True)
class EnvPart:
    """Consecutive launches that share memory for some environments at a time; see `Compute.by_parts`.

    Attributes:
        envs: environments of one part.
        cores: maximum number of parts at the same time.
    """

    envs: int
    cores: int

    @property
    def places(self) -> int:
        """Environments in the shared memory: one part for each core."""
        return self.envs * self.cores


@dataclass(slots=True)
class _Launch:
    """One recorded launch over all envs.

    A launch with `split` can also be shared among cores along its last item axis. A launch with `tasks` runs many tasks
    at once: its threads are (task, env, *items), and its only argument besides rows is the array of tasks.
    """

    kernel: Any
    dim: tuple[int, ...]
    args: list[Any]
    split: bool = False
    tasks: list[Any] = field(default_factory=list)
    threads: int = 0
    """Number of threads that the tasks need; surplus threads, up to the largest task's items, return at once."""
    owners: frozenset[object] = frozenset()
    memory: torch.Tensor | None = None
    """Memory of the array of tasks."""
    part: EnvPart | None = None
    """Group of consecutive launches that all run on some envs before they run on the next."""

    def arguments(self, compute: Compute) -> list[Any]:
        """Return the kernel's arguments after `rows`; the array of tasks is created on first use."""
        if self.tasks and not self.args:
            dtype = self.kernel.adj.args[-1].type.dtype
            host = bytearray().join(bytes(task.__ctype__()) for task in self.tasks)
            self.memory = torch.frombuffer(host, dtype=torch.uint8).to(compute.device, copy=True)  # in stream order
            place = self.memory.data_ptr()
            self.args = [wp.array(ptr=place, shape=(len(self.tasks),), dtype=dtype, device=compute.wp_device)]
        return self.args

    def joined(self, other: _Launch) -> _Launch | None:
        """Return one launch of both launches' tasks; None if most of its threads would be idle."""
        dim = (self.dim[0] + other.dim[0], *map(max, self.dim[1:], other.dim[1:]))
        threads = self.threads + other.threads
        if prod(dim) > 2 * threads:
            return None
        tasks, owners = [*self.tasks, *other.tasks], self.owners | other.owners
        return _Launch(self.kernel, dim, [], tasks=tasks, threads=threads, owners=owners)


def _arguments(kernel: Any, given: list[Any]) -> list[Any]:
    """Return the arguments of a kernel with torch tensors as Warp arrays: only those can be captured on the CPU."""
    kinds = [argument.type for argument in kernel.adj.args][-len(given) :]
    if len(kinds) != len(given):
        return given  # Warp reports the missing arguments
    return [
        wp.from_torch(value, dtype=kind.dtype) if isinstance(value, torch.Tensor) else value
        for value, kind in zip(given, kinds, strict=True)
    ]


_TID = re.compile(r"^\s*(\w+(?:\s*,\s*\w+)*)\s*=\s*\w+\.tid\(\)", re.MULTILINE)


@cache
def _thread_axes(kernel: Any) -> frozenset[int]:
    """Return the numbers of axes into which a kernel unpacks its thread index; empty if it does not do so itself."""
    return frozenset(names.count(",") + 1 for names in _TID.findall(kernel.adj.source))


def _merged(launches: Sequence[_Launch]) -> list[_Launch]:
    """Merge the tasks of several owners into one launch per kernel.

    A task is moved to an earlier launch of its kernel, ahead of other owners' launches in between. It depends on none
    of them, as `Compute.launch_task` requires. It is never moved ahead of a launch of its own owner, or of one without
    an owner. All other launches keep their order.
    """
    out: list[_Launch] = []
    places: dict[object, list[int]] = {}  # positions of each kernel's tasks
    newest: dict[object, int] = {}  # position of each owner's last launch
    barrier = -1
    for launch in launches:
        after = max((newest.get(owner, -1) for owner in launch.owners), default=len(out))
        for place in places.get(launch.kernel, ()) if launch.tasks else ():
            if place > max(after, barrier) and (joined := out[place].joined(launch)) is not None:
                out[place] = joined
                break
        else:
            place = len(out)
            out.append(launch)
            if launch.tasks:
                places.setdefault(launch.kernel, []).append(place)
        newest.update(dict.fromkeys(launch.owners, place))
        if not launch.owners:
            barrier = place
    return out


class Compute:
    """Device, threads and masks shared by all launches of one engine and its scene.

    Args:
        device: torch device, ``"cpu"`` or ``"cuda:0"``.
        num_envs: number of environments.
        threads: number of CPU threads to shard over; None uses torch's number.
        capture: whether to replay segments as captured graphs instead of recorded launches, once they have run often
            enough.
        shards: number of pieces that every divisible segment is split into on the CPU; None measures whether sharding
            pays.
        first_env: global index of env 0, see `Scene`.
        memory: limits on allocations; None creates new ones.

    Raises:
        ConfigError: `shards` is less than 1.
    """

    def __init__(
        self,
        device: str,
        num_envs: int,
        threads: int | None = None,
        capture: bool = True,
        shards: int | None = None,
        first_env: int = 0,
        memory: Memory | None = None,
    ) -> None:
        if shards is not None and shards < 1:
            raise ConfigError.single("Compute", "shards", shards, "at least 1, or None to measure which segments pay")
        self.device = device = resolve_device(device)
        check_envs("Engine", num_envs, ENV_BYTES, device)
        with loading.lock:
            self.wp_device = wp.get_device(device)
        self.is_cpu = bool(self.wp_device.is_cpu)
        """Whether launches run on the host."""
        self.num_envs = num_envs
        self.first_env = first_env
        """Global index of env 0: random numbers of env k use `first_env + k` in their counter."""
        self.memory = Memory(device, num_envs) if memory is None else memory
        """Limits on the allocations of sensors while they are built."""
        self.threads = threads or min(torch.get_num_threads(), os.cpu_count() or 1)
        self.capture = capture
        """Whether to replay existing graphs, and to capture segments that have run often enough."""
        self.capture_after = CAPTURE_AFTER if self.is_cpu else TIMED_RUNS
        """Runs of a segment before it is captured; sharding is decided earlier."""
        self.shards = shards
        """As the argument; applies to segments that have run fewer than `TIMED_RUNS` times."""
        self.all_envs = torch.ones(num_envs, dtype=torch.uint8, device=device)
        """uint8 [env], all 1: the mask of ordinary launches."""
        self.reset_envs = torch.zeros(num_envs, dtype=torch.uint8, device=device)
        """uint8 [env], 1 for envs being reset: the mask of the reset programs."""
        self.time = torch.zeros(4, dtype=torch.int64, device=device)
        """int64 [4]: tick, mode, lag in ticks, tick at which the control step started; written by `Clock`."""
        self.reset_tick = torch.zeros(num_envs, dtype=torch.int64, device=device)
        """int64 [env], tick of the last reset."""
        self.episode = torch.zeros(num_envs, dtype=torch.int32, device=device)
        """int32 [env], number of resets so far, minus one."""
        with graph.launching:
            self._masks = {id(mask): wp.from_torch(mask) for mask in (self.all_envs, self.reset_envs)}
            self._words = [wp.from_torch(words) for words in (self.time, self.reset_tick, self.episode)]
            self._rows_of = {id(mask): self.rows(mask) for mask in (self.all_envs, self.reset_envs)}
        self.mask = self.all_envs
        """uint8 [env] mask of the envs that hooks currently work on."""
        self._recording: list[_Launch] | None = None
        self.recording = 0
        """Number of the current recording, whose launches run together; 0 for none."""
        self._recordings = 0
        self._is_loaded: dict[Any, bool] = {}
        """All kernels that were recorded or launched, each with whether it was loaded."""
        self._current: Any = None
        self._current_at = -1

    def __repr__(self) -> str:
        mode = "captured graphs" if self.capture else "recorded launches"
        shards = "" if self.shards is None else f", shards={self.shards}"
        return f"Compute(device={self.device!r}, num_envs={self.num_envs}, threads={self.threads}{shards}, {mode})"

    @property
    def is_loading(self) -> bool:
        """Whether another thread of this process compiles or loads a kernel; reliable if polled often."""
        return loading.is_loading()

    def recover(self) -> None:
        """Clear a recording or mask that an exception left open."""
        self._recording, self.recording, self.mask = None, 0, self.all_envs

    @contextmanager
    def masked(self, mask: torch.Tensor) -> Iterator[None]:
        """Restrict launches in this block to the envs of `mask` (`all_envs` or `reset_envs`)."""
        previous = self.mask
        try:
            self.mask = mask
            yield
        finally:
            self.mask = previous

    def launch(
        self,
        kernel: Any,
        items: Sequence[int],
        inputs: Sequence[Any],
        outputs: Sequence[Any] = (),
        *,
        split: bool = False,
    ) -> None:
        """Run a kernel over `(env, *items)`, or record it inside `record`. Its first argument, `rows`, is added.

        Args:
            kernel: Warp kernel whose first parameter is `rows: Rows`.
            items: sizes of the thread index after the env.
            inputs: further arguments; torch tensors or Warp arrays.
            outputs: arguments that the kernel writes.
            split: whether the kernel adds `rows.first` to its last index and its threads are independent. In a scene
                with one env, its items may then be shared among the cores.

        Raises:
            RegistrationError: the kernel unpacks another number of thread indices than env and the items.
        """
        arguments = _arguments(kernel, [*inputs, *outputs])
        self._add(_Launch(kernel, (self.num_envs, *items), arguments, split))

    def launch_task(self, kernel: Any, items: Sequence[int], task: Any) -> None:
        """Run or record one task of a kernel. Tasks of several sensors in one program are merged into one launch.

        A task reads the engine's state, the clock and memory of its own sensor. It writes memory of its own sensor (and
        the clock's flags), which no other sensor's task reads. The order of tasks of different sensors at the same tick
        therefore does not matter.

        Args:
            kernel: Warp kernel ``(rows: Rows, tasks: wp.array[Task])``. Its thread index is task, env, then the items.
                Threads beyond the items of a task must return.
            items: sizes of the thread index after task and env, for this task; the same number of axes for all tasks of
                a kernel.
            task: `wp.struct` instance. Its contents are fixed when it is recorded; its arrays are kept alive.

        Raises:
            RegistrationError: the kernel unpacks another number of thread indices than task, env and the items.
        """
        dim = (1, self.num_envs, *items)
        self._add(_Launch(kernel, dim, [], tasks=[task], threads=prod(dim)))

    def part_of(self, envs: int) -> EnvPart:
        """Return a part of at most some environments, for `by_parts`."""
        cores = min(max(self.threads, self.shards or 1), self.num_envs) if self.is_cpu else 1
        return EnvPart(max(min(envs, -(-self.num_envs // cores)), 1), cores)

    @contextmanager
    def by_parts(self, part: EnvPart) -> Iterator[None]:
        """Run the launches of this block one after another on a part of the environments, then on the next part.

        So they can share memory that holds only ``part.places`` environments. A kernel finds an environment in it by
        `place_of`. Tasks are not supported.
        """
        recording, launches = self._recording, list[_Launch]()
        self._recording = launches
        try:
            yield
        finally:
            self._recording = recording
        for launch in launches:
            launch.part = part
        if recording is not None:
            recording += launches
        elif launches := [launch for launch in launches if 0 not in launch.dim]:
            self._follow()
            _Shard(self, launches, self.mask, (0, self.num_envs)).run()

    @keeps_current
    def _add(self, launch: _Launch) -> None:
        for axes in _thread_axes(launch.kernel) - {len(launch.dim)}:  # its threads would write anywhere
            raise RegistrationError(
                f"kernel {launch.kernel.key} unpacks wp.tid() into {axes} indices, but the launch has "
                f"{len(launch.dim)} axes, {launch.dim}. Give the sizes after env only: launch adds env in front, and "
                "launch_task adds task and env."
            )
        if self._recording is not None:
            self._recording.append(launch)
            return
        if 0 in launch.dim:
            return
        self.load([launch.kernel])
        with graph.launching, loading.lock:
            args = [self._rows_of[id(self.mask)], *launch.arguments(self)]
            self._follow()
            wp.launch(launch.kernel, dim=launch.dim, inputs=args, device=self.wp_device, stream=self.stream)

    @keeps_current
    @graph.launching
    def record(self, hook: Hook, mask: torch.Tensor | None = None, owner: object | None = None) -> Segment:
        """Call `hook` once, recording its launches instead of running them, and return them as a segment.

        Args:
            hook: function with the launches; it is kept alive as long as the segment.
            mask: mask of the envs, `all_envs` (also for None) or `reset_envs`.
            owner: owner of the work: tasks of several owners may be merged into one launch. None preserves the order.
        """
        if self._recording is not None:
            raise RuntimeError("recordings cannot be nested")
        try:
            self._recording = []
            self._recordings += 1
            self.recording = self._recordings
            with self.masked(self.all_envs if mask is None else mask):
                hook()
            self._follow()
            for launch in self._recording:
                launch.owners = frozenset() if owner is None else frozenset((owner,))
                if 0 not in launch.dim:
                    self._is_loaded.setdefault(launch.kernel, False)
            return Segment(self, [hook], self.all_envs if mask is None else mask, self._recording)
        finally:
            self._recording, self.recording = None, 0

    def load(self, kernels: Iterable[Any] | None = None) -> None:
        """Compile and load kernels before their first launch.

        Args:
            kernels: kernels to load; None for all recorded ones.
        """
        kernels = self._is_loaded if kernels is None else kernels
        if wanted := [each for each in kernels if not self._is_loaded.get(each)]:
            loading.load(wanted, self.wp_device)
            self._is_loaded |= dict.fromkeys(wanted, True)

    def rows(self, mask: torch.Tensor, start: int = 0, first: int = 0, place: int = 0) -> Any:
        """Return a kernel's first argument.

        Args:
            mask: `all_envs` or `reset_envs`.
            start: env of the first thread.
            first: last item index of the first thread.
            place: place of that env in memory for some envs at a time.
        """
        rows = Rows()
        rows.start, rows.first, rows.place, rows.first_env = start, first, place, self.first_env
        rows.mask = self._masks[id(mask)]
        rows.time, rows.reset_tick, rows.episode = self._words
        return rows

    @property
    def stream(self) -> Any:
        """Torch's current stream as a Warp stream, so that both use the same order of work; None on the CPU."""
        if self.is_cpu:
            return None
        current: Any = torch.cuda.current_stream(self.device)
        if current.cuda_stream != self._current_at:
            self._current, self._current_at = wp.stream_from_torch(current), current.cuda_stream
        return self._current

    def _follow(self) -> None:
        """Make torch's current stream wait for Warp's own stream, e.g. for the copies that fill new Warp arrays."""
        if not self.is_cpu:
            self.stream.wait_stream(self.wp_device.stream)

    @keeps_current
    @graph.launching
    def command(self, kernel: Any, dim: Sequence[int], args: Sequence[Any]) -> Any:
        """Return a launch without env axis, run by `command.launch(compute.stream)`; its scalars may be changed."""
        self.load([kernel])
        with loading.lock:
            return wp.launch(kernel, dim=tuple(dim), inputs=list(args), device=self.wp_device, record_cmd=True)

    @cached_property
    def workers(self) -> graph.LaunchWorkers:
        """Threads that shards run on besides the caller's; created on first use."""
        return graph.LaunchWorkers(max(self.threads, self.shards or 1) - 1)


@dataclass(slots=True)
class Call:
    """A Python call in a program, with the mask that is active in it."""

    compute: Compute
    hook: Hook
    mask: torch.Tensor

    @keeps_current
    def run(self) -> None:
        """Call the hook."""
        with self.compute.masked(self.mask):
            self.hook()


class Segment:
    """Consecutive launches with fixed arguments. Created by `Compute.record`."""

    def __init__(self, compute: Compute, hooks: list[Hook], mask: torch.Tensor, launches: Sequence[_Launch]) -> None:
        self.compute, self._hooks, self._mask = compute, hooks, mask
        self._launches = [launch for launch in launches if 0 not in launch.dim]
        self._steps: list[list[_Shard]] = []
        self._runs = 0
        self._fastest = inf
        """Shortest timed run, s."""
        self.is_captured = False
        """Whether graphs exist; they are replayed while `compute.capture` is on."""

    def __repr__(self) -> str:
        names = [launch.kernel.key for launch in self._launches]
        return f"Segment({', '.join(names)}; {self.shards} shard(s))"

    @property
    def shards(self) -> int:
        """Number of pieces of the work: ranges of environments or, with a single environment, of a launch's items."""
        return max(map(len, self._steps), default=min(len(self._launches), 1))

    @classmethod
    def joined(cls, segments: Sequence[Segment]) -> Segment:
        """Join recorded segments under one mask into one segment, and merge tasks of several owners.

        A single segment is returned unchanged.
        """
        first = segments[0]
        if len(segments) == 1:
            return first
        launches = _merged([launch for each in segments for launch in each._launches])
        return cls(first.compute, [hook for each in segments for hook in each._hooks], first._mask, launches)

    def run(self) -> None:
        """Run the launches once.

        Raises:
            SensoriumError: a kernel could not be captured.
        """
        if self.is_captured and self.compute.capture:  # a replay needs no lock, which costs 3 us
            self._run_steps()
        else:
            self._launch()

    @keeps_current
    @graph.launching
    def _launch(self) -> None:
        if self._runs < TIMED_RUNS:
            self._run_timed()
            return
        if self.compute.capture:
            self._runs += 1
            if self._runs > self.compute.capture_after:
                self._capture()
        self._run_steps()

    def _run_steps(self) -> None:
        for shards in self._steps:
            if len(shards) == 1:
                shards[0].run()
            else:
                self.compute.workers.run([*map(_RUN, shards)])

    def _capture(self) -> None:
        for shards in self._steps:
            for shard in shards:
                shard.capture()
        self.is_captured = True

    def run_in_pieces(self, count: int) -> None:
        """Run the launches once in up to `count` pieces, one after another on this thread."""
        self._share(count)
        for shard in chain.from_iterable(self._steps):
            shard.run()

    def _run_timed(self) -> None:
        """Run on one core, and decide after a few runs whether sharding pays."""
        if self._launches and not self._steps:  # not earlier: most segments are joined to others first
            self._share(1)
        start = time.perf_counter()
        for (shard,) in self._steps:
            shard.run()
        seconds = time.perf_counter() - start
        self._runs += 1
        if self._runs > 1:  # the first run may load a kernel
            self._fastest = min(self._fastest, seconds)
        compute = self.compute
        if self._runs == TIMED_RUNS and compute.is_cpu and self._launches:
            count = compute.shards or (compute.threads if self._fastest > SHARD_ABOVE_S else 1)
            if count > 1:
                self._share(count)

    def _share(self, count: int) -> None:
        """Split the work over `count` cores: by environment or, with a single environment, by items of some launches.

        Launches without shared items remain whole, in order.
        """
        envs, compute, mask = self.compute.num_envs, self.compute, self._mask
        steps: list[list[_Shard]] = []  # assigned only when complete, because an interrupt may occur in between
        for by_items, group in groupby(self._launches, lambda launch: envs == 1 < count and launch.split):
            if by_items:
                for launch in group:
                    pieces = _pieces(launch.dim[-1], count)
                    steps.append([_Shard(compute, [launch], mask, (0, envs), items) for items in pieces])
            else:
                launches = list(group)
                cores = min([count, *(launch.part.cores for launch in launches if launch.part is not None)])
                shards = enumerate(_pieces(envs, cores))
                steps.append([_Shard(compute, launches, mask, piece, number=number) for number, piece in shards])
        self._steps, self.is_captured = steps, False


def _pieces(total: int, count: int) -> Iterable[tuple[int, int]]:
    """Return start and end of `count` or fewer pieces of nearly equal size, none of them empty."""
    count = min(count, total)
    return pairwise([total * i // count for i in range(count + 1)])


class _Shard:
    """The launches of a segment for a range of environments (and of items), with their graph."""

    @keeps_current
    @graph.launching
    def __init__(
        self,
        compute: Compute,
        launches: list[_Launch],
        mask: torch.Tensor,
        envs: tuple[int, int],
        items: tuple[int, int] | None = None,
        number: int = 0,
    ) -> None:
        self._compute = compute
        self._graph: Any = None
        self._commands: list[Any] = []
        compute.load([launch.kernel for launch in launches])
        for part, group in groupby(launches, lambda launch: launch.part):
            count, together = envs[1] - envs[0] if part is None else part.envs, list(group)
            place = 0 if part is None else number * part.envs
            for start in range(*envs, count):
                rows = compute.rows(mask, start, 0 if items is None else items[0], place)
                for launch in together:
                    self._record(launch, rows, min(start + count, envs[1]) - start, items)

    def _record(self, launch: _Launch, rows: Any, envs: int, items: tuple[int, int] | None) -> None:
        dim = list(launch.dim)
        dim[1 if launch.tasks else 0] = envs
        if items is not None:
            dim[-1] = items[1] - items[0]
        args = [rows, *launch.arguments(self._compute)]
        with loading.lock:
            command = wp.launch(launch.kernel, dim=dim, inputs=args, device=self._compute.wp_device, record_cmd=True)
        self._commands.append(command)

    def run(self) -> None:
        """Replay the graph; without a graph, or with capture off, run the recorded launches."""
        compute = self._compute
        stream = None if compute.is_cpu else compute.stream
        if self._graph is not None and compute.capture:
            wp.capture_launch(self._graph, stream)
        else:
            for command in self._commands:
                command.launch(stream)

    def capture(self) -> None:
        """Create the graph."""
        self._graph = graph.capture(self._commands, self._compute.wp_device)


class Program:
    """An ordered list of segments and calls.

    Args:
        segments: segments and calls; adjacent recorded segments are joined.
    """

    @graph.launching
    def __init__(self, segments: Iterable[Segment | Call]) -> None:
        self._segments: list[Segment | Call] = []
        for is_call, run in groupby(segments, lambda each: isinstance(each, Call)):
            if is_call:
                self._segments += run
            elif launching := [each for each in run if isinstance(each, Segment) and each._launches]:
                self._segments.append(Segment.joined(launching))

    def run(self) -> None:
        """Run all segments."""
        for segment in self._segments:
            segment.run()

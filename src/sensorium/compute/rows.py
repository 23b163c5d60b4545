"""First argument of every kernel of this package: the environments it works on, and the time.

The time is in arrays that the host writes before a launch (see `Clock`), so recorded launches remain valid.

Views of numbers at an address serve kernels that take addresses instead of arrays: one struct then serves fields of
any number and dtype. Strides of such a view are constants of the compiled kernel, so it is several times as fast as a
slice of an array.
"""

from __future__ import annotations

from typing import Any

import warp as wp

from sensorium.random import U32, Words, normals4, philox, uniforms4


@wp.struct
class Rows:
    """Environments that a launch works on, and the current time.

    Attributes:
        start: env of the first thread.
        first: last item index of the first thread, for kernels launched with `split`; the environment after the last
            one, for kernels with several environments per thread.
        place: place of the first thread's env in memory for some envs at a time; see `Compute.by_parts`.
        mask: uint8 [env]; rows of envs with 0 are left untouched.
        first_env: global index of env 0: random numbers are drawn for `first_env + env`.
        time: int64 [4], words of the clock; `tick_now` and the other functions of this module read them.
        reset_tick: int64 [env], tick of the last reset.
        episode: int32 [env], number of resets so far, minus one.
    """

    start: wp.int32
    first: wp.int32
    place: wp.int32
    mask: wp.array[wp.uint8]
    first_env: wp.int32
    time: wp.array[wp.int64]
    reset_tick: wp.array[wp.int64]
    episode: wp.array[wp.int32]


def masked_tid(rows: Rows) -> Any:
    """Return a thread's indices; the thread ends here if its environment is masked out.

    It is available in kernels declared with `kernel` only, which writes ``wp.tid()`` and the test of the mask in its
    place. Write it on a separate line, with the environment at its place in the launch:
    ``env, column = masked_tid(rows)``, or ``k, env, mount = masked_tid(rows)`` with the index of a task.
    """
    raise RuntimeError(
        "masked_tid(rows) is available in kernels only. Declare the kernel with sensorium.compute.kernel."
    )


@wp.func
def place_of(rows: Rows, env: int) -> wp.int32:
    """Return the place of an env in memory that holds only some envs at a time; see `Compute.by_parts`."""
    return rows.place + env - rows.start


@wp.func
def tick_now(rows: Rows) -> wp.int64:
    """Return the tick."""
    return rows.time[0]


@wp.func
def tick_captured(rows: Rows) -> wp.int64:
    """Return the tick of the engine's state: now, less the engine's lag."""
    return rows.time[0] - rows.time[2]


@wp.func
def tick_of_control(rows: Rows) -> wp.int64:
    """Return the start tick of the control step; -1 before the first."""
    return rows.time[3]


@wp.func
def ticks_after(tick: wp.int64, before: wp.int32) -> wp.int32:
    """Return the ticks from the tick with the low word `before` to `tick`, in [-2^31, 2^31).

    Sensors store the low word of a tick, ``wp.int32(tick)``, where the time since then is all that they need.
    """
    return wp.int32(wp.uint32(tick) - wp.uint32(before))


@wp.func
def note_tick(tick: wp.int64, words: wp.array2d[wp.float32], env: int) -> None:
    """Store a tick below 2^40 exactly in two float32 words of an env: high and low part."""
    words[env, 0] = float(tick / wp.int64(65536))
    words[env, 1] = float(tick % wp.int64(65536))


@wp.func
def ticks_since(tick: wp.int64, words: wp.array2d[wp.float32], env: int) -> wp.int64:
    """Return the number of ticks since the one that `note_tick` stored."""
    return tick - (wp.int64(words[env, 0]) * wp.int64(65536) + wp.int64(words[env, 1]))


@wp.func
def mode_now(rows: Rows) -> wp.int32:
    """Return the kind of the computed sample: `SAMPLE` or `FIRST` of `sensorium.compute`."""
    return wp.int32(rows.time[1])


@wp.func
def is_first(rows: Rows, env: int) -> wp.bool:
    """Return whether an env was reset at this tick, so that its states must be initialised."""
    return rows.reset_tick[env] == rows.time[0]


@wp.func
def words_at_tick(rows: Rows, env: int, tick: wp.int64, element: U32, key0: U32, key1: U32) -> Words:
    """Return the four random words of an env at a tick."""
    era = wp.uint32(rows.episode[env])
    return philox(wp.uint32(tick), wp.uint32(rows.first_env + env), era, element, key0, key1)


@wp.func
def sample_words(rows: Rows, env: int, element: U32, key0: U32, key1: U32) -> Words:
    """Return the four random words of an env's sample at this tick."""
    return words_at_tick(rows, env, rows.time[0], element, key0, key1)


@wp.func
def sample_uniforms(rows: Rows, env: int, element: U32, key0: U32, key1: U32) -> wp.vec4:
    """Return four uniform numbers in [0, 1) of an env's sample at this tick."""
    return uniforms4(sample_words(rows, env, element, key0, key1))


@wp.func
def sample_normals(rows: Rows, env: int, element: U32, key0: U32, key1: U32, table: wp.array[wp.vec3]) -> wp.vec4:
    """Return four standard normal numbers of an env's sample at this tick."""
    return normals4(sample_words(rows, env, element, key0, key1), table)


@wp.func
def captured_words(rows: Rows, env: int, element: U32, key0: U32, key1: U32) -> Words:
    """Return the four random words of an env's state at the tick at which it was captured."""
    return words_at_tick(rows, env, tick_captured(rows), element, key0, key1)


@wp.func
def episode_words(rows: Rows, env: int, element: U32, key0: U32, key1: U32) -> Words:
    """Return four random words that stay the same throughout an env's episode."""
    return words_at_tick(rows, env, wp.int64(0), element, key0, key1)


def _view_of(dtype: Any) -> Any:
    """Return a Warp function that views `count` values from value `start` at an address as an array."""
    size = wp.types.type_size_in_bytes(dtype)

    @wp.func
    def view(address: wp.uint64, start: int, count: int):  # type: ignore[no-untyped-def]  # Warp infers it
        return wp.array(ptr=address + wp.uint64(size) * wp.uint64(start), shape=(count,), dtype=dtype)

    return view


floats_at, doubles_at, bytes_at = _view_of(wp.float32), _view_of(wp.float64), _view_of(wp.uint8)
words_at, quads_at = _view_of(wp.int32), _view_of(wp.vec4i)
"""Views of `count` values from value `start` at an address: float32, float64, bytes, words of 4 bytes and of 16."""

"""Random numbers as a pure function of stream, time and index: the same bits on the CPU, on CUDA and in NumPy.

A generator with hidden state gives different numbers if it is read more often or if a sensor is added. This one has no
state: it hashes a key and a counter into four random words (Philox 4x32, seven rounds).

Key: two words, hashed from the seed, the sensor's name and a purpose such as ``"noise"``; see `stream_key`.

Counter: four uint32 words

    ====  ======================================================================
    word  meaning
    ====  ======================================================================
    c0    capture tick, modulo 2^32
    c1    global index of the environment: `first_env` of the scene plus its index there
    c2    episode of that environment
    c3    ``field_index << 24 | q``, with q = flat index of the element // 4
    ====  ======================================================================

Word j of the block belongs to element 4 q + j. So a field has at most 2^26 elements per environment, and a sensor at
most 256 fields.

Every function exists twice: as a Warp function for kernels and as a NumPy twin for checks and for work on the host.
Both round identically, because they only add and multiply and no product is fused with a sum. Warp compiles a function
with the options of the module that holds the *kernel*. So a module that calls `word_to_normal`, `normals4` or `draw` in
its kernels starts with ``wp.set_module_options({"fuse_fp": False})``; otherwise the last bit differs.

Sources: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011 (Philox; the
authors found that seven rounds pass BigCrush, the default is ten). The normal quantile that fills the table is that of
`statistics.NormalDist` (M. Wichura, "Algorithm AS 241", Applied Statistics 37, 1988).
"""

from __future__ import annotations

import functools
import hashlib
import math
import numbers
import operator
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import warp as wp
from numpy.typing import ArrayLike, NDArray

from sensorium.errors import ArgumentError, ConfigError, shown

if TYPE_CHECKING:  # Warp's scalars have no operators visible to a type checker
    U32: TypeAlias = Any
    U64: TypeAlias = Any
    F32: TypeAlias = Any
    F64: TypeAlias = Any
    Words: TypeAlias = Any
else:
    U32 = wp.uint32
    U64 = wp.uint64
    F32 = wp.float32
    F64 = wp.float64
    Words = wp.vec4ui


def _constant(value: Any) -> Any:
    return wp.constant(value)


UNIFORM: int = _constant(0)
"""Kind of `Uniform` for `draw`: a + (b - a) u."""
NORMAL: int = _constant(1)
"""Kind of `Normal` for `draw`: a + b z."""
CHOICE: int = _constant(2)
"""Kind of `Choice` for `draw`: one of the values."""

MAX_NORMAL: float = 6.337957859039307
"""Largest magnitude of a normal number, in standard deviations: the quantile at a tail of 2^-33."""

Value: TypeAlias = float | tuple[float, ...]
"""One number for all columns, or one per column."""

_ROUNDS = 7
_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_WORD_MASK = 0xFFFFFFFF
_MAX_FIELDS, _MAX_ELEMENTS = 1 << 8, 1 << 26

_PHILOX_M0: U64 = _constant(wp.uint64(_M0))
_PHILOX_M1: U64 = _constant(wp.uint64(_M1))
_PHILOX_W0: U32 = _constant(wp.uint32(_W0))
_PHILOX_W1: U32 = _constant(wp.uint32(_W1))
_WORD_BITS: U64 = _constant(wp.uint64(32))
_ONE: U32 = _constant(wp.uint32(1))
_SIGN_SHIFT: U32 = _constant(wp.uint32(31))
_UNIFORM_SHIFT: U32 = _constant(wp.uint32(8))
_UNIFORM_SCALE: float = _constant(2.0**-24)

# Segments of the normal table are numbered by a float32's exponent and the top 5 bits of its mantissa, from 0.5 on.
_OCTAVES, _PER_OCTAVE, _LOW_BITS = 32, 32, 18
_FIRST_SEGMENT = 126 * _PER_OCTAVE  # 126: the biased exponent of 0.5
_LOW_MASK = (1 << _LOW_BITS) - 1
_SEGMENT_SHIFT: U32 = _constant(wp.uint32(_LOW_BITS))
_SEGMENT_BASE: U32 = _constant(wp.uint32(_FIRST_SEGMENT))
_SEGMENT_MASK: U32 = _constant(wp.uint32(_LOW_MASK))
_SEGMENT_SCALE: float = _constant(2.0**-_LOW_BITS)


# Keys -----------------------------------------------------------------------------------------------------------------


def checked_seed(seed: Any, least: float = -math.inf) -> int:
    """Return a seed, or raise ArgumentError unless it is an integer of at least `least`."""
    try:
        value = operator.index(seed)
    except TypeError:
        value = None
    if value is None or value < least:
        raise ArgumentError(f"seed: got {shown(seed)}, expected an integer{' of at least 0' * (least == 0)}.")
    return value


def stream_key(seed: int, name: str, purpose: str) -> tuple[int, int]:
    """Return the key of one stream: two words below 2^32.

    The same arguments give the same key in every process, on every machine and in every release.

    Args:
        seed: the scene's seed, any integer.
        name: the sensor's name.
        purpose: use of the numbers, e.g. ``"noise"`` or ``"jitter"``.

    Raises:
        ArgumentError: the seed is not an integer.
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in (str(checked_seed(seed)), name, purpose):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))  # the length first: ("ab", "c") is not ("a", "bc")
        digest.update(data)
    word = digest.digest()
    return int.from_bytes(word[:4], "little"), int.from_bytes(word[4:], "little")


# The normal table -----------------------------------------------------------------------------------------------------


@functools.cache
def _normal_table() -> NDArray[np.float32]:
    """Return the quadratics that give the normal quantile.

    Segment s covers f in [2^(s // 32 - 1) (1 + (s % 32) / 32), start of the next segment), where f / 2^32 is the tail
    probability. Within a segment, z = c0 + t (c1 + t c2), t in [0, 1), interpolates the quantile at the three Chebyshev
    nodes. The last segment holds only f = 2^31, the median: z = 0.
    """
    octave, part = np.divmod(np.arange(_OCTAVES * _PER_OCTAVE), _PER_OCTAVE)
    nodes = 0.5 - 0.5 * np.cos(np.pi * np.array([1.0, 3.0, 5.0]) / 6.0)
    f = 2.0 ** (octave[:, None] - 1.0) * (1.0 + (part[:, None] + nodes) / _PER_OCTAVE)
    quantile = statistics.NormalDist().inv_cdf
    z = np.array([-quantile(p) for p in (f / 2.0**32).ravel().tolist()]).reshape(f.shape)
    table = np.zeros((_OCTAVES * _PER_OCTAVE + 1, 3), np.float32)
    table[:-1] = z @ np.linalg.inv(np.vander(nodes, increasing=True)).T
    table.flags.writeable = False
    return table


@functools.cache
def _device_table(alias: str) -> wp.array[wp.vec3]:
    return wp.array(_normal_table(), dtype=wp.vec3, device=alias)


def normal_table(device: Any = None) -> wp.array[wp.vec3]:
    """Return the normal table on a device, ``vec3[1025]``; one copy per device.

    Call it once before capturing a graph: the first call on a device allocates.

    Args:
        device: a Warp device or its name; None means the current one.
    """
    return _device_table(wp.get_device(device).alias)


# Warp -----------------------------------------------------------------------------------------------------------------


@wp.func
def philox(c0: U32, c1: U32, c2: U32, c3: U32, k0: U32, k1: U32) -> Words:
    """Return the four random words of one counter under one key: Philox 4x32-7 (Salmon et al. 2011)."""
    x0 = c0
    x1 = c1
    x2 = c2
    x3 = c3
    key0 = k0
    key1 = k1
    for _ in range(_ROUNDS):
        p0 = U64(x0) * _PHILOX_M0
        p1 = U64(x2) * _PHILOX_M1
        x0 = U32(p1 >> _WORD_BITS) ^ x1 ^ key0
        x1 = U32(p1)
        x2 = U32(p0 >> _WORD_BITS) ^ x3 ^ key1
        x3 = U32(p0)
        key0 = key0 + _PHILOX_W0
        key1 = key1 + _PHILOX_W1
    return wp.vec4ui(x0, x1, x2, x3)


@wp.func
def word_to_uniform(w: U32) -> F32:
    """Return a uniform number in [0, 1), a multiple of 2^-24, from the top 24 bits of a word."""
    return wp.float32(w >> _UNIFORM_SHIFT) * _UNIFORM_SCALE


@wp.func
def word_to_normal(w: U32, table: wp.array[wp.vec3]) -> F32:
    """Return a standard normal number from a word: sign from bit 0, magnitude from the other 31 by `normal_table`.

    Args:
        w: the random word.
        table: the result of `normal_table` for the device.
    """
    bits = wp.cast(wp.float32(w >> _ONE) + 0.5, U32)  # the tail's probability times 2^32
    c = table[wp.int32((bits >> _SEGMENT_SHIFT) - _SEGMENT_BASE)]
    t = wp.float32(bits & _SEGMENT_MASK) * _SEGMENT_SCALE
    z = c[0] + t * (c[1] + t * c[2])
    return wp.cast(wp.cast(z, U32) ^ (w << _SIGN_SHIFT), F32)  # Warp's unary minus turns 0 into +0


@wp.func
def uniforms4(w: Words) -> wp.vec4:
    """Return four uniform numbers in [0, 1), one for each word."""
    return wp.vec4(word_to_uniform(w[0]), word_to_uniform(w[1]), word_to_uniform(w[2]), word_to_uniform(w[3]))


@wp.func
def normals4(w: Words, table: wp.array[wp.vec3]) -> wp.vec4:
    """Return four standard normal numbers, one for each word."""
    z0 = word_to_normal(w[0], table)
    z1 = word_to_normal(w[1], table)
    z2 = word_to_normal(w[2], table)
    z3 = word_to_normal(w[3], table)
    return wp.vec4(z0, z1, z2, z3)


@wp.func
def draw(kind: wp.int32, a: float, b: float, values: wp.array[wp.float32], w: U32, table: wp.array[wp.vec3]) -> F32:
    """Return one number drawn from a distribution; `parameters` of the distribution gives a, b and values.

    Args:
        kind: `UNIFORM`, `NORMAL` or `CHOICE`.
        a: low, or the mean.
        b: high, or the standard deviation.
        values: the values to choose from; not read by the other kinds.
        w: the random word.
        table: the result of `normal_table` for the device.
    """
    if kind == NORMAL:
        return a + b * word_to_normal(w, table)
    u = word_to_uniform(w)
    if kind == CHOICE:
        n = values.shape[0]
        return values[wp.min(wp.int32(u * wp.float32(n)), n - 1)]
    return a + (b - a) * u


NATIVE_8 = """
typedef unsigned u8 __attribute__((vector_size(32)));
typedef int i8 __attribute__((vector_size(32)));
typedef float f8 __attribute__((vector_size(32)));
typedef unsigned long long l8 __attribute__((vector_size(64)));
const auto philox8 = [](u8* x, unsigned key0, unsigned key1) {
    for (int round = 0; round < 7; ++round) {
        l8 p0 = __builtin_convertvector(x[0], l8) * 0xD2511F53ULL;
        l8 p1 = __builtin_convertvector(x[2], l8) * 0xCD9E8D57ULL;
        x[0] = __builtin_convertvector(p1 >> 32, u8) ^ x[1] ^ key0;
        x[1] = __builtin_convertvector(p1, u8);
        x[2] = __builtin_convertvector(p0 >> 32, u8) ^ x[3] ^ key1;
        x[3] = __builtin_convertvector(p0, u8);
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
};
const auto normal8 = [&](u8 word) {
    u8 bits = (u8)(__builtin_convertvector((i8)(word >> 1), f8) + 0.5f), at = (bits >> 18) - 4032u;
    f8 t = __builtin_convertvector((i8)(bits & 0x3ffffu), f8) * 0x1p-18f, c0, c1, c2;
    for (int i = 0; i < 8; ++i) {
        c0[i] = table.data[at[i]][0];
        c1[i] = table.data[at[i]][1];
        c2[i] = table.data[at[i]][2];
    }
    return (f8)((u8)(c0 + t * (c1 + t * c2)) ^ (word << 31));
};
"""
"""Start of native code for the vector units of a CPU: `philox` and `word_to_normal` for eight words at a time.

The code needs the normal table as `table`."""


@wp.func_native(
    "#ifndef __CUDA_ARCH__"
    + NATIVE_8
    + """
const int lanes = episodes.shape[0] < env + 8 ? episodes.shape[0] - env : 8;
u8 x[4] = {u8{} + tick, u8{0, 1, 2, 3, 4, 5, 6, 7} + (unsigned)(first_env + env), u8{}, u8{} + block};
for (int i = 0; i < lanes; ++i) x[2][i] = episodes.data[env + i];
philox8(x, key0, key1);
for (int j = 0; j < count; ++j) {
    f8 value;
    if (kind == 1) value = a + b * normal8(x[j]);
    else value = a + (b - a) * (__builtin_convertvector((i8)(x[j] >> 8), f8) * 0x1p-24f);
    float* target = (float*)out + (size_t)env * width + column + j;
    for (int i = 0; i < lanes; ++i) target[(size_t)i * width] += value[i];
}
#endif
"""
)
def add_to_8_envs(
    tick: U32, first_env: int, episodes: wp.array[wp.int32], env: int, block: U32, key0: U32, key1: U32, kind: int,
    a: float, b: float, table: wp.array[wp.vec3], out: U64, width: int, column: int, count: int,
) -> None:  # fmt: skip
    """Add up to four draws of one block to columns of up to eight environments; on the CPU only, there 5 x faster.

    Args:
        tick: tick of the draw.
        first_env: global index of environment 0.
        episodes: episode of each environment.
        env: first of the environments.
        block: word c3 of the counter.
        key0: first word of the key.
        key1: second word of the key.
        kind: `UNIFORM` or `NORMAL`.
        a: low, or the mean.
        b: high, or the standard deviation.
        table: the result of `normal_table` for the device.
        out: address of float32 `[env, width]`.
        width: number of columns from one environment to the next.
        column: first column that is added to.
        count: number of columns, at most 4.
    """


# NumPy ----------------------------------------------------------------------------------------------------------------


def philox_numpy(counters: NDArray[np.uint32], key: tuple[int, int], rounds: int = _ROUNDS) -> NDArray[np.uint32]:
    """Return the random words of counters under one key, uint32 [..., 4]; the twin of `philox`.

    Args:
        counters: uint32 [..., 4].
        key: two words, as returned by `stream_key`.
        rounds: 7 throughout this package; 10 has published test vectors.
    """
    x0, x1, x2, x3 = np.moveaxis(np.asarray(counters, np.uint32), -1, 0)
    key0, key1 = key
    for _ in range(rounds):
        p0 = x0.astype(np.uint64) * np.uint64(_M0)
        p1 = x2.astype(np.uint64) * np.uint64(_M1)
        x0 = (p1 >> np.uint64(32)).astype(np.uint32) ^ x1 ^ np.uint32(key0)
        x1 = p1.astype(np.uint32)
        x2 = (p0 >> np.uint64(32)).astype(np.uint32) ^ x3 ^ np.uint32(key1)
        x3 = p0.astype(np.uint32)
        key0 = (key0 + _W0) & _WORD_MASK
        key1 = (key1 + _W1) & _WORD_MASK
    return np.stack([x0, x1, x2, x3], axis=-1)


def uniform_numpy(words: NDArray[np.uint32]) -> NDArray[np.float32]:
    """Return uniform numbers in [0, 1), float32 in the shape of `words`; the twin of `word_to_uniform`."""
    words = np.asarray(words, np.uint32)
    return (words >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def normal_numpy(words: NDArray[np.uint32]) -> NDArray[np.float32]:
    """Return standard normal numbers, float32 in the shape of `words`; the twin of `word_to_normal`."""
    words = np.asarray(words, np.uint32)
    bits = ((words >> np.uint32(1)).astype(np.float32) + np.float32(0.5)).view(np.uint32)
    c = _normal_table()[(bits >> np.uint32(_LOW_BITS)) - np.uint32(_FIRST_SEGMENT)]
    t = (bits & np.uint32(_LOW_MASK)).astype(np.float32) * np.float32(2.0**-_LOW_BITS)
    z: NDArray[np.float32] = c[..., 0] + t * (c[..., 1] + t * c[..., 2])
    return (z.view(np.uint32) ^ (words << np.uint32(31))).view(np.float32)


def _words(
    key: tuple[int, int], tick: int, env: ArrayLike, episode: ArrayLike, field: int, count: int
) -> NDArray[np.uint32]:
    """Return the random words of one field at one tick, uint32 [n, count]; see `Uniform.sample`."""
    if not 0 <= field < _MAX_FIELDS:
        raise ValueError(f"field: got {field}, expected an index from 0 to {_MAX_FIELDS - 1}.")
    if not 0 <= count <= _MAX_ELEMENTS:
        raise ValueError(f"count: got {count}, expected 0 to {_MAX_ELEMENTS} elements.")
    envs, episodes = np.broadcast_arrays(np.asarray(env), np.asarray(episode))
    blocks = np.arange((count + 3) // 4, dtype=np.uint32)
    counters = np.empty((*envs.shape, blocks.size, 4), np.uint32)
    counters[..., 0] = tick & _WORD_MASK
    counters[..., 1] = envs.astype(np.uint32)[..., None]
    counters[..., 2] = episodes.astype(np.uint32)[..., None]
    counters[..., 3] = np.uint32(field << 24) | blocks
    words = philox_numpy(counters, key)
    return words.reshape(*envs.shape, 4 * blocks.size)[..., :count]


# Distributions --------------------------------------------------------------------------------------------------------


class _Base:
    """Common base of the distributions."""

    __slots__ = ()

    kind: ClassVar[int]

    def rows(self) -> tuple[Value, ...]:
        """Return low and high, mean and standard deviation, or the values: each a number, or one per column."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return plain data such as ``{"uniform": [0.0, 0.02]}``."""
        return {type(self).__name__.lower(): [list(row) if isinstance(row, tuple) else row for row in self.rows()]}

    @property
    def columns(self) -> int | None:
        """Number of columns of the distribution; None if one set of numbers applies to every column."""
        return next((len(row) for row in self.rows() if isinstance(row, tuple)), None)

    @property
    def joint(self) -> bool:
        """Whether all columns use the random word of element 0, so that they take the same one of several vectors."""
        return self.kind == CHOICE and self.columns is not None

    def _table(self, count: int) -> NDArray[np.float32]:
        columns = self.columns
        if columns is not None and columns != count:
            raise ConfigError.single(
                type(self).__name__, "columns", columns, str(count), "Give one number, or one per column."
            )
        return np.stack([np.broadcast_to(np.asarray(row, np.float32), (count,)) for row in self.rows()])

    def parameters(self, count: int) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """Return the arguments of `draw` for each column: a [count], b [count] and values [n, count], all float32.

        Args:
            count: number of columns.

        Raises:
            ConfigError: the distribution has another number of columns.
        """
        table = self._table(count)
        return table[0], table[1], np.zeros((0, count), np.float32)

    def sample(
        self, key: tuple[int, int], tick: int, env: ArrayLike, episode: ArrayLike, field: int, count: int
    ) -> NDArray[np.float32]:
        """Return one draw per environment and column, float32 [n, count], bit-identical to `draw`.

        Args:
            key: the result of `stream_key`.
            tick: tick of the draw.
            env: global indices of environments, [n] or one number.
            episode: episode of each environment, [n] or one number.
            field: index of the field or knob, below 256.
            count: number of columns.
        """
        words = _words(key, tick, env, episode, field, count)
        a, b, values = self.parameters(count)
        if self.kind == NORMAL:
            return a + b * normal_numpy(words)
        u = uniform_numpy(words[..., :1] if self.joint else words)
        if self.kind == CHOICE:
            n = values.shape[0]
            index = np.minimum((u * np.float32(n)).astype(np.int32), n - 1)
            chosen: NDArray[np.float32] = values[index, np.arange(count)]
            return chosen
        return a + (b - a) * u


@dataclass(frozen=True, slots=True)
class Uniform(_Base):
    """Uniform distribution from low to high; high itself occurs only by rounding.

    Args:
        low: minimum value, in the unit of the knob; a tuple gives one per column.
        high: maximum value, in the same form.
    """

    low: Value
    high: Value

    kind: ClassVar[int] = UNIFORM

    def __post_init__(self) -> None:
        _store(self, "low", "high")
        low, high = _wide(self.low, self.high)
        if np.any(low > high):
            raise ConfigError.single("Uniform", "low", self.low, f"at most high, {self.high}", "Swap low and high.")
        if np.any(high - low > _FLOAT32_MAX):
            raise ConfigError.single("Uniform", "high", self.high, "a range that float32 can hold", "Narrow it.")

    def rows(self) -> tuple[Value, ...]:
        """Return low and high."""
        return self.low, self.high

    @property
    def bounds(self) -> tuple[float, float] | tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Minimum and maximum value: two floats, or two float64 arrays [columns]."""
        return _pair(self, *_wide(self.low, self.high))


@dataclass(frozen=True, slots=True)
class Normal(_Base):
    """Normal distribution; no draw is farther than `MAX_NORMAL` standard deviations from the mean.

    Args:
        mean: mean, in the unit of the knob; a tuple gives one per column.
        std: standard deviation, in the same form.
    """

    mean: Value
    std: Value

    kind: ClassVar[int] = NORMAL

    def __post_init__(self) -> None:
        _store(self, "mean", "std")
        mean, std = _wide(self.mean, self.std)
        if np.any(std < 0.0):
            raise ConfigError.single("Normal", "std", self.std, "a standard deviation >= 0", "Give a positive number.")
        if np.any(np.abs(mean) + MAX_NORMAL * std > _FLOAT32_MAX):
            raise ConfigError.single("Normal", "std", self.std, "a range that float32 can hold", "Narrow it.")

    def rows(self) -> tuple[Value, ...]:
        """Return mean and standard deviation."""
        return self.mean, self.std

    @property
    def bounds(self) -> tuple[float, float] | tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Minimum and maximum number, mean -+ `MAX_NORMAL` std: two floats, or two float64 arrays [columns]."""
        mean, std = _wide(self.mean, self.std)
        return _pair(self, mean - MAX_NORMAL * std, mean + MAX_NORMAL * std)


@dataclass(frozen=True, slots=True)
class Choice(_Base):
    """One of several values, all equally likely.

    Where the values are numbers, each column draws its own. Where they are vectors, one vector is drawn as a whole: a
    kernel then passes the word of element 0 to `draw` for every column, see `joint`.

    Args:
        values: the numbers, or the vectors (one number per column), in the unit of the knob.
    """

    values: tuple[Value, ...]

    kind: ClassVar[int] = CHOICE

    def __post_init__(self) -> None:
        got: Any = self.values.tolist() if isinstance(self.values, np.ndarray) else self.values
        fix = "Write for example Choice((0.0, 0.1, 0.2))."
        if not isinstance(got, Sequence) or isinstance(got, str | bytes) or not got:
            raise ConfigError.single("Choice", "values", got, "a non-empty tuple of values", fix)
        values = tuple(_value("Choice", f"values.{index}", part) for index, part in enumerate(got))
        if len({len(part) if isinstance(part, tuple) else None for part in values}) > 1:
            raise ConfigError.single("Choice", "values", got, "only numbers, or only vectors of one length", fix)
        object.__setattr__(self, "values", values)

    def rows(self) -> tuple[Value, ...]:
        """Return the values."""
        return self.values

    def parameters(self, count: int) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """Return the arguments of `draw` per column: a and b, zeros [count], and values [n, count], all float32."""
        zeros = np.zeros(count, np.float32)
        return zeros, zeros, self._table(count)

    @property
    def bounds(self) -> tuple[float, float] | tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Minimum and maximum value: two floats, or two float64 arrays [columns]."""
        values = np.asarray(self.values, np.float64)
        return _pair(self, values.min(axis=0), values.max(axis=0))


Distribution: TypeAlias = Uniform | Normal | Choice

_ACCEPTED = 'one of {"uniform": [low, high]}, {"normal": [mean, std]}, {"choice": [value, ...]}'


def distribution_from_dict(data: Mapping[str, Any]) -> Distribution:
    """Return the distribution described by the result of `to_dict`.

    Args:
        data: one entry, e.g. ``{"uniform": [0, 0.02]}``, ``{"normal": [0, 0.01]}`` or ``{"choice": [0, 0.1]}``.

    Raises:
        ConfigError: (a ValueError) any other value; the message lists the accepted forms.
    """
    if not isinstance(data, Mapping) or len(data) != 1:
        raise ConfigError.single("Distribution", "keys", data, _ACCEPTED)
    ((name, numbers_),) = data.items()
    if name not in ("uniform", "normal", "choice"):
        raise ConfigError.single("Distribution", "keys", name, _ACCEPTED)
    if name == "choice":
        return Choice(numbers_)
    if not isinstance(numbers_, list | tuple) or len(numbers_) != 2:
        names = "[low, high]" if name == "uniform" else "[mean, std]"
        raise ConfigError.single("Distribution", name, numbers_, f"two numbers or vectors {names}")
    return Uniform(*numbers_) if name == "uniform" else Normal(*numbers_)


_FLOAT32_MAX = float(np.finfo(np.float32).max)


def _number(config: str, field: str, got: Any) -> float:
    if isinstance(got, bool | np.bool_) or not isinstance(got, numbers.Real):
        raise ConfigError.single(config, field, got, "a number or a tuple of numbers, one per column")
    size: Any = abs(got)
    if not size <= _FLOAT32_MAX:  # NaN too
        raise ConfigError.single(config, field, got, "a finite number within the range of float32")
    return float(got)


def _value(config: str, field: str, got: Any) -> Value:
    if isinstance(got, np.ndarray):
        got = got.tolist()
    if not isinstance(got, list | tuple):
        return _number(config, field, got)
    if not got:
        raise ConfigError.single(config, field, got, "at least one number", "Give one number per column.")
    return tuple(_number(config, f"{field}.{index}", part) for index, part in enumerate(got))


def _store(distribution: Any, *fields: str) -> None:
    """Replace two fields by checked floats or tuples of floats."""
    name = type(distribution).__name__
    for field in fields:
        object.__setattr__(distribution, field, _value(name, field, getattr(distribution, field)))
    first, second = (getattr(distribution, field) for field in fields)
    if isinstance(first, tuple) and isinstance(second, tuple) and len(first) != len(second):
        fix = f"Give {fields[0]} and {fields[1]} the same number of columns."
        raise ConfigError.single(name, fields[1], second, f"{len(first)} numbers like {fields[0]}", fix)


def _wide(first: Value, second: Value) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    low, high = np.broadcast_arrays(np.asarray(first, np.float64), np.asarray(second, np.float64))
    return low, high


def _pair(
    distribution: _Base, low: NDArray[np.float64], high: NDArray[np.float64]
) -> tuple[float, float] | tuple[NDArray[np.float64], NDArray[np.float64]]:
    if distribution.columns is None:
        return float(low), float(high)
    return low.copy(), high.copy()

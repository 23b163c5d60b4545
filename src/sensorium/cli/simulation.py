"""One run: a scene, a control, a progress bar; then the table, the recording and the pictures."""

from __future__ import annotations

import contextlib
import copy
import math
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.markup import escape
from rich.table import Table

from sensorium.cli.messages import note, progress, stdout
from sensorium.cli.signals import ending
from sensorium.errors import MissingDependencyError, UsageError
from sensorium.jobs.control import steps
from sensorium.readings import Array, Reading
from sensorium.record import NpzRecorder, Recorder, Recording
from sensorium.spec import FieldSpec
from sensorium.view.images import id_shares, picture_kind

if TYPE_CHECKING:
    from sensorium.jobs.control import Control
    from sensorium.scene import Scene

SHOWN_NUMBERS = 6
"""Maximum number of values of one field in the table."""
SHOWN_LABELS = 4
"""Maximum number of labels of one image in the table."""
MAX_NUMBERS = 16
"""Number of values above which a field is summarised."""


def check_device(device: str) -> str:
    """Initialise a device and return its canonical name.

    Raises:
        DeviceError: the device does not exist.
    """
    from sensorium.compute import resolve_device, start_warp

    start_warp()
    return resolve_device(device, argument="--device")


@contextlib.contextmanager
def recording(
    scene: Scene, path: Path, envs: Sequence[int] | None, rig: Path | None, options: Mapping[str, Any]
) -> Iterator[Recorder]:
    """Record a scene in an MCAP file, with its rig file attached.

    Args:
        scene: the scene.
        path: the file.
        envs: environments to record; None for all.
        rig: the rig file; None without one.
        options: further arguments of `Scene.record`.

    Raises:
        UsageError: the file cannot be created, or the options contradict each other.
    """
    with UsageError.naming(path="--record", envs="--record-envs", images="--images", states="--states"):
        recorder = scene.record(path, envs=envs, **options)
    with recorder:
        if rig is not None:
            recorder.attach("rig.toml", "application/toml", rig.read_bytes())
        yield recorder


def simulate(scene: Scene, control: Control, every: int, ticks: int, recorder: NpzRecorder | None = None) -> bool:
    """Advance a scene and record each sample once; return False if the user stopped it with Ctrl-C.

    Args:
        scene: the scene.
        control: see `sensorium.jobs.control`.
        every: ticks between its calls.
        ticks: physics steps to take.
        recorder: records the readings; None if the scene itself is recorded.
    """
    sensors = () if recorder is None else tuple(scene.sensors.values())
    start, cursor = scene.tick, scene.sample_cursor()
    try:
        with progress("simulating", ticks) as show_progress, ending(signal.SIGINT) as ended:
            for _ in steps(scene, control, every, ticks, sensors):
                if recorder is not None:
                    recorder.add_all(scene.publish(scene, since=cursor))
                passed = scene.tick - start
                show_progress(passed, text=f"{passed * scene.engine.dt:.2f} s")
                if ended and scene.tick < start + ticks:
                    raise KeyboardInterrupt  # between two steps, where the scene is still readable
    except KeyboardInterrupt:
        note(f"interrupted at t = {scene.time:.4g} s; saving the recorded samples")
        return False
    return True


def describe(scene: Scene, presets: Mapping[str, str]) -> dict[str, Any]:
    """Return the scene's description, with the preset of each sensor that has one."""
    description = copy.deepcopy(scene.description().to_dict())
    for name, preset in presets.items():
        description["sensors"][name]["preset"] = preset
    return description


def table(readings: Mapping[str, Reading], description: Mapping[str, Any], width: int) -> Table:
    """Return a table of every sensor of env 0, measured and true; with ages only if `width` characters allow it."""
    view = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("sensor", "field", "shape", "unit"):
        view.add_column(heading, no_wrap=heading != "sensor")
    has_age = width >= 96
    for heading in ("rate", "age") if has_age else ("rate",):
        view.add_column(heading, justify="right", no_wrap=True)
    for heading in ("measured, env 0", "true, env 0"):
        view.add_column(heading, justify="right")
    nothing = np.zeros(0)
    for name, reading in readings.items():
        info = description["sensors"][name]
        for i, spec in enumerate(reading.specs):
            shape = f"{len(reading.env_ids)}" + "".join(f"x{size}" for size in spec.shape)
            env = reading.rows(0) if spec.is_ragged else 0
            view.add_row(
                escape(name) if i == 0 else "",
                spec.name,
                shape,
                escape(spec.unit),
                f"{info['rate_hz']:.4g} Hz" if i == 0 else "",
                *([f"{reading.age[0] * 1e3:.3g} ms" if i == 0 else ""] if has_age else []),
                *(
                    _numbers(own[spec.name][env], other[spec.name][env] if other else nothing, spec, info)
                    if own
                    else "unknown"
                    for own, other in ((reading.measured, reading.truth), (reading.truth, reading.measured))
                ),
                end_section=i == len(reading.specs) - 1,
            )
    return view


def _numbers(value: Array, other: Array, spec: FieldSpec, info: Mapping[str, Any]) -> str:
    """Return a value as text: each number, or for many numbers the range and the count of missing ones.

    For images of ids, it is the share of each label. `other` is the value of the other branch.
    """
    flat = np.asarray(value).reshape(-1)
    if len(flat) > MAX_NUMBERS:
        image = spec.squeezed().to_dict()
        if picture_kind(image) in ("ids", "color"):
            value = value[0] if spec.axes[:1] == ("mount",) else value
            if picture_kind(image) == "ids" or info.get("constants", {}).get("labels", {}).get(spec.name):
                return _shares(id_shares(info, image, value))
        return _summary(np.asarray(value), spec, info.get("cfg", {}).get("no_hit_value"))
    if flat.dtype.kind == "f":
        others = np.asarray(other).reshape(-1)[:SHOWN_NUMBERS]
        if len(others) != len(flat[:SHOWN_NUMBERS]):  # events
            others = flat[:SHOWN_NUMBERS]
        shown = [_number(*pair) for pair in zip(flat[:SHOWN_NUMBERS], others, strict=True)]
    else:
        shown = [str(number) for number in flat[:SHOWN_NUMBERS]]
    return " ".join(shown) + (f" ... ({len(flat)})" if len(flat) > SHOWN_NUMBERS else "")


def _shares(shares: Sequence[tuple[str, Any, float]]) -> str:
    """Return the largest shares of an image as text, one per line, and the number of further ones."""
    percents = [100.0 * share for _, _, share in shares]
    numbers = [f"{percent:.0f}" if percent >= 10.0 else f"{percent:.2g}" for percent in percents]
    shown = [f"{label} {number} %" for (label, _, _), number in zip(shares, numbers, strict=True)]
    more = [f"and {len(shown) - SHOWN_LABELS} more"] if len(shown) > SHOWN_LABELS else []
    return "\n".join([*map(escape, shown[:SHOWN_LABELS]), *more])


def _number(number: Any, other: Any = math.nan) -> str:
    """Return a number of NumPy with three decimals, or as many as show two digits of its difference from another.

    It has no more digits than its type, and an exponent if it is very large or would show as zero. An integer is
    returned as it is.
    """
    if isinstance(number, np.integer):
        return str(number)
    size, difference = abs(float(number)), abs(float(number) - float(other))
    if size == 0.0 or not math.isfinite(size):
        return f"{number:+6.3f}"
    if not 5e-4 <= size < 1e7:
        return f"{number:+.2e}"
    wanted = 1 - math.floor(math.log10(difference)) if difference > 0.0 and math.isfinite(difference) else 3
    digits = np.finfo(np.asarray(number).dtype).precision - math.floor(math.log10(size))
    return f"{number:+6.{max(0, min(max(wanted, 3), digits, 9))}f}"


def _summary(value: Array, spec: FieldSpec, no_hit_value: float | None) -> str:
    """Return a summary of a field of many numbers: per vector axis the range, for ids the counts."""
    if value.dtype.kind != "f" and spec.kind in ("id", "flag") and picture_kind(spec.squeezed().to_dict()) != "color":
        names, counts = np.unique(value, return_counts=True)
        most = names[int(np.argmax(counts))]
        return f"{len(names)} different, mostly {most}"
    items = value.reshape(-1, value.shape[-1]) if spec.is_vector else value.reshape(-1, 1)
    known = np.isfinite(items).all(axis=1)
    if no_hit_value is not None and spec.role in ("range", "image"):
        known &= (items != np.float32(no_hit_value)).all(axis=1)
    if spec.role == "image" and spec.unit == "m":
        known &= (items != 0.0).any(axis=1)
    seen, missing = items[known], len(items) - int(known.sum())
    word = "missed" if spec.role in ("range", "image", "point") else "not finite"
    tail = [f"{missing} of {len(items)} {word}"] if missing else []
    if not len(seen):
        return f"all {len(items)} {word}"
    if spec.is_vector:
        spans = zip(spec.axes[-1], seen.min(axis=0), seen.max(axis=0), strict=True)
        return "\n".join([*(f"{axis} {_number(low)} to {_number(high)}" for axis, low, high in spans), *tail])
    spread = zip(("min", "median", "max"), (seen.min(), np.median(seen), seen.max()), strict=True)
    return "\n".join([*(f"{word} {_number(number)}" for word, number in spread), *tail])


def finish(scene: Scene, recorder: NpzRecorder | Recorder, out: Path, presets: Mapping[str, str], title: str) -> None:
    """Print the table; unless the scene itself was recorded, write the recording, pictures and images.

    Raises:
        UsageError: a file is not writable.
    """
    console = stdout()
    description = describe(scene, presets)
    envs = f"{scene.num_envs} env{'s' if scene.num_envs > 1 else ''}"
    heading = f"{title}: {envs}, {scene.time:.4g} s at {scene.engine.dt * 1e3:.4g} ms per tick, seed {scene.seed}"
    console.print(escape(heading), style="bold", soft_wrap=True)
    console.print(table(scene.publish(), description, console.width))
    if not isinstance(recorder, NpzRecorder):
        console.print(f"wrote {escape(str(recorder.path))}", soft_wrap=True)
        return
    collected = recorder.recording(description)
    with UsageError.writing("--out", out):
        written = [collected.save(out / "readings.npz"), *pictures(collected, out)]
    if recorder.max_envs is not None and scene.num_envs > recorder.max_envs:
        note(f"the recording holds the first {recorder.max_envs} of {scene.num_envs} envs")
    for path in written:
        console.print(f"wrote {escape(str(path))}", soft_wrap=True)


def pictures(recording: Recording, folder: Path) -> list[Path]:
    """Write one picture per kind of sensor and the last images of cameras; return their paths.

    Without Matplotlib, a note says so and there are none.
    """
    from sensorium.view import plot_recording, plottable, save_frames

    kinds = dict.fromkeys(sensor.info["kind"] for sensor in recording.values() if sensor.truth and plottable(sensor))
    if recording and not any(sensor.truth for sensor in recording.values()):
        note("no pictures, because they compare with the ground truth, which a bag of another program lacks")
    try:
        plots = [plot_recording(recording, folder / f"{kind}.png", kind=kind) for kind in kinds]
        return [*plots, *save_frames(recording, folder)]
    except MissingDependencyError as error:
        note(f"no picture: {error}")
        return []

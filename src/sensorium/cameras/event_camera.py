"""Event camera: pixels that report when their brightness has changed by a threshold.

Axes: ``[env, event]``; `count` is the number of filled rows of an env, which come first, in the order of time.
Published, recorded and streamed data hold the filled rows only, see `Reading.offsets`. The image is
``[env, height, width, channel]``, row 0 at the top.

The scene is rendered at each sample, as linear colours. With I the luminance of a pixel (ITU-R BT.709), its brightness
is L = ln(I + `log_eps`), or I itself. Between samples L changes linearly. The pixel keeps a reference, at first L. When
L is a threshold away from the reference, the pixel reports an event and moves the reference by that threshold. The sum
of its events, each times its threshold, is therefore the change of L, up to one threshold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch
import warp as wp
from pydantic import field_validator
from torch import Tensor

from sensorium.cameras.annotators.colors import LinearLight
from sensorium.cameras.camera import Camera
from sensorium.cameras.camera_cfg import CameraCfg
from sensorium.cameras.camera_data import IMAGE, CameraData, DataTypes
from sensorium.cameras.event_kernels import (
    RADIX,
    EventPixels,
    EventQueue,
    count_events,
    place_events,
    sort_events,
    write_events,
)
from sensorium.cfg import NonNegative, Positive, bad, in_unit, must
from sensorium.compute import recorded
from sensorium.errors import ConfigError
from sensorium.measurement.draws import stream_of
from sensorium.measurement.record import Record
from sensorium.measurement.sensor_cfg import one_place
from sensorium.random import normal_table
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.core.parts import declared_fields
from sensorium.spec import Field

MAX_SIDE = 1 << 15
"""Minimum width and height that the coordinates of events cannot hold."""
PER_PIXEL = 8
"""Rows of events per pixel, unless the config gives their number."""


@dataclass(frozen=True, slots=True)
class EventCameraData(CameraData):
    """The events since the last sample; rows beyond `count` are 0. All fields of images are None."""

    count: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """Number of filled rows."""
    lost: Annotated[Tensor, Field("1", dtype="int32", kind="id")]
    """Number of events that were dropped because all rows were filled; increase `max_events`. They are spread evenly
    over all events."""
    x: Annotated[Tensor, Field("px", (1,), ("event",), dtype="int16", kind="id")]
    """Column of the pixel, 0 at the left."""
    y: Annotated[Tensor, Field("px", (1,), ("event",), dtype="int16", kind="id")]
    """Row of the pixel, 0 at the top."""
    polarity: Annotated[Tensor, Field("1", (1,), ("event",), dtype="int16", kind="id")]
    """1 for a brighter pixel, -1 for a darker one."""
    time_offset: Annotated[Tensor, Field("s", (1,), ("event",), kind="derived")]
    """Time of the event relative to the capture, s: from minus the time between two samples to 0."""
    polarity_image: Annotated[Tensor, Field("1", (1, 1, 1), IMAGE, dtype="int16", kind="derived", role="image")]
    """Sum of the polarities of the events of each pixel."""


class EventCameraCfg(CameraCfg):
    """Configuration of an event camera. Thresholds are changes of the brightness; by default of ln(luminance).

    The amounts are those of the models v2e (Y. Hu, S.-C. Liu, T. Delbruck, "v2e: From video frames to realistic DVS
    events", CVPRW 2021) and CARLA. The camera reports no images; knobs such as `noise` have no effect on events.
    """

    types: ClassVar[tuple[str, ...]] = ()

    data_types: DataTypes = ()
    """No data types: add a second camera for images."""
    positive_threshold: Positive = 0.2
    """Rise of the brightness that causes an event of polarity 1."""
    negative_threshold: Positive = 0.2
    """Fall of the brightness that causes an event of polarity -1."""
    sigma_positive_threshold: NonNegative = 0.0
    """Standard deviation of the pixels' positive thresholds, drawn per env and pixel at reset. No pixel has less than
    0.01."""
    sigma_negative_threshold: NonNegative = 0.0
    """Standard deviation of the pixels' negative thresholds."""
    refractory_period: Annotated[NonNegative, in_unit("s")] = 0.0
    """Time after an event in which its pixel reports no other, s. The reference moves nevertheless."""
    use_log: bool = True
    """Whether the brightness is the logarithm of the luminance, or the luminance itself."""
    log_eps: Positive = 0.001
    """Luminance that is added before the logarithm; 1 is the white of a display."""
    cutoff_hz: Annotated[NonNegative, in_unit("Hz")] = 0.0
    """Bandwidth of a white pixel, Hz, as a first-order low-pass; darker pixels have proportionally less, down to 20/275
    of it. 0 for no limit."""
    leak_rate_hz: Annotated[NonNegative, in_unit("Hz")] = 0.0
    """Rate at which a pixel without changes reports events of polarity 1, since its reference falls, Hz. Each pixel
    starts at a random phase, drawn per env at reset."""
    shot_noise_rate_hz: Annotated[NonNegative, in_unit("Hz")] = 0.0
    """Rate of noise events of a black pixel, Hz; a white one has a quarter of it. They come in pairs of opposite
    polarity within one sample (R. Graca, T. Delbruck, 2021), so the reference stays. A pixel reports at most one pair
    per sample."""
    max_events: Annotated[int | None, must(lambda n: n is None or 1 <= n < 1 << 26, "a whole number from 1")] = None
    """Rows of events per environment and sample; None for 8 per pixel, 26 B each."""

    @field_validator("data_types")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value:
            raise bad("no data types", "Add a sn.CameraCfg at the same place for images.")
        return value

    @field_validator("stages")
    @classmethod
    def _no_stages(cls, value: Any) -> Any:
        if value:
            raise bad("no stages", "Stages act on values, not on events: use the camera's own amounts.")
        return value

    _one_place = field_validator("sites", "bodies", "geoms", "joints", "cameras", "link_names")(one_place)


class EventCamera(Camera, SimpleSensor[EventCameraCfg, EventCameraData]):
    """Event camera at one mount.

    There are no true events: an event exists only through the threshold of its pixel. `ground_truth` therefore shows
    the same events as `data`.
    """

    cfg: EventCameraCfg

    def fields(self) -> Mapping[str, Field]:
        """Return the pose of the camera, the rows of the events and the image."""
        height, width = self.image_shape
        capacity = PER_PIXEL * height * width if self.cfg.max_events is None else self.cfg.max_events
        out = dict(super().fields())
        for name, field in declared_fields(EventCameraData).items():
            if name not in declared_fields(CameraData):
                shape = {1: (capacity,), 3: (height, width, 1)}.get(len(field.shape), ())
                out[name] = replace(field, shape=shape)
        return out

    def setup(self) -> None:
        """Prepare the visibility pass, the colours and the pixels."""
        super().setup()
        height, width = self.image_shape
        if max(height, width) >= MAX_SIDE:
            expected = f"an image of fewer than {MAX_SIDE} pixels along each side"
            raise ConfigError.single(self.cfg.title, "width, height", (width, height), expected)
        self._light = LinearLight(self)
        cfg, count = self.cfg, height * width
        capacity = dict(self.fields())["x"].shape[0]
        self._pixels = pixels = EventPixels()
        pixels.height, pixels.width, pixels.dt = height, width, self.clock.dt
        pixels.is_log, pixels.eps = int(cfg.use_log), cfg.log_eps
        pixels.rise, pixels.fall = cfg.positive_threshold, cfg.negative_threshold
        pixels.rise_sd, pixels.fall_sd = cfg.sigma_positive_threshold, cfg.sigma_negative_threshold
        pixels.refractory, pixels.cutoff = cfg.refractory_period, cfg.cutoff_hz
        pixels.leak, pixels.noise = cfg.leak_rate_hz, cfg.shot_noise_rate_hz
        pixels.spread, pixels.shots = (stream_of(0, self.stream(purpose)) for purpose in ("threshold", "shot noise"))
        for name, size in (("ticks", 2), ("level", count), ("reference", count), ("since", count)):
            setattr(pixels, name, wp.from_torch(self.new_state(name, (size,))))
        pixels.fresh = wp.from_torch(torch.zeros((self.num_envs, count), dtype=torch.float32, device=self.device))
        self._memory = {"total": torch.zeros(self.num_envs, dtype=torch.int32, device=self.device)}
        lists = dict.fromkeys(("time", "pixel", "time_too", "pixel_too"), capacity)
        for name, size in {"rows": height, "bins": int(RADIX), **lists}.items():
            self._memory[name] = torch.zeros((self.num_envs, size), dtype=torch.int32, device=self.device)

    @recorded
    def update_raw_data(self, raw: Record) -> None:
        """Image the scene, and report the events since the last sample."""
        self.cast.place()
        self._light.render(is_placed=self._light.cast is self.cast)
        self._report_poses(raw)
        self._report_events(raw)

    def _report_events(self, raw: Record) -> None:
        """Report the events since the last sample (four launches)."""
        envs, launch = self.num_envs, self.compute_on.launch
        pixels, queue, table = self._pixels, EventQueue(), normal_table(self.compute_on.wp_device)
        outputs = {f"{name}_out": raw[name].view(envs, -1) for name in ("x", "y", "polarity")}
        outputs |= {"time_out": raw["time_offset"].view(envs, -1), "image": raw["polarity_image"].view(envs, -1)}
        outputs |= {"count_out": raw["count"].view(envs), "lost_out": raw["lost"].view(envs)}
        for name, tensor in (self._memory | outputs).items():
            setattr(queue, name, wp.from_torch(tensor))
        colours = wp.from_torch(self._light.image.view(envs, -1), dtype=wp.float32)
        launch(count_events, (pixels.height,), [pixels, table, colours], [queue], split=True)
        launch(place_events, (), [pixels], [queue])
        launch(write_events, (pixels.height,), [pixels, table], [queue], split=True)
        launch(sort_events, (), [pixels], [queue])

"""An image of a chequered floor, from a sensor with its own memory."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import sensorium as sn
import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor


@dataclass(frozen=True, slots=True)
class FloorImageData:
    """Data of the camera."""

    image: Annotated[Tensor, sn.Field("1", (48, 64), axes=("row", "column"), dtype="uint8", role="image")]
    """Brightness of the floor, 0 or 255, `[env, mount, row, column]`; up is +y of the world, right is +x."""


class FloorImageCfg(sn.MountedSensorCfg[FloorImageData]):
    """Configuration of a camera above a chequered floor, without perspective."""

    width: PositiveInt = 64
    """Number of columns."""
    height: PositiveInt = 48
    """Number of rows."""
    pixel: PositiveFloat = 0.02
    """Width and height of a pixel on the floor, m."""
    tile: PositiveFloat = 0.25
    """Width and height of a tile of the floor, m."""


class FloorImage(sn.Sensor[FloorImageCfg, FloorImageData]):
    """A map of the floor around each mount, north up."""

    requires = (sn.engines.BODY_POSE,)
    uses_ring_pipeline: ClassVar[bool] = False

    def fields(self) -> Mapping[str, sn.Field]:
        """Return the image field with the size of the config."""
        return {"image": replace(super().fields()["image"], shape=(self.cfg.height, self.cfg.width))}

    def setup(self) -> None:
        """Allocate the images, and compute the position of each pixel relative to the mount, m."""
        assert self.mount is not None  # a mounted config has one
        cfg = self.cfg
        shape = (self.num_envs, self.mount.count, cfg.height, cfg.width)
        self.image = torch.zeros(shape, dtype=torch.uint8, device=self.device)
        self.set_outputs({"image": self.image})  # the measured image equals the truth here
        self.right = cfg.pixel * (torch.arange(cfg.width, device=self.device) + 0.5 - cfg.width / 2)
        self.up = cfg.pixel * (cfg.height / 2 - 0.5 - torch.arange(cfg.height, device=self.device))

    def compute(self, truth: sn.Record, measured: sn.Record) -> None:
        """Draw the images. Both records are empty, because the sensor has its own memory."""
        assert self.mount is not None
        x, y = (self.mount.pos_w[..., axis, None, None] for axis in (0, 1))  # [env, mount, 1, 1]
        column = ((x + self.right) / self.cfg.tile).floor()
        row = ((y + self.up[:, None]) / self.cfg.tile).floor()
        self.image.copy_(255 * ((column + row) % 2))

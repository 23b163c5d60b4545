"""Contact probe: whether probes on a link touch the shapes around them, by thresholds on their depth.

Axes: ``[env, mount, probe]``, bool (no mount axis for a singular selector); a grid of probes has two axes instead of
one.

Two spaces: noise, bias and stages act on the depth of `ContactDepthProbe`, m (the intermediate space); readers get the
flag. With the depth d of a sample and the flag of the previous sample,

    on = d > contact_threshold or (previous and d > release_threshold)

(a Schmitt trigger). Truth and measured value have separate memories, which start from off at a reset.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import torch
import warp as wp
from pydantic import model_validator
from torch import Tensor

from sensorium.cfg import Float, bad, in_unit, must
from sensorium.compute import Rows, kernel, masked_tid, recorded
from sensorium.errors import ConfigError
from sensorium.measurement.record import Record, Timeline
from sensorium.sensors.touch.contact_depth_probe import DepthSensor
from sensorium.sensors.touch.taxel_cfg import TaxelCfg, laid_out
from sensorium.spec import Field


@dataclass(frozen=True, slots=True)
class ContactProbeData:
    """One sample of contact probes; `.data` is the tensor itself."""

    contact: Annotated[Tensor, Field("1", dtype="bool", kind="flag")]
    """Whether each probe is in contact."""


Depth = Annotated[Float, must(lambda depth: 0.0 <= depth < math.inf, "a finite depth >= 0, m")]


class ContactProbeCfg(TaxelCfg[ContactProbeData]):
    """Configuration of contact probes. Knobs such as `noise` act on the depth, m. Thresholds can be set per env."""

    contact_threshold: Annotated[Depth, in_unit("m")] = 1e-4
    """Depth above which a probe turns on, m."""
    release_threshold: Annotated[Depth | None, in_unit("m")] = None
    """Depth at or below which a probe turns off, m; None uses `contact_threshold`, which means no hysteresis."""

    @model_validator(mode="after")
    def _in_order(self) -> Any:
        if self.release_threshold is not None and self.release_threshold > self.contact_threshold:
            raise bad(f"release_threshold: at most contact_threshold = {self.contact_threshold:g} m")
        return self


@kernel
def _latch(
    rows: Rows,
    block: int,
    on: wp.array2d[wp.float32],
    off: wp.array2d[wp.float32],
    depth_in: wp.array3d[wp.float32],
    before_in: wp.array3d[wp.bool],
    contact_out: wp.array3d[wp.bool],
) -> None:
    env, mount, first = masked_tid(rows)
    for probe in range(first * block, wp.min((first + 1) * block, depth_in.shape[2])):
        depth = depth_in[env, mount, probe]
        is_kept = before_in[env, mount, probe] and depth > off[env, 0]
        contact_out[env, mount, probe] = depth > on[env, 0] or is_kept


class ContactProbe(DepthSensor[ContactProbeCfg, ContactProbeData]):
    """Whether probes on a link touch the shapes around them."""

    def intermediate_fields(self) -> Mapping[str, Field]:
        """Return the depth, on which noise acts."""
        return laid_out({"depth": Field("m")}, self.cfg.layout)

    def setup(self) -> None:
        """Collect probes, shapes and thresholds."""
        super().setup()
        on, off = self.cfg.contact_threshold, self.cfg.release_threshold
        self.notes = {"on": f"depth > {on:g} m", "off": f"depth <= {on if off is None else off:g} m"}
        self._on, release = (self.params.table(name) for name in ("contact_threshold", "release_threshold"))
        self._off = self._on if self.cfg.release_threshold is None else release
        shape = (self.num_envs, self.mount.count, *self.cfg.layout)
        self._flags = torch.zeros(shape, dtype=torch.bool, device=self.device)

    def set(self, knob: str, value: Any, env_ids: Any = None) -> None:
        """Set a knob as `Sensor.set` does, or a threshold, m, for some envs.

        Args:
            knob: name of the knob or threshold.
            value: a number, or `[n]` for n envs.
            env_ids: int ids, bool mask or None.

        Raises:
            ConfigError: the knob is not given in the config, the value is invalid, or the release threshold would
                exceed the contact threshold.
        """
        before = self._on.clone(), self._off.clone()
        super().set(knob, value, env_ids)
        if knob in ("contact_threshold", "release_threshold") and bool((self._off > self._on).any()):
            self._on.copy_(before[0])
            self._off.copy_(before[1])
            title = self.cfg.title
            raise ConfigError.single(title, knob, value, "release_threshold at most contact_threshold in each env")

    @recorded
    def post_process(self, data: Record, timeline: Timeline, *, is_measured: bool) -> Tensor:
        """Compare with the thresholds (one launch)."""
        taxels, flags = self._taxels, self._flags
        depth, before, after = map(taxels.scalars, (data.depth, timeline.at(0).contact, flags))
        self.compute_on.launch(_latch, taxels.items, [taxels.block, self._on, self._off, depth, before], [after])
        return flags

"""Contact depth probe: penetration of probes on a link into the shapes around them.

Axes: ``[env, mount, probe]``, m (no mount axis for a singular selector); a grid of probes has two axes instead of one.

A probe is a ball of radius R at p; sd is the signed distance from p to the deepest shape of all other links (negative
inside). It reads

    depth = max(0, R - sd)

which is 0 without contact, at most R while the centre is outside, and larger inside. It is a geometric estimate: it
includes shapes that the solver does not let collide, and ignores the solver's own penetration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import warp as wp
from torch import Tensor

from sensorium.compute import Rows, kernel, masked_tid
from sensorium.geometry.solid_around import NearShapes, Shapes, deepest
from sensorium.measurement.record import Record
from sensorium.sensors.touch.taxel_cfg import TaxelCfg
from sensorium.sensors.touch.taxels import Skin, TaxelSensor, drawn_radius
from sensorium.spec import Field


@dataclass(frozen=True, slots=True)
class ContactDepthProbeData:
    """One sample of contact depth probes; `.data` is the tensor itself."""

    depth: Annotated[Tensor, Field("m")]
    """Penetration of each probe into the deepest shape, m; 0 without contact."""


class ContactDepthProbeCfg(TaxelCfg[ContactDepthProbeData]):
    """Configuration of contact depth probes. Knobs such as `noise` act on the depth, m."""


TaxelCfgT = TypeVar("TaxelCfgT", bound=TaxelCfg[Any])
ProbeDataT = TypeVar("ProbeDataT")


@kernel(blocks=2)
def _depths(
    rows: Rows,
    block: int,
    skin: Skin,
    shapes: Shapes,
    around: NearShapes,
    depth_out: wp.array3d[wp.float32],
    depth_measured: wp.array3d[wp.float32],
) -> None:
    env, mount, first = masked_tid(rows)
    is_noisy = depth_measured.shape[0] > 0
    count = skin.points.shape[0]
    for probe in range(first * block, wp.min((first + 1) * block, count)):
        depth = wp.float32(0.0)
        depth_2 = wp.float32(0.0)
        radius = skin.radius[probe]
        if radius > 0.0 and around.count[env, mount] > 0:
            measured = radius
            if is_noisy:
                element = mount * count + probe
                measured = drawn_radius(rows, env, element, radius, skin.noise, skin.key0, skin.key1)
            touched = deepest(shapes, around, env, mount, skin.points[probe], wp.max(radius, measured))
            if touched.near >= 0:
                depth = wp.max(radius - touched.distance, 0.0)
                depth_2 = wp.max(measured - touched.distance, 0.0)
        depth_out[env, mount, probe] = depth
        if is_noisy:
            depth_measured[env, mount, probe] = depth_2


class DepthSensor(TaxelSensor[TaxelCfgT, ProbeDataT], Generic[TaxelCfgT, ProbeDataT]):
    """Sensor whose pipeline carries the depth of each probe as its field `depth`."""

    single: ClassVar[bool] = True

    def compute_readings(self, raw: Record, slot: Record | None) -> None:
        """Compute the depth of each probe (one launch)."""
        taxels = self._taxels
        inputs = [taxels.block, taxels.skin, taxels.query.shapes, taxels.query.around]
        outputs = [taxels.scalars(raw.depth), taxels.scalars(slot.depth if slot else None)]
        self.compute_on.launch(_depths, taxels.items, inputs, outputs)


class ContactDepthProbe(DepthSensor[ContactDepthProbeCfg, ContactDepthProbeData]):
    """Penetration of probes on a link into the shapes around them."""

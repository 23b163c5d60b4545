"""Common base of the sensors of hinges and slides: their joints, fields with joint units, constants per joint."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import torch
import warp as wp
from torch import Tensor

from sensorium.errors import Fault
from sensorium.measurement.record import Record
from sensorium.measurement.sensor_cfg import Selector, Selectors, SimpleSensorCfg
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.core.parts import frames_of
from sensorium.spec import Field
from sensorium.world.joints import ScalarJoints, resolve_joints

DataT = TypeVar("DataT")


class JointsCfg(SimpleSensorCfg[DataT], Generic[DataT]):
    """Sensor of scalar joints. Give exactly one of `joint` and `joints`.

    `joint` means exactly one and gives no joint axis; `joints` (a full-match pattern or a list) gives a joint axis
    after env.
    """

    joint: Selector = None
    """Name (or full-match pattern) of one hinge or slide."""
    joints: Selectors = None
    """Pattern or list of hinges and slides; ``".*"`` selects all."""

    def __init__(self, /, **data: Any) -> None:
        given = [name for name in ("joint", "joints") if data.get(name) is not None]
        faults = []
        if len(given) != 1:
            got = ", ".join(f"{name}={data[name]!r}" for name in given) or "no selector"
            faults.append(Fault("joints", got, "exactly one of joint and joints", 'Give joints=".*" for all.'))
        self._init_with(data, faults)

    @property
    def is_plural(self) -> bool:
        """Whether the sensor has a joint axis."""
        return self.joints is not None


JointsCfgT = TypeVar("JointsCfgT", bound=JointsCfg[Any])


class ScalarJointSensor(SimpleSensor[JointsCfgT, DataT], Generic[JointsCfgT, DataT]):
    """Sensor of one or several hinges and slides. One flag for all joints marks a state that is not finite."""

    checks_state: ClassVar[bool] = True

    @cached_property
    def joints(self) -> ScalarJoints:
        """The selected joints."""
        return resolve_joints(self.cfg, self.engine)

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Full names of the joints, in the order of the joint axis."""
        return self.joints.names

    def fields(self) -> Mapping[str, Field]:
        """Return the selected fields, with the joint axis and the units of these joints."""
        return self.joints.fields(super().fields())

    def setup(self) -> None:
        """Look up the joints in the engine's arrays."""
        self._columns = self._per_joint(self.joints.columns, wp.int32)
        self.buffers.body_at_fault = self._body_at_fault

    def about_drawing(self) -> dict[str, Any]:
        """Return the frames of the joints."""
        return frames_of(self.engine, "joint", self.joint_names)

    def _body_at_fault(self, env: int, mount: int) -> str:
        """Return the first joint whose state is not finite."""
        finite = torch.stack(self._inspected(env)).isfinite().all(dim=0)
        return f"of joint {self.joint_names[int(finite.int().argmin())]}"

    def _inspected(self, env: int) -> list[Tensor]:
        """Return the values `[joint]` of an env that are checked for being finite."""
        return [self._rows(self.buffers.truth, name)[env] for name in self.fields()]

    def _rows(self, record: Record, name: str) -> Tensor:
        """Return a field as `[env, joint]`, also for a singular selector."""
        return record[name].view(self.num_envs, -1)

    def _per_joint(self, values: Any, dtype: Any = wp.float32) -> Any:
        """Return per-joint numbers, or a config field of that name, as a Warp array `[joint]`."""
        if isinstance(values, str):
            values = self.joints.numbers(self.cfg, values, getattr(self.cfg, values) or 0.0)
        return wp.array(values, dtype=dtype, device=self.compute_on.wp_device)

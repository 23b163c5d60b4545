"""Common base of the sensors of hinges and slides: their joints, fields with joint units, constants per joint."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import torch
import warp as wp
from torch import Tensor

from sensorium.measurement.record import Record
from sensorium.sensors.core.base import SimpleSensor
from sensorium.sensors.core.parts import frames_of
from sensorium.spec import Field
from sensorium.world.joints import JointsCfg, ScalarJoints, resolve_joints

JointsCfgT = TypeVar("JointsCfgT", bound=JointsCfg[Any])
DataT = TypeVar("DataT")


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
        declared = super().fields()
        return self.joints.fields({name: declared[name] for name in self.cfg.selected or declared})

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
        row = (
            self.joints.numbers(self.cfg, values, getattr(self.cfg, values) or 0.0)
            if isinstance(values, str)
            else values
        )
        return wp.array(row, dtype=dtype, device=self.compute_on.wp_device)

"""Selection of scalar joints (hinges and slides) by name, and numbers that can differ between joints.

The grammar is that of `world.select`: full-match patterns, lists of these, `ObjRef`. A pattern selects scalar joints
only: free and ball joints have no single position, and naming one of them is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from sensorium.cfg import Float, ObjRef, is_finite, must
from sensorium.engines.base import Engine
from sensorium.errors import ConfigError, Fault, SelectionError, listed, shown
from sensorium.spec import Field
from sensorium.world.select import match_names, matching

if TYPE_CHECKING:
    from sensorium.sensors.joints.scalar import JointsCfg


def per_joint(value: Any) -> tuple[Any, ...]:
    """Return a number for all joints as a tuple of one; a tuple is unchanged."""
    return value if isinstance(value, tuple) else (value,)


PerJoint = Annotated[
    Float | tuple[Float, ...], must(lambda value: value != () and is_finite(value), "a finite number, or one per joint")
]
"""One finite number for all joints, or one per joint in the order of `joint_names`."""
Positive = Annotated[PerJoint, must(lambda value: min(per_joint(value)) > 0.0, "a number above 0, or one per joint")]


@dataclass(frozen=True, slots=True)
class ScalarJoints:
    """The joints that a config selects.

    Attributes:
        names: full names, in joint order.
        columns: column of each joint in the engine's joint arrays.
        slides: whether each joint is a slide.
        is_plural: whether there is a joint axis.
    """

    names: tuple[str, ...]
    columns: tuple[int, ...]
    slides: tuple[bool, ...]
    is_plural: bool

    @property
    def count(self) -> int:
        """Number of joints."""
        return len(self.names)

    def unit(self, declared: str) -> str:
        """Return the unit of a quantity that is declared as that at a hinge and at a slide, e.g. ``"rad|m"``."""
        hinge, _, slide = declared.partition("|")
        if not slide or not any(self.slides):
            return hinge
        return slide if all(self.slides) else declared

    def fields(self, declared: Mapping[str, Field]) -> dict[str, Field]:
        """Return the fields of a data class with the joint axis and the units of these joints."""
        shape = {"shape": (self.count,), "axes": ("joint",)} if self.is_plural else {}
        return {name: replace(field, unit=self.unit(field.unit), **shape) for name, field in declared.items()}  # type: ignore[arg-type]

    def numbers(self, cfg: JointsCfg[Any], field: str, value: Any = None) -> list[float]:
        """Return a config's `PerJoint` value as one number per joint.

        Args:
            cfg: the config.
            field: its field, which provides the default value.
            value: the value.

        Raises:
            ConfigError: the number of values does not match.
        """
        value = getattr(cfg, field) if value is None else value
        if not isinstance(value, tuple):
            return [float(value)] * self.count
        if len(value) != self.count:
            fix = f"The joints are {listed(self.names)}."
            raise ConfigError.single(cfg.title, field, value, f"one number, or {self.count} of them", fix)
        return [float(number) for number in value]


def resolve_joints(cfg: JointsCfg[Any], engine: Engine) -> ScalarJoints:
    """Return the scalar joints that a config selects, in the order of the model (of the list, for a list).

    Raises:
        SelectionError: nothing matches, several match where one is needed, or a free or ball joint is named.
    """
    field = "joints" if cfg.is_plural else "joint"
    value = getattr(cfg, field)
    scalars = engine.names("scalar_joint")
    names: list[str] = []
    for pattern in value if isinstance(value, tuple) else (value,):
        if isinstance(pattern, ObjRef) and pattern.type != "joint":
            raise SelectionError(cfg.title, [Fault(field, shown(pattern), "a reference to a joint")])
        try:
            found = match_names(
                pattern, scalars, config=cfg.title, field=field, what="joint", exactly_one=not cfg.is_plural
            )
        except SelectionError as error:
            found = matching(pattern, engine.names("joint"), cfg.title, field)
            others = [name for name in found if name not in scalars]
            if not others or len(others) < len(found):
                raise
            fix = (
                f"{listed(others)}: free and ball joints have several coordinates. For orientation and rates of a "
                'ball joint use BuiltinSensor (types "ballquat", "ballangvel"), for a free body Imu.'
            )
            raise SelectionError(error.config, [Fault(field, shown(pattern), "a hinge or a slide", fix)]) from None
        names.extend(name for name in found if name not in names)
    if not names:
        raise SelectionError(cfg.title, [Fault(field, shown(value), "at least one joint")])
    slides = engine.slide_joints()
    return ScalarJoints(
        tuple(names),
        tuple(scalars.index(name) for name in names),
        tuple(name in slides for name in names),
        cfg.is_plural,
    )

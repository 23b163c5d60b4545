"""Knobs of sensors and fields of the physics model that are drawn at the start of each episode."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import torch

from sensorium.errors import ArgumentError, ConfigError, SensoriumError
from sensorium.random import Distribution
from sensorium.scene import Scene
from sensorium.scene.terms import sensor_in

MODEL = "model."
"""Prefix of fields of the physics model."""
ALSO_SCALED = {"body_mass": ("body_inertia",)}
"""Fields of the model that share the factor of another one: a body of twice the mass has twice the inertia."""


class Randomisation:
    """Distributions of knobs and of factors of the physics model.

    Args:
        scene: the scene; its engine's model is unchanged so far.
        randomise: ``"sensor.knob"`` or ``"model.FIELD"`` -> distribution, see `RlEnv`.
        title: class with the field `randomise`, for errors.

    Raises:
        ConfigError: a value is not a distribution, or a knob does not exist or is drawn by its sensor.
        ArgumentError: the engine cannot vary a field.
    """

    def __init__(self, scene: Scene, randomise: Mapping[str, Distribution], *, title: str) -> None:
        self._scene, self._randomise = scene, dict(randomise)
        for name, distribution in self._randomise.items():
            if not isinstance(distribution, Distribution):
                expected = "a distribution, such as sn.Uniform(0.9, 1.1)"
                raise ConfigError.single(f"{title}.randomise", name, distribution, expected)
        scaled = [name for name in self._randomise if name.startswith(MODEL)]
        for name in scaled:
            self._check_field(name)
        self._fields = {field: self._live(field).clone() for name in scaled for field in _scaled(name)}
        self._shapes: dict[str, tuple[int, ...]] = dict.fromkeys(scaled, (1,))
        """Shape of the numbers that are drawn per env: a factor for a field of the model, or the amounts of a knob."""
        for name in self._randomise.keys() - scaled:
            sensor, knob = sensor_in(scene, name)
            self._shapes[name] = tuple(sensor.get(knob).shape[1:])
            amount = getattr(sensor.cfg, knob.partition(".")[0], None)
            amounts = amount.values() if isinstance(amount, Mapping) else [amount]
            if any(isinstance(each, Distribution) for each in amounts):
                fix = "The sensor draws it at each reset: omit it in one of the two places."
                raise ConfigError.single(title, "randomise", name, "a knob that is a number", fix)
        for name, distribution in self._randomise.items():
            try:
                scene.draw(name, distribution, prod(self._shapes[name]), env_ids=[0])
                self._check_range(name, distribution)
            except SensoriumError as error:
                reason = str(error).rstrip(".")
                raise ConfigError.single(f"{title}.randomise", name, distribution, reason) from None

    def __repr__(self) -> str:
        return f"Randomisation({', '.join(f'{name}: {each!r}' for name, each in self._randomise.items())})"

    def apply(self, env_ids: torch.Tensor) -> None:
        """Draw all values of the current episodes of some environments.

        Args:
            env_ids: int64 `[n]`.
        """
        rows = env_ids.cpu()
        self._put_back(rows)
        for name, distribution in self._randomise.items():
            shape = self._shapes[name]
            values = self._scene.draw(f"randomise/{name}", distribution, prod(shape), env_ids=env_ids)
            if name.startswith(MODEL):
                for field in _scaled(name):
                    live = self._live(field)
                    live[rows] *= values.cpu().reshape(-1, *(1,) * (live.dim() - 1)).to(live.dtype)
            else:
                sensor, knob = sensor_in(self._scene, name)
                sensor.set(knob, values.reshape(-1, *shape), env_ids)
        self._update_constants(rows)

    def restore(self) -> None:
        """Restore the model in all environments, e.g. for another scene on the same engine."""
        rows = torch.arange(self._scene.num_envs, device="cpu")
        self._put_back(rows)
        self._update_constants(rows)

    def _check_range(self, name: str, distribution: Distribution) -> None:
        """Raise an error now, and not at some reset, if a knob cannot have all values of its distribution."""
        if name.startswith(MODEL):
            return
        sensor, knob = sensor_in(self._scene, name)
        before = sensor.get(knob)[:1]
        for bound in distribution.bounds:
            values = torch.as_tensor(bound, dtype=torch.float32, device=before.device).expand(prod(self._shapes[name]))
            sensor.set(knob, values.reshape(before.shape).to(before), [0])
        sensor.set(knob, before, [0])

    def _put_back(self, rows: torch.Tensor) -> None:
        for field, original in self._fields.items():
            self._live(field)[rows] = original[rows]

    def _update_constants(self, rows: torch.Tensor) -> None:
        if self._fields:
            self._scene.engine.batch.update_constants(self._fields, rows.sort().values.numpy())  # type: ignore[attr-defined]

    def _live(self, field: str) -> torch.Tensor:
        """Return the values of a field of the model, live for each environment `[env, ...]`."""
        return torch.from_numpy(self._scene.engine.batch.expand(field))  # type: ignore[attr-defined]

    def _check_field(self, name: str) -> None:
        """Raise ArgumentError unless a field of the model can be varied."""
        engine, field = self._scene.engine, name.removeprefix(MODEL)
        batch = getattr(engine, "batch", None)
        if batch is None:
            raise ArgumentError(f"randomise[{name!r}]: {engine.name} has no fields of models per environment.")
        if batch.is_derived(field):
            raise ArgumentError(
                f"randomise[{name!r}]: MuJoCo derives {field} from other fields, such as body_mass: randomise those."
            )
        try:
            is_real = self._live(field).is_floating_point()
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise ArgumentError(f"randomise[{name!r}]: MuJoCo cannot vary {field!r} per environment: {error}") from None
        if not is_real:
            raise ArgumentError(f"randomise[{name!r}]: a factor would be rounded: choose a field of real numbers.")


def _scaled(name: str) -> tuple[str, ...]:
    """Return the fields that a factor multiplies."""
    field = name.removeprefix(MODEL)
    return field, *ALSO_SCALED.get(field, ())

"""Tensors of the user as an engine, for tests and as a bridge to simulators without an adapter."""

from sensorium.engines.tensor.engine import TensorEngine as TensorEngine

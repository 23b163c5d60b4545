"""Stages: imperfections beyond the standard chain, and `StageCfg` and `StageKey` for custom ones."""

from sensorium.lazy import public_names

__all__, __getattr__, __dir__ = public_names(__name__, f"{__file__}i")

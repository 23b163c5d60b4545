"""`sensorium.compat.mjlab` without mjlab; `make test-mjlab` tests it with mjlab installed."""

from __future__ import annotations

import importlib
import sys

import pytest

import sensorium as sn


def test_import_without_mjlab_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "mjlab"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "sensorium.compat.mjlab.scenes", raising=False)
    monkeypatch.setitem(sys.modules, "mjlab", None)  # Python then finds no such module
    page = importlib.import_module("sensorium.compat.mjlab")
    exec("from sensorium.compat.mjlab import *", names := {})
    assert {"RayCastSensorCfg", "RingPatternCfg"} <= names.keys() and "add_sensors" not in names
    with pytest.raises(sn.MissingDependencyError, match=r"mjlab .*cannot be imported here .*: pip install mjlab"):
        page.add_sensors  # noqa: B018

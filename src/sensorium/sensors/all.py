"""All built-in sensors and stages: importing this module imports and registers each of them."""

from importlib import import_module
from pkgutil import walk_packages

from sensorium import sensors
from sensorium.measurement import stages

for _package in (sensors, stages):
    for _module in walk_packages(_package.__path__, f"{_package.__name__}."):
        import_module(_module.name)

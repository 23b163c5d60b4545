"""All built-in sensors: importing this module imports and registers every sensor and stage of the package."""

from importlib import import_module
from pkgutil import walk_packages

for _package in map(import_module, ("sensorium.sensors", "sensorium.cameras", "sensorium.measurement.stages")):
    for _module in walk_packages(_package.__path__, f"{_package.__name__}."):
        import_module(_module.name)

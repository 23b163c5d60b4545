"""All built-in sensors: importing this module imports and registers every sensor of the package."""

from importlib import import_module
from pkgutil import walk_packages

from sensorium import sensors

for _module in walk_packages(sensors.__path__, f"{sensors.__name__}."):
    import_module(_module.name)

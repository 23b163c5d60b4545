"""Every sensor of ours: importing this module imports all others of the package, which register their sensors."""

from importlib import import_module
from pkgutil import walk_packages

from sensorium import sensors

for _module in walk_packages(sensors.__path__, f"{sensors.__name__}."):
    import_module(_module.name)

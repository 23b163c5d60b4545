"""Devices: an argument that names one is checked and made canonical before anything touches it.

Nothing here makes a context on a device: a scene on cuda:1 leaves cuda:0 untouched. Torch and Warp must both see a
device, for tensors are torch's and kernels are Warp's.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
import warp as wp

from sensorium.errors import DeviceError, shown

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Found:
    """What torch and Warp found on this machine.

    Args:
        torch: torch's version.
        torch_for: what it was built for, such as ``"CUDA 12.8"``; empty for a build for the CPU alone.
        torch_devices: how many CUDA devices it sees.
        current: index of its current one.
        warp: Warp's version.
        warp_for: what it was built for; empty for a build for the CPU alone.
        warp_devices: names of the CUDA devices that it sees.
        driver: the newest CUDA that the driver supports, such as ``"12.4"``; empty where Warp found no driver.
        visible: the environment variable CUDA_VISIBLE_DEVICES; None where it is not set.
    """

    torch: str
    torch_for: str
    torch_devices: int
    current: int
    warp: str
    warp_for: str
    warp_devices: tuple[str, ...]
    driver: str
    visible: str | None

    @classmethod
    def here(cls) -> Found:
        """Ask torch and Warp."""
        built, toolkit, driver = torch.version, wp.get_cuda_toolkit_version(), wp.get_cuda_driver_version()
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        hip = getattr(built, "hip", None)
        return cls(
            torch=torch.__version__,
            torch_for=f"CUDA {built.cuda}" if built.cuda else f"ROCm {hip}" if hip else "",
            torch_devices=count,
            current=torch.cuda.current_device() if count else 0,
            warp=wp.__version__,
            warp_for="" if toolkit is None else f"CUDA {_dotted(toolkit)}",
            warp_devices=tuple(device.name for device in wp.get_cuda_devices()),
            driver="" if driver is None else _dotted(driver),
            visible=os.environ.get("CUDA_VISIBLE_DEVICES"),
        )

    def __str__(self) -> str:
        driver = f"a driver for CUDA up to {self.driver}" if self.driver else "no NVIDIA driver"
        hidden = "" if self.visible is None else f" (CUDA_VISIBLE_DEVICES is {self.visible!r})"
        return (
            f"{driver}, torch {self.torch} {_built(self.torch_for)} which sees {_devices(self.torch_devices)}, "
            f"and Warp {self.warp} {_built(self.warp_for)} which sees {_devices(len(self.warp_devices))}{hidden}"
        )

    @property
    def usable(self) -> int:
        """Number of CUDA devices that both see."""
        return min(self.torch_devices, len(self.warp_devices))

    @property
    def remedy(self) -> str:
        """What would give a CUDA device: a clause that begins with a verb."""
        missing = []
        if not self.driver and self.warp_for:
            missing.append("an NVIDIA driver")
        if not self.torch_for.startswith("CUDA"):
            missing.append("a build of torch for CUDA")
        if not self.warp_for:
            missing.append("a build of Warp for CUDA")
        if missing:
            return f"install {' and '.join(missing)}"
        if self.visible is not None and not (self.torch_devices and self.warp_devices):
            return "set CUDA_VISIBLE_DEVICES to the index of a GPU"
        return f"install a driver that supports {self.torch_for} and {self.warp_for}"


def resolve_device(device: str | torch.device, *, argument: str = "device", found: Found | None = None) -> str:
    """Return a device's canonical name: ``"cpu"`` or ``"cuda:INDEX"``; ``"cuda"`` is torch's current CUDA device.

    Args:
        device: a name or a torch device.
        argument: what messages call it; an option where it begins with ``--``.
        found: what is there; None looks, where it matters.

    Raises:
        DeviceError: this is no device that sensors compute on, or it is not there; the message says what was found.
    """

    def use(name: str) -> str:
        return f"{argument} {name}" if argument.startswith("--") else f"{argument}={name!r}"

    name = str(device) if isinstance(device, str | torch.device) else ""
    got = f"{argument}: got {shown(name or device)}"
    match = re.fullmatch(r"(?:cpu|cuda)(?::(0|[1-9]\d*))?", name)
    if match is None:
        fix = f"For an NVIDIA GPU use {use('cuda')}, otherwise {use('cpu')}."
        raise DeviceError(f"{got}, expected 'cpu', 'cuda' or 'cuda:INDEX'. {fix}")
    if name.startswith("cpu"):
        return "cpu"
    found = found or Found.here()
    if not found.usable:
        raise DeviceError(
            f"{got}, but no CUDA device can be used, for there is {found}; use {use('cpu')}, or {found.remedy}."
        )
    index = found.current if match[1] is None else int(match[1])
    if index >= found.usable:
        there = ", ".join(f"cuda:{i} ({title})" for i, title in enumerate(found.warp_devices[: found.usable]))
        raise DeviceError(f"{got}, expected one of the CUDA devices that are here, {there}; there is {found}.")
    return f"cuda:{index}"


def cuda_devices() -> list[str]:
    """Return the names of all CUDA devices that can be used, in order; none without CUDA."""
    return [f"cuda:{index}" for index in range(Found.here().usable)]


def keeps_current(method: Function) -> Function:
    """Decorate what works with Warp, so that torch's current CUDA device is afterwards what it was before.

    Warp makes the device it works on current and leaves it so; then ``device="cuda"`` in the caller's next line would
    mean another one. With a single GPU there is nothing to keep. It does not work in torch's inference mode either,
    where the caller may be: what is made there could never be written outside.
    """

    @functools.wraps(method)
    def kept(*args: Any, **kwargs: Any) -> Any:
        if torch.is_inference_mode_enabled():
            with torch.inference_mode(False), torch.no_grad():
                return kept(*args, **kwargs)
        if not _several():
            return method(*args, **kwargs)
        with torch.cuda.device(torch.cuda.current_device()):
            return method(*args, **kwargs)

    return cast(Function, kept)


@functools.cache
def _several() -> bool:
    return torch.cuda.is_available() and torch.cuda.device_count() > 1


def pinned(shape: tuple[int, ...] | torch.Size, dtype: torch.dtype, device: str) -> torch.Tensor:
    """Return uninitialised host memory that a CUDA device copies to and from without waiting.

    It is registered with that device: torch would take the current one, and wake it.
    """
    with torch.cuda.device(device):
        return torch.empty(shape, dtype=dtype, device="cpu", pin_memory=True)


def _built(target: str) -> str:
    return f"built {f'for {target}' if target else 'without CUDA'}"


def _devices(count: int) -> str:
    return f"{count or 'no'} device{'' if count == 1 else 's'}"


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))

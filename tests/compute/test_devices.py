"""Devices: canonical names, explained faults, and no use of default devices.

No GPU is needed. The checks are given the properties of a machine. The default devices of torch and Warp are removed,
which reveals any object created on a default device instead of the scene's.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import warp as wp
from nursery import Nursery

import sensorium as sn
from sensorium.compute import Compute, DeviceInventory, cuda_devices, resolve_device
from sensorium.compute import devices as devices_module
from sensorium.errors import DeviceError, SensoriumError

SRC = Path(__file__).parents[2] / "src"

TWO = DeviceInventory(
    torch="2.9.0+cu128",
    torch_for="CUDA 12.8",
    torch_devices=2,
    current=1,
    warp="1.19.0",
    warp_for="CUDA 12.9",
    warp_devices=("NVIDIA H200", "NVIDIA L4"),
    driver="12.9",
    visible=None,
)
"""A machine with two GPUs, the second of which is torch's current one."""

NONE = replace(
    TWO, torch="2.9.0+cpu", torch_for="", torch_devices=0, current=0, warp_devices=(), driver=""
)  # a laptop with a CPU build of torch


# Names ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("cpu", "cpu"),
        ("cpu:0", "cpu"),
        (torch.device("cpu"), "cpu"),
        ("cuda", "cuda:1"),
        ("cuda:0", "cuda:0"),
        ("cuda:1", "cuda:1"),
        (torch.device("cuda"), "cuda:1"),
        (torch.device("cuda", 0), "cuda:0"),
    ],
)
def test_a_device_gets_its_canonical_name(device: str | torch.device, name: str) -> None:
    """The CPU has no index and a GPU always has one; without an index, the name means torch's current GPU."""
    assert resolve_device(device, found=TWO) == name


def test_cpu_request_searches_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device query would load the CUDA driver, which may take a second."""
    monkeypatch.setattr(DeviceInventory, "detect", lambda: pytest.fail("it looked"))
    assert resolve_device("cpu") == "cpu"


@pytest.mark.parametrize("device", ["gpu", "CUDA:0", "cuda:-1", "mps", torch.device("meta"), 1, None, ""])
def test_invalid_device_is_refused_with_valid_names(device: Any) -> None:
    with pytest.raises(DeviceError) as error:
        resolve_device(device, found=TWO)
    text = str(error.value)
    got = repr(str(device)) if isinstance(device, str | torch.device) else repr(device)
    fix = "For an NVIDIA GPU use device='cuda', otherwise device='cpu'."
    assert text == f"device: got {got}, expected 'cpu', 'cuda' or 'cuda:INDEX'. {fix}"
    assert isinstance(error.value, SensoriumError) and isinstance(error.value, ValueError)


def test_unknown_index_error_lists_existing_indices() -> None:
    with pytest.raises(DeviceError, match=r"got 'cuda:2', .* cuda:0 \(NVIDIA H200\), cuda:1 \(NVIDIA L4\)"):
        resolve_device("cuda:2", found=TWO)


def test_gpu_visible_only_to_torch_is_unavailable() -> None:
    """Tensors would be on the device, but no kernel could run."""
    found = replace(TWO, warp_devices=("NVIDIA H200",))
    assert resolve_device("cuda:0", found=found) == "cuda:0"
    with pytest.raises(DeviceError, match=r"torch .* sees 2 devices, and Warp .* sees 1 device\."):
        resolve_device("cuda:1", found=found)


@pytest.mark.parametrize(
    ("found", "parts", "remedy"),
    [
        (
            NONE,
            ["no NVIDIA driver", "torch 2.9.0+cpu built without CUDA which sees no devices", "built for CUDA 12.9"],
            "install an NVIDIA driver and a build of torch for CUDA",
        ),
        (
            replace(NONE, driver="12.9", warp_devices=("NVIDIA L4",)),
            ["a driver for CUDA up to 12.9", "built without CUDA", "Warp 1.19.0 built for CUDA 12.9 which sees 1 dev"],
            "install a build of torch for CUDA",
        ),
        (replace(TWO, torch_devices=0, warp_devices=(), driver=""), ["no NVIDIA driver"], "install an NVIDIA driver"),
        (
            replace(TWO, torch_devices=0, warp_devices=(), driver="11.4"),
            ["a driver for CUDA up to 11.4"],
            "install a driver that supports CUDA 12.8 and CUDA 12.9",
        ),
        (
            replace(TWO, torch_devices=0, warp_devices=(), visible=""),
            ["(CUDA_VISIBLE_DEVICES is '')"],
            "set CUDA_VISIBLE_DEVICES to the index of a GPU",
        ),
        (
            replace(TWO, torch_for="ROCm 6.2", warp_devices=()),
            ["built for ROCm 6.2"],
            "install a build of torch for CUDA",
        ),
        (replace(TWO, warp_for="", warp_devices=()), ["Warp 1.19.0 built without CUDA"], "install a build of Warp for"),
    ],
    ids=["nothing", "torch for the CPU", "no driver", "old driver", "hidden", "ROCm", "Warp for the CPU"],
)
def test_missing_cuda_error_names_findings_and_remedy(found: DeviceInventory, parts: list[str], remedy: str) -> None:
    with pytest.raises(DeviceError) as error:
        resolve_device("cuda", found=found)
    text = str(error.value)
    assert text.startswith("device: got 'cuda', but no CUDA device is available") and "\n" not in text
    assert text.endswith(".") and ". " not in text  # one sentence
    for part in [*parts, "use device='cpu', or ", remedy]:
        assert part in text
    with pytest.raises(DeviceError, match=r"^--device: .* use --device cpu, or "):
        resolve_device("cuda", argument="--device", found=found)


def test_inventory_matches_torch_and_warp() -> None:
    found = DeviceInventory.detect()
    assert found.torch == torch.__version__ and found.warp == wp.__version__
    assert found.torch_devices == (torch.cuda.device_count() if torch.cuda.is_available() else 0)
    assert len(found.warp_devices) == wp.get_cuda_device_count()
    assert bool(found.driver) == (wp.get_cuda_driver_version() is not None)
    assert cuda_devices() == [f"cuda:{i}" for i in range(found.usable)]


MODEL = "<mujoco><worldbody><body name='b'><joint/><geom size='1'/></body></worldbody></mujoco>"


@pytest.mark.parametrize(
    "make",
    [
        lambda device: sn.TensorEngine(device=device),
        lambda device: sn.MujocoEngine(MODEL, device=device),
        lambda device: Compute(device, 1),
    ],
    ids=["TensorEngine", "MujocoEngine", "Compute"],
)
def test_every_device_argument_is_resolved(make: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults are found at construction; afterwards the canonical name is shown."""
    assert make(torch.device("cpu", 0)).device == "cpu"
    monkeypatch.setattr(devices_module.DeviceInventory, "detect", lambda: NONE)
    for device, expected in (("cuda", "no NVIDIA driver"), ("gpu", "expected 'cpu'")):
        with pytest.raises(DeviceError, match=expected):
            make(device)


# Nothing lands on a default device ------------------------------------------------------------------------------------

TORCH_MAKES = {
    "arange", "as_tensor", "asarray", "empty", "empty_strided", "eye", "full", "hann_window", "linspace", "logspace",
    "normal", "ones", "rand", "randint", "randn", "randperm", "scalar_tensor", "tensor", "tril_indices", "zeros",
}  # fmt: skip
"""Functions of torch whose result is on torch's default device unless a device is passed."""

WARP_MAKES = {
    "array", "capture_begin", "empty", "force_load", "from_numpy", "full", "launch", "launch_tiled", "load_module",
    "ones", "zeros", "Bvh", "HashGrid", "Mesh", "ScopedCapture", "Texture2D", "Volume",
}  # fmt: skip
"""The same functions of Warp, whose default device is cuda:0 if there is a GPU."""

OF_ONE_DEVICE = {
    "torch.cuda": {"current_stream", "device", "get_device_name", "memory_allocated", "synchronize", "Stream"},
    "wp": {"get_device", "get_stream", "synchronize_device", "synchronize_stream", "Event", "ScopedDevice", "Stream"},
}
"""Functions that take a device as their first argument, and use the default device or all devices without it."""

FORBIDDEN = {"get_preferred_device", "set_default_device", "set_default_tensor_type", "set_device", "synchronize"}
"""Functions that read or change the process's default device, which belongs to the user, or wait for all devices."""

ALLOWED = {
    ("sensorium/geometry/bounds.py", "wp.Mesh("): "a mesh is where its points are",
    ("sensorium/shapes/ray_static.py", "wp.Bvh(lower, upper)"): "a tree is where its bounds are",
}
"""(file, start of the call): the reason why it needs no `device=`."""


def strays(src: Path) -> Iterator[tuple[str, str]]:
    """Yield (file, call) of every host-side call that would use a default device, one line of text each."""
    for path in sorted(src.rglob("*.py")):
        tree, where = ast.parse(path.read_text(encoding="utf-8")), path.relative_to(src).as_posix()
        todo: list[ast.AST] = [tree]
        while todo:
            node = todo.pop()
            if isinstance(node, ast.FunctionDef) and any(
                ast.unparse(each).startswith(("wp.kernel", "wp.func", "kernel", "shared_func"))
                for each in node.decorator_list
            ):
                continue  # Warp's language: it allocates nothing
            todo.extend(ast.iter_child_nodes(node))
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name)):
                continue
            owner, _, name = ast.unparse(node.func).rpartition(".")
            given = {keyword.arg for keyword in node.keywords}
            if (
                name == "pin_memory"
                or ("pin_memory" in given and where != "sensorium/compute/devices.py")
                or (owner in ("wp", "torch") and name in FORBIDDEN)
                or (owner == "wp" and name in WARP_MAKES and "device" not in given)
                or (owner == "torch" and name in TORCH_MAKES and "device" not in given)
                or (name in OF_ONE_DEVICE.get(owner, {"normal_table"}) and not (node.args or "device" in given))
            ):
                yield where, ast.unparse(node)


def test_every_object_reports_its_device() -> None:
    """Each tensor, array, launch and stream names its device, or is in the list of exceptions."""
    found = list(strays(SRC))
    unknown = [(where, call) for where, call in found if not any(where == f and call.startswith(c) for f, c in ALLOWED)]
    assert unknown == []
    idle = [key for key in ALLOWED if not any(where == key[0] and call.startswith(key[1]) for where, call in found)]
    assert idle == []  # the list has no outdated entries


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    return torch.zeros(3)",
        "x = torch.tensor([1.0], dtype=torch.float32)",
        "wp.launch(kernel, dim=3, inputs=[])",
        "wp.Mesh(wp.array(p, dtype=wp.vec3, device=d), i)",
        "stream = torch.cuda.current_stream()",
        "fresh.pin_memory()",
        "x = torch.empty(3, device='cpu', pin_memory=True)",
        "wp.set_device('cuda:1')",
        "torch.cuda.synchronize()",
        "stream = wp.Stream()",
    ],
)
def test_stray_device_is_found(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.py").write_text(text)
    assert len(list(strays(tmp_path))) == 1
    (tmp_path / "a.py").write_text("x = torch.zeros(3, device=d)\n@wp.kernel\ndef k():\n    wp.array(1)\n")
    assert list(strays(tmp_path)) == []


BOX = """<mujoco><option timestep="0.002"/><worldbody>
  <geom name="floor" type="plane" size="5 5 0.1"/>
  <body name="ball" pos="0 0 0.4"><freejoint/><geom name="ball" size="0.1"/><site name="at"/></body>
  <body name="arm" pos="1 0 0.5"><joint name="hinge" axis="0 1 0"/><geom name="arm" type="capsule" size="0.03 0.2"/>
    <site name="tip" pos="0 0 0.2"/></body>
</worldbody><actuator><motor joint="hinge"/></actuator></mujoco>"""
"""A ball that falls on a floor, beside a pendulum."""


def readings() -> dict[str, np.ndarray[Any, Any]]:
    """Build a scene with a sensor of each family, step it, reset part of it, and return the sensors' readings."""
    sensors = [
        sn.ImuCfg(name="imu", site="at", gyro_noise=0.01, gyro_random_walk=0.001, delay=0.004, history_length=3),
        sn.JointSensorCfg(name="joint", joints=".*", bits=12),
        sn.FrameTransformerCfg(name="feet", body="ball", target_frames=(sn.FrameTransformerCfg.FrameCfg(body="arm"),)),
        sn.ContactSensorCfg(
            name="contact",
            primary=sn.ContactMatch(mode="body", pattern="ball"),
            fields=("found", "force"),
            track_air_time=True,
        ),
        sn.RayCasterCfg(name="scan", body="arm", pattern=sn.patterns.GridPatternCfg(size=(0.4, 0.4)), noise=0.01),
        sn.RayCasterCameraCfg(
            name="camera",
            body="arm",
            pattern=sn.patterns.PinholeCameraPatternCfg(width=8, height=6),
            data_types=("distance_to_image_plane",),
        ),
        sn.LidarCfg(
            name="lidar",
            site="tip",
            pattern=sn.patterns.SpinningPatternCfg(elevations=(-10.0, -20.0), cycle_interval=0.001),
            range_noise=0.01,
        ),
        sn.MagnetometerCfg(name="compass", site="at", noise=0.01),
        sn.BarometerCfg(name="height", site="at"),
        sn.GnssCfg(name="fix", site="at"),
    ]
    scene = sn.Scene(sn.MujocoEngine(BOX, 3, threads=1), sensors, seed=4)
    for _ in range(60):
        scene.step()
    scene.reset([1])
    scene.step()
    return {
        f"{name}/{field}": value
        for name, reading in scene.publish().items()
        for branch in (reading.measured, reading.truth)
        for field, value in branch.items()
    }


def test_scene_does_not_use_the_default_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The readings are the same without a Warp default device and with a torch default device that holds no numbers."""
    expected = readings()
    assert len(expected) > 20 and all(value.size for value in expected.values())
    runtime = wp._src.context.runtime
    asked = runtime.get_device
    monkeypatch.setattr(
        runtime, "get_device", lambda ident=None: asked(ident) if ident is not None else pytest.fail("default device")
    )
    try:
        torch.set_default_device("meta")
        found = readings()
    finally:
        torch.set_default_device(None)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_callers_current_gpu_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warp leaves its last GPU current; after each call of this package the caller's GPU is current again."""
    current = [0]

    class Current:
        """Stand-in for `torch.cuda.device` on a machine with two GPUs."""

        def __init__(self, index: int) -> None:
            self.index = index

        def __enter__(self) -> None:
            self.before, current[0] = current[0], self.index

        def __exit__(self, *_: object) -> None:
            current[0] = self.before

    def leaving(function: Callable[..., Any]) -> Callable[..., Any]:
        def left(*args: Any, **kwargs: Any) -> Any:
            current[0] = 1
            launches.append(1)
            return function(*args, **kwargs)

        return left

    launches: list[int] = []
    for owner, name in ((wp, "launch"), (wp, "capture_launch"), (wp._src.context.Launch, "launch")):
        monkeypatch.setattr(owner, name, leaving(getattr(owner, name)))
    monkeypatch.setattr(devices_module, "_several", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[0])
    monkeypatch.setattr(torch.cuda, "device", Current)
    scene = sn.Scene(sn.TensorEngine(2, 0.01), [sn.ImuCfg(name="imu", body="body", gyro_noise=0.1)])
    assert current[0] == 0 and launches
    for call in (
        lambda: (scene.update(), scene["imu"].data),  # on read
        lambda: scene.reset([0]),
        lambda: scene.add(sn.ImuCfg(name="late", body="body")),
        lambda: scene.reconfigure("late", gyro_noise=0.2),
    ):
        launches.clear()
        call()
        assert current[0] == 0 and launches
    with pytest.raises(ZeroDivisionError):
        devices_module.keeps_current(lambda: current.__setitem__(0, 1) or 1 // 0)()
    assert current[0] == 0


def test_scenes_in_one_process_share_no_device_state() -> None:
    """Two scenes stepped in turn read as each does alone: they share no state of a device, stream or pool."""

    def scene(seed: int) -> sn.Scene:
        engine = sn.MujocoEngine(BOX, 2, threads=1)
        return sn.Scene(engine, [sn.ImuCfg(name="imu", site="at", acc_noise=0.1)], seed=seed)

    def alone(seed: int) -> torch.Tensor:
        one = scene(seed)
        for _ in range(5):
            one.step()
        return one["imu"].read().lin_acc_b

    first, second = scene(1), scene(2)
    for _ in range(5):
        first.step()
        second.step()
    assert torch.equal(first["imu"].data.lin_acc_b, alone(1))
    assert torch.equal(second["imu"].data.lin_acc_b, alone(2))


def test_import_initialises_no_device(nursery: Nursery) -> None:
    """The import of engines starts neither Warp nor CUDA, which `import sensorium` does not even import."""
    code = (
        "import sensorium.engines.tensor, torch, warp\n"
        "assert not torch.cuda.is_initialized() and warp._src.context.runtime is None\n"
    )
    program = nursery.program(code, bare=True)
    assert program.wait() == 0, program.err

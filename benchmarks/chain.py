"""The standard chain on 9 columns: noise, bias, random walk, resolution, delay; sensorium against plain torch.

Ours advances the ring, stamps the sample with its arrival, and finds, per env, the newest sample that has arrived.
Three baselines, all with torch's own generator and `addcmul` where it fuses:

- "torch": the same job: arrival ticks and validity per env, a resolution of 0 means continuous;
- "torch, fixed delay": the delay per env is an offset into the ring, nothing is stamped;
- "torch, in place": the minimum in torch: preallocated, in place, one delay for all envs, quantisation always on.
"""

from collections.abc import Callable

import torch

from benchmarks.timing import interleaved
from sensorium import ImuCfg, Scene, TensorEngine

COLUMNS = 9


def torch_plain(num_envs: int, stamps: bool) -> Callable[[], object]:
    """Return one step of the chain as a user would write it in torch, with or without arrival ticks and validity."""
    truth = torch.randn(num_envs, COLUMNS)
    noise, bias, step_sd = (torch.full((1, COLUMNS), value) for value in (0.1, 0.1, 0.01))
    resolution = torch.full((1, COLUMNS), 0.001)
    walk, tick, depth = torch.zeros(num_envs, COLUMNS), 0, 4
    delay, offset = torch.full((num_envs,), 2.0), torch.full((num_envs,), 2)
    ring, envs = torch.zeros(depth, num_envs, COLUMNS), torch.arange(num_envs)
    stamp, arrival = torch.zeros(2, depth, num_envs, dtype=torch.int32)
    okay = torch.ones(depth, num_envs, dtype=torch.bool)

    def step() -> object:
        nonlocal walk, tick
        tick += 1
        head = tick % depth
        walk = torch.addcmul(walk, torch.randn_like(truth), step_sd)
        x = torch.addcmul(truth, torch.randn_like(truth), noise) + walk + bias
        x = torch.where(resolution > 0, torch.round(x / resolution) * resolution, x)
        ring[head] = x
        if not stamps:
            return ring[(head - offset) % depth, envs]
        stamp[head] = tick
        arrival[head] = tick + torch.floor(delay + 0.5)
        okay[head] = True
        newest = torch.where(arrival <= tick, stamp, -1).argmax(dim=0)
        return ring[newest, envs], stamp[newest, envs], okay[newest, envs]

    return step


def torch_in_place(num_envs: int) -> Callable[[], object]:
    """Return the minimum of torch operations for one step."""
    truth = torch.randn(num_envs, COLUMNS)
    noise, bias, step_sd = (torch.full((1, COLUMNS), value) for value in (0.1, 0.1, 0.01))
    resolution = torch.full((1, COLUMNS), 0.001)
    walk, z, x, out = (torch.zeros(num_envs, COLUMNS) for _ in range(4))
    ring, head = torch.zeros(4, num_envs, COLUMNS), [0]

    def step() -> torch.Tensor:
        head[0] = (head[0] + 1) % 4
        walk.addcmul_(z.normal_(), step_sd)
        torch.addcmul(truth, z.normal_(), noise, out=x)
        x.add_(walk).add_(bias).div_(resolution).round_().mul_(resolution)
        ring[head[0]].copy_(x)
        return out.copy_(ring[head[0] - 2])

    return step


def ours(num_envs: int, capture: bool) -> Callable[[], object]:
    """Return one step of sensorium's chain, including ring, time stamp and selection of the arrived sample."""
    engine = TensorEngine(num_envs, 0.002, provides=("pose", "velocity", "acceleration", "gravity"))
    amounts = {"noise": 0.1, "bias": 0.1, "random_walk": 0.01, "resolution": 0.001}
    knobs = {f"{prefix}_{knob}": value for prefix in ("acc", "gyro", "mag") for knob, value in amounts.items()}
    scene = Scene(engine, [ImuCfg(name="imu", body="body", delay=0.004, **knobs)], capture=capture)
    buffers, ring = scene["imu"].buffers, scene["imu"].buffers.ring
    assert ring is not None
    from sensorium.compute import Program
    from sensorium.measurement.chain import EVERYTHING, ChainTable
    from sensorium.measurement.work import SensorWork

    everyone = scene.compute.all_envs
    table = ChainTable(scene.compute, buffers.chain_fields())
    chain = scene.compute.record(lambda: table.launch(EVERYTHING))
    program = Program([chain, *SensorWork(buffers, everyone).after_chain()])
    tick = [scene.tick]

    def step() -> object:
        tick[0] += 1
        scene.clock.set(tick[0], 0, 0)
        program.run()
        ring.read()
        return ring.shown

    return step


def delayed(num_envs: int, ticks: int) -> Callable[[], object]:
    """Return a step and a reading of a noisy IMU with a delay, after the delay has passed."""
    engine = TensorEngine(num_envs, 0.002, provides=("pose", "velocity", "acceleration", "gravity"))
    scene = Scene(engine, [imu := ImuCfg(body="body", delay=0.002 * ticks, acc_noise=0.1, gyro_noise=0.01)])

    def step() -> object:
        scene.update()
        return scene[imu].data

    for _ in range(ticks):
        step()
    return step


def run(num_envs: int) -> list[tuple[str, str, str]]:
    """Return rows for one number of envs: what, time, ratio."""
    calls = {
        "torch": torch_plain(num_envs, stamps=True),
        "torch, fixed delay": torch_plain(num_envs, stamps=False),
        "torch, in place": torch_in_place(num_envs),
        "launches": ours(num_envs, capture=False),
        "captured": ours(num_envs, capture=True),
    }
    seconds = interleaved(calls, repeats=max(20, min(2000, 200_000 // num_envs)))
    rows = []
    for name, value in seconds.items():
        ratio = "baseline" if name == "torch" else f"{value / seconds['torch']:.2f} x torch"
        if name in ("launches", "captured"):
            ratio += f", {value / seconds['torch, fixed delay']:.2f} x fixed delay"
            ratio += f", {value / seconds['torch, in place']:.2f} x in place"
        rows.append((f"standard chain, 9 columns, {num_envs} env(s): {name}", f"{value * 1e6:.1f} us", ratio))
    seconds = interleaved({str(ticks): delayed(num_envs, ticks) for ticks in (10, 500)}, repeats=50)
    for ticks, value in seconds.items():
        ratio = "baseline" if ticks == "10" else f"{value / seconds['10']:.2f} x 10 ticks (at most 1.1)"
        rows.append((f"IMU with noise, {num_envs} env(s): delay of {ticks} ticks", f"{value * 1e6:.1f} us", ratio))
    return rows

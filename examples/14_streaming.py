"""A simulation in one process and a client in another: every frame arrives, in order, bit for bit."""

import queue
import subprocess
import sys

import numpy as np

import sensorium as sn

STEPS = 200


def simulate() -> None:
    """Serve a tumbling body in lock-step until all steps are taken and the clients have left."""
    body = "<worldbody><body name='body'><freejoint/><geom type='box' size='.1 .2 .3'/></body></worldbody>"
    imu = sn.ImuCfg(name="imu", body="body", fields=("ang_vel_b", "lin_acc_b"), gyro_noise=0.01, delay=0.004)
    scene = sn.Scene(sn.MujocoEngine(f"<mujoco>{body}</mujoco>", num_envs=4), [imu], seed=0)
    scene.reset(qvel=np.tile([0.0, 0.0, 0.0, 1.0, 2.0, 3.0], (4, 1)))
    with sn.serve(scene, "tcp://127.0.0.1:0", lockstep=True) as server:
        print(server.address, flush=True)
        server.run(until=lambda: server.clients == 0 and server.frame >= STEPS)
    print(scene["imu"].data.ang_vel_b.double().sum().item())


def listen(address: str) -> tuple[list[int], np.ndarray]:
    """Step the simulation and return the received frames and the newest angular velocities [env, 3]."""
    got: queue.SimpleQueue[sn.Reading] = queue.SimpleQueue()
    with sn.connect(address) as client:
        imu = client.sensors["imu"]
        print(imu)
        imu.listen(got.put, policy="lossless", truth=True)
        for _ in range(STEPS):
            last = client.step()
        frames = [got.get(timeout=10.0)]
        while frames[-1].frame < last:
            frames.append(got.get(timeout=10.0))
    data = frames[-1]  # received data never changes
    off = data.ang_vel_b - data.truth.ang_vel_b
    print(
        f"{data}\nage {1e3 * data.age[0]:.1f} ms, difference from the truth {off.std():.3f} rad/s from noise and delay"
    )
    return [each.frame for each in frames], data.ang_vel_b


if sys.argv[1:] == ["simulate"]:
    simulate()
else:
    command = [sys.executable, "-W", "error", __file__, "simulate"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        frames, newest = listen(process.stdout.readline().strip())
        assert frames[-STEPS:] == list(range(frames[-1] - STEPS + 1, frames[-1] + 1))
        there = float(process.stdout.read())
    assert process.returncode == 0 and there == newest.astype(float).sum()
    print(f"received all {len(frames)} frames in order; the last one equals the server's, bit for bit")

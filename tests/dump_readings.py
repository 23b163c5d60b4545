"""Write the readings of sensors of every kind over a few hundred ticks; `compare_commits` runs it on two commits.

The module uses names of `sensorium` only. Configs and their options come from the tests of the commit under test. These
are `two_engines` (a model, and configs of all kinds), `test_first_env` (random options of each kind, and models of
depth cameras) and `test_stage_contract` (stages).
"""

from __future__ import annotations

import dataclasses
import math
import pickle
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import sensorium as sn
from sensorium.spec import BODY_POSE

STAGES_OF: Any = sn.stages if "stages" in dir(sn) else sn
"""Stages, which older commits have in `sensorium` itself."""
SUBSTEPS = (1, 2, 1, 4, 1, 3)
RATES = (75.0, 100.0, 62.5, None, 30.0)
"""Sampling rates, Hz, for a tick of 4 ms. Some do not divide 250; None means every tick."""
Dump = dict[str, Any]
"""``kinds``: those registered. ``engines``: by name ``sensors``: by name of a sensor its ``kind`` and ``shots``, from
(what, field) to {step: array}; ``ticks``: of each step; ``refused``: by name of a config why it was refused."""


def imperfect(cfg: Any, specs: Any, number: int, own: Mapping[str, Any], coarse: bool) -> Any:
    """Return a config with the knobs of a sensor that has fields `specs`, and with the random options of its kind.

    Quantisation hides small differences, so only a `coarse` config has it. Only a config that is not coarse has delay,
    stages and a rate.
    """
    names = [spec.name for spec in specs if spec.kind in ("vector", "rotation")]
    vectors = [spec.name for spec in specs if spec.kind == "vector"]
    knobs = {knob: dict.fromkeys(names, 0.01) for knob in ("noise", "bias", "random_walk") if names}
    if coarse and vectors:
        knobs["resolution"] = dict.fromkeys(vectors, 0.003)
    if len(specs) == 1:
        knobs = {knob: next(iter(size.values())) for knob, size in knobs.items()}
    rate, stages = (
        RATES[number % len(RATES)],
        tuple(STAGES_OF.Dropout(probability=0.1, fields=(name,)) for name in vectors[:1]),
    )
    if cfg.kind() == "builtin":  # a native sensor is declared in the model by its name
        return cfg.replace(**knobs, loss=0.2, rate_hz=rate)
    drawn = own.get(cfg.kind(), {})
    if coarse:
        return cfg.replace(**knobs, evaluate="wanted" if number % 2 else "auto")
    timed = {"loss": 0.2, "delay": sn.Uniform(0.004, 0.02), "jitter": 0.004, "history_length": 3, "rate_hz": rate}
    try:
        return cfg.replace(**knobs, **timed, **drawn, stages=stages)
    except sn.ConfigError:  # a kind with truth only
        return cfg.replace(history_length=3, **drawn)


def configs(engine: Any, kinds: Iterable[str]) -> tuple[list[Any], dict[str, str]]:
    """Return clean and imperfect configs of all kinds (or of some), and why others were refused."""
    from conformance.test_first_env import DEPTH, OF_ITS_OWN
    from measurement.test_stage_contract import STAGES
    from two_engines import sensors

    clean = {cfg.label: cfg for cfg in sensors() if not kinds or cfg.kind() in kinds}
    scene = sn.Scene(engine, clean.values(), seed=3, discover=False)
    gyro = ("ang_vel_b",)
    imu, camera, gel = (next(filter(lambda cfg: cfg.kind() == kind, clean.values()), None)
                        for kind in ("imu", "depth_camera", "elastomer_taxel"))  # fmt: skip
    makers: dict[str, Callable[[], Any]] = {}
    for number, (label, cfg) in enumerate(clean.items()):
        for coarse in (False, True):
            if (cfg.kind() == "builtin") <= (coarse == number % 3):  # a third of these is coarse, a third noisy
                word = "coarse" if coarse else "noisy"
                makers[f"{label} {word}"] = partial(imperfect, cfg, scene[label].specs, number, OF_ITS_OWN, coarse)
    if imu is not None:
        alone = sn.ImuCfg(site="imu", fields=("ang_vel_b", "lin_acc_b"))
        for label, stage in STAGES.items():
            source = {"source": "lin_acc_b"} if "source" in type(stage).model_fields else {}
            makers[f"imu {label}"] = lambda s=stage, o=source: alone.replace(stages=(s.replace(fields=gyro, **o),))
        for rate in (83.0, 62.5, 25.0):
            makers[f"imu mean {rate}"] = lambda r=rate: alone.replace(
                rate_hz=r, stages=(STAGES_OF.WindowAverage(fields=gyro),)
            )
        clock = STAGES_OF.ClockError(skew_ppm=sn.Normal(0.0, 100.0), offset=0.5, jitter=1e-4)
        makers["imu clock"] = lambda: alone.replace(delay=0.012, gyro_noise=0.1, acc_bias=0.2, stages=(clock,))
        makers["imu always"] = lambda: alone.replace(evaluate="always", noise_density={"ang_vel_b": 0.01})
        makers["imu on_read"] = lambda: alone.replace(evaluate="on_read")
    if camera is not None:
        for label, stage in DEPTH.items():
            makers[f"depth {label}"] = lambda s=stage: camera.replace(stages=(s,))
    if gel is not None:
        near = {"strength": 0.3, "sigma": 0.02, "spacing": 0.01}
        makers["gel crosstalk"] = lambda: gel.replace(
            stages=(STAGES_OF.TaxelCrosstalk(fields=field_of(gel, scene), **near),)
        )
        makers["gel scan"] = lambda: gel.replace(
            rate_hz=50.0, stages=(STAGES_OF.RowScan(fields=field_of(gel, scene), scan_time=0.013, between="samples"),)
        )  # fmt: skip
    refused: dict[str, str] = {}
    out = dict(clean)
    for label, make in makers.items():
        try:
            cfg = make()
            if cfg.kind() != "builtin":
                cfg = cfg.replace(name=label)
            if cfg.label in out:
                scene.remove(cfg.label)
            try:
                scene.add(cfg)
            except sn.UnsupportedError:  # it adds to the model, which is already compiled here
                pass
            out[cfg.label] = cfg
        except (sn.SensoriumError, ValueError) as error:
            refused[label] = f"{type(error).__name__}: {error}"
    return list(out.values()), refused


def field_of(cfg: Any, scene: Any) -> tuple[str, ...]:
    """Return the name of the first field of a sensor."""
    return (scene[cfg.label].specs[0].name,)


def tensors(data: Any) -> dict[str, torch.Tensor]:
    """Return the tensors of a data object by name."""
    if isinstance(data, torch.Tensor):
        return {"value": data}
    values = {field.name: getattr(data, field.name) for field in dataclasses.fields(data)}
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}


def look(sensor: Any, shots: dict[tuple[str, str], dict[int, np.ndarray]], at: int, copies: bool) -> None:
    """Record what a reader of a sensor sees: always views, and at some steps also copies, history and stamps."""
    seen = {"data": sensor.data, "ground_truth": sensor.ground_truth}
    flags = ["age", "valid", "frame", "is_new", "capture_tick"]
    if copies:
        seen |= {"read": sensor.read(), "read of two": sensor.read([2, 0]), "true read": sensor.read_ground_truth()}
        flags += ["stamp", "truth_tick"]
        try:
            seen["history"] = sensor.history
            flags.append("history_valid")
        except sn.ConfigError:  # it has none
            pass
    named = {(what, name): value for what, data in seen.items() for name, value in tensors(data).items()}
    named |= {(flag, ""): getattr(sensor, flag) for flag in flags}
    for key, value in named.items():
        shots.setdefault(key, {})[at] = np.array(value.cpu().numpy(), copy=True)


class World:
    """An engine of two_engines' world, or equivalent tensors, that move by themselves and differ in each env."""

    def __init__(self, name: str, device: str = "cpu") -> None:
        from two_engines import ENVS, MODEL, start

        self.name = name
        if name == "newton":
            import test_conformance

            self.engine = test_conformance.engine_of()
            test_conformance.start(self.engine)
            return
        if name == "mjx":
            self._wrap_mjx()
            return
        if name != "tensor":
            self.engine = sn.MujocoEngine(MODEL, ENVS) if name == "mujoco" else None
            if self.engine is None:
                self.engine = sn.MujocoWarpEngine(MODEL, ENVS, device="cpu")
            start(self.engine)
            self.engine.forward()
            return
        like = sn.MujocoEngine(MODEL, 1)
        places = {kind: {each: like.frame(kind, each) for each in like.names(kind)} for kind in ("site", "geom")}
        joints = {each: like.frame("joint", each) for each in like.names("scalar_joint")}
        native = {each.name: each for each in like.native_sensors()}
        self.engine = sn.TensorEngine(
            ENVS, like.dt, bodies=like.names("body"), sites=places["site"], geoms=places["geom"], joints=joints,
            slides=like.slide_joints(), shapes=like.shapes(), native=native,
            provides=("pose", "velocity", "acceleration", "gravity", "magnetic", "joint_state", "joint_effort",
                      "joint_torque", "joint_wrench", "contact"),
            device=device,
        )  # fmt: skip
        like.prepare({BODY_POSE: "world"})
        like.forward()
        self.home = like.array("body_pos_w")[0].double(), like.array("body_quat_w")[0].double()
        self.write()

    def _wrap_mjx(self) -> None:
        """Create an engine of MJX that is given the states of a MuJoCo engine."""
        import jax
        import mujoco
        from mujoco import mjx
        from two_engines import ENVS, MODEL, start

        from sensorium.jax import from_mjx

        spec = mujoco.MjSpec.from_file(str(MODEL))
        spec.delete(spec.sensor("knee_stop"))  # MJX has no such sensor
        model = spec.compile()
        self.source = sn.MujocoEngine(model, ENVS)
        start(self.source, own_options=False)
        self.data = jax.tree.map(lambda x: jax.numpy.stack([jax.numpy.asarray(x)] * ENVS), mjx.make_data(model))
        self.engine = from_mjx(model, mjx.put_model(model), self.given())
        self.engine.forward()

    def given(self) -> Any:
        """Return `mjx.Data` with the state of the MuJoCo engine."""
        import jax
        from two_engines import STATE

        state = {name: jax.numpy.float32(getattr(self.source, name).numpy()) for name in STATE}
        return self.data.replace(**state)

    def write(self) -> None:
        """Write the state of the tick into a TensorEngine: sums of sines, different for each element."""
        engine, time = self.engine, float(self.engine.tick) * self.engine.dt

        def wave(shape: Any, phase: float) -> torch.Tensor:
            place = torch.arange(math.prod(shape), dtype=torch.float64).reshape(tuple(shape))
            return (7.0 * time + 1.7 * place + phase).sin() + 0.3 * (23.0 * time + 0.9 * place).cos()

        pos, quat = self.home
        engine.body_pos_w[:] = pos + 0.03 * wave(engine.body_pos_w.shape, 0.0)
        turned = quat + 0.1 * wave(engine.body_quat_w.shape, 1.0)
        engine.body_quat_w[:] = turned / turned.norm(dim=-1, keepdim=True)
        for k, name in enumerate(("body_lin_vel_w", "body_ang_vel_w", "body_lin_acc_w", "body_ang_acc_w", "joint_pos",
                                  "joint_vel", "joint_effort", "joint_torque", "body_parent_force_w",
                                  "body_parent_torque_w")):  # fmt: skip
            array = getattr(engine, name)
            array[:] = wave(array.shape, float(k))
        for array in engine.native.values():
            array[:] = wave(array.shape, 0.5)
        for report, array in engine.contacts.items():
            array[:] = 9.0 * wave(array.shape, 2.0)
            engine.contacts.field(report, "found")[:] = (array[..., :1] > 0.0).float()

    def step(self, scene: Any, number: int, generator: torch.Generator) -> None:
        """Take a control step, which has several ticks where the engine steps by itself."""
        if self.name == "tensor":
            self.write()
            scene.step(None, 1 + number % 3 // 2)
            return
        ctrl = 2.0 * torch.rand(self.engine.ctrl.shape, generator=generator) - 1.0
        if self.name == "mjx":
            for _ in range(SUBSTEPS[number % len(SUBSTEPS)]):
                self.source.step(ctrl)
                self.engine.data = self.given()
                scene.update()
            return
        scene.step(ctrl, SUBSTEPS[number % len(SUBSTEPS)])


def run(name: str, cfgs: list[Any], steps: int, device: str = "cpu") -> dict[str, Any]:
    """Run sensors on an engine, with resets of some and of all environments, and with saved states.

    Only a `TensorEngine` takes another device.
    """
    world = World(name, device)
    refused: dict[str, str] = {}
    if name not in ("mujoco", "mujoco_warp"):  # which take all; a refused one leaves nothing in a separate engine
        probe = World(name, device).engine
        for cfg in cfgs:
            try:
                sn.Scene(probe, [cfg], discover=False)
            except (sn.SensoriumError, ValueError) as error:
                refused[cfg.label] = f"{type(error).__name__}: {error}"
        cfgs = [cfg for cfg in cfgs if cfg.label not in refused]
    scene = sn.Scene(world.engine, cfgs, seed=11, discover=False)
    out = {cfg.label: {"kind": cfg.kind(), "shots": {}} for cfg in cfgs}
    generator, saved, ticks = torch.Generator().manual_seed(5), None, []
    for step in range(steps):
        if step == steps // 8:
            scene.reset([1])
        elif step == steps // 4:
            scene.reset(torch.tensor([True, False, True], device=device))
        elif step == steps // 3:
            scene.reset()
        elif step == steps // 2:
            saved = scene.state(), generator.get_state()
        elif step == steps * 5 // 8:  # restored, then continued in another scene
            world = World(name, device)
            scene = sn.Scene(world.engine, cfgs, seed=11, discover=False)
            scene.load_state(saved[0])
            generator.set_state(saved[1])
        elif step == steps * 3 // 4:
            scene.load_state(saved[0])
        elif step == steps * 2 // 5:
            for number, sensor in enumerate(scene.sensors.values()):
                for knob in ("noise", "delay", "loss"):
                    if getattr(sensor.cfg, knob, None) is not None and number % 2:
                        sensor.set(knob, getattr(sensor.cfg, knob) if knob == "noise" else 0.008, [2])
        world.step(scene, step, generator)
        ticks.append(scene.tick)
        for number, (label, sensor) in enumerate(scene.sensors.items()):
            if (number + step) % 3 == 0 or step % 8 == 0:  # others are not read at this step
                look(sensor, out[label]["shots"], step, copies=(number + step) % 4 == 0)
    return {"sensors": out, "refused": refused, "ticks": ticks}


def dump(kinds: Iterable[str], engines: Iterable[str], steps: int) -> Dump:
    """Dump the readings of all sensors; see `Dump`."""
    from sensorium import registry

    kinds = tuple(kinds)
    cfgs, refused = configs(World("mujoco").engine, kinds)
    found = {}
    for name in engines:
        print(f"  {name}: {len(cfgs)} configs, {steps} steps", flush=True)
        found[name] = run(name, cfgs, steps)
    return {"kinds": sorted({cfg.kind() for cfg in registry.registered()}), "refused": refused, "engines": found}


if __name__ == "__main__":  # dump_readings.py FILE STEPS ENGINES KINDS
    sys.path.pop(0)  # this folder: the tests belong to the commit that PYTHONPATH names
    out, steps, engines, kinds = sys.argv[1:]
    Path(out).write_bytes(pickle.dumps(dump(kinds.split(",") if kinds else (), engines.split(","), int(steps))))

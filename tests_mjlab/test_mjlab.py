"""The library's sensors inside the real mjlab: it steps, resets and reads them, and readings equal those of a scene."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
import world
from mjlab.envs import ManagerBasedRlEnv
from mjlab.scene import Scene as MjlabScene
from mjlab.scene import SceneCfg
from mjlab.terrains import TerrainEntityCfg
from mjlab.viewer.debug_visualizer import NullDebugVisualizer
from slices import Values, check_slices, seen
from world import DECIMATION, DT, ENVS, FIELDS, ROBOT, SENSORS, ours, run_with_terms, tick

import sensorium as sn
from sensorium.compat.mjlab import SensoriumCfg, add_sensors, reading, scene_of

NATIVE = (
    ("imu", "ang_vel_b", "robot/gyro"),
    ("imu", "lin_acc_b", "robot/accelerometer"),
    ("imu", "pos_w", "robot/imu_pos"),
)


def assert_same(env: ManagerBasedRlEnv) -> None:
    """Assert that mjlab's scene shows the same bits as the library's scene beside it."""
    scene, own = ours(env).scene, env.scene["beside"].scene
    assert scene.tick == own.tick
    for name, fields in FIELDS.items():
        mine, other = scene[name], own[name]
        for field in fields:
            for part in ("data", "ground_truth"):
                got, wanted = (getattr(getattr(sensor, part), field) for sensor in (mine, other))
                assert torch.equal(got, wanted), f"{name}.{part}.{field} at tick {own.tick}"
        for what in ("capture_tick", "age", "valid", "is_new", "frame", "stamp"):
            assert torch.equal(getattr(mine, what), getattr(other, what)), f"{name}.{what} at tick {own.tick}"
    assert torch.equal(scene["late"].history.ang_vel_b, own["late"].history.ang_vel_b)


def reset(env: ManagerBasedRlEnv, *envs: int) -> None:
    ids = torch.tensor(envs or range(ENVS))
    env.reset(env_ids=ids)
    env.scene["beside"].scene.reset(ids)


# Readings -------------------------------------------------------------------------------------------------------------


def test_readings_equal_those_of_a_scene(env: ManagerBasedRlEnv) -> None:
    """Readings agree bit for bit, with noise, walks, delay and history, in air and on the ground, through resets."""
    reset(env)
    touched = False
    for step in range(40):
        tick(env, 3)
        assert_same(env)
        touched |= bool((ours(env).scene["feet"].data.found > 0).any())
        if step in (5, 17):
            reset(env, step % 3)
            assert_same(env)
    assert touched


def test_slices_of_an_environment() -> None:
    """Six environments at one place give the bits of 3 + 3 and 1 + 5, with `first_env`."""

    def run(envs: int, first: int) -> Values:
        cfg = world.robot_env_cfg()
        cfg.scene.num_envs, cfg.scene.env_spacing = envs, 0.0
        del cfg.events["throw"], cfg.events["imu"]  # which mjlab draws by its own generator
        add_sensors(cfg.scene, SENSORS, seed=3, decimation=DECIMATION, first_env=first)
        env, found = ManagerBasedRlEnv(cfg, device="cpu"), {}
        env.reset()
        for step in range(6):
            scene = scene_of(env)
            env.step(torch.sin(scene.global_env_ids[:, None] + torch.tensor([0.0, 1.0]) + step))
            found |= seen(scene)
        env.close()
        return found

    check_slices(run, ("imu", "scan", "engine"))


def test_truth_equals_mjlabs_sensors(env: ManagerBasedRlEnv) -> None:
    """Gyro, accelerometer, position of the moved site and joint agree for the same step, in float32."""
    reset(env)
    for _ in range(60):
        tick(env)
        scene = ours(env).scene
        for name, field, native in NATIVE:
            got, wanted = getattr(scene[name].ground_truth, field), env.scene[native].data
            bound = 2e-5 * max(1.0, float(wanted.abs().max()))
            torch.testing.assert_close(got, wanted, rtol=0, atol=bound, msg=f"{field} at tick {scene.tick}")
        joint = scene["joints"].ground_truth.position[:, :1]
        torch.testing.assert_close(joint, env.scene["robot/left_hip_pos"].data, rtol=0, atol=1e-6)


def test_sites_moved_by_mjlab_have_their_new_poses(env: ManagerBasedRlEnv) -> None:
    """Randomisation replaces the model's arrays after the library's scene was built: each environment differs."""
    moved = env.sim.model.site_pos[:, env.sim.mj_model.site("robot/imu").id]
    assert len(torch.unique(moved, dim=0)) == ENVS
    reset(env)
    scene = ours(env).scene
    torch.testing.assert_close(scene["imu"].ground_truth.pos_w, env.scene["robot/imu_pos"].data, rtol=0, atol=1e-6)


def test_groups_draw_with_their_own_seeds(env: ManagerBasedRlEnv) -> None:
    """The second group's IMU has the same truth and other noise."""
    tick(env, 2)
    first, second = ours(env).scene["imu"], ours(env, "more").scene["tail"]
    assert torch.equal(first.ground_truth.ang_vel_b, second.ground_truth.ang_vel_b)
    errors = [sensor.data.ang_vel_b - sensor.ground_truth.ang_vel_b for sensor in (first, second)]
    assert (errors[0] != errors[1]).all() and all(error.abs().max() < 0.06 for error in errors)


# Time -----------------------------------------------------------------------------------------------------------------


def test_unfresh_samples_report_their_age_and_survive_mjlabs_forward(env: ManagerBasedRlEnv) -> None:
    """mjlab's forward() before observations affects its own sensors; the library's show the end of the step."""
    reset(env)
    tick(env, 6)
    scene, own = ours(env).scene, env.scene["beside"].scene
    before = {field: getattr(own["imu"].ground_truth, field).clone() for _, field, _ in NATIVE}  # read before
    native = env.scene["robot/gyro"].data.clone()
    env.sim.forward()
    assert not torch.equal(env.scene["robot/gyro"].data, native)
    for field, wanted in before.items():
        assert torch.equal(getattr(scene["imu"].ground_truth, field), wanted)  # first read after
    torch.testing.assert_close(scene["imu"].capture_time, torch.full((ENVS,), (scene.tick - 1) * DT).double())


def test_fresh_samples_are_of_the_current_tick(fresh_env: ManagerBasedRlEnv) -> None:
    """With `fresh=True`, the truth after a control step equals mjlab's sensors after its forward()."""
    for _ in range(5):
        fresh_env.step(torch.ones(ENVS, 2))
        scene = ours(fresh_env).scene
        assert (scene["imu"].capture_tick == scene.tick).all()
        for name, field, native in NATIVE:
            wanted = fresh_env.scene[native].data
            bound = 2e-5 * max(1.0, float(wanted.abs().max()))
            torch.testing.assert_close(getattr(scene[name].ground_truth, field), wanted, rtol=0, atol=bound)


def test_a_control_step_is_that_of_the_environment(env: ManagerBasedRlEnv) -> None:
    """Arrivals within the last `decimation` ticks are new; with a sample every 2 ticks every control step has one."""
    reset(env)
    for _ in range(3):
        env.step(torch.zeros(ENVS, 2))
        scene = ours(env).scene
        assert scene.clock.control_tick == scene.tick - DECIMATION
        assert scene["late"].is_new.all()
        assert_same(env)


# Episodes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["reset()", "auto reset"])
def test_episode_starts_in_the_state_written_by_reset_events(env: ManagerBasedRlEnv, how: str) -> None:
    """The first sample of an episode is of that state and of these environments only; the others continue."""
    reset(env)
    env.step(torch.zeros(ENVS, 2))
    scene, own = ours(env).scene, env.scene["beside"].scene
    captures = scene["late"].frame.clone()
    if how == "reset()":
        env.reset(env_ids=torch.tensor([1]))
    else:
        env.ending = torch.tensor([False, True, False])
        env.step(torch.zeros(ENVS, 2))
        env.ending = None
        captures += DECIMATION // 2  # it samples every second tick
    own.reset([1])
    assert_same(env)
    assert scene["late"].frame.tolist() == [captures[0], 1, captures[2]]
    assert scene["imu"].capture_tick.tolist() == [scene.tick - 1, scene.tick, scene.tick - 1]
    wanted = env.scene["robot/imu_pos"].data[1]
    torch.testing.assert_close(scene["imu"].ground_truth.pos_w[1], wanted, rtol=0, atol=1e-6)
    history = scene["late"].history.ang_vel_b[1]
    assert torch.equal(history, history[:1].expand_as(history))  # nothing of the previous episode


@pytest.mark.parametrize("envs", [None, slice(None), torch.arange(ENVS)], ids=["None", "slice", "ids"])
def test_all_mjlab_forms_of_env_ids_reset(env: ManagerBasedRlEnv, envs: Any) -> None:
    """In a loop without the environment, the episode starts once the scene has written the state."""
    tick(env, 5)
    env.scene.reset(envs)
    assert (ours(env).scene["late"].frame > 1).all()
    env.scene.write_data_to_sim()
    assert (ours(env).scene["late"].frame == 1).all()
    env.scene["beside"].scene.reset()
    assert_same(env)


def test_unwritten_episode_starts_with_the_next_update(env: ManagerBasedRlEnv) -> None:
    """A loop that writes the state itself and never calls `write_data_to_sim`, whether it reads or not."""
    reset(env)
    tick(env, 3)
    env.scene.reset(torch.tensor([2]))
    tick(env)
    scene = ours(env).scene
    assert scene["late"].frame.tolist()[2] == 1
    assert scene["late"].buffers.counter.first_tick.tolist()[2] == scene.tick
    env.scene["beside"].scene.reset([2])
    assert_same(env)


@pytest.mark.parametrize("fresh", [False, True])
def test_no_pattern_of_terms_changes_a_measurement(fresh: bool) -> None:
    """Terms that read at random in all managers, also within resets and after pushes, change no bit of any sensor.

    The reference has the same terms, and none of them reads.
    """
    seen: set[str] = set()
    for watched, unwatched in zip(run_with_terms(fresh, seen), run_with_terms(fresh, None), strict=True):
        for name, value in watched.items():
            assert torch.equal(value, unwatched[name]), name
    assert seen == {"reset", "push", "substep", "command", "termination", "reward", "observation"}


# Observations ---------------------------------------------------------------------------------------------------------


def test_observation_terms_are_readings(env: ManagerBasedRlEnv) -> None:
    """Terms are flattened, float32, scaled and stacked by mjlab, and kept: later steps do not change them."""
    reset(env)
    seen, kept = [], []
    for _ in range(3):
        observed = env.step(torch.zeros(ENVS, 2))[0]["actor"]
        scene = ours(env).scene
        assert torch.equal(observed["gyro"], scene["imu"].data.ang_vel_b)
        assert torch.equal(observed["feet"], scene["feet"].ground_truth.found.float())
        assert torch.equal(observed["scan"], 0.5 * scene["scan"].data.distances)
        assert all(values.dtype == torch.float32 for values in observed.values())
        seen.append(scene_of(env, "more")["tail"].data.lin_acc_b.clone())
        kept.append((observed["gyro"], observed["gyro"].clone()))
    assert torch.equal(observed["history"], torch.cat(seen[-2:], dim=1))
    assert all(torch.equal(now, then) for now, then in kept)


def test_a_reading_has_one_row_of_numbers_for_each_environment(env: ManagerBasedRlEnv) -> None:
    tick(env)
    scene = ours(env).scene
    frames = reading(env, "frames", "target_pos_source")
    assert torch.equal(frames, scene["frames"].data.target_pos_source.reshape(ENVS, 6))
    latched = reading(env, "feet", "latched_any")
    assert latched.dtype == torch.float32 and torch.equal(latched, scene["feet"].data.latched_any.float())
    truth = reading(env, "imu", "ang_vel_b", truth=True)
    assert torch.equal(truth, scene["imu"].ground_truth.ang_vel_b)
    assert not torch.equal(truth, reading(env, "imu", "ang_vel_b"))
    frames.zero_()  # a separate tensor
    assert scene["frames"].data.target_pos_source.abs().sum() > 0


def test_knobs_are_set_through_the_scene(env: ManagerBasedRlEnv) -> None:
    scene_of(env, "more")["tail"].set("noise", {"ang_vel_b": 0.0}, [0, 2])
    tick(env)
    error = reading(env, "tail", "ang_vel_b") - reading(env, "tail", "ang_vel_b", truth=True)
    assert (error[[0, 2]] == 0).all() and (error[1] != 0).all()
    scene_of(env, "more")["tail"].set("noise", {"ang_vel_b": 0.01})


def test_data_maps_names_to_measured_values(env: ManagerBasedRlEnv) -> None:
    data = env.scene["sensorium"].data
    assert list(data) == [cfg.label for cfg in SENSORS] and len(data) == len(SENSORS)
    assert "imu" in data and "gyro" not in data
    tick(env)
    assert torch.equal(data["imu"].ang_vel_b, ours(env).scene["imu"].data.ang_vel_b)


def test_the_code_of_the_documentation_works() -> None:
    page = (Path(__file__).parents[1] / "docs/mjlab.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"robot_env_cfg": world.robot_env_cfg}
    exec(compile("\n".join(blocks), "mjlab.md", "exec"), names)
    env = ManagerBasedRlEnv(names["cfg"], device="cpu")
    observed, _ = env.reset()
    assert observed["actor"]["gyro"].shape == (ENVS, 3)
    assert torch.equal(observed["actor"]["gyro"], scene_of(env)["imu"].data.ang_vel_b)
    assert env.scene["feet"].data.found.shape == (ENVS, 2)


# Model ----------------------------------------------------------------------------------------------------------------


def scene_cfg(*sensors: Any) -> SceneCfg:
    from mjlab.entity import EntityCfg

    robot = EntityCfg(spec_fn=lambda: mujoco.MjSpec.from_string(ROBOT))
    terrain = TerrainEntityCfg(terrain_type="plane")
    return SceneCfg(num_envs=1, terrain=terrain, entities={"robot": robot}, sensors=sensors)


def test_required_elements_are_in_the_model_and_hidden_from_mjlab(env: ManagerBasedRlEnv) -> None:
    model = env.sim.mj_model
    added = [model.sensor(i).name for i in range(model.nsensor) if model.sensor(i).name.startswith("sensorium/")]
    assert len(added) >= 2  # a contact sensor for each foot
    xml = ["robot/gyro", "robot/accelerometer", "robot/imu_pos", "robot/left_hip_pos"]
    assert list(env.scene.sensors) == ["sensorium", "more", "beside", *xml]


def test_group_can_be_used_alone_in_mjlabs_config() -> None:
    """The model is the same in this case, and mjlab wraps the added sensors too."""
    scene = MjlabScene(scene_cfg(SensoriumCfg(sensors=SENSORS)), device="cpu")
    cfg = scene_cfg()
    add_sensors(cfg, SENSORS)
    other = MjlabScene(cfg, device="cpu")
    assert sorted(s.name for s in scene.spec.sensors) == sorted(s.name for s in other.spec.sensors)
    assert {name for name in scene.sensors if name.startswith("sensorium/")} == {
        s.name for s in scene.spec.sensors if s.name.startswith("sensorium/")
    }


def test_sensors_can_be_mounted_on_elements_of_spec_fn() -> None:
    cfg = scene_cfg()
    cfg.spec_fn = lambda spec: spec.worldbody.add_geom(name="crate", size=[0.1, 0.1, 0.1])
    crate = sn.ContactSensorCfg(name="crate", primary=sn.ContactMatch(mode="geom", pattern="crate"), fields=("found",))
    add_sensors(cfg, [crate])
    scene = MjlabScene(cfg, device="cpu")
    assert any("crate" in sensor.name for sensor in scene.spec.sensors)


# Drawing --------------------------------------------------------------------------------------------------------------


class Drawn(NullDebugVisualizer):
    """The drawn shapes, by method name."""

    def __init__(self, env: int, show_all_envs: bool = False) -> None:
        super().__init__(env, meansize=0.1)
        self.show_all_envs = show_all_envs
        self.shapes: dict[str, list[tuple[Any, ...]]] = {}
        for name in ("arrow", "sphere", "cylinder", "frame"):
            setattr(self, f"add_{name}", lambda *args, kind=name, **more: self.shapes.setdefault(kind, []).append(args))


def test_only_enabled_sensors_are_drawn_in_mjlabs_viewed_env(env: ManagerBasedRlEnv) -> None:
    """Specific force is an arrow; frames, connections and ray hits are drawn for the displayed environment."""
    reset(env)
    tick(env, 40)
    scene = ours(env).scene
    nothing, one, all_of_them = Drawn(1), Drawn(1), Drawn(0, show_all_envs=True)
    env.update_visualizers(nothing)
    assert nothing.shapes == {}
    names = ("imu", "frames", "scan", "feet")
    assert all(scene[name].set_debug_vis(True) for name in names)
    env.update_visualizers(one)
    env.update_visualizers(all_of_them)
    for name in names:
        scene[name].set_debug_vis(False)
    presses = scene["feet"].ground_truth.force.norm(dim=-1) > 0.0
    assert [len(one.shapes[kind]) for kind in ("frame", "cylinder", "sphere")] == [3, 2, 15]
    assert len(one.shapes["arrow"]) == 1 + int(presses[1].sum())
    assert len(all_of_them.shapes["arrow"]) == ENVS + int(presses.sum()) > len(one.shapes["arrow"])
    assert [len(all_of_them.shapes[kind]) for kind in ("frame", "cylinder", "sphere")] == [9, 6, 45]
    truth = scene["imu"].ground_truth
    np.testing.assert_allclose(one.shapes["arrow"][0][0], truth.pos_w[1], atol=1e-6)
    centre, turn = one.shapes["frame"][0]
    np.testing.assert_allclose(centre, scene["frames"].ground_truth.source_pos_w[1], atol=1e-6)
    np.testing.assert_allclose(turn, env.sim.data.xmat[1, env.sim.mj_model.body("robot/base").id], atol=1e-5)
    heights = np.array([sphere[0][2] for sphere in one.shapes["sphere"]])
    assert np.abs(heights).max() < 0.06  # the ground, within the noise of the scan


# Bad input ------------------------------------------------------------------------------------------------------------


def test_unknown_names_are_listed_before_compilation() -> None:
    feet = sn.ContactMatch(mode="geom", pattern=".*_foott", entity="robot")
    cfg = scene_cfg(SensoriumCfg(sensors=[sn.ContactSensorCfg(name="feet", primary=feet)]))
    with pytest.raises(sn.SelectionError, match=r"ContactSensorCfg\('feet'\).*robot/left_foot"):
        MjlabScene(cfg, device="cpu")


def test_unknown_name_error_lists_existing_ones(env: ManagerBasedRlEnv) -> None:
    with pytest.raises(sn.UnknownNameError, match=r"unknown sensor 'imus'.*'imu'.*Known: feet, frames, imu"):
        reading(env, "imus", "ang_vel_b")
    with pytest.raises(sn.UnknownNameError, match=r"unknown sensor 'imus'.*Known: tail"):
        reading(env, "imus", "ang_vel_b", group="more")
    with pytest.raises(sn.UnknownNameError, match=r"field of 'imu' 'ang_vel'.*'ang_vel_b'.*Known: .*pos_w"):
        reading(env, "imu", "ang_vel")
    with pytest.raises(sn.UnknownNameError, match=r"field of 'imu' 'None'.*Known: .*pos_w"):
        reading(env, "imu")
    with pytest.raises(sn.UnknownNameError, match=r"group of sensors 'mroe'.*'more'"):
        reading(env, "tail", "ang_vel_b", group="mroe")
    with pytest.raises(sn.SelectionError, match=r"scene_of\.name: got None, expected one of sensorium, more"):
        scene_of(env)
    bare = MjlabScene(scene_cfg(), device="cpu")
    with pytest.raises(sn.UnknownNameError, match=r"add_sensors\(cfg\.scene"):
        scene_of(bare)


def test_sensor_name_in_two_groups_requires_the_group(env: ManagerBasedRlEnv) -> None:
    ours(env, "more").scene.add(sn.ImuCfg(name="late", site="robot/imu"))
    try:
        with pytest.raises(sn.SelectionError, match=r"reading\.group.*sensorium, more.*'late'"):
            reading(env, "late", "ang_vel_b")
        assert reading(env, "late", "ang_vel_b", group="more").shape == (ENVS, 3)
    finally:
        ours(env, "more").scene.remove("late")


def test_single_update_for_several_steps_is_refused(env: ManagerBasedRlEnv) -> None:
    with pytest.raises(sn.ScheduleError, match=r"update\(dt=0\.02\).*time step is 0\.005 s"):
        env.scene.update(DECIMATION * DT)


def test_scene_without_simulation_names_the_missing_part() -> None:
    scene = MjlabScene(scene_cfg(SensoriumCfg(sensors=SENSORS)), device="cpu")
    with pytest.raises(sn.ScheduleError, match=r"scene\.initialize\(mj_model, model, data\)"):
        scene_of(scene)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sensors": SENSORS[0]}, r"SensoriumCfg\('sensorium'\)\.sensors: .*sensors=\(cfg,\)"),
        ({"sensors": ["imu"]}, r"sensors: got 'imu'.*ImuCfg"),
        ({"sensors": []}, r"at least one config"),
        ({"sensors": SENSORS, "decimation": 0}, r"decimation: got 0"),
    ],
)
def test_invalid_configs_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(sn.ConfigError, match=message):
        SensoriumCfg(**options)


def test_groups_are_sequences_with_unique_names_and_one_freshness() -> None:
    cfg = scene_cfg()
    with pytest.raises(sn.ConfigError, match=r"sensors=\(cfg,\)"):
        add_sensors(cfg, SENSORS[0])
    add_sensors(cfg, SENSORS)
    with pytest.raises(sn.ConfigError, match=r"add_sensors\.name: got 'sensorium'"):
        add_sensors(cfg, SENSORS)
    with pytest.raises(sn.ConfigError, match=r"add_sensors\.fresh: got True"):
        add_sensors(cfg, SENSORS, name="other", fresh=True)

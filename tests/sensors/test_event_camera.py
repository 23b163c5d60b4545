"""Event camera: events of prescribed brightness, against a slow float64 model and closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import sensorium as sn
from sensorium.cameras import event_camera
from sensorium.testing import check_sensor

Array = NDArray[np.float64]
HEIGHT, WIDTH, DT, EPS = 6, 9, 0.01, 1e-3
EVENT = np.dtype([("x", int), ("y", int), ("p", int), ("t", float)])


class PrescribedLight:
    """Takes the place of the rendered colours: the test writes `image`."""

    def __init__(self, camera: Any) -> None:
        height, width = camera.image_shape
        self.image = torch.zeros((camera.num_envs, 1, height, width, 3))
        self.cast = camera.cast

    def render(self, *, is_placed: bool) -> None:
        """Do nothing."""


@pytest.fixture(autouse=True)
def _prescribed(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if request.function is not test_contract_holds:
        monkeypatch.setattr(event_camera, "LinearLight", PrescribedLight)


def scene_of(envs: int = 1, seed: int = 0, size: tuple[int, int] = (HEIGHT, WIDTH), **fields: Any) -> sn.Scene:
    engine = sn.TensorEngine(envs, DT, shapes=[sn.engines.Shape("box", "box", (1.0, 1.0, 1.0), body="body")])
    cfg = sn.EventCameraCfg(name="dvs", body="body", height=size[0], width=size[1], **fields)
    return sn.Scene(engine, [cfg], seed=seed)


def show(scene: sn.Scene, luminance: Any) -> None:
    """Show an image `[height, width]`, or one per env."""
    image: Any = scene["dvs"]._light.image
    image.copy_(torch.as_tensor(np.asarray(luminance, np.float32))[..., None].expand(image[:, 0].shape)[:, None])


def events(scene: sn.Scene, env: int = 0) -> Any:
    """Return the events of the last sample, and check order, limits and image."""
    data: Any = scene["dvs"].data
    count = int(data.count[env])
    out = np.zeros(count, EVENT)
    for name, field in (("x", "x"), ("y", "y"), ("p", "polarity"), ("t", "time_offset")):
        values = getattr(data, field)[env].numpy()
        assert not values[count:].any()
        out[name] = values[:count]
    assert (np.diff(out["t"]) >= 0.0).all() and (np.abs(out["p"]) == 1).all()
    assert ((out["t"] >= -DT * 1.0001) & (out["t"] <= 0.0)).all()
    total = np.zeros(data.polarity_image.shape[1:3], int)
    np.add.at(total, (out["y"], out["x"]), out["p"])
    np.testing.assert_array_equal(data.polarity_image[env, ..., 0].numpy(), total)
    return out


def film(scene: sn.Scene, frames: Any) -> list[Any]:
    """Return the events of each frame after the first; times count from the first frame. Also for one env only."""
    show(scene, frames[0])
    scene.reset()
    out = []
    for number, frame in enumerate(frames[1:], start=1):
        show(scene, frame)
        scene.update()
        found = events(scene)
        found["t"] += number * DT
        out.append(found)
    return out


def ramp(start: float, height: float, samples: int, size: tuple[int, int] = (HEIGHT, WIDTH)) -> Array:
    """Return images whose log(I + eps) rises linearly by a height."""
    logs = np.linspace(np.log(start), np.log(start) + height, samples + 1)
    return np.broadcast_to((np.exp(logs) - EPS)[:, None, None], (samples + 1, *size))


def random_film(samples: int = 25, size: tuple[int, int] = (HEIGHT, WIDTH), seed: int = 3) -> Array:
    rng = np.random.default_rng(seed)
    walk = np.cumsum(rng.normal(0.0, 0.25, (samples + 1, *size)), axis=0)
    return np.clip(np.exp(walk - 1.5), 0.0, 2.0).astype(np.float32).astype(np.float64)


def reference(frames: Array, rise: float, fall: float, refractory: float = 0.0) -> Any:
    """Return the events of a film in float64, one pixel after the other, sorted by time."""
    found = []
    logs = np.log(frames + EPS)
    for y, x in np.ndindex(frames.shape[1:]):
        level, last = logs[0, y, x], -np.inf
        for k in range(1, len(frames)):
            before, now = logs[k - 1, y, x], logs[k, y, x]
            while now - level >= rise or level - now >= fall:
                p = 1 if now > level else -1
                level += rise if p > 0 else -fall
                t = (k - 1 + (level - before) / (now - before)) * DT
                if t - last >= refractory:
                    found.append((x, y, p, t))
                    last = t
    return np.sort(np.array(found, EVENT), order=["t", "y", "x"])


# The ideal pixel ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("height", "threshold", "samples"), [(1.37, 0.2, 40), (1.37, 0.2, 1), (0.9, 0.3, 7), (2.0, 0.11, 3)]
)
def test_a_log_ramp_gives_evenly_spaced_events(height: float, threshold: float, samples: int, sign: int) -> None:
    """floor(H / C) events per pixel, at equal intervals, whatever the number of samples."""
    scene = scene_of(positive_threshold=threshold, negative_threshold=threshold)
    frames = ramp(0.1, height, samples) if sign > 0 else ramp(0.9, -height, samples)
    found = np.concatenate(film(scene, frames))
    for y, x in np.ndindex(HEIGHT, WIDTH):
        own = found[(found["x"] == x) & (found["y"] == y)]
        assert len(own) == int(height / threshold + 1e-9) and (own["p"] == sign).all()
        expected = threshold / height * samples * DT * np.arange(1, len(own) + 1)
        np.testing.assert_allclose(own["t"], expected, atol=1e-4 * samples * DT)
    assert int(scene["dvs"].data.lost) == 0


def test_a_static_scene_gives_no_events() -> None:
    """Also with mismatched thresholds, and right after a reset to another image."""
    scene = scene_of(sigma_positive_threshold=0.05, sigma_negative_threshold=0.05, cutoff_hz=100.0)
    still = random_film(1)[0]
    assert sum(map(len, film(scene, [still] * 5))) == 0
    show(scene, 3.0 * still)
    scene.reset()
    assert len(events(scene)) == 0
    scene.update()
    assert len(events(scene)) == 0


@pytest.mark.parametrize("refractory", [0.0, 0.004])
def test_events_equal_those_of_a_slow_model(refractory: float) -> None:
    """The same pixels and polarities in the same order; times within 1 us."""
    frames = random_film()
    scene = scene_of(positive_threshold=0.21, negative_threshold=0.17, refractory_period=refractory)
    found = np.sort(np.concatenate(film(scene, frames)), order=["t", "y", "x"])
    expected = reference(frames, 0.21, 0.17, refractory)
    assert len(found) == len(expected) > 500
    order = ["y", "x", "t"]
    found, expected = np.sort(found, order=order), np.sort(expected, order=order)
    for name in ("x", "y", "p"):
        np.testing.assert_array_equal(found[name], expected[name])
    np.testing.assert_allclose(found["t"], expected["t"], atol=1e-6)


def per_pixel(found: list[Any], rise: float = 1.0, fall: float = 1.0) -> Array:
    total = np.zeros((HEIGHT, WIDTH))
    for each in found:
        np.add.at(total, (each["y"], each["x"]), np.where(each["p"] > 0, rise, -fall))
    return total


def test_polarities_add_up_to_the_brightness() -> None:
    """Within a threshold at every time; pairs of shot noise leave the sums as they are."""
    frames = random_film(30)
    clean = film(scene_of(positive_threshold=0.21, negative_threshold=0.17), frames)
    logs = np.log(frames + EPS)
    for k in range(1, 31):
        assert np.abs(per_pixel(clean[:k], 0.21, 0.17) - (logs[k] - logs[0])).max() < 0.21
    noisy = film(scene_of(positive_threshold=0.21, negative_threshold=0.17, shot_noise_rate_hz=40.0), frames)
    assert sum(map(len, noisy)) > sum(map(len, clean)) + 100
    np.testing.assert_array_equal(per_pixel(noisy), per_pixel(clean))


def test_linear_brightness() -> None:
    """Without the logarithm a ramp of I by 0.95 gives 4 events of 0.2."""
    scene = scene_of(use_log=False)
    found = film(scene, np.broadcast_to(np.linspace(0.02, 0.97, 11)[:, None, None], (11, HEIGHT, WIDTH)))
    assert sum(map(len, found)) == 4 * HEIGHT * WIDTH


# Imperfections --------------------------------------------------------------------------------------------------------


def test_thresholds_differ_between_pixels_and_stay() -> None:
    """From the numbers of events on a high ramp, the thresholds are normal with the given deviation, and repeat."""
    size, height = (48, 50), 6.9
    scene = scene_of(size=size, sigma_positive_threshold=0.03, positive_threshold=0.2, max_events=200_000)
    counts = []
    for _ in range(2):
        total = np.zeros(size)
        for each in film(scene, ramp(0.002, height, 50, size)):
            np.add.at(total, (each["y"], each["x"]), 1)
        counts.append(total)
    thresholds = height / (counts[0] + 0.5)
    assert thresholds.mean() == pytest.approx(0.2, rel=0.01) and thresholds.std() == pytest.approx(0.03, rel=0.08)
    assert (counts[0] != counts[1]).mean() > 0.5  # another episode, another device


def test_refractory_period_separates_events() -> None:
    scene = scene_of(positive_threshold=0.05, refractory_period=0.014)
    found = np.concatenate(film(scene, ramp(0.05, 2.0, 20)))
    own = found[(found["x"] == 2) & (found["y"] == 3)]["t"]
    assert len(own) == 14 and (np.diff(own) >= 0.014).all()
    show(scene, ramp(0.05, 2.0, 20)[-1])
    scene.update()
    assert len(events(scene)) == 0  # the reference moved all the time


def test_leak_events_have_their_rate_and_are_positive() -> None:
    """Each pixel has one in 0.2 s, at its own time: the first ones are spread evenly over the 0.2 s."""
    size = (30, 30)
    scene = scene_of(size=size, leak_rate_hz=5.0, positive_threshold=0.3, sigma_positive_threshold=0.05)
    found = np.concatenate(film(scene, ramp(0.3, 0.0, 100, size)))
    assert len(found) == pytest.approx(5.0 * 900, abs=9) and (found["p"] == 1).all()
    order = np.lexsort((found["t"], found["x"], found["y"]))
    times = found["t"][order][np.diff(found["y"][order] * 30 + found["x"][order], prepend=-1) > 0]
    np.testing.assert_allclose(np.sort(times), 0.2 * (np.arange(900) + 0.5) / 900, atol=0.2 * 0.06)
    again = np.diff(found["t"][order])
    np.testing.assert_allclose(again[again > 0.0], 0.2, atol=1e-3)


@pytest.mark.parametrize(("luminance", "share"), [(0.0, 1.0), (1.0, 0.25)])
def test_shot_noise_has_its_rate(luminance: float, share: float) -> None:
    """20 Hz in black, a quarter in white, half of each polarity."""
    size = (40, 40)
    scene = scene_of(size=size, shot_noise_rate_hz=20.0)
    found = np.concatenate(film(scene, [np.full(size, luminance)] * 51))
    expected = 20.0 * share * 1600 * 0.5
    assert len(found) == pytest.approx(expected, rel=0.04)
    assert (found["p"] > 0).sum() == (found["p"] < 0).sum()
    assert np.histogram(found["t"] % DT, 5)[0].std() < 0.05 * len(found)


def test_bandwidth_delays_a_step() -> None:
    """A white pixel follows with 1 - exp(-2 pi f t): events of 0.01 show the response."""
    frames = np.full((31, HEIGHT, WIDTH), 1.0)
    frames[0] = 0.4
    found = film(scene_of(cutoff_hz=5.0, positive_threshold=0.01, negative_threshold=0.01, max_events=2000), frames)
    reached = 0.01 * np.cumsum([len(each) for each in found]) / (HEIGHT * WIDTH)
    step = np.log(1.001) - np.log(0.401)
    np.testing.assert_allclose(reached, step * (1 - np.exp(-2 * np.pi * 5.0 * DT * np.arange(1, 31))), atol=0.011)


def test_overflow_is_counted_and_spread() -> None:
    """Of 54 * 6 events in one sample, 100 remain, from all rows and times."""
    scene = scene_of(positive_threshold=0.2, max_events=100)
    (found,) = film(scene, ramp(0.1, 1.37, 1))
    data: Any = scene["dvs"].data
    assert len(found) == 100 and int(data.lost) == 54 * 6 - 100
    assert set(found["y"]) == set(range(HEIGHT)) and np.histogram(found["t"], 6)[0].min() > 8
    show(scene, ramp(0.1, 1.37, 1)[-1])
    scene.update()
    assert int(data.count) == 0 and int(data.lost) == 0


# Environments and time ------------------------------------------------------------------------------------------------


def test_environments_are_independent_and_repeatable() -> None:
    """Env 1 of two has the bits of env 1 of three; a resumed scene goes on with the same bits."""
    options: dict[str, Any] = {
        "sigma_positive_threshold": 0.03, "shot_noise_rate_hz": 30.0, "leak_rate_hz": 1.0, "cutoff_hz": 80.0, "seed": 5,
    }  # fmt: skip
    frames = random_film(8)

    def run(envs: int, save: int = -1) -> list[Any]:
        scene = scene_of(envs, **options)
        out = []
        for number, frame in enumerate(frames):
            show(scene, np.stack([frame * (1.0 + env) for env in range(envs)]))
            scene.update()
            if number == save:
                state = scene.state()
                scene = scene_of(envs, **options)
                scene.load_state(state)
            out.append(events(scene, 1) if number != save else None)
        return out

    for one, other, resumed in zip(run(2), run(3), run(2, save=4), strict=True):
        np.testing.assert_array_equal(one, other)
        if resumed is not None:
            np.testing.assert_array_equal(one, resumed)


def test_slow_rates_interpolate_over_their_own_interval() -> None:
    """At 100 Hz with 400 ticks per second the times cover the 10 ms between two samples."""
    engine = sn.TensorEngine(1, 0.0025, shapes=[sn.engines.Shape("box", "box", (1.0, 1.0, 1.0), body="body")])
    scene = sn.Scene(
        engine, [sn.EventCameraCfg(name="dvs", body="body", height=2, width=2, rate_hz=100.0, max_events=99)]
    )
    show(scene, np.full((2, 2), 0.1))
    scene.reset()
    show(scene, np.full((2, 2), 0.9))
    for _ in range(4):
        scene.update()
    offsets = events(scene)["t"]
    assert len(offsets) == 4 * 10 and offsets.min() == pytest.approx(
        -0.01 * (1 - 0.2 / np.log(0.901 / 0.101)), rel=1e-3
    )


def test_readings_are_ragged() -> None:
    """A published reading holds the events of all envs, one after the other."""
    scene = scene_of(3, positive_threshold=0.2)
    show(scene, np.full((HEIGHT, WIDTH), 0.2))
    scene.reset()
    show(scene, np.stack([np.full((HEIGHT, WIDTH), level) for level in (0.2, 0.3, 0.5)]))
    scene.update()
    reading = scene.publish(["dvs"])["dvs"]
    counts = [0, 2 * HEIGHT * WIDTH, 4 * HEIGHT * WIDTH]
    np.testing.assert_array_equal(np.diff(reading.offsets), counts)
    assert reading.measured["x"].shape == (sum(counts),)
    np.testing.assert_array_equal(np.bincount(reading.measured["y"][reading.rows(1)]), [2 * WIDTH] * HEIGHT)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"data_types": ("rgb",)}, "no data types"),
        ({"stages": (sn.stages.Saturation(high=1.0),)}, "Stages act on values, not on events"),
        ({"positive_threshold": 0.0}, "positive_threshold: got 0.0"),
        ({"max_events": 0}, "a whole number from 1"),
    ],
)
def test_invalid_configs_name_the_field(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(sn.ConfigError, match=text):
        sn.EventCameraCfg(body="b", height=2, width=2, **fields)


def test_contract_holds() -> None:
    def engine(envs: int) -> sn.TensorEngine:
        def motion(t: float) -> dict[str, torch.Tensor]:
            late = 0.3 * (t + 0.3 * torch.arange(envs)[:, None, None])
            return {"body_pos_w": torch.cat([late - 3.0, late.cos(), late.sin()], dim=-1)}

        box = sn.engines.Shape("box", "box", (0.5, 0.5, 0.5), rgba=(0.9, 0.5, 0.2, 1.0))
        return sn.TensorEngine(envs, 0.05, shapes=[box], provides=("pose",), motion=motion)

    cfg = sn.EventCameraCfg(
        name="dvs", body="body", offset={"convention": "world"}, height=6, width=8, shot_noise_rate_hz=20.0,
        sigma_negative_threshold=0.05, leak_rate_hz=3.0, max_events=301,
    )  # fmt: skip
    rules = check_sensor(cfg, engine=engine, steps=5)
    assert {"resuming_is_exact", "raw_is_written_in_place", "streams_as_it_is"} <= {*rules}


def test_several_mounts_are_rejected() -> None:
    with pytest.raises(sn.ConfigError, match="Add one sensor for each mount"):
        sn.EventCameraCfg(bodies=("a", "b"), height=2, width=2)

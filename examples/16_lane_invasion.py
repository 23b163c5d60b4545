"""A sensor in the client tests lane keeping: which car touches which line, with which corners, and when."""

import queue

import numpy as np

import sensorium as sn

ROAD = """
<mujoco>
  <option timestep="0.02" gravity="0 0 0"/>
  <worldbody><body name="car"><freejoint/><geom type="box" size="2.0 0.9 0.7"/></body></worldbody>
</mujoco>
"""
DRIFT = np.array([0.0, 0.2, -0.3, 0.6])  # m/s to the left, of four cars in four environments
HALF_LANE, HALF_CAR, SECONDS = 1.75, 0.9, 4.0
scene = sn.Scene(sn.MujocoEngine(ROAD, num_envs=4), seed=0)
scene.reset(qvel=np.pad(DRIFT[:, None], ((0, 0), (1, 4))) + np.eye(6)[0] * 15.0)
lanes = [
    sn.client.LaneMarking([(-10, HALF_LANE), (200, HALF_LANE)], type="broken"),
    sn.client.LaneMarking([(-10, -HALF_LANE), (200, -HALF_LANE)], type="solid"),
    sn.client.LaneMarking([(59.0, -5.0), (59.0, 5.0)], type="finish"),
]
events: queue.SimpleQueue[sn.client.LaneInvasionEvent] = queue.SimpleQueue()

with scene.local_client() as client:  # the simulation computes nothing for this sensor
    keeper = client.spawn("sensor.other.lane_invasion", attach_to="car", lanes=lanes)
    keeper.listen(events.put)
    for _ in range(round(SECONDS / client.dt)):
        client.step()
    crossed: dict[int, tuple[float, str, tuple[str, ...]]] = {}
    finished = 0
    while finished < 4:
        event = events.get(timeout=10.0)
        for marking, corners in zip(event.crossed_lane_markings, event.corners, strict=True):
            if marking.type == "finish":
                finished += 1
            else:
                crossed.setdefault(event.env, (event.timestamp, marking.type, corners))

for env, (time, line, corners) in sorted(crossed.items()):
    print(f"car {env}, {DRIFT[env]:+.1f} m/s: touches the {line} line at {time:.2f} s, {' and '.join(corners)}")
assert sorted(crossed) == [2, 3]  # the others stay within their lane for the whole 4 s
for env, (time, line, corners) in crossed.items():
    assert abs(time - (HALF_LANE - HALF_CAR) / abs(DRIFT[env])) <= client.dt + 1e-9
    assert line == ("broken" if DRIFT[env] > 0 else "solid")
    assert corners == (("front_left", "back_left") if DRIFT[env] > 0 else ("front_right", "back_right"))

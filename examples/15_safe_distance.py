"""A client spawns a sensor on a robot in a running simulation. The sensor reports bodies that are too close."""

import queue
from collections import Counter

import sensorium as sn

HALL = """
<mujoco>
  <option timestep="0.02" gravity="0 0 0"/>
  <worldbody>
    <body name="robot/base"><freejoint/><geom type="box" size="0.4 0.25 0.2"/>
      <body name="robot/mast" pos="0 0 0.3"><geom type="box" size="0.02 0.02 0.2"/></body></body>
    <body name="cart/base" pos="3 1 0" euler="0 0 30"><geom type="box" size="0.3 0.3 0.3"/></body>
    <body name="post/base" pos="5 -0.6 0"><geom type="cylinder" size="0.05 0.5"/></body>
    <body name="far/base" pos="5 4 0"><geom type="sphere" size="0.3"/></body>
  </worldbody>
</mujoco>
"""
scene = sn.Scene(sn.MujocoEngine(HALL, num_envs=2), seed=0)
scene.reset(qvel=[[1.0, 0, 0, 0, 0, 0], [0.5, 0, 0, 0, 0, 0]])  # 1 m/s in one environment, 0.5 m/s in the other
reported: Counter[tuple[int, str]] = Counter()
first: dict[tuple[int, str], float] = {}

with scene.local_client() as client:  # or sn.connect(address) in another process
    blueprint = client.blueprints.find("sensor.other.safe_distance")
    blueprint.set_attribute("safe_distance_front", "0.8")
    print(blueprint)
    guard = client.spawn(blueprint, transform=sn.Pose(), attach_to="robot/base")
    events: queue.SimpleQueue[sn.SafeDistanceEvent] = queue.SimpleQueue()
    guard.listen(events.put)
    for _ in range(240):
        frame = client.step()

    open_envs = {0, 1}  # in both, a body is inside the box in the last frame
    while open_envs:
        event = events.get(timeout=10.0)
        for body in event:
            which = event.first_env, client.bodies[body].name
            reported[which] += 1
            first.setdefault(which, event.timestamp)
        if event.frame == frame:
            open_envs.remove(event.first_env)
    guard.destroy()
    assert guard.name not in client.sensors

for (env, name), count in reported.items():
    print(f"env {env}: {name} too close in {count} frames, first at {first[env, name]:.2f} s")
assert set(reported) == {(0, "cart/base"), (0, "post/base"), (1, "cart/base")}  # never the robot or distant bodies
assert abs(first[0, "post/base"] - (5.0 - 0.05 - 0.8 - 0.4)) < 0.03  # the distance at 1 m/s, in s
assert abs(first[1, "cart/base"] - 2.0 * first[0, "cart/base"]) < 0.05  # half the speed, twice the time

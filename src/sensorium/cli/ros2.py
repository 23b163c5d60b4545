"""`sensorium ros2`: a ROS 2 node of a simulation in another process. `--help` shows the docstring."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from sensorium.cli.arguments import unset
from sensorium.cli.messages import note, warn


@dataclass
class Ros2:
    """Publish the sensors of a simulation in another process as a ROS 2 node.

    `sensorium serve` prints the ADDRESS. The node publishes the readings on the topics that a recording with --ros2
    has, the simulation's time on /clock and the frames on /tf and /tf_static. Set use_sim_time in other nodes. A
    std_msgs/Float64MultiArray on /cmd, or on /env_0003/cmd with several environments, sets the controls of the
    following steps; start the server with --control client. The node needs rclpy, which is part of ROS 2. If the server
    ends, the node waits until it returns. Ctrl-C ends the node.

    For example:
      sensorium ros2 tcp://127.0.0.1:7447
      sensorium ros2 tcp://127.0.0.1:7447 trunk lidar --env 0 --truth
    """

    address: Annotated[Positional[str], arg(metavar="ADDRESS")]
    """Address of the server: tcp://HOST:PORT or ipc:///path."""
    sensors: Annotated[Positional[tuple[str, ...]], unset("[SENSOR ...]", "all")] = ()
    """Names of sensors."""
    env: Annotated[int | None, unset("K", "all")] = None
    """Only this environment."""
    truth: bool = False
    """Also publish the ground truth: topics SENSOR/truth/..., and the poses of bodies on /tf."""
    name: Annotated[str, arg(metavar="NAME")] = "sensorium"
    """Name of the node."""
    token_file: Annotated[Path | None, unset("FILE", "none")] = None
    """File with the server's token. Alternatively set SENSORIUM_TOKEN."""
    server_key: Annotated[str, unset("KEY", "none")] = ""
    """The server's public key, if it uses keys; the server prints it."""
    keys: Annotated[Path | None, unset("FILE", "none")] = None
    """File with this client's keys, for a server that admits only certain clients; created if missing."""
    timeout: Annotated[float, arg(metavar="S")] = 5.0
    """Longest wait for the first connection to the server, s."""

    def run(self) -> int:
        """Run the command and return the exit code."""
        from sensorium.bridges.ros2 import Ros2Node
        from sensorium.cli.monitor import Options

        options = Options(
            self.address, token_file=self.token_file, server_key=self.server_key, key_file=self.keys,
            timeout=self.timeout,
        )  # fmt: skip
        with (
            options.connect("sensorium ros2") as client,
            Ros2Node(client, self.name, sensors=self.sensors, env=self.env, truth=self.truth) as node,
        ):
            for topic, why in node.skipped.items():
                warn(f"{topic} is not published: {why}")
            note(f"publishing {len(node.messages.topics) - len(node.skipped)} topics of {', '.join(node.sensors)}")
            node.spin()
        return 0

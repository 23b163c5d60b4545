"""The public names of `sensorium.client`."""

from sensorium.client.blueprints import Blueprint as Blueprint
from sensorium.client.blueprints import BlueprintLibrary as BlueprintLibrary
from sensorium.client.client import Client as Client
from sensorium.client.client import connect as connect
from sensorium.client.client_sensor import ClientEvent as ClientEvent
from sensorium.client.client_sensor import ClientSensor as ClientSensor
from sensorium.client.frame_sync import FrameBundle as FrameBundle
from sensorium.client.frame_sync import FrameSync as FrameSync
from sensorium.client.lane_invasion import LaneInvasion as LaneInvasion
from sensorium.client.lane_invasion import LaneInvasionEvent as LaneInvasionEvent
from sensorium.client.lane_invasion import LaneMarking as LaneMarking
from sensorium.client.sensors import RemoteSensor as RemoteSensor
from sensorium.client.session import ServerError as ServerError
from sensorium.wire.attributes import ActorDescription as ActorDescription
from sensorium.wire.data import ArrayData as ArrayData
from sensorium.wire.data import LostEvents as LostEvents
from sensorium.wire.data import RawData as RawData
from sensorium.wire.data import SensorData as SensorData

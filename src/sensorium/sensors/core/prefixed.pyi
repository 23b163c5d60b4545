"""Written by `tests/typing/prefixed_knobs.py` from `prefixed_knobs` of the configs."""

from sensorium.cfg import Cfg, Knob

class GnssKnobs(Cfg):
    pos_noise: Knob = None
    pos_noise_density: Knob = None
    pos_bias: Knob = None
    pos_random_walk: Knob = None
    pos_random_walk_density: Knob = None
    pos_resolution: Knob = None
    vel_noise: Knob = None
    vel_noise_density: Knob = None
    vel_bias: Knob = None
    vel_random_walk: Knob = None
    vel_random_walk_density: Knob = None
    vel_resolution: Knob = None

class ImuKnobs(Cfg):
    acc_noise: Knob = None
    acc_noise_density: Knob = None
    acc_bias: Knob = None
    acc_random_walk: Knob = None
    acc_random_walk_density: Knob = None
    acc_resolution: Knob = None
    gyro_noise: Knob = None
    gyro_noise_density: Knob = None
    gyro_bias: Knob = None
    gyro_random_walk: Knob = None
    gyro_random_walk_density: Knob = None
    gyro_resolution: Knob = None
    mag_noise: Knob = None
    mag_noise_density: Knob = None
    mag_bias: Knob = None
    mag_random_walk: Knob = None
    mag_random_walk_density: Knob = None
    mag_resolution: Knob = None

class JointSensorKnobs(Cfg):
    position_noise: Knob = None
    position_noise_density: Knob = None
    position_bias: Knob = None
    position_random_walk: Knob = None
    position_random_walk_density: Knob = None
    position_resolution: Knob = None
    velocity_noise: Knob = None
    velocity_noise_density: Knob = None
    velocity_bias: Knob = None
    velocity_random_walk: Knob = None
    velocity_random_walk_density: Knob = None
    velocity_resolution: Knob = None
    effort_noise: Knob = None
    effort_noise_density: Knob = None
    effort_bias: Knob = None
    effort_random_walk: Knob = None
    effort_random_walk_density: Knob = None
    effort_resolution: Knob = None

class MotorCurrentKnobs(Cfg):
    current_noise: Knob = None
    current_noise_density: Knob = None
    current_bias: Knob = None
    current_random_walk: Knob = None
    current_random_walk_density: Knob = None
    current_resolution: Knob = None

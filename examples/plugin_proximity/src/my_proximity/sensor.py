"""Computation of the sensor."""

import sensorium as sn

from my_proximity.options import MyProximityCfg, MyProximityData


class MyProximity(sn.SimpleSensor[MyProximityCfg, MyProximityData]):
    """Distance of each mount from the world's origin."""

    requires = (sn.engines.BODY_POSE,)

    def update_raw_data(self, raw: sn.Record) -> None:
        """Write the true distance, `[env, mount]`: called once per sample for all mounts and environments."""
        raw.distance.copy_(self.mount.pos_w.norm(dim=-1).clamp(max=self.params.max_range))

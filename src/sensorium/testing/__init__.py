"""The contracts as callables: `check_sensor` checks a sensor class against every rule, `check_engine` an engine.

    from sensorium.testing import check_engine, check_sensor
    check_sensor(MySensorCfg(body="body"))
    check_engine(MyEngine)

All checks of sensors run on a `TensorEngine` with a body that tumbles along a smooth, known path, so no simulator is
needed. The package also has slow references for comparison with fast code: `reference_cast` for rays,
`reference_distance` for signed distances.
"""

from sensorium.testing.check import check_sensor
from sensorium.testing.check_engine import check_engine
from sensorium.testing.engine import EngineFactory, tumbling_engine
from sensorium.testing.ray_scenes import random_poses, random_rays, random_shapes
from sensorium.testing.rays import CastComparison, ReferenceHits, compare_casts, reference_cast
from sensorium.testing.surfaces import ReferenceDistance, reference_distance
from sensorium.testing.trial import ContractError

__all__ = [
    "CastComparison", "ContractError", "EngineFactory", "ReferenceDistance", "ReferenceHits", "check_engine",
    "check_sensor", "compare_casts", "random_poses", "random_rays", "random_shapes", "reference_cast",
    "reference_distance", "tumbling_engine",
]  # fmt: skip

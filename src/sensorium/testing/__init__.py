"""The contracts as callables: `check_sensor` checks a sensor class against every rule, `check_engine` an engine.

    from sensorium.testing import check_engine, check_sensor
    check_sensor(MySensorCfg(body="body"))
    check_engine(MyEngine)

All checks of sensors run on a `TensorEngine` with a body that tumbles along a smooth, known path, so no simulator is
needed.
"""

from sensorium.testing.engine import EngineFactory, tumbling_engine
from sensorium.testing.engine_rules import check_engine
from sensorium.testing.rules import check_sensor
from sensorium.testing.trial import ContractError

__all__ = ["ContractError", "EngineFactory", "check_engine", "check_sensor", "tumbling_engine"]

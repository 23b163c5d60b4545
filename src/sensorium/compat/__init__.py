"""Names and defaults of other systems' documents, each as a thin layer: isaaclab, mjlab, genesis, genelab, carla.

A script written against one of those documents only changes its imports: ``from sensorium.compat.isaaclab import
ImuCfg``. The configs are subclasses of sensorium's and build the same sensors; files contain sensorium's names.
"""

MOVED = {
    "ContactData": "sensorium.compat.mjlab.ContactData",
    "DepthCameraPattern": "sensorium.compat.genesis.DepthCameraPattern",
    "DepthCameraSensor": "sensorium.compat.genesis.DepthCameraSensor",
    "ElastomerDisplacementSensor": "sensorium.compat.genesis.ElastomerDisplacementSensor",
    "ElastomerDisplacementSensorCfg": "sensorium.compat.genesis.ElastomerDisplacement",
    "GridPattern": "sensorium.compat.genesis.GridPattern",
    "KinematicContactSensor": "sensorium.compat.genelab.KinematicContactSensor",
    "KinematicContactSensorCfg": "sensorium.compat.genelab.KinematicContactSensorCfg",
    "KinematicDepthSensor": "sensorium.compat.genelab.KinematicDepthSensor",
    "KinematicDepthSensorCfg": "sensorium.compat.genelab.KinematicDepthSensorCfg",
    "KinematicTaxel": "sensorium.KinematicTactileSensor",
    "KinematicTaxelCfg": "sensorium.compat.genesis.KinematicTaxel",
    "LidarSensor": "sensorium.Lidar",
    "LidarSensorCfg": "sensorium.LidarCfg",
    "MultiMeshRayCaster": "sensorium.compat.isaaclab.MultiMeshRayCaster",
    "MultiMeshRayCasterCfg": "sensorium.compat.isaaclab.MultiMeshRayCasterCfg",
    "MultiMeshRayCasterData": "sensorium.compat.isaaclab.MultiMeshRayCasterData",
    "Proximity": "sensorium.compat.genesis.ProximitySensor",
    "ProximityCfg": "sensorium.compat.genesis.Proximity",
    "ProximitySensor": "sensorium.compat.genesis.ProximitySensor",
    "RayCastSensor": "sensorium.compat.mjlab.RayCastSensor",
    "RayCastSensorCfg": "sensorium.compat.mjlab.RayCastSensorCfg",
    "RaycastTargetCfg": "sensorium.compat.isaaclab.RaycastTargetCfg",
    "RaycasterSensor": "sensorium.compat.genesis.RaycasterSensor",
    "RaycasterSensorCfg": "sensorium.compat.genesis.Raycaster",
    "SphericalPattern": "sensorium.compat.genesis.SphericalPattern",
    "TemperatureGridSensor": "sensorium.compat.genesis.TemperatureGridSensor",
    "TerrainHeightSensor": "sensorium.compat.mjlab.TerrainHeightSensor",
    "TerrainHeightSensorCfg": "sensorium.compat.mjlab.TerrainHeightSensorCfg",
    "mjlab": "sensorium.compat.mjlab",
}
"""Former names of `sensorium`, and their new locations."""

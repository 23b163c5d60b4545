"""The public names of `sensorium.math`."""

from sensorium.cameras.geometry import project_points as project_points
from sensorium.cameras.geometry import transform_points as transform_points
from sensorium.cameras.geometry import unproject_depth as unproject_depth
from sensorium.geometry.transforms import compose_poses as compose_poses
from sensorium.geometry.transforms import euler_from_quat as euler_from_quat
from sensorium.geometry.transforms import matrix_from_quat as matrix_from_quat
from sensorium.geometry.transforms import quat_apply as quat_apply
from sensorium.geometry.transforms import quat_apply_inverse as quat_apply_inverse
from sensorium.geometry.transforms import quat_conjugate as quat_conjugate
from sensorium.geometry.transforms import quat_from_euler as quat_from_euler
from sensorium.geometry.transforms import quat_from_matrix as quat_from_matrix
from sensorium.geometry.transforms import quat_from_rotvec as quat_from_rotvec
from sensorium.geometry.transforms import quat_level as quat_level
from sensorium.geometry.transforms import quat_mul as quat_mul
from sensorium.geometry.transforms import relative_pose as relative_pose
from sensorium.geometry.transforms import rotvec_from_quat as rotvec_from_quat

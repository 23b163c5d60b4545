"""mujoco_warp, MuJoCo on CUDA: an engine that steps N environments, and one over live objects of their owner."""

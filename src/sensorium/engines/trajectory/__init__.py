"""The engine of given trajectories: poses over time and meshes instead of physics."""

"""The server: the sensors of a scene, for listeners in this and in other processes."""

"""What a process needs to listen to the sensors of a simulation in another: no torch, no engine."""

"""From truth to measurement: schedule, memory, the fused standard chain, stages, rings, delay and history."""

"""From truth to measurement: schedule, blocks, the fused standard chain, stages, rings, delay, history."""

"""MuJoCo on the CPU: an engine that steps N environments, and one over live objects of their owner."""

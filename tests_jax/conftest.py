"""JAX compiles fast instead of well, and keeps the results for later runs."""

from pathlib import Path

import jax

jax.config.update("jax_disable_most_optimizations", True)
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[1] / "out/jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)

"""The benchmarks of scripts/bench at their smallest, as pytest runs them: scripts/checks/run benchmarks."""

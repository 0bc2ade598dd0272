"""Checks that take minutes: broken files, faults while writing, torch's own databases, two recorders, stress.

`scripts/checks/run` runs all of them, or one with arguments of its own; `scripts/test --all` does so before the tests. Small
captures are built by the helpers of tests/.
"""

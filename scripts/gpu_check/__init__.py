"""A check of pyprof on the machine of a user: small networks through every way of capture, each result held against others.

`scripts/gpu_check/run` runs it. networks: what runs; program: one of them in a process of its own, recorded in one way; rows:
the records of a capture as they are compared; judge: pass, fail or skip with the reason; ways: the command lines of the
tools; check: all of it in order, with what it leaves behind.
"""

from __future__ import annotations

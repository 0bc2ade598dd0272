"""How long something takes: a function, a recorded op, this machine's peaks, and the blocks inside one kernel.

import pyprof.timers
buffer = pyprof.timers.Buffer(Time, iterations=500, lanes=128)    # blocks of a kernel, see `buffer`
buffer = pyprof.timers.load("timers.npz")
"""

from pyprof.timers.buffer import Buffer, load

__all__ = ["Buffer", "load"]

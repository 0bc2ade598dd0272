"""Run by Python at the start of each process below `pyprof run`, before the program: starts recording and leaves no trace.

The interpreter runs the program as always, with its own argv, `__main__`, sys.path, tracebacks and exit code. The environment
and sys.path are restored, and the user's own sitecustomize runs as if ours did not exist. The processes that a launcher of
torch starts are recorded; the launcher is not.
"""

import os
import sys


def _begin() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != here]
    folder = os.environ.get("PYPROF_RUN")
    if folder is None:
        return
    root = os.path.dirname(os.path.dirname(os.path.dirname(here)))
    sys.path.insert(0, root)  # only to find this very pyprof, installed or not
    try:
        from pyprof.recording.programs import is_launcher

        if is_launcher(sys.orig_argv):
            return
        from pyprof.recording.bootstrap import start
    finally:
        sys.path.remove(root)
    del os.environ["PYPROF_RUN"]
    before = os.environ.pop("PYPROF_RUN_PYTHONPATH", None)
    if before is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = before
    start(folder, here)


try:
    _begin()
except Exception as error:  # the program must run even if recording cannot start
    print(f"pyprof: nothing will be recorded: {type(error).__name__}: {error}", file=sys.stderr)

# Where the user has none, this raises what Python expects in that case.
sys.modules.pop("sitecustomize", None)
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401

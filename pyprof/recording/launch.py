"""`python launch.py STDOUT STDERR FOLDER VARIABLES PROGRAM ARGUMENTS...`: run the program under nsys, but with our own streams.

nsys starts a program in a new session and replaces its standard output and error by pipes, to which nsys writes as well. The
program gets our own streams back, and the variables in FOLDER/VARIABLES. That file is renamed first: where it is gone, the
parent has given up this start, and nothing is run; its new name has our process id. The program's process id, to which signals
are passed on, and its exit code, which not every nsys returns, are written to FOLDER. Run by path in an isolated interpreter:
imports nothing of pyprof.
"""

import json
import os
import signal
import sys
import warnings

MARK = "PYPROF_NSYS_START"  # variable of all that nsys starts but the program: tells these processes from others
ENDING = "ending"  # file in the folder of a run, made when a program has ended and what was recorded is being written
_IGNORED = ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")


def _write(folder: str, name: str, number: int) -> None:
    """A file that is there whole or not at all."""
    part = os.path.join(folder, f"{name}.part")
    with open(part, "w") as stream:
        stream.write(str(number))
    os.replace(part, os.path.join(folder, name))


def main() -> int:
    """Run the program and wait for it; returns its exit code, or 128 and the signal that ended it."""
    stdout, stderr, folder, variables, *program = sys.argv[1:]
    variables = os.path.join(folder, os.path.basename(variables))  # nothing outside of FOLDER is ever renamed
    taken = f"{variables}.taken-by.{os.getpid()}"
    try:
        os.rename(variables, taken)
    except FileNotFoundError:
        return 125
    for given, standard in ((int(stdout), 1), (int(stderr), 2)):
        os.dup2(given, standard)
        os.close(given)
    with open(taken) as stream:
        os.environ.update(json.load(stream))
    os.environ.pop(MARK, None)
    # Python 3.12 warns of forks beside threads, which nsys has here: the child does nothing but become the program.
    warnings.simplefilter("ignore", DeprecationWarning)
    child = os.fork()
    if child == 0:
        try:
            os.execvp(program[0], program)
        except OSError as error:
            print(f"pyprof: {program[0]} cannot be run: {error.strerror}", file=sys.stderr, flush=True)
            os._exit(127 if isinstance(error, FileNotFoundError) else 126)
    for name in _IGNORED:  # sent to the program's process group, and meant for the program
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    _write(folder, "pid", child)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    _write(folder, "code", code)  # negative: the signal
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main())

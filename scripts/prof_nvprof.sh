#!/usr/bin/env bash
# Run a program under nvprof (GPUs before Ampere, CUDA 12 and older), then parse and print the capture.
#
#   scripts/prof_nvprof.sh [-o NAME] [-c COLUMNS] [-w WIDTH] [-r] [-f] [--] PROGRAM ARGUMENTS...
#
#   -o NAME     write NAME.sql and NAME.dict, replacing older ones (default: net)
#   -c COLUMNS  columns to print, as in `python -m pyprof.prof -c` (its help lists them)
#   -w WIDTH    characters in a line of the table (default: 150)
#   -r          record only between torch.cuda.profiler.start() and stop()
#   -f          record child processes too: NAME.PID.sql and NAME.PID.dict, a pair for each process
#
# Where the program calls pyprof.init(), its ops are recorded with shapes, layer and source line. PYTHON is the Python that has
# pyprof (default: the one on PATH). If the program fails, its exit code is returned.
set -eu
. "$(dirname "$0")/lib.sh"

out=net start=on children=no width=150 columns=()
while getopts o:c:w:rfh option; do
    case $option in
        o) out=$OPTARG ;;
        c) columns=(-c "$OPTARG") ;;
        w) width=$OPTARG ;;
        r) start=off ;;
        f) children=yes ;;
        h) usage && exit 0 ;;
        *) usage >&2 && exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { usage >&2 && exit 2; }
command -v nvprof >/dev/null || die "nvprof is not on PATH; it came with CUDA up to 12. On newer GPUs: scripts/prof_nsys.sh"
find_pyprof

# nvprof replaces %p by the process id; without it the processes would overwrite each other's file.
options=(-f -o "$out.sql" --profile-from-start "$start")
[ "$children" = no ] || options=(-f -o "$out.%p.sql" --profile-child-processes --profile-from-start "$start")
rm -f "$out".sql "$out".dict "$out".[0-9]*.sql "$out".[0-9]*.dict
status=0
run nvprof "${options[@]}" "$@" >&2 || status=$?
[ "$status" = 0 ] || echo "${0##*/}: the program ended with exit code $status" >&2
captures=0 failed=0
for capture in "$out.sql" "$out".[0-9]*.sql; do
    [ -f "$capture" ] || continue
    captures=$((captures + 1))
    # A process that used no GPU leaves an empty capture, which must not keep the others from being read.
    run "$python" -m pyprof.parse -o "${capture%.sql}.dict" "$capture" || { failed=$? && continue; }
    run "$python" -m pyprof.prof "${columns[@]}" -w "$width" "${capture%.sql}.dict" || failed=$?
done
[ "$captures" -gt 0 ] || { echo "${0##*/}: nvprof left no capture: see its messages above" >&2 && failed=1; }
exit "$((status ? status : failed))" # the program's own exit code where that tells something

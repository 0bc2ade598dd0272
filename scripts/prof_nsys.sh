#!/usr/bin/env bash
# Run a program under Nsight Systems, then export, parse and print the capture.
#
#   scripts/prof_nsys.sh [-o NAME] [-c COLUMNS] [-w WIDTH] [-t TRACE] [-r] [-f] [--] PROGRAM ARGUMENTS...
#
#   -o NAME     write NAME.nsys-rep, NAME.sqlite and NAME.dict, replacing older ones (default: net)
#   -c COLUMNS  columns to print, as in `python -m pyprof.prof -c` (its help lists them)
#   -w WIDTH    characters in a line of the table (default: 150)
#   -t TRACE    what nsys records (default: cuda,nvtx,cudnn,cublas)
#   -r          record only between torch.cuda.profiler.start() and stop()
#   -f          record forked processes too (data-loader workers; what one records just before os._exit may be lost)
#
# Where the program calls pyprof.init(), its ops are recorded with shapes, layer and source line. PYTHON is the Python that has
# pyprof (default: the one on PATH). If the program fails, its exit code is returned.
set -eu
. "$(dirname "$0")/lib.sh"

out=net trace=cuda,nvtx,cudnn,cublas width=150 columns=() options=()
while getopts o:c:w:t:rfh option; do
    case $option in
        o) out=$OPTARG ;;
        c) columns=(-c "$OPTARG") ;;
        w) width=$OPTARG ;;
        t) trace=$OPTARG ;;
        r) options+=(--capture-range=cudaProfilerApi --capture-range-end=stop) ;;
        f) options+=(--trace-fork-before-exec=true) ;;
        h) usage && exit 0 ;;
        *) usage >&2 && exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { usage >&2 && exit 2; }
find_nsys || die "nsys is not on PATH; install Nsight Systems, or on Debian: scripts/install_nsys"
find_pyprof

# Graph nodes one by one, since a graph as a whole has no kernels to tell of; no CPU samples, which nothing here reads.
rm -f "$out.nsys-rep" "$out.sqlite" "$out.dict"
status=0
finish() { exit "$((status ? status : $1))"; } # with the program's own exit code where that tells something
run nsys profile -t "$trace" --cuda-graph-trace=node --sample=none --cpuctxsw=none "${options[@]}" \
    -f true -o "$out" "$@" >&2 || status=$?
[ "$status" = 0 ] || echo "${0##*/}: the program ended with exit code $status" >&2
[ -f "$out.nsys-rep" ] || { echo "${0##*/}: nsys left no $out.nsys-rep: see its messages above" >&2 && finish 1; }
run nsys export --type sqlite --quiet true -f true -o "$out.sqlite" "$out.nsys-rep" >&2 || finish $?
run "$python" -m pyprof.parse -o "$out.dict" "$out.sqlite" || finish $?
run "$python" -m pyprof.prof "${columns[@]}" -w "$width" "$out.dict" || finish $?
exit "$status"

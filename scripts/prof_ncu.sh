#!/usr/bin/env bash
# Count what a program's kernels do with Nsight Compute, and print it beside what the algorithm needs.
#
#   scripts/prof_ncu.sh [-o NAME] [-n RANGE] [-g GPU] [-c COLUMNS] [-t CAPTURE] [--] PROGRAM ARGUMENTS...
#
#   -o NAME     write NAME.csv (default: net), replacing an older one
#   -n RANGE    measure only inside this NVTX range, as `ncu --nvtx-include` takes it, e.g. 'step 3/' or 'regex:layers.0/'
#   -g GPU      count the Tensor Cores of this device (default: what nvidia-smi names first)
#   -c COLUMNS  columns to print, as in `pyprof counters -c`
#   -t CAPTURE  a capture of the same program (scripts/prof_nsys.sh): adds its ops, times and needed FLOPs
#
# ncu runs every kernel many times, so measure few: a step or two with -n. Where the program calls pyprof.init(), its ops, layers
# and steps are ranges. PYTHON is the Python that has pyprof (default: the one on PATH).
set -eu
. "$(dirname "$0")/lib.sh"

out=net gpu='' columns=() trace=() filter=()
while getopts o:n:g:c:t:h option; do
    case $option in
        o) out=$OPTARG ;;
        n) filter+=(--nvtx-include "$OPTARG") ;;
        g) gpu=$OPTARG ;;
        c) columns=(-c "$OPTARG") ;;
        t) trace=(--trace "$OPTARG") ;;
        h) usage && exit 0 ;;
        *) usage >&2 && exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { usage >&2 && exit 2; }
command -v ncu >/dev/null || die "ncu is not on PATH; install Nsight Compute, or on Debian: scripts/install_ncu"
find_pyprof
[ -n "$gpu" ] || gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1) || true

line=$("$python" -m pyprof counters --metrics "$gpu")
metrics=${line#*--metrics }
rm -f "$out.csv"
status=0
run ncu --csv --page raw --nvtx --target-processes all --log-file "$out.csv" "${filter[@]}" --metrics "${metrics%% *}" "$@" >&2 || status=$?
[ "$status" = 0 ] || echo "${0##*/}: ncu ended with exit code $status" >&2
[ -s "$out.csv" ] || { echo "${0##*/}: ncu left no $out.csv: see its messages above" >&2 && exit "$((status ? status : 1))"; }
run "$python" -m pyprof counters "${columns[@]}" "${trace[@]}" "$out.csv" || exit "$((status ? status : $?))"
exit "$status"

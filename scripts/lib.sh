# shellcheck shell=bash
# Shared by the scripts here, sourced by them: where the project is, its Python environment, and nsys.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
torch=2.13.0

die() { echo "${0##*/}: $*" >&2; exit 1; }

# Print the comment at the top of the calling script, which is its usage text.
usage() { awk 'NR > 1 && !/^#/ { exit } NR > 1 { sub(/^# ?/, ""); print }' "$0"; }

# Print a command as one could type it, then run it.
run() {
    local word line=+
    for word; do
        case $word in *[!A-Za-z0-9_.,:=/%+-]* | '') word=$(printf %q "$word") ;; esac
        line+=" $word"
    done
    echo "$line" >&2
    "$@"
}

# ensure_env [EXTRA]: make or reuse the environment, install the project into it if necessary, with what this extra needs (default:
# dev, which has all), and put it first on PATH: $PYPROF_VENV, else the active one ($VIRTUAL_ENV), else .venv in the project's root.
ensure_env() {
    local extra=${1:-dev} venv=${PYPROF_VENV:-${VIRTUAL_ENV:-$root/.venv}} python=${PYTHON:-python3} ready known
    if [ ! -x "$venv/bin/python" ]; then
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || die "$python is not Python 3.10 or newer; set PYTHON"
        echo "making a Python environment in $venv" >&2
        "$python" -m venv "$venv" || die "cannot make $venv; Debian and Ubuntu keep it in: apt-get install python3-venv"
    fi
    PATH=$venv/bin:$PATH
    # Once for each state of pyproject.toml, and again when another copy of the project uses the environment.
    ready="$root $(cksum <"$root/pyproject.toml")"
    known=$(cat "$venv/.pyprof-ready" 2>/dev/null || true)
    if [ "$known" != "dev $ready" ] && [ "$known" != "$extra $ready" ]; then
        # By name and first: a range would let pip take the newest build with gigabytes of CUDA packages.
        python -c 'import torch' 2>/dev/null || run python -m pip install -q "torch==$torch" >&2 || die "cannot install torch"
        run python -m pip install -q -e "${root}[$extra]" >&2 || die "cannot install the project"
        echo "$extra $ready" >"$venv/.pyprof-ready"
    fi
}

# Set `python` to the Python that has pyprof: $PYTHON, else the one on PATH.
find_pyprof() {
    python=${PYTHON:-$(command -v python || echo python3)}
    # In the checkout itself pyprof is found without being installed, its packages are not.
    "$python" -c 'import numpy, nvtx, pandas, pyprof, sqlalchemy' 2>/dev/null ||
        die "$python has no pyprof, or not what it needs: pip install -e $root, or set PYTHON"
}

# Put nsys on PATH if it is only in the folder of scripts/install_nsys; fails where there is none.
find_nsys() {
    local own=${PYPROF_NSYS_HOME:-$HOME/.cache/pyprof/nsys}/bin
    if ! command -v nsys >/dev/null && [ -x "$own/nsys" ]; then PATH=$PATH:$own; fi
    command -v nsys >/dev/null
}

# unpack_debs WORK SUITE PACKAGE/SUITE...: unpack NVIDIA's tools from Debian's non-free packages into WORK/root. Needs neither root
# nor a change of the system: apt gets lists and sources of its own, from the mirror that this machine's apt uses.
unpack_debs() {
    local work=$1 suite=$2 own mirror keys=/usr/share/keyrings/debian-archive-keyring.gpg here suites deb
    shift 2
    if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then die "no apt-get and dpkg here; install it from NVIDIA"; fi
    [ "$(dpkg --print-architecture)" = amd64 ] || die "Debian has it for amd64 only; install it from NVIDIA"
    mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/debs" "$work/root"
    own=(-o "Dir::State::Lists=$work/lists" -o "Dir::Cache::Archives=$work/archives" -o Dir::Cache::pkgcache=
        -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User= -o Debug::NoLocking=1)
    mirror=$(apt-get "${own[@]}" update --print-uris 2>/dev/null | sed -n "s#^'\(.*/debian\)/dists/.*#\1#p" | head -n 1)
    [ -n "$mirror" ] || die "apt here has no Debian mirror among its sources; install it from NVIDIA"
    [ -r "$keys" ] || die "no $keys; apt-get install debian-archive-keyring"
    here=$(. /etc/os-release && echo "${VERSION_CODENAME:-$suite}")
    suites=$suite
    [ "$here" = "$suite" ] || suites="$suite $here"
    cat >"$work/debian.sources" <<EOF
Types: deb
URIs: $mirror
Suites: $suites
Components: main contrib non-free
Architectures: amd64
Signed-By: $keys
EOF
    own+=(-o "Dir::Etc::SourceList=$work/debian.sources" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Status=/dev/null
        -o APT::Update::Post-Invoke-Success::= -o APT::Update::Error-Mode=any -o Acquire::Retries=3)
    echo "${0##*/}: reading Debian's package lists ($suites)" >&2
    apt-get "${own[@]}" -qq update >&2 || die "cannot read Debian's package lists; is there a network?"
    echo "${0##*/}: downloading $1 and what it needs (hundreds of MB)" >&2
    (cd "$work/debs" && apt-get "${own[@]}" -qq download "$@" >&2) || die "cannot download the packages"
    for deb in "$work"/debs/*.deb; do
        dpkg -x "$deb" "$work/root"
    done
}

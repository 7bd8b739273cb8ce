# Sourced by test.sh and demo.sh: makes the virtual environment where there is none.
#
#   setup_env FILE...   installs the requirement files and the package itself, unless that is done;
#                       afterwards $python is the environment's Python.
#
# The environment is .venv in the repository's root; EA_VENV=/some/folder puts it elsewhere.
# Needs Python 3.11 or 3.12; EA_PYTHON=/path/to/python names one that is not found on the PATH.

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${EA_VENV:-$repository/.venv}
case $venv in /*) ;; *) venv=$PWD/$venv ;; esac
python=$venv/bin/python

# Prints the first Python that is 3.11 or 3.12. Asks each, since a name may promise too much.
find_python() {
    local candidate version others="" candidates=(python3 python3.12 python3.11 python)
    [ -z "${EA_PYTHON:-}" ] || candidates=("$EA_PYTHON")
    for candidate in "${candidates[@]}"; do
        version=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) \
            || continue
        case $version in
            3.11 | 3.12)
                if [ -n "$others" ]; then
                    echo "taking $candidate (Python $version) instead of$others" >&2
                fi
                echo "$candidate"
                return
                ;;
        esac
        others="$others $candidate (Python $version)"
    done
    echo "error: need Python 3.11 or 3.12, found${others:- none};" \
        "name one with EA_PYTHON=/path/to/python" >&2
    return 1
}

# Makes the environment anew. A half-made one is replaced: its pip does not run.
make_venv() {
    local base
    base=$(find_python) || return 1
    if [ -e "$venv" ] && [ ! -e "$venv/pyvenv.cfg" ] && [ -n "$(ls -A "$venv")" ]; then
        echo "error: EA_VENV: $venv is there and is no virtual environment" >&2
        return 1
    fi
    echo "making $venv with $("$base" --version)" >&2
    if ! "$base" -m venv --clear "$venv"; then
        echo "error: $base cannot make virtual environments;" \
            "on Debian and Ubuntu: apt install python3-venv" >&2
        return 1
    fi
}

# pip with every version pinned, also in the environments of its own in which it builds packages.
pinned_pip_install() {
    local pins  # as an address, since pip splits the variable at spaces
    pins=$("$python" -c 'import pathlib, sys; print(pathlib.Path(sys.argv[1]).as_uri())' \
        "$repository/constraints.txt") || return 1
    # Before 25.3 pip builds with the first of the two, from then on with the second.
    PIP_CONSTRAINT=$pins PIP_BUILD_CONSTRAINT=$pins \
        "$python" -m pip install --quiet --disable-pip-version-check "$@"
}

# What an environment with this requirement file was made of.
wanted_of() {
    (cd "$repository" && cat "$1" constraints.txt setup.py && "$python" --version && pwd)
}

setup_env() {
    local stamp file wanted stale=()
    if ! "$python" -m pip --version >/dev/null 2>&1; then
        make_venv || return 1
    fi
    for file in "$@"; do
        stamp=$venv/installed-$(basename "$file")
        wanted=$(wanted_of "$file")
        if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
            continue
        fi
        echo "installing $(basename "$file") into $venv" >&2
        rm -f "$stamp"
        if grep -q '^torch==' "$file"; then
            # Alone and first: with others to agree with, pip may choose a larger build.
            pinned_pip_install "$(grep '^torch==' "$file")" || return 1
        fi
        pinned_pip_install -r "$file" || return 1
        stale+=("$file")
    done
    if [ ${#stale[@]} -gt 0 ]; then
        pinned_pip_install --no-deps -e "$repository" || return 1
        for file in "${stale[@]}"; do
            wanted_of "$file" >"$venv/installed-$(basename "$file")"
        done
    fi
}

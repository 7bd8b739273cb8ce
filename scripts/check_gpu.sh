#!/usr/bin/env bash
# What this project does on this machine's GPU: tests, losses, times, memory, trainings.
#
#   bash scripts/check_gpu.sh --out DIR [options of check_gpu.py]
#
# Takes less than ten minutes, installation included. Needs a Python 3.11 or 3.12 (python3, or
# EA_PYTHON=/path/to/python) that has a build of torch for the GPU; what else is needed goes into a
# virtual environment in DIR/venv, which sees that torch. Without the internet, PIP_NO_INDEX=1
# PIP_FIND_LINKS=FOLDER take it from a folder of wheels; what cannot be installed, the parts that
# need it say. DIR/report.json and DIR/report.md hold what was found, also after a stop.
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
base=${EA_PYTHON:-python3}
out=
for ((i = 1; i <= $#; i++)); do
    case ${!i} in
        --out) next=$((i + 1)); out=${!next:-} ;;
        --out=*) out=${!i#--out=} ;;
        -h | --help) exec "$base" "$repository/scripts/check_gpu.py" --help ;;
    esac
done
if [[ -z $out ]]; then
    echo "error: --out: name the folder for what is found" >&2
    exit 2
fi
# Whether a Python finds the modules named after it.
has_modules() {
    "$1" -c 'import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))' \
        "${@:2}" 2>/dev/null
}
version=$("$base" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true)
case $version in
    3.11 | 3.12) ;;
    *)
        echo "error: $base is ${version:+Python $version, }no Python 3.11 or 3.12; name one that" \
            "has torch with EA_PYTHON=/path/to/python" >&2
        exit 2
        ;;
esac
if ! has_modules "$base" torch; then
    echo "error: $base has no torch; install its build for your GPU first, or name another Python" \
        "with EA_PYTHON=/path/to/python" >&2
    exit 2
fi
mkdir -p "$out"
out=$(cd "$out" && pwd)
python=$base
modules=$(PYTHONPATH=$repository/scripts "$base" -c 'import check_gpu; print(*check_gpu.MODULES)')
if ! has_modules "$base" $modules; then
    python=$out/venv/bin/python
    if [[ ! -e $out/venv/installed ]]; then
        # Its packages come by the base's pip: not every Python can put one into a new environment.
        "$base" -m venv --clear --without-pip --system-site-packages "$out/venv"
        # Where the base is a virtual environment itself, its packages are not the system's.
        site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
        "$base" -c 'import sys; print(*(p for p in sys.path if p.endswith("-packages")), sep="\n")' \
            >"$site/base.pth"
        # torch and its Triton are there: pip is to leave them alone, whatever else wants others.
        there='torch|torchaudio'
        if has_modules "$base" triton; then
            there+='|triton'
        fi
        for file in requirements.txt requirements-test.txt constraints.txt; do
            sed -E "/^($there)==/d" "$repository/$file" >"$out/venv/$file"
        done
        "$base" -c 'import torch; print(f"torch=={torch.__version__}")' >>"$out/venv/constraints.txt"
        if "$base" -m pip --python "$python" install --quiet -r "$out/venv/requirements.txt" \
            -r "$out/venv/requirements-test.txt"; then
            touch "$out/venv/installed"
        else
            echo "warning: pip failed: parts that need what is not there will fail" >&2
        fi
    fi
fi
PYTHONPATH=$repository${PYTHONPATH:+:$PYTHONPATH} \
    exec "$python" "$repository/scripts/check_gpu.py" --spent "$SECONDS" "$@"

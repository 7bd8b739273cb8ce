#!/usr/bin/env bash
# The compiled library's tests with a library that gcc's sanitizers watch.
#
#     bash scripts/sanitize.sh address            addresses and undefined behaviour (2 minutes)
#     bash scripts/sanitize.sh thread             races between threads
#     bash scripts/sanitize.sh address -k steps   further words are options of pytest
#
# Ends with a status other than 0, and the sanitizer's report, at the first fault. Needs g++ with
# its sanitizers' libraries; $PYTHON names another Python than the one of .venv.
set -euo pipefail
cd "$(dirname "$0")/.."

kind=${1:-}
[ $# -gt 0 ] && shift
case $kind in
  address) flags="-fsanitize=address,undefined -fno-sanitize-recover=undefined" watch=libasan.so ;;
  thread) flags="-fsanitize=thread -Wl,-Bsymbolic tests/thorough/openmp_on_threads.cpp" watch=libtsan.so ;;
  *) echo "sanitize.sh: error: choose from address, thread; not '$kind'" >&2; exit 2 ;;
esac

python=${PYTHON:-.venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Not optimised: compiling takes a tenth of the time, and more faults stay visible.
cat > "$work/g++" <<EOF
#!/bin/bash
[ "\$*" = --version ] && exec g++ --version
exec g++ "\${@/#-O3/-O0}" -g1 -fno-omit-frame-pointer $flags
EOF
chmod +x "$work/g++"

export CXX="$work/g++" XDG_CACHE_HOME="$work" EA_FAIRSEQ_NATIVE=1
# Python and torch leave memory to the end of the process, and were not built for the sanitizers.
export ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=ignore_noninstrumented_modules=1
# The thread sanitizer wants its own part of the address space.
fixed=()
if [ "$kind" = thread ] && setarch -R true 2>/dev/null; then fixed=(setarch -R); fi

LD_PRELOAD="$(g++ -print-file-name=$watch) $(g++ -print-file-name=libstdc++.so)" \
  "${fixed[@]}" "$python" -m pytest -q -s -p no:cacheprovider \
  tests/core/test_kernels.py tests/core/test_decoders.py tests/core/test_int8.py "$@"

# The tests would pass without any library too.
case $kind in address) symbol=__asan_ ;; thread) symbol=__tsan_ ;; esac
grep -q "$symbol" "$work"/ea_fairseq/*.so
echo "sanitize.sh: $kind: no fault found"

#!/usr/bin/env bash
# Passes the whole test suite, in an environment that it makes where there is none.
#
#   bash scripts/test.sh [--thorough | arguments of pytest]
#
# Without arguments all but what is thorough, which --thorough runs: sanitizers, every architecture,
# ptxas, fuzzing, and what else takes long. The answer is the same for the same code: hypothesis
# draws the same examples every time, but with --thorough.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup_env.sh"
setup_env "$repository/requirements.txt" "$repository/requirements-test.txt"

part=()
if [[ $# -eq 0 ]]; then
  part=(-m "not thorough" --hypothesis-seed=0)
elif [[ $1 = --thorough ]]; then
  part=(-m thorough)
  shift
fi

# Threads of torch's that wait leave their core to others soon (ea_fairseq/environment.py).
[ -n "${OMP_WAIT_POLICY:-}" ] || export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-10000}

cd "$repository"
"$python" -m ruff check .
"$python" -m ruff format --check .
# Two processes of one thread each: the models are too small for more threads to help. Tests of a
# file stay together, since they share what they trained; in the order of tests/conftest.py. What
# hangs ends its process (see pyproject.toml), and another one would begin the same test again.
two=(-q -n 2 --max-worker-restart 0)
OMP_NUM_THREADS=1 "$python" -m pytest "${two[@]}" --dist loadfile --no-loadscope-reorder \
  "${part[@]}" "$@"
if [[ $# -eq 0 ]]; then
  # What holds with the compiled attention maps must hold on torch alone.
  if [[ ${part[1]} != thorough ]]; then
    OMP_NUM_THREADS=1 EA_FAIRSEQ_NATIVE=0 "$python" -m pytest "${two[@]}" --dist load "${part[@]}" \
      tests/core/test_{ea_transformer,variants,multihead_attention}.py
  fi
  # And what Triton computes on a GPU, interpreted here.
  OMP_NUM_THREADS=1 EA_FAIRSEQ_NATIVE=triton TRITON_INTERPRET=1 \
    "$python" -m pytest "${two[@]}" --dist load "${part[@]}" \
    tests/core/test_triton_{attention,model}.py
fi

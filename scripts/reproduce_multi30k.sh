#!/usr/bin/env bash
# The runs behind examples/translation/RESULTS.md, in order, and the tables and pictures made of them.
#
#   bash scripts/reproduce_multi30k.sh [--raw DIR] [--work-dir DIR] [--jobs N] [--dry-run] \
#       [STEP ...]
#
# Steps; all of them in this order where none is named:
#   seeds      German-English and English-German, seeds 1 to 3, both models       12 runs, 22 epochs
#   ablation   the rows of the paper's Table 6, German-English, seed 1             6 runs, 22 epochs
#   variants   every other variant, German-English, seed 1                        12 runs, 22 epochs
#   rivals     seeds 2 and 3 of the variants that came near evolving attention,
#              and wide models, German-English                                     18 runs, 22 epochs
#   french     English-French, seeds 1 to 3, both models                           6 runs, 22 epochs
#   published  English-German near the recipe of the published 41.02, seed 1       2 runs, to the end
#   keep       translations and results of what is finished, in examples/translation/*/translations
#   report     tables and pictures of what is finished, in <work-dir>/report
#
# --work-dir is work/ in the current folder where it is not given, as ea-recipe has it.
# What is done is skipped, a stopped training goes on: after any interruption, give the same command
# again. --jobs N does N runs of a step side by side, --dry-run prints the commands. Runs are
# single-threaded; one takes 1 to 4 hours of a core.
set -euo pipefail

# What the caller names is in the caller's folder.
absolute() {
  case $1 in /*) echo "$1" ;; *) echo "$PWD/$1" ;; esac
}

python=${PYTHON:-python}
work_dir=
dry_run=
options=()
steps=()

while [[ $# -gt 0 ]]; do
  case $1 in
    --raw | --work-dir | --jobs)
      [[ $# -gt 1 ]] || { echo "reproduce_multi30k.sh: $1: its value is missing" >&2; exit 1; }
      case $1 in
        --work-dir) work_dir=$(absolute "$2") ;;
        --raw) options+=(--raw "$(absolute "$2")") ;;
        --jobs) options+=(--jobs "$2") ;;
      esac
      shift ;;
    --dry-run) dry_run=yes ;;
    seeds | ablation | variants | rivals | french | published | keep | report) steps+=("$1") ;;
    *)
      echo "reproduce_multi30k.sh: $1: choose from --raw DIR, --work-dir DIR, --jobs N, --dry-run and the" \
        "steps seeds, ablation, variants, rivals, french, published, keep, report" >&2
      exit 1 ;;
  esac
  shift
done
work_dir=${work_dir:-$PWD/work}
[[ $python != */* ]] || python=$(absolute "$python")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ ${#steps[@]} -gt 0 ]] || steps=(seeds ablation variants rivals french published keep report)
options+=(--work-dir "$work_dir" --threads 1)

recipes=examples/translation
# The same for every model: so many epochs, and the last 10 averaged.
equal_budget=(--name '{recipe}.epochs_22' --set max-epoch=22)

run() {
  printf '\n$'
  printf ' %q' "$@"
  echo
  [[ -n $dry_run ]] || "$@"
}

# train CORPUS "VARIANT ..." [OPTION ...]
train() {
  local corpus=$1 models
  read -ra models <<<"$2"
  shift 2
  run "$python" scripts/run_recipe.py "$recipes/$corpus" --variant "${models[@]}" "${options[@]}" "$@"
}

train_both() {
  local corpus=$1
  shift
  train "$corpus" "transformer_lite ea_transformer_lite" "$@"
}

seeds() {
  train_both multi30k.de-en --seeds 1 2 3 "${equal_budget[@]}"
  train_both multi30k.en-de --seeds 1 2 3 "${equal_budget[@]}"
}

ablation() {
  run "$python" scripts/ablation.py "$recipes/multi30k.de-en" --seeds 1 "${options[@]}" \
    "${equal_budget[@]}"
}

# Architectures with settings as their papers have them, and architectures with other settings.
architectures="realformer_lite pa_transformer_lite conv_transformer_lite ea_conv_transformer_lite \
  bet_transformer_lite diagonal_free talking_heads_transformer_lite mta_transformer_lite"

settings="pa_transformer_lite.lr_1e-3 pa_transformer_lite.layers_0.lr_1e-3 \
  pa_conv_transformer_lite.lr_1e-3 ea_transformer_lite.learned_mixing"

variants() {
  train multi30k.de-en "$architectures" --seeds 1 "${equal_budget[@]}"
  # At the learning rate that all others have; their recipes have the papers', half of it.
  train multi30k.de-en "pa_transformer_lite pa_conv_transformer_lite" --seeds 1 \
    --name '{recipe}.lr_1e-3.epochs_22' --set max-epoch=22 --set lr=1e-3
  train multi30k.de-en pa_transformer_lite --seeds 1 --name '{recipe}.layers_0.lr_1e-3.epochs_22' \
    --set max-epoch=22 --set lr=1e-3 --set ea-prediction-layers=0
  train multi30k.de-en ea_transformer_lite --seeds 1 --name '{recipe}.learned_mixing.epochs_22' \
    --set max-epoch=22 --set ea-learned-mixing=true
}

rivals() {
  train multi30k.de-en "conv_transformer_lite ea_conv_transformer_lite mta_transformer_lite \
    talking_heads_transformer_lite" --seeds 2 3 "${equal_budget[@]}"
  train multi30k.de-en ea_transformer_lite --seeds 2 3 --name '{recipe}.learned_mixing.epochs_22' \
    --set max-epoch=22 --set ea-learned-mixing=true
  train multi30k.de-en pa_transformer_lite --seeds 2 3 --name '{recipe}.lr_1e-3.epochs_22' \
    --set max-epoch=22 --set lr=1e-3
  train multi30k.de-en "conv_transformer_lite_wide transformer_lite_wide" --seeds 1 2 3 \
    "${equal_budget[@]}"
}

french() {
  train_both multi30k.en-fr --seeds 1 2 3 "${equal_budget[@]}"
}

# Dropout, warm-up and patience are that recipe's; its learning rate, 5e-3, is for four times our
# tokens.
published() {
  train_both multi30k.en-de --seeds 1 --name '{recipe}.published' --set share-all-embeddings=true \
    --set dropout=0.3 --set lr=2e-3 --set warmup-updates=2000 --set patience=10 --set max-epoch=200
}

# A table, shown and kept; one of runs that are not finished is left out, with the reason.
report_table() {
  local name=$1
  shift
  if [[ -n $dry_run ]]; then
    run "$@"
  elif run "$@" | tee "$work_dir/report/$name.tmp"; then
    mv "$work_dir/report/$name.tmp" "$work_dir/report/$name"
  else
    rm -f "$work_dir/report/$name"{.tmp,}
    echo "left out: $name"
  fi
}

# --seeds and those whose runs are finished in both folders, or nothing.
finished_seeds() {
  local run seeds=()
  for run in "$1"/seed*; do
    [[ -e $run/results.json && -e $2/${run##*/}/results.json ]] && seeds+=("${run##*/seed}")
  done
  [[ ${#seeds[@]} -eq 0 ]] || echo --seeds "${seeds[@]}"
}

report_pair() {
  local name=$1.$2 seeds
  local pair=("$work_dir/runs/$1/transformer_lite.$2" "$work_dir/runs/$1/ea_transformer_lite.$2")
  read -ra seeds <<<"$(finished_seeds "${pair[@]}")"
  report_table "$name.scores.md" "$python" scripts/compare.py "${pair[@]}" "${seeds[@]}"
  report_table "$name.time.md" "$python" scripts/time_to_match.py "${pair[@]}" "${seeds[@]}"
  if ! run "$python" scripts/plot_training.py "${pair[@]}" "${seeds[@]}" \
    --output "$work_dir/report/$name.png"; then
    rm -f "$work_dir/report/$name.png"
    echo "left out: $name.png"
  fi
}

keep() {
  local corpus runs
  for corpus in multi30k.{de-en,en-de,en-fr}; do
    runs=("$work_dir/runs/$corpus"/*)
    [[ -n $dry_run || -e ${runs[0]} ]] || continue
    # Of a run that differs from the one kept before, it says so and ends with 1.
    run "$python" scripts/keep_runs.py "${runs[@]}" --into "$recipes/$corpus/translations" || failed=1
  done
}

report() {
  [[ -n $dry_run ]] || mkdir -p "$work_dir/report"
  report_pair multi30k.de-en epochs_22
  report_pair multi30k.en-de epochs_22
  report_table ablation.md "$python" scripts/ablation.py "$recipes/multi30k.de-en" --print \
    --seeds 1 --work-dir "$work_dir" "${equal_budget[@]}"
  report_table branches.scores.md "$python" scripts/compare.py \
    "$work_dir"/runs/multi30k.de-en/{conv_transformer_lite,ea_conv_transformer_lite}.epochs_22 --seeds 1
  report_table rivals.md "$python" scripts/compare_many.py "$work_dir/runs/multi30k.de-en" \
    --against {transformer_lite,ea_transformer_lite}.epochs_22 --work-dir "$work_dir"
  local model other
  for model in $architectures $settings kernel_1; do
    for other in transformer_lite ea_transformer_lite; do
      report_table "$model.$other.scores.md" "$python" scripts/compare.py \
        "$work_dir"/runs/multi30k.de-en/{"$other","$model"}.epochs_22 --seeds 1
    done
  done
  report_pair multi30k.en-fr epochs_22
  report_pair multi30k.en-de published
}

failed=
for step in "${steps[@]}"; do
  "$step"
done
[[ -z $failed ]]

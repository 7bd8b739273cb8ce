#!/usr/bin/env bash
# From nothing to a BLEU score: makes an environment, generates a German-English corpus, trains
# ea_transformer_lite on it, translates the test set, scores the translations and draws the attention
# maps of one sentence.
#
#   bash examples/translation/demo.sh [arguments of ea-recipe]
#
# Needs Python 3.11 or 3.12. A second run uses what is there; a stopped one goes on.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/setup_env.sh"
setup_env "$repository/requirements.txt"

"$python" "$repository/scripts/run_recipe.py" "$repository/examples/translation/cldr.de-en" \
    --variant ea_transformer_lite --work-dir "$repository/work" --examples 10 "$@"

# The pictures of a sentence of the kind that the model has learned, where the model lies.
work=$repository/work before=""
for argument in "$@"; do
    [ "$before" != --work-dir ] || work=$argument
    before=$argument
done
model=$work/runs/cldr.de-en/ea_transformer_lite/seed1/model
if [ -e "$model/config.json" ]; then
    printf '\nattention maps of one sentence (see docs/attention.md; --serve shows any): '
    "$python" -m ea_fairseq.commands.translate "$model" --plot "$work/maps.png" \
        "Dienstag, 4. März 2025, 15:05"
fi

#!/usr/bin/env bash
# From nothing to a BLEU score: makes an environment, generates a German-English corpus, trains
# ea_transformer_lite on it, translates the test set and scores the translations.
#
#   bash examples/translation/demo.sh [arguments of ea-recipe]
#
# Needs Python 3.11 or 3.12. A second run uses what is there; a stopped one goes on.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/setup_env.sh"
setup_env "$repository/requirements.txt"

exec "$python" "$repository/scripts/run_recipe.py" "$repository/examples/translation/cldr.de-en" \
    --variant ea_transformer_lite --work-dir "$repository/work" --examples 10 "$@"

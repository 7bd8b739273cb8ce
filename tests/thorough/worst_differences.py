"""Prints the worst differences over the settings of test_ea_transformer.py, in two precisions.

python tests/thorough/worst_differences.py [SETTING ...]

Scores are those of models with strong weights and convolutions, of the order of 10.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("", "tests/helpers", "tests/core")]

import torch  # noqa: E402
from small_models import build_strong, score  # noqa: E402
from test_ea_transformer import (  # noqa: E402
    SETTINGS,
    beam_case,
    beam_search,
    lengths_case,
    oracle_of,
)


def differences(options: dict, dtype: torch.dtype) -> dict[str, float]:
    """The largest absolute difference between scores for each property."""
    model = build_strong(**options)
    oracle = oracle_of(model)
    model = model.to(dtype)
    sources, prefixes = lengths_case()
    batch = score(model, sources, prefixes)
    worst = {"step = full": 0.0, "batch = alone": 0.0, "model = oracle": 0.0}

    def note(name: str, one: torch.Tensor, other: torch.Tensor) -> None:
        worst[name] = max(worst[name], float((one.double() - other.double()).abs().max()))

    for scores, source, prefix in zip(batch, sources, prefixes, strict=True):
        note("batch = alone", scores, score(model, [source], [prefix])[0])
        expected = oracle.scores(source.tolist(), prefix.tolist())
        note("model = oracle", scores, torch.from_numpy(expected))
    with torch.no_grad():
        for step, full in beam_search(model, *beam_case()):
            note("step = full", step, full)
    return worst


def main(names: list[str]) -> None:
    names = names or list(SETTINGS)
    for dtype in (torch.float64, torch.float32):
        found = [differences(SETTINGS[name], dtype) for name in names]
        for name in found[0]:
            print(f"{str(dtype):14} {name:15} {max(worst[name] for worst in found):.1e}")


if __name__ == "__main__":
    main(sys.argv[1:])

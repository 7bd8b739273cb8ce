#!/usr/bin/env python3
"""How often a test calls two equal systems different at p <= 0.05.

    python tests/thorough/false_alarms.py

Scores are means of made-up numbers, normally distributed: one part for each sentence of a system,
which its runs share, one for each run, and one for each sentence of a run, its own. The second part
scatters as much as the first after averaging over sentences ("seeds / sentences" 1), half or twice
as much; so does the third ("own / shared"). A test that keeps what it promises gives 5 %.
"""

from __future__ import annotations

from itertools import product

import numpy

from ea_fairseq.recipes.results.significance import draw_sentences, sacrebleu_p, two_level
from ea_fairseq.recipes.results.tables import table

SENTENCES, SAMPLES, TESTS = 100, 1000, 2000
LEVEL = 0.05


def p_values(
    runs: int, ratio: float, effect: float = 0.0, tests: int = TESTS, own: float = 0.0
) -> numpy.ndarray:
    """p of many tests: (tests, 2), ``two_level``'s and sacrebleu's of the first pair of runs.

    Args:
        runs: of each system
        ratio: scatter of the runs beside that of the sentences' mean
        effect: how much the second system is better, in units of the latter
        tests: how many
        own: scatter of a run's sentences by themselves beside that which all runs share
    """
    generator = numpy.random.default_rng(3)
    counts = draw_sentences(SENTENCES, SAMPLES)
    unit = SENTENCES**-0.5
    found = []
    for _ in range(tests):
        systems = []
        for shift in (0.0, effect * unit):
            seeds = generator.normal(shift, ratio * unit, (runs, 1))
            shared = generator.normal(0, 1, (1, SENTENCES))
            systems.append(seeds + shared + generator.normal(0, own, (runs, SENTENCES)))
        first, second = (values @ counts.T / SENTENCES for values in systems)
        observed = systems[1].mean() - systems[0].mean()
        of_pair = systems[1][0].mean() - systems[0][0].mean()
        both = two_level(first, second, observed).p, sacrebleu_p(first[0], second[0], of_pair)
        found.append(both)
    return numpy.array(found)


def main() -> None:
    """Print the table."""
    rows = []
    for own, ratio in product((0.0, 1.0), (0.0, 0.5, 1.0, 2.0)):
        cells = [f"{100 * (p_values(1, ratio, own=own)[:, 1] <= LEVEL).mean():.1f} %"]
        for runs in (1, 2, 3, 5, 10):
            cells.append(f"{100 * (p_values(runs, ratio, own=own)[:, 0] <= LEVEL).mean():.1f} %")
        rows.append([f"{own:g}", f"{ratio:g}", *cells])
    header = ["own / shared", "seeds / sentences", "sacrebleu, 1 run"]
    header += [f"p, {n}" for n in (1, 2, 3, 5, 10)]
    print(table(header, rows))


if __name__ == "__main__":
    main()

"""GLUE's metrics, and differences between systems by bootstrap over seeds and sentences."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from ea_fairseq.experiments import summarise
from ea_fairseq.recipes.results.significance import Difference, draw_sentences, two_level

#: By the names of :class:`tasks.Task`; each of (labels, predictions), in percent.
METRICS = {
    "matthews": matthews_corrcoef,
    "accuracy": accuracy_score,
    "f1": lambda labels, predictions: f1_score(labels, predictions, zero_division=0.0),
    "pearson": lambda labels, predictions: _or_zero(pearsonr, labels, predictions),
    "spearman": lambda labels, predictions: _or_zero(spearmanr, labels, predictions),
}


def score(metric: str, labels: Sequence[float], predictions: Sequence[float]) -> float:
    """One metric in percent; 0 where it is undefined, as with predictions that are all the same."""
    return 100 * float(METRICS[metric](labels, predictions))


def _or_zero(correlation, labels, predictions) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = correlation(labels, predictions).statistic
    return 0.0 if np.isnan(found) else found


def difference(
    metric: str,
    labels: Sequence[float],
    first: Sequence[Sequence[float]],
    second: Sequence[Sequence[float]],
    samples: int = 1000,
) -> Difference:
    """The second system's mean minus the first's, with seeds and sentences left to chance.

    Args:
        metric: of :data:`METRICS`
        labels: of the development set
        first, second: predictions of each run of a system, in the labels' order
        samples: of the bootstrap
    """
    counts = draw_sentences(len(labels), samples).astype(int)
    labels = np.asarray(labels)

    def sampled(runs: Sequence[Sequence[float]]) -> np.ndarray:
        rows = []
        for predictions in map(np.asarray, runs):
            drawn = (np.repeat(np.arange(len(labels)), row) for row in counts)
            rows.append([score(metric, labels[index], predictions[index]) for index in drawn])
        return np.array(rows)

    observed = np.mean([score(metric, labels, run) for run in second]) - np.mean(
        [score(metric, labels, run) for run in first]
    )
    return two_level(sampled(first), sampled(second), float(observed))


def interval_of_mean(scores: Sequence[float]) -> tuple[float, float]:
    """95 % interval of the mean over seeds (Student's t); the mean itself with a single seed."""
    summary = summarise(scores)
    return summary.interval or (summary.mean, summary.mean)

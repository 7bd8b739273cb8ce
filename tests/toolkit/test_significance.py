"""The bootstrap over seeds and sentences: an exact enumeration, sacrebleu, cases with an answer.

With three sentences and a few runs all equally likely draws can be listed, so that interval and
p-value are known; random draws must come near them.
"""

import itertools
import random

import numpy
import pytest
from false_alarms import p_values
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from ea_fairseq.recipes.results.scoring import text_measures
from ea_fairseq.recipes.results.significance import (
    draw_sentences,
    sacrebleu_p,
    sampled_scores,
    two_level,
)

REFERENCES = ["the old cat sees a tree", "a dog likes the house and it is great", "it is not very"]
FIRST = [
    ["the old dog sees a tree", "a dog likes the house and it is", "it is very"],
    ["the cat sees a tree", "the dog likes a house and it is great", "it is not very"],
    ["the old cat sees the tree", "a dog likes the house", "it is very very"],
]
SECOND = [
    ["the old cat sees a tree", "a dog likes the house and it is great", "it is very very"],
    ["the old cat sees a tree", "a dog sees the house and it is great", "it is not very"],
]


def measure(hypotheses, references=REFERENCES):
    """sacreBLEU of some translations."""
    return text_measures(hypotheses, references, lowercase=False)[0]


def scores_of(runs, samples, references=REFERENCES):
    """Every run's score in every sample, as comparisons get them."""
    counts = draw_sentences(len(references), samples)
    measures = [measure(run, references) for run in runs]
    return numpy.array([sampled_scores(m.statistics, counts, m.score_of) for m in measures])


def mean_score(runs):
    return sum(measure(run).score().score for run in runs) / len(runs)


def bleu_of(run, chosen):
    """BLEU of the sentences chosen, each as often as it is in there, by sacrebleu itself."""
    hypotheses, references = ([lines[i] for i in chosen] for lines in (run, REFERENCES))
    return BLEU().corpus_score(hypotheses, [references]).score


def enumerated(first, second):
    """The difference of every equally likely draw of sentences and of one run fewer than there are.

    Returns a list of differences, each as likely as the next.
    """
    differences = []
    for chosen in itertools.product(range(3), repeat=3):
        a, b = ([bleu_of(run, chosen) for run in runs] for runs in (first, second))
        draws = [itertools.product(s, repeat=max(len(s) - 1, 1)) for s in (a, b)]
        for some, others in itertools.product(*draws):
            differences.append(sum(others) / len(others) - sum(some) / len(some))
    return differences


@pytest.mark.parametrize("runs", [(3, 2), (1, 1), (1, 2), (2, 1)])
def test_random_draws_come_near_the_enumeration_of_all(runs):
    first, second = FIRST[: runs[0]], SECOND[: runs[1]]
    observed = mean_score(second) - mean_score(first)
    samples = 8000
    found = two_level(scores_of(first, samples), scores_of(second, samples), observed)
    exact = enumerated(first, second)
    far = [abs(difference - observed) >= abs(observed) - 1e-6 for difference in exact]
    deviation = 0.5 / samples**0.5
    assert found.p == pytest.approx(sum(far) / len(far), abs=4 * deviation)
    assert found.observed == observed
    for bound, share in zip(found.interval, (0.025, 0.975), strict=True):
        # As quantiles jump from value to value: the exact ones a little before and after.
        low = numpy.quantile(exact, max(share - 0.01, 0), method="lower")
        high = numpy.quantile(exact, min(share + 0.01, 1), method="higher")
        assert low - 1e-6 <= bound <= high + 1e-6


def lines(count, share, seed):
    """Sentences of which a share of the words is replaced; seed 0 are the references."""
    words = "the a cat dog house sees likes not very old tree and it is great".split()
    choose = random.Random(5)
    plain = [choose.choices(words, k=choose.randint(6, 12)) for _ in range(count)]
    swap = random.Random(seed)
    return [
        " ".join(swap.choice(words) if swap.random() < share else word for word in line)
        for line in plain
    ]


def test_one_run_each_gives_the_samples_and_the_p_value_of_sacrebleu():
    references, ours, theirs = lines(50, 0, 0), lines(50, 0.35, 1), lines(50, 0.3, 2)
    for metric in (0, 1):  # BLEU, chrF
        measures = [text_measures(run, references, False)[metric] for run in (ours, theirs)]
        counts = draw_sentences(50, 300)
        first, second = (sampled_scores(m.statistics, counts, m.score_of) for m in measures)
        test = PairedTest(
            named_systems=[("A", ours), ("B", theirs)],
            metrics={"x": measures[0].metric},
            references=[references],
            test_type="bs",
            n_samples=300,
        )
        results = test()[1]
        baseline, system = next(found for name, found in results.items() if name != "System")
        observed = system.score - baseline.score
        assert sacrebleu_p(first, second, observed) == system.p_value
        assert second.mean() == pytest.approx(system.mean, abs=1e-4)
        assert 0.01 < system.p_value < 0.4  # a case that could have come out otherwise
        # Sentences alone are left to chance: nothing but those samples goes into the interval.
        low, high = two_level(first[None], second[None], observed).interval
        assert (low, high) == tuple(numpy.quantile(second - first, [0.025, 0.975]))


def test_without_a_difference_p_is_uniform():
    p = p_values(runs=10, ratio=1.0, tests=800)[:, 0]
    for level in (0.05, 0.2, 0.5, 0.8):
        # Four standard deviations of a share of 800, and what ten runs are off.
        assert (p <= level).mean() == pytest.approx(level, abs=4 * (level / 800) ** 0.5 + 0.01)


def test_one_run_taken_for_all_raises_false_alarms_and_three_hardly():
    assert (p_values(runs=1, ratio=1.0, tests=400)[:, 0] <= 0.05).mean() > 0.12
    assert (p_values(runs=3, ratio=1.0, tests=400)[:, 0] <= 0.05).mean() < 0.12
    # What each run makes of a sentence by itself is drawn twice: p is too large.
    assert (p_values(runs=3, ratio=0.0, tests=400, own=1.0)[:, 0] <= 0.05).mean() < 0.04


def test_the_p_value_of_sacrebleu_is_too_small_for_a_two_sided_one():
    """As its documentation says two-sided: equal systems would have p <= 0.05 in 5 % of cases."""
    ours, theirs = p_values(runs=1, ratio=0.0, tests=400).T
    assert (theirs < ours / 2 + 0.01).all()
    assert (ours <= 0.05).mean() < 0.08 < (theirs <= 0.05).mean()


def test_a_big_difference_is_found():
    assert (p_values(runs=3, ratio=0.3, effect=10.0, tests=20) < 0.01).all()


def test_what_no_sample_reaches_has_the_p_of_one_that_does():
    """Not 0: of more samples one may reach it."""
    scores = [numpy.full((1, 99), score) for score in (10.0, 12.0)]
    assert two_level(*scores, 2.0).p == sacrebleu_p(scores[0][0], scores[1][0], 2.0) == 0.01


def test_other_seeds_of_the_bootstrap_are_taken_from_the_environment(monkeypatch):
    plain = draw_sentences(30, 5)
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    assert (draw_sentences(30, 5) != plain).any()
    monkeypatch.setenv("SACREBLEU_SEED", "seven")
    with pytest.raises(ValueError, match="SACREBLEU_SEED=seven: choose a whole number, or none"):
        draw_sentences(30, 5)

"""The estimators of series: scikit-learn's own checks, aeon's, and what both leave out."""

import math
import pickle

import numpy as np
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from ea_fairseq.errors import UserError
from ea_fairseq.networks.series import (
    EADCTransformerClassifier,
    EADCTransformerRegressor,
    SeriesModel,
)

SMALL = {
    "embed_dim": 8,
    "num_heads": 2,
    "num_blocks": 1,
    "pretrain_epochs": 1,
    "epochs": 12,
    "batch_size": 64,
    "learning_rate": 2e-2,
    "random_state": 0,
}
KINDS = (EADCTransformerClassifier, EADCTransformerRegressor)


@pytest.mark.thorough
@parametrize_with_checks([kind(**SMALL) for kind in KINDS])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def waves(count=24, channels=2, lengths=(9, 14), seed=0):
    """Slow and fast waves, labelled so; of unequal lengths."""
    generator = np.random.default_rng(seed)
    series, labels = [], []
    for number in range(count):
        steps = np.arange(generator.integers(*lengths, endpoint=True))
        speed = 1.5 if number % 2 else 0.5
        phase = generator.uniform(0, 6, size=(channels, 1))
        series.append(np.sin(speed * steps + phase) + 0.1 * generator.normal(size=phase.shape))
        labels.append("fast" if number % 2 else "slow")
    return series, np.array(labels)


def test_series_of_unequal_length_are_told_apart():
    X, y = waves(48)
    model = EADCTransformerClassifier(**SMALL | {"epochs": 30}).fit(X, y)
    assert list(model.classes_) == ["fast", "slow"]
    assert model.score(*waves(seed=1)) >= 0.9
    probabilities = model.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(1), 1.0)
    for number in (0, 5):
        alone = model.predict_proba([X[number]])[0]
        np.testing.assert_allclose(alone, probabilities[number], atol=1e-5)
    assert model.representations(X).shape == (48, model.model_.config.max_len * 8)


def test_an_array_of_three_dimensions_is_the_same_as_a_list():
    X, y = waves(lengths=(9, 9))
    model = EADCTransformerClassifier(**SMALL)
    first = model.fit(X, y).predict_proba(X)
    again = model.fit(np.stack(X), y).predict_proba(np.stack(X))
    np.testing.assert_array_equal(first, again)


def test_random_state_decides_and_nobody_elses_numbers_change():
    X, y = waves(12)
    torch.manual_seed(3)
    wanted = torch.rand(1)
    torch.manual_seed(3)
    first = EADCTransformerClassifier(**SMALL).fit(X, y).predict_proba(X)
    assert torch.equal(torch.rand(1), wanted)
    torch.rand(5)
    again = EADCTransformerClassifier(**SMALL).fit(X, y).predict_proba(X)
    np.testing.assert_array_equal(first, again)
    other = EADCTransformerClassifier(**SMALL | {"random_state": 1}).fit(X, y).predict_proba(X)
    assert np.abs(first - other).max() > 1e-3


def test_settings_reach_the_model():
    X, y = waves(8)
    settings = {"p": 0.5, "alpha": 0.3, "beta": 0.6, "kernel_size": 5, "dropout": 0.2}
    options = {"options": {"learned_mixing": True}, "max_len": 20}
    model = EADCTransformerClassifier(**SMALL | settings | options).fit(X, y).model_
    assert model.config.max_len == 20
    layer = model.encoder.layers[1]
    assert layer.attention.out_proj.out_features == 4
    assert layer.dropout.p == 0.2
    transform = layer.attention.transform
    assert (transform.alpha, transform.beta, transform.learned_mixing) == (0.3, 0.6, True)
    assert transform.convolution.kernel_size == (5, 5)


def test_a_grid_is_searched():
    X, y = waves(12)
    search = GridSearchCV(EADCTransformerClassifier(**SMALL), {"alpha": [0.1, 0.5]}, cv=2)
    assert search.fit(X, y).best_params_["alpha"] in (0.1, 0.5)


def test_numbers_are_predicted_in_their_own_units():
    X, _ = waves(30)
    y = np.array([1000.0 + 50 * np.mean(one[0][:4]) for one in X])
    model = EADCTransformerRegressor(**SMALL | {"epochs": 60}).fit(X, y)
    assert model.score(X, y) > 0.8
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"embed_dim": 8.0}, "embed_dim must be a whole number, not 8.0"),
        ({"num_blocks": "1"}, "num_blocks must be a whole number, not '1'"),
        ({"num_blocks": 0}, "num_blocks must be at least 1, not 0"),
        ({"num_heads": 4.0}, "num_heads must be a whole number, not 4.0"),
        ({"num_heads": 3}, "num_heads must divide embed_dim 8, not 3"),
        ({"p": 0.3}, "p times embed_dim 8 a whole number, not 0.3"),
        ({"p": 1.5}, r"p must be in \[0, 1\]"),
        ({"p": "0.5"}, "p must be in .* not '0.5'"),
        ({"p": math.nan}, "p must be in .*, not nan"),
        ({"p": math.inf}, "p must be in .*, not inf"),
        ({"variant": ["plain"]}, "variant must be a name"),
        ({"variant": "evolved"}, "variant must be one of"),
        ({"alpha": 2}, r"alpha must be a number in \[0, 1\]"),
        ({"alpha": math.nan}, "alpha must be a number"),
        ({"kernel_size": 3.0}, "kernel.size must be"),
        ({"options": ["alpha"]}, "options must be a dict"),
        ({"options": {"p": 0.0}}, "options: p is a parameter of the estimator: give it as p="),
        ({"dropout": "0.1"}, r"dropout must be in \[0, 1\), not '0.1'"),
        ({"dropout": math.nan}, "dropout must be in .*, not nan"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), not 1.0"),
        ({"pretrain_epochs": -1}, "pretrain_epochs must be at least 0"),
        ({"epochs": 1.5}, "epochs must be a whole number, not 1.5"),
        ({"batch_size": True}, "batch_size must be a whole number, not True"),
        ({"learning_rate": "fast"}, "learning_rate must be a number .* not 'fast'"),
        ({"learning_rate": math.inf}, "learning_rate must be a number .* not inf"),
        ({"learning_rate": 1e38}, "training: .*choose a learning_rate below 1e"),
        ({"max_len": 20.0}, "max_len must be a whole number, not 20.0"),
        ({"max_len": 3}, "max_len is 3, but a series of X has 1[0-9] steps"),
        ({"device": "x"}, "device x: cannot be used"),
        ({"device": "meta"}, "device meta: cannot be used"),
        ({"device": 1.5}, "device 1.5: cannot be used"),
        ({"random_state": "x"}, "random_state: 'x' cannot be used"),
        ({"compiled": "no"}, "compiled must be True or False, not 'no'"),
    ],
)
def test_settings_that_cannot_be_are_named(settings, message):
    X, _ = waves(4)
    for kind in KINDS:
        with pytest.raises(UserError, match=message) as raised:
            kind(**SMALL | {"epochs": 1, "pretrain_epochs": 0} | settings).fit(X, [0, 1, 0, 1])
        assert "\n" not in str(raised.value)


def test_input_that_cannot_be_used_is_named():
    X, y = waves(8)
    model = EADCTransformerClassifier(**SMALL).fit(X, y)
    regressor = EADCTransformerRegressor(**SMALL)
    longest = max(one.shape[1] for one in X)
    gap = X[0].copy()
    gap[1, 2] = np.nan
    for call, given, message in (
        (
            model.predict,
            [[X[0], np.zeros((2, 40))]],
            f"series 1 .* 40 steps.* up to {longest}.*=40",
        ),
        (model.predict, [np.zeros((1, 3, 5))], "X has 3 channels, training had 2"),
        (model.predict, [[gap]], "series 0 of X has nan .* in channel 1 at step 2"),
        (model.predict, [[X[0], X[1] * 1e38]], "series 1 of X gives no finite result"),
        (model.fit, [X, ["slow"] * 8], "y has one class"),
        (model.fit, [X, y[:-1]], "inconsistent numbers of samples"),
        (regressor.fit, [X[:3], [1.0, 2.0, np.nan]], r"y\[2\] is nan"),
    ):
        with pytest.raises(ValueError, match=message):
            call(*given)


def test_numbers_of_numpy_are_taken_and_saved(tmp_path):
    given = {"embed_dim": 8, "num_blocks": 1, "num_heads": 4, "epochs": 1, "batch_size": 4}
    given |= {"max_len": 14, "kernel_size": 3, "pretrain_epochs": 0}
    given = {name: np.int64(value) for name, value in given.items()}
    given |= {name: np.float32(0.25) for name in ("p", "alpha", "dropout", "learning_rate")}
    model = EADCTransformerClassifier(**given).fit(waves(4)[0], [0, 1, 0, 1]).model_
    model.save(tmp_path / "model")
    assert SeriesModel.load(tmp_path / "model").config == model.config

"""The estimators of series: scikit-learn's own checks, aeon's, and what both leave out."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from ea_fairseq.errors import UserError
from ea_fairseq.networks.series import EADCTransformerClassifier, EADCTransformerRegressor

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


@pytest.mark.thorough
@parametrize_with_checks([EADCTransformerClassifier(**SMALL), EADCTransformerRegressor(**SMALL)])
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


def test_input_that_cannot_be_used_is_named():
    X, y = waves(8)
    model = EADCTransformerClassifier(**SMALL)
    with pytest.raises(
        UserError, match="options: p is a parameter of the estimator: give it as p="
    ):
        EADCTransformerClassifier(**SMALL, p=0.5, options={"p": 0.0}).fit(*waves())
    with pytest.raises(UserError, match="y has one class"):
        model.fit(X, ["slow"] * 8)
    with pytest.raises(UserError, match="max_len is 3, but a series of X has 1[0-9] steps"):
        EADCTransformerClassifier(**SMALL | {"max_len": 3}).fit(X, y)
    model.fit(X, y)
    longest = max(one.shape[1] for one in X)
    with pytest.raises(
        UserError, match=f"series 1 of X has 40 steps.* up to {longest}.*max_len=40"
    ):
        model.predict([X[0], np.zeros((2, 40))])
    with pytest.raises(UserError, match="X has 3 channels, training had 2"):
        model.predict(np.zeros((1, 3, 5)))
    gap = X[0].copy()
    gap[1, 2] = np.nan
    with pytest.raises(UserError, match="series 0 of X has nan .* in channel 1 at step 2"):
        model.predict([gap])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(X, y[:-1])
    regressor = EADCTransformerRegressor(**SMALL)
    with pytest.raises(UserError, match=r"y\[2\] is nan"):
        regressor.fit(X[:3], [1.0, 2.0, np.nan])

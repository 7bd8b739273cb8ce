"""scikit-learn's interface to the EA-DC-Transformer: a classifier and a regressor of series."""

from __future__ import annotations

from typing import Any

import numpy
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)
from torch import Tensor

from ...devices import usable_device
from ...errors import UserError
from .data import as_series
from .models import SeriesConfig, SeriesModel
from .settings import whole_number
from .training import Schedule, fit, outputs_of


class _EADCTransformer(BaseEstimator):
    """What the two estimators share.

    Args:
        embed_dim: d; the paper chooses of 64 and 128
        num_blocks: n, of two layers each; the paper chooses of 2 to 5
        num_heads: divides embed_dim
        p: part of the width that attention makes, in [0, 1]; a dilated convolution makes the rest
        variant: what happens to the logits, one of ``ea_fairseq.attention.VARIANTS``; "plain" is
            the DC-Transformer
        alpha: weight of the carry, in [0, 1]; None: the variant's default
        beta: weight of the map's convolution, in [0, 1]; None: the variant's default
        kernel_size: of the map's convolution, odd; None: the variant's default
        options: other options of the variant, by name
        dropout: in training
        pretrain_epochs: of reconstructing masked values, before
        epochs: of classification or regression
        batch_size: series a batch
        learning_rate: of RAdam
        max_len: steps of the longest series ever to be predicted; None: of the longest in training
        device: such as "cuda"
        compiled: whether to train through ``torch.compile``
        random_state: see scikit-learn
    """

    def __init__(
        self,
        embed_dim: int = 64,
        num_blocks: int = 2,
        num_heads: int = 8,
        p: float = 0.25,
        variant: str = "evolving",
        alpha: float | None = None,
        beta: float | None = None,
        kernel_size: int | None = None,
        options: dict[str, Any] | None = None,
        dropout: float = 0.1,
        pretrain_epochs: int = 20,
        epochs: int = 50,
        batch_size: int = 32,
        learning_rate: float = 1e-3,
        max_len: int | None = None,
        device: str = "cpu",
        compiled: bool = False,
        random_state: Any = None,
    ):
        self.embed_dim = embed_dim
        self.num_blocks = num_blocks
        self.num_heads = num_heads
        self.p = p
        self.variant = variant
        self.alpha = alpha
        self.beta = beta
        self.kernel_size = kernel_size
        self.options = options
        self.dropout = dropout
        self.pretrain_epochs = pretrain_epochs
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.max_len = max_len
        self.device = device
        self.compiled = compiled
        self.random_state = random_state

    def representations(self, X: Any) -> numpy.ndarray:
        """Z, what the classifier or regressor reads: (series, features). X: see :meth:`fit`."""
        return self._outputs(X, representation=True).numpy()

    def _fit(
        self,
        series: list[numpy.ndarray],
        targets: Tensor,
        classes: list[Any] | None,
    ) -> None:
        longest = max(one.shape[1] for one in series)
        if self.max_len is not None and whole_number("max_len", self.max_len) < longest:
            raise UserError(f"max_len is {self.max_len}, but a series of X has {longest} steps")
        if not isinstance(self.options, dict | None):
            raise UserError(f"options must be a dict of options by name, not {self.options!r}")
        for name in (self.options or {}).keys() & self.get_params(deep=False).keys():
            raise UserError(f"options: {name} is a parameter of the estimator: give it as {name}=")
        given = {name: getattr(self, name) for name in ("alpha", "beta", "kernel_size")}
        given = {name: value for name, value in given.items() if value is not None}
        config = SeriesConfig(
            channels=len(series[0]),
            max_len=self.max_len or longest,
            outputs=1 if classes is None else len(classes),
            embed_dim=self.embed_dim,
            num_blocks=self.num_blocks,
            dropout=self.dropout,
            attention={
                "num_heads": self.num_heads,
                "p": self.p,
                "variant": self.variant,
                **given,
                **(self.options or {}),
            },
            classes=None if classes is None else tuple(classes),
        )
        schedule = Schedule(
            pretrain_epochs=self.pretrain_epochs,
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            compiled=self.compiled,
        )
        try:
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        except ValueError as error:
            raise UserError(f"random_state: {error}") from error
        device = usable_device(self.device, "device")
        # Nobody else's random numbers change.
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            model = SeriesModel(config).to(device)
            fit(model, series, targets, schedule, seed)
        self.model_ = model

    def _read(self, X: Any, new: bool) -> list[numpy.ndarray]:
        """Series (channels, time) of either library's form."""
        if _is_of_series(X):
            series = as_series(X, new=new)
            if new:
                self.n_features_in_ = len(series[0])
                return series
        else:  # one channel each, as scikit-learn has them
            table = validate_data(self, X, reset=new, dtype=[numpy.float64, numpy.float32])
            series = as_series(table, new=new)
            if new:
                return series
        config = self.model_.config
        if len(series[0]) != config.channels:
            raise UserError(f"X has {len(series[0])} channels, training had {config.channels}")
        for number, one in enumerate(series):
            if one.shape[1] > config.max_len:
                raise UserError(
                    f"series {number} of X has {one.shape[1]} steps, the model takes up to "
                    f"{config.max_len}: cut it, or fit with max_len={one.shape[1]}"
                )
        return series

    def _outputs(self, X: Any, representation: bool = False) -> Tensor:
        check_is_fitted(self)
        function = self.model_.representation if representation else None
        return outputs_of(self.model_, self._read(X, False), function=function)


class EADCTransformerClassifier(ClassifierMixin, _EADCTransformer):
    __doc__ = f"""Classifies time series by an EA-DC-Transformer (arXiv 2212.08330, section 3.3).

    >>> model = EADCTransformerClassifier(random_state=0).fit(X, y)
    >>> model.predict(X_test)
    {_EADCTransformer.__doc__.partition("share.")[2]}
    Attributes:
        classes_: labels, sorted
        model_: the trained ``SeriesModel``, whose ``save`` writes safetensors and settings
    """

    def fit(self, X: Any, y: Any) -> EADCTransformerClassifier:
        """Pre-trains and trains.

        Args:
            X: array (series, channels, time) or, of one channel, (series, time); or a list of
                arrays (channels, time) of any lengths
            y: labels, (series,)

        Raises:
            UserError: naming the series or the setting that cannot be used
        """
        series = self._read(X, True)
        y = column_or_1d(y, warn=True)
        check_consistent_length(series, y)
        check_classification_targets(y)
        classes, numbers = numpy.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise UserError(f"y has one class, {classes[0]!r}: there is nothing to tell")
        self._fit(series, torch.from_numpy(numbers), classes.tolist())
        self.classes_ = classes  # once its model is there: an earlier one keeps its own
        return self

    def predict_proba(self, X: Any) -> numpy.ndarray:
        """Probabilities in the order of ``classes_``: (series, classes). X: see :meth:`fit`."""
        return self._outputs(X).double().softmax(1).numpy()

    def predict(self, X: Any) -> numpy.ndarray:
        """Labels, (series,). X: see :meth:`fit`."""
        numbers = self.predict_proba(X).argmax(1)  # first: what is not fitted has no classes_
        return self.classes_[numbers]


class EADCTransformerRegressor(RegressorMixin, _EADCTransformer):
    __doc__ = f"""Predicts a number of time series by an EA-DC-Transformer (arXiv 2212.08330).

    >>> model = EADCTransformerRegressor(random_state=0).fit(X, y)
    >>> model.predict(X_test)
    {_EADCTransformer.__doc__.partition("share.")[2]}
    Attributes:
        model_: the trained ``SeriesModel``, whose ``save`` writes safetensors and settings
    """

    def fit(self, X: Any, y: Any) -> EADCTransformerRegressor:
        """Pre-trains and trains.

        Args:
            X: see :meth:`EADCTransformerClassifier.fit`
            y: finite numbers, (series,)

        Raises:
            UserError: naming the series or the setting that cannot be used
        """
        series = self._read(X, True)
        y = column_or_1d(y, warn=True, dtype=numpy.float64)
        check_consistent_length(series, y)
        if not numpy.isfinite(y).all():
            number = int(numpy.flatnonzero(~numpy.isfinite(y))[0])
            raise UserError(f"y contains NaN or infinity: y[{number}] is {y[number]}")
        self._fit(series, torch.tensor(y), None)
        return self

    def predict(self, X: Any) -> numpy.ndarray:
        """Numbers, (series,). X: see :meth:`EADCTransformerClassifier.fit`."""
        outputs = self._outputs(X)[:, 0].double()
        model = self.model_
        return (outputs * model.target_deviation.cpu() + model.target_mean.cpu()).numpy()


def _is_of_series(X: Any) -> bool:
    """Whether X is an array of three dimensions, or a sequence of arrays of two."""
    if isinstance(X, numpy.ndarray) and X.dtype != object:
        return X.ndim > 2
    return isinstance(X, list | tuple | numpy.ndarray) and len(X) > 0 and numpy.ndim(X[0]) == 2

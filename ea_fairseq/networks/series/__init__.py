"""DC-Transformer and EA-DC-Transformer for time series (arXiv 2212.08330, section 3.3).

>>> from ea_fairseq.networks.series import EADCTransformerClassifier
>>> model = EADCTransformerClassifier().fit(X, y)  # X: (series, channels, time), or a list
>>> model.predict(X_test)

In reading order:

    estimators.py  `EADCTransformerClassifier`, `EADCTransformerRegressor`: scikit-learn's interface
    models.py      `SeriesModel`: standardisation, encoder, heads; saved and loaded
    encoders.py    `DCTransformer`, LSTM, GRU, ResNet
    layers.py      attention beside a dilated convolution; batch norm over unpadded steps
    training.py    `fit`: pre-training by masked values, fine-tuning
    data.py        series as aeon and scikit-learn give them, checked and padded
    settings.py    numbers that people set, checked
    archives.py    data sets inside of aeon, and folders of .ts files
"""

from .estimators import EADCTransformerClassifier, EADCTransformerRegressor
from .models import SeriesConfig, SeriesModel
from .training import Schedule, fit, outputs_of

__all__ = [
    "EADCTransformerClassifier",
    "EADCTransformerRegressor",
    "Schedule",
    "SeriesConfig",
    "SeriesModel",
    "fit",
    "outputs_of",
]

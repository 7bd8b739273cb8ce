"""Pictures of a comparison: scores by model, attention maps, representations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import numpy  # noqa: E402
from matplotlib import pyplot  # noqa: E402

from ea_fairseq.files import new_file  # noqa: E402
from ea_fairseq.networks.series import SeriesModel, outputs_of  # noqa: E402
from ea_fairseq.networks.series.archives import Dataset  # noqa: E402
from ea_fairseq.networks.series.data import padded  # noqa: E402

#: Drawn side by side, where they were trained: as in Figure 4 of arXiv 2212.08330.
COMPARED = ("transformer", "dc", "ea_dc")


def draw_all(dataset: Dataset, results: dict[str, dict[str, Any]], output: Path) -> list[Path]:
    """Draws what can be drawn of these models, of their first seed's.

    Args:
        dataset: what they were trained on
        results: name -> title, values, mean, interval and published score
        output: folder of the runs

    Returns:
        the pictures
    """
    drawn = [_draw_scores(dataset, results, output / "scores.png")]
    models = {
        name: SeriesModel.load(output / name / "seed_1") for name in COMPARED if name in results
    }
    titles = {name: results[name]["title"] for name in models}
    if models:
        drawn.append(_draw_maps(dataset, models, titles, output / "attention.png"))
    if models and dataset.classes is not None:
        drawn.append(_draw_representations(dataset, models, titles, output / "tsne.png"))
    return drawn


def within_class_distance(points: numpy.ndarray, labels: numpy.ndarray) -> float:
    """Average within-cluster distance (equation 13), in units of the spread of all points.

    The paper does not say in which space; distances of different models' representations have no
    common unit. So both are Euclidean distances in the space of ``points``, and the mean distance
    to the own class's centre is divided by the mean distance to the centre of all.

    Args:
        points: (series, features)
        labels: (series,)
    """
    total = 0.0
    for label in numpy.unique(labels):
        own = points[labels == label]
        total += numpy.linalg.norm(own - own.mean(0), axis=1).sum()
    return float(total / numpy.linalg.norm(points - points.mean(0), axis=1).sum())


def _draw_scores(dataset: Dataset, results: dict[str, dict[str, Any]], path: Path) -> Path:
    figure, axis = pyplot.subplots(figsize=(7, 1 + 0.4 * len(results)), layout="constrained")
    for row, one in enumerate(results.values()):
        axis.plot(one["values"], [row] * len(one["values"]), "o", color="C0", alpha=0.35, mew=0)
        if one["interval"]:
            axis.plot(one["interval"], [row, row], color="C0", linewidth=2)
        axis.plot(one["mean"], row, "|", color="C0", markersize=14, mew=2)
        if one["published"] is not None:
            axis.plot(one["published"], row, "x", color="C1")
    axis.set_yticks(range(len(results)), [one["title"] for one in results.values()])
    axis.invert_yaxis()
    score = "RMSE" if dataset.classes is None else "accuracy"
    note = "points: seeds; line: 95 % interval of the mean; cross: published"
    axis.set_xlabel(f"{score} on {dataset.name}\n({note})")
    axis.grid(axis="x", alpha=0.3)
    return _save(figure, path)


def _draw_maps(
    dataset: Dataset, models: dict[str, SeriesModel], titles: dict[str, str], path: Path
) -> Path:
    """The mean over heads of each layer's map, for the first test series."""
    x, _ = padded(dataset.test.series[:1])
    maps = {
        name: [one[0].mean(0) for one in model.encoder.attention_maps(model.standardised(x, None))]
        for name, model in models.items()
    }
    layers = max(map(len, maps.values()))
    size = (1 + 2 * layers, 0.6 + 2.1 * len(maps))
    figure, axes = pyplot.subplots(
        len(maps), layers, figsize=size, squeeze=False, layout="constrained"
    )
    for row, (name, found) in zip(axes, maps.items(), strict=True):
        row[0].set_ylabel(titles[name])
        for layer, (axis, one) in enumerate(zip(row, found, strict=False)):
            axis.imshow(one, cmap="Greys", vmin=0)
            axis.set_xticks([])
            axis.set_yticks([])
            axis.set_title(f"layer {layer + 1}", fontsize=9)
    figure.suptitle(f"{dataset.name}, first test series: a row is a step that attends to columns")
    return _save(figure, path)


def _draw_representations(
    dataset: Dataset, models: dict[str, SeriesModel], titles: dict[str, str], path: Path
) -> Path:
    """t-SNE of what the classifier reads of the test series."""
    from sklearn.manifold import TSNE

    labels = dataset.test.targets
    size = (4 * len(models), 4.2)
    figure, axes = pyplot.subplots(1, len(models), figsize=size, squeeze=False)
    for axis, (name, model) in zip(axes[0], models.items(), strict=True):
        points = outputs_of(model, dataset.test.series, function=model.representation).numpy()
        perplexity = min(30.0, (len(points) - 1) / 3)
        plane = TSNE(random_state=0, perplexity=perplexity).fit_transform(points)
        for number, label in enumerate(dataset.classes):
            axis.scatter(*plane[labels == label].T, s=8, color=f"C{number % 10}")
        distance = within_class_distance(points, labels)
        axis.set_title(f"{titles[name]}\nwithin-class distance {distance:.3f}", fontsize=10)
        axis.set_xticks([])
        axis.set_yticks([])
    figure.tight_layout()
    return _save(figure, path)


def _save(figure: Any, path: Path) -> Path:
    with new_file(path) as temporary:
        figure.savefig(temporary, dpi=100, format="png")
    pyplot.close(figure)
    return path

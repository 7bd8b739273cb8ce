"""Several seeds' models that translate together, recorded as a run of its own."""

from __future__ import annotations

from typing import Any

from ...files import read_json, sha256
from .folders import Run
from .recipe_run import RecipeRun
from .steps import Step

#: What stands behind the name of the runs' folder.
SUFFIX = ".ensemble"


def ensemble_of(runs: list[Run]) -> Run:
    """The run whose members are the runs of a recipe with several seeds, each seed once."""
    members = sorted({run.seed: run for run in runs}.items())
    name = "+".join(str(seed) for seed, _ in members)
    first = runs[0]
    recipe_runs = first.folder.parent
    folder = recipe_runs.with_name(recipe_runs.name + SUFFIX) / f"seed{name}"
    together = tuple(run for _, run in members)
    return Run(first.data, folder, name, first.languages, first.test_sets, together)


class EnsembleRun(RecipeRun):
    """The steps from translation on, with the models of other runs, which are done.

    Args: as of `RecipeRun`; ``run`` is what `ensemble_of` gives.
    """

    def _steps(self) -> dict[str, Step]:
        recipe = self.recipe
        settings: dict[str, Any] = {
            "train": recipe.options("train"),
            "models": {str(run.seed): sha256(run.model(recipe)) for run in self.run.members},
        }
        steps = {}
        for name in ("generate", "evaluate"):
            settings = settings | {name: recipe.sections[name]}
            steps[name] = Step(name, self.run.folder, settings)
        return steps

    def _results(self) -> dict[str, Any]:
        """As of a run; parameters and FLOPs are those of all models, seconds of translation."""
        members = [read_json(run.results) for run in self.run.members]
        generated = read_json(self.steps["generate"].stamp)
        parameters = [member["parameters"] for member in members]
        return members[0] | {
            "seed": self.run.seed,
            "threads": self.environment.get("OMP_NUM_THREADS"),
            "versions": generated["versions"],
            "parameters": None if None in parameters else sum(parameters),
            "cost": {
                name: sum(member["cost"][name] for member in members) for name in members[0]["cost"]
            },
            **self._measured(),
        }

"""Package metadata; tested versions are pinned in requirements.txt, ranges stand here."""

import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent

#: What ea-recipe needs, and what one does with its runs: in a clone beside the package, in a wheel
#: inside of it (ea_fairseq/recipes/says/paths.py). The other scripts are about the clone.
CARRIED = [
    *ROOT.glob("examples/**/*.yml"),
    *(
        ROOT / "scripts" / f"{name}.py"
        for name in (
            *("ablation", "attention_statistics", "average_checkpoints", "compare"),
            *("evaluate", "evaluate_lm", "export_model", "model_cost", "plot_attention"),
            *("plot_training", "prepare", "run_recipe", "syntax_hints", "time_to_match"),
            "translate",
        )
    ),
]


class BuildWithRecipes(build_py):
    """Puts recipes and scripts into the wheel, of which the tree thus has one copy."""

    def run(self):
        if not self.editable_mode:  # an earlier build's copies of what is gone by now
            shutil.rmtree(Path(self.build_lib, "ea_fairseq"), ignore_errors=True)
        super().run()
        for source, target in self._carried():
            self.mkpath(str(target.parent))
            self.copy_file(str(source), str(target))

    def get_outputs(self, include_bytecode=1):
        return [*super().get_outputs(include_bytecode), *(str(t) for _, t in self._carried())]

    def _carried(self):
        if self.editable_mode:  # the clone is used as it is
            return []
        inside = Path(self.build_lib, "ea_fairseq")
        return [(source, inside / source.relative_to(ROOT)) for source in CARRIED]


setup(
    name="ea_fairseq",
    version="0.1.0",
    description="Evolving attention for neural machine translation, as a fairseq plugin",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    packages=find_packages(include=["ea_fairseq", "ea_fairseq.*"]),
    # So that an editable install is an entry of the path: found before a folder of that name.
    package_dir={"": "."},
    package_data={
        "ea_fairseq": ["py.typed"],
        "ea_fairseq.kernels.cpp": ["*.cpp", "*.h"],
        "ea_fairseq.page": ["page.*"],
    },
    cmdclass={"build_py": BuildWithRecipes},
    entry_points={
        "console_scripts": [
            "ea-translate = ea_fairseq.commands.translate:main",
            "ea-generate = ea_fairseq.commands.generate:main",
            "ea-recipe = ea_fairseq.commands.recipe:run",
            "ea-evaluate = ea_fairseq.commands.evaluate:main",
            "ea-compare = ea_fairseq.commands.compare:main",
            "ea-export = ea_fairseq.commands.export:main",
            "ea-average = ea_fairseq.commands.average:main",
            "ea-plot = ea_fairseq.commands.plot:main",
        ]
    },
    python_requires=">=3.11,<3.13",
    install_requires=[
        "torch>=2.6",
        "ve-fairseq>=0.12.3,<0.13",
        # Using a trained model: its folder and its text.
        "safetensors>=0.5",
        "sentencepiece>=0.2",
        "subword-nmt>=0.3.8",
        "sacremoses>=0.1",
        "PyYAML>=6",
    ],
    extras_require={
        # What the recipes in examples/ and the scripts need beyond the plugin itself.
        "recipes": [
            "sacrebleu>=2.4",
            "babel>=2.14",
            "num2words>=0.5.13",
            "tensorboard>=2.15",
            "matplotlib>=3.8",
        ],
        # The page that ea-translate --serve shows in a browser.
        "page": ["fastapi>=0.115", "uvicorn>=0.30"],
        # ea_fairseq.networks and examples/: pictures, graphs. torchvision goes with one torch.
        "images": ["torchvision>=0.21", "scikit-learn>=1.4", "matplotlib>=3.8"],
        "graphs": ["torch_geometric>=2.6", "scipy>=1.11"],
        # Time series; aeon reads the data sets, the models do without it.
        "series": ["scikit-learn>=1.6", "scipy>=1.11", "aeon>=1.6,<2", "matplotlib>=3.8"],
        # ea_fairseq.hf; accelerate is what its Trainer wants.
        "transformers": ["transformers>=5.23,<6", "accelerate>=1.1"],
        "test": ["pytest>=8"],
    },
)

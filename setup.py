"""Package metadata; tested versions are pinned in requirements.txt, ranges stand here."""

from pathlib import Path

from setuptools import find_packages, setup

setup(
    name="ea_fairseq",
    version="0.1.0",
    description="Evolving attention for neural machine translation, as a fairseq plugin",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    packages=find_packages(include=["ea_fairseq", "ea_fairseq.*"]),
    # So that an editable install is an entry of the path: found before a folder of that name.
    package_dir={"": "."},
    package_data={"ea_fairseq.kernels": ["*.cpp", "*.h"], "ea_fairseq.page": ["page.*"]},
    entry_points={"console_scripts": ["ea-translate = ea_fairseq.translation.command:main"]},
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
        "test": ["pytest>=8"],
    },
)

"""Where the package, its scripts and its recipes lie."""

from pathlib import Path

#: The package itself, as ``--user-dir`` takes it.
USER_DIR = Path(__file__).resolve().parents[1]
REPOSITORY = USER_DIR.parent
SCRIPTS = REPOSITORY / "scripts"
EXAMPLES = REPOSITORY / "examples" / "translation"
#: Settings of models, for all corpora, by name; only those that need some.
VARIANTS = EXAMPLES / "variants"

"""Where the package, its scripts and its recipes lie: in a clone beside it, of a wheel inside."""

from pathlib import Path

#: The package itself, as ``--user-dir`` takes it.
USER_DIR = Path(__file__).resolve().parents[2]
_INSTALLED = (USER_DIR / "examples").is_dir()  # put there by setup.py
#: The clone; None where the package was installed from a wheel.
REPOSITORY = None if _INSTALLED else USER_DIR.parent
SCRIPTS = (REPOSITORY or USER_DIR) / "scripts"
EXAMPLES = (REPOSITORY or USER_DIR) / "examples"


def corpora() -> dict[str, Path]:
    """The folders of the recipes that come with the project, by name."""
    return {path.parent.name: path.parent for path in sorted(EXAMPLES.glob("*/*/common.yml"))}

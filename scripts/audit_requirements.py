#!/usr/bin/env python3
"""Look up every pinned package in the public list of known vulnerabilities.

    python scripts/audit_requirements.py
    python scripts/audit_requirements.py -- -s osv --ignore-vuln PYSEC-2026-1

pip-audit asks for each package of constraints.txt; what stands behind -- goes to it as it is. It
needs a network. Nothing is installed or changed.

Exit codes: 0 all packages were looked up and none has a known vulnerability; 1 some have, listed;
2 the look-up could not be made, or not for every package.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

PINS = Path(__file__).resolve().parents[1] / "constraints.txt"
INSTALL = (
    "pip-audit is not installed: pipx install pip-audit, or in an environment of its own"
    " python -m venv audit && audit/bin/pip install pip-audit, with audit/bin on the PATH"
)


def main(argv: list[str] | None = None) -> int:
    """The command; see above for the exit codes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--requirements", type=Path, default=PINS, metavar="FILE", help="(default: %(default)s)"
    )
    parser.add_argument("options", nargs="*", metavar="-- OPTION", help="options of pip-audit")
    args = parser.parse_args(argv)
    try:
        found, count = audit(args.requirements, args.options)
    except ValueError as error:
        print(f"audit_requirements.py: error: {error}", file=sys.stderr)
        return 2
    for line in found:
        print(line)
    print(f"{count} packages looked up; known vulnerabilities: {len(found)}")
    return int(bool(found))


def audit(requirements: Path, options: list[str]) -> tuple[list[str], int]:
    """Run pip-audit.

    Args:
        requirements: a file that pins every package.
        options: for pip-audit.

    Returns:
        A line for each vulnerability, and the number of packages looked up.

    Raises:
        ValueError: packages were not looked up, for want of pip-audit, a network or otherwise.
    """
    if not requirements.is_file():
        raise ValueError(f"--requirements {requirements}: no such file")
    program = shutil.which("pip-audit", path=_path())
    if program is None:
        raise ValueError(INSTALL)
    # Every package is pinned, so that pip has nothing to find out.
    fixed = ["--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
    done = subprocess.run(
        [program, "--requirement", str(requirements), *fixed, *options],
        capture_output=True,
        text=True,
    )
    # Its exit code does not tell: it is 1 for vulnerabilities and for failures of any kind, and 0
    # where the index knows none of the packages.
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise ValueError(
            f"nothing was looked up; is there a network? pip-audit: {reason}"
        ) from None
    skipped = [package for package in packages if "vulns" not in package]
    if skipped or not packages:
        reason = skipped[0].get("skip_reason", "no reason given") if skipped else "no package"
        raise ValueError(
            f"{len(skipped)} of {len(packages)} packages of {requirements.name} were not looked up;"
            f" is there a network? pip-audit: {reason}"
        )
    return [_line(p, vulnerability) for p in packages for vulnerability in p["vulns"]], len(
        packages
    )


def _path() -> str:
    """The programs of this environment, activated or not, then those of the PATH."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def _line(package: dict, known: dict) -> str:
    names = ", ".join([known["id"], *known.get("aliases", [])])
    fixed = ", ".join(known.get("fix_versions", [])) or "no version yet"
    return f"{package['name']} {package['version']}: {names}; fixed in {fixed}"


if __name__ == "__main__":
    sys.exit(main())

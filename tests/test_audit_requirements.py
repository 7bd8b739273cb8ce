"""No news is not good news: the audit passes only if every package was looked up."""

import json
import shutil
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import audit_requirements
import pytest

PACKAGES = ["one==1.0", "two==2.0"]
KNOWN = {
    "id": "PYSEC-1-1",
    "fix_versions": ["2.1"],
    "aliases": ["CVE-1-1"],
    "description": "of no importance",
}


def looked_up(*vulnerabilities):
    return {"name": "two", "version": "2.0", "vulns": list(vulnerabilities)}


@pytest.fixture
def requirements(tmp_path):
    path = tmp_path / "pins.txt"
    path.write_text("\n".join(PACKAGES) + "\n")
    return ["--requirements", str(path)]


@pytest.fixture
def pip_audit(tmp_path, monkeypatch):
    """Puts a program on the PATH that answers as pip-audit 2.10 does, which need not be here."""

    def answer(status, output="", errors=""):
        program = tmp_path / "bin" / "pip-audit"
        program.parent.mkdir(exist_ok=True)
        program.write_text(
            f"#!{sys.executable}\nimport sys\nopen({str(tmp_path / 'given')!r}, 'w')"
            f".write(' '.join(sys.argv[1:]))\n"
            f"print({output!r})\nprint({errors!r}, file=sys.stderr)\nsys.exit({status})\n"
        )
        program.chmod(0o755)

    monkeypatch.setattr(audit_requirements, "_path", lambda: str(tmp_path / "bin"))
    return answer


def report(*packages):
    return json.dumps({"dependencies": packages, "fixes": []})


def test_every_package_looked_up_and_clean_is_0(requirements, pip_audit, capsys, tmp_path):
    pip_audit(0, report(looked_up(), looked_up()), "No known vulnerabilities found")
    assert audit_requirements.main([*requirements, "--", "-s", "osv"]) == 0
    assert capsys.readouterr().out == "2 packages looked up; known vulnerabilities: 0\n"
    given = (tmp_path / "given").read_text()
    assert f"--requirement {requirements[1]} --no-deps" in given and given.endswith(" -s osv")


def test_a_known_vulnerability_is_1_and_a_line(requirements, pip_audit, capsys):
    pip_audit(1, report(looked_up(), looked_up(KNOWN)), "Found 1 known vulnerability")
    assert audit_requirements.main(requirements) == 1
    assert capsys.readouterr().out.splitlines() == [
        "two 2.0: PYSEC-1-1, CVE-1-1; fixed in 2.1",
        "2 packages looked up; known vulnerabilities: 1",
    ]


SKIPPED = {"name": "one", "skip_reason": "not found on PyPI"}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        # An index without the list: pip-audit itself says "No known vulnerabilities found".
        ((0, report(SKIPPED, SKIPPED), "No known vulnerabilities found"), "2 of 2 packages"),
        ((1, report(SKIPPED, looked_up(KNOWN)), "Found 1"), "1 of 2 packages"),
        ((0, report()), "0 of 0 packages"),
        ((1, "", "Traceback\n  File\nConnectionError: no route"), "ConnectionError: no route"),
        ((2, "", "usage\npip-audit: error: --nonsense"), "pip-audit: error: --nonsense"),
        ((3,), "exit code 3"),
    ],
)
def test_what_was_not_looked_up_is_2_and_one_line(answer, why, requirements, pip_audit, capsys):
    pip_audit(*answer)
    assert audit_requirements.main(requirements) == 2
    output = capsys.readouterr()
    assert output.out == "" and output.err.count("\n") == 1 and why in output.err


def test_without_pip_audit_it_says_how_to_get_it(requirements, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(audit_requirements, "_path", lambda: str(tmp_path))
    assert audit_requirements.main(requirements) == 2
    assert "pip install pip-audit" in capsys.readouterr().err


def test_a_missing_file_is_named(tmp_path, capsys):
    assert audit_requirements.main(["--requirements", str(tmp_path / "none.txt")]) == 2
    assert f"--requirements {tmp_path / 'none.txt'}: no such file" in capsys.readouterr().err


@pytest.mark.skipif(
    shutil.which("pip-audit", path=audit_requirements._path()) is None,
    reason="pip-audit is not installed",
)
@pytest.mark.parametrize(("known", "status"), [({}, 0), ({"docopt": "PYSEC-1-1"}, 1)])
def test_pip_audit_itself_with_a_list_on_this_machine(known, status, capsys):
    class List(BaseHTTPRequestHandler):
        """Answers as https://google.github.io/osv.dev/post-v1-query/ describes."""

        def do_POST(self):
            query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            name = query["package"]["name"]
            of = {"package": {"name": name, "ecosystem": "PyPI"}, "ranges": []}
            body = {"vulns": [{"id": known[name], "affected": [of]}]} if name in known else {}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), List) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        assert audit_requirements.main(["--", "-s", "osv", "--osv-url", url]) == status
        server.shutdown()
    assert f"known vulnerabilities: {len(known)}" in capsys.readouterr().out

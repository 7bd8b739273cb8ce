"""Files are written whole or not at all, and nothing that is no file is replaced by one."""

import os
import stat
import threading
from pathlib import Path

import pytest

from ea_fairseq.errors import UserError
from ea_fairseq.files import check_output, new_folder, write_lines


def test_of_a_link_the_file_it_leads_to_is_replaced(tmp_path):
    target, link = tmp_path / "there" / "target", tmp_path / "link"
    target.parent.mkdir()
    target.write_text("old\n")
    link.symlink_to(target)
    write_lines(link, ["new"])
    assert link.is_symlink() and target.read_text() == "new\n"


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()), daemon=True)
    reader.start()
    write_lines(pipe, ["a", "b"])
    reader.join(timeout=600)
    assert found == ["a\nb\n"] and stat.S_ISFIFO(pipe.stat().st_mode)


def test_what_an_open_file_holds_stays(tmp_path):
    log = tmp_path / "log"
    log.write_text("before\n")
    with open(log, "a") as opened:
        write_lines(Path(f"/dev/fd/{opened.fileno()}"), ["behind"])
    assert log.read_text() == "before\nbehind\n" and list(tmp_path.iterdir()) == [log]


def test_a_full_device_is_an_error_that_names_it(tmp_path):
    link = tmp_path / "full"
    link.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device: '.*full'"):
        write_lines(link, ["a"])
    assert link.is_symlink() and link.is_char_device()


def test_a_file_named_tmp_is_the_users_own(tmp_path):
    """NAME.tmp was written over, and a folder of that name removed, on the way to NAME."""
    (tmp_path / "new.tmp").write_text("mine\n")
    write_lines(tmp_path / "new", ["a"])
    (tmp_path / "model.tmp").mkdir()
    with new_folder(tmp_path / "model") as folder:
        (folder / "made").touch()
    assert (tmp_path / "new.tmp").read_text() == "mine\n" and (tmp_path / "model.tmp").is_dir()
    names = {"new", "new.tmp", "model", "model.tmp"}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_a_folder_is_no_file_to_write(tmp_path):
    with pytest.raises(UserError, match="--text .*: is a folder; name a file"):
        check_output(tmp_path, "--text")
    with pytest.raises(UserError, match="is a folder"):
        write_lines(tmp_path, ["a"])
    assert list(tmp_path.parent.glob("*.tmp")) == []

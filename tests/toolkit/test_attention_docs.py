"""docs/attention.md: its commands run, on small models; its pictures are there and small."""

import shlex
from importlib import import_module
from pathlib import Path

from matplotlib import image
from pages import DOCS, commands
from small_folders import write_folder

from ea_fairseq.commands import translate as command
from ea_fairseq.page import server

PAGE = DOCS / "attention.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_commands_run_as_they_stand(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    six = {"encoder_layers": 6, "decoder_layers": 6}
    for name in ("model", "ea_transformer_lite", "transformer_lite"):
        arch = name.replace("model", "ea_transformer_lite")
        write_folder(tmp_path / name, arch, options=six)
    Path("test.de").write_text("w1 w5 w3\nw8 w2\n")
    served = []
    monkeypatch.setattr(server, "serve", lambda models, *_, **__: served.append(models))
    for program, *words in map(shlex.split, commands(PAGE)):
        if program == "ea-translate":
            assert command.main(words) == 0
        else:
            script, *arguments = words
            assert import_module(Path(script).stem).main(arguments) == 0
    printed = capsys.readouterr().out
    assert "maps.png\n" in printed
    assert "encoder-decoder, transformer_lite / ea_transformer_lite" in printed
    for picture in ("maps.png", "statistics.png"):
        assert image.imread(picture).std() > 0.05
    two = [Path("ea_transformer_lite"), Path("transformer_lite")]
    assert served == [[Path("model")], two]

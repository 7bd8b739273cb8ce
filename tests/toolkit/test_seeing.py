"""``ea-translate --plot`` and ``--serve`` hand on what they are given."""

import pytest

from ea_fairseq.commands.translate import main
from ea_fairseq.page import server


@pytest.mark.parametrize(
    ("arguments", "names", "host", "port"),
    [
        (["a", "--serve"], ["a"], None, 8000),
        (["--serve", "--port", "0", "a", "b"], ["a", "b"], None, 0),
        (["--serve", "a", "b", "--port", "0"], ["a", "b"], None, 0),
        (["a", "--serve", "b", "--host", "192.0.2.7"], ["a", "b"], "192.0.2.7", 8000),
    ],
)
def test_models_address_and_port_reach_the_server(monkeypatch, arguments, names, host, port):
    calls = []
    monkeypatch.setattr(server, "serve", lambda *args, **options: calls.append((args, options)))
    assert main([*arguments, "--threads", "1"]) == 0
    (((models, *address), options),) = calls
    assert [str(model) for model in models] == names and address == [host, port]
    assert options == {"device": "cpu", "dtype": "float32", "threads": 1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "--port", "80"], "--port and --host go with --serve"),
        (["a", "--plot", "x.png", "w1", "--port", "80"], "--port and --host go with --serve"),
        (["a", "--plot", "x.png", "w1", "--host", "x"], "--port and --host go with --serve"),
        (["a", "--plot", "x.png", "w1", "--serve"], "--plot and --serve: give one of them"),
        (["--serve"], "the following arguments are required: model"),
        (["--plot", "x.png", "w1"], "the following arguments are required: model"),
        ([], "the following arguments are required: model"),
        (["a", "b"], "b: a second model goes behind --ensemble, or with --serve"),
        (["a", "b", "--plot", "x.png", "w1"], "--plot, which draws one model"),
        (["a", "--plot", "x.gif", "w1"], "error: x.gif: choose a name in .png, .pdf, .svg"),
        (["a", "--plot", "x.png", "w1", "--ensemble", "b"], "--ensemble does not go with --plot"),
        (["a", "--serve", "--ensemble", "b"], "--ensemble does not go with --serve"),
        (["a", "--serve", "b", "c"], "3 models are given: one, or two to compare"),
        (["none", "--serve", "--port", "0"], "none: no such folder"),
        (["a", "--serve", "--input", "x"], "--input does not go with --serve: leave it out"),
        (["a", "--plot", "x.png", "w1", "--json"], "--json does not go with --plot: leave it out"),
        (["a", "--plot", "x.png", "w1", "--n-best", "2"], "--n-best does not go with --plot"),
        (["a", __file__], "test_seeing.py is a file: give it with --input"),
    ],
)
def test_mistakes_are_named(capsys, arguments, message):
    try:
        code = main(arguments)
    except SystemExit as exit:
        code = exit.code
    assert code in (1, 2) and message in capsys.readouterr().err

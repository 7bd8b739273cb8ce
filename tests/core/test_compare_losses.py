"""Same-seed losses: equal where nothing changed, different where something did."""

from dataclasses import replace

import compare_losses
import pytest

from ea_fairseq.attention.contract import zero_hidden
from ea_fairseq.attention.variants import evolving
from ea_fairseq.kernels.cpp import library
from ea_fairseq.kernels.cpp.library import torch_alone

FEW = ["--updates", "4"]


def test_the_compiled_attention_leaves_losses_as_they_are(tmp_path, capsys):
    path = str(tmp_path / "before.json")
    with torch_alone():
        assert compare_losses.main([*FEW, "--save", path]) == 0
    assert compare_losses.main([*FEW, "--against", path, "--tolerance", "2e-5"]) == 0
    assert "largest relative difference of 4 losses" in capsys.readouterr().out


def test_a_change_of_the_equations_is_found(tmp_path, monkeypatch):
    path = str(tmp_path / "before.json")
    assert compare_losses.main([*FEW, "--save", path]) == 0
    mix = evolving.EvolvingLogits._evolution
    monkeypatch.setattr(
        evolving.EvolvingLogits,
        "_evolution",
        lambda self: replace(mix(self), beta=self.beta + 0.05),
    )
    monkeypatch.setattr(
        evolving.EvolvingLogits,
        "_mix_carry",
        lambda self, logits, visible, carry: zero_hidden(logits * 1.05, visible),
    )
    assert compare_losses.main([*FEW, "--against", path]) == 1


@pytest.mark.parametrize("place", range(4))
def test_losses_that_become_no_number_are_a_difference(tmp_path, monkeypatch, place):
    path, found = str(tmp_path / "before.json"), [4.0, 3.0, 2.0, 1.0]
    monkeypatch.setattr(compare_losses, "losses", lambda *_: found)
    assert compare_losses.main([*FEW, "--save", path]) == 0
    found[place] = float("nan")
    assert compare_losses.main([*FEW, "--against", path]) == 1


def test_what_is_wrong_is_named(tmp_path, capsys, monkeypatch):
    path = tmp_path / "before.json"

    def refused(reason, *words):
        assert compare_losses.main([*FEW, *words]) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ") and reason in error

    refused(str(path), "--against", str(path))
    path.write_text("{}")
    refused(str(path), "--against", str(path))
    saved = "--save", str(tmp_path / "losses.json")
    refused("error: --arch nonsense: no such architecture", "--arch", "nonsense", *saved)
    monkeypatch.setenv("EA_FAIRSEQ_NATIVE", "nonsense")
    library.load_library.cache_clear()
    refused("error: EA_FAIRSEQ_NATIVE=nonsense: choices are 0 ", *saved)
    library.load_library.cache_clear()

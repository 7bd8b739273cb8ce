"""Statistics of attention maps: what slow loops over the same maps give."""

import json
import math
from statistics import fmean, pstdev

import attention_statistics as command
import pytest
from matplotlib import image
from scipy.stats import entropy, pearsonr
from small_folders import write_folder
from small_models import settings_of

from ea_fairseq import Translator
from ea_fairseq.attention.variants import VARIANTS
from ea_fairseq.inference.map_statistics import TERMS, map_statistics

TEXTS = ["w1 w5 w3 w7", "w2", "", "w8 w4 w4 w6 w9 w3"]
MIXED = {"ea_alpha": 0.3, "ea_beta": 0.4, "ea_skip": "encoder,decoder"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("models") / "ea", options=MIXED)


@pytest.fixture(scope="module")
def statistics(folder):
    return map_statistics(Translator(folder), TEXTS)


def all_maps(folder):
    """The maps of each sentence."""
    translator = Translator(folder)
    translations = translator.translate(TEXTS, details=True)
    return [translator.attention_maps(part) for t in translations for part in t.parts]


def entries(attention, probs, with_single=False):
    """Row and column of what can be seen."""
    rows, columns = probs.shape[-2:]
    for row in range(rows):
        seen = range(row + 1 if attention == "decoder" else columns)
        if with_single or len(seen) > 1:
            yield from ((row, column) for column in seen)


@pytest.mark.parametrize("attention", ["encoder", "decoder", "encoder-decoder"])
def test_similarity_and_entropy_equal_loops_with_scipy(folder, statistics, attention):
    for number, layer in enumerate(statistics[attention]):
        same, best, entropies = [], [], []
        for maps in all_maps(folder):
            probs = maps[attention][number].probs.double()
            places = list(entries(attention, probs))
            for row in sorted({row for row, _ in places}):
                entropies += [entropy(head[row].numpy(), base=2) for head in probs]
            if number == 0 or len(places) < 2:
                continue
            below = maps[attention][number - 1].probs.double()
            vectors = [[[float(h[p]) for p in places] for h in m] for m in (probs, below)]
            table = [[pearsonr(a, b).statistic for b in vectors[1]] for a in vectors[0]]
            same += [table[head][head] for head in range(4)]
            best += [max(row) for row in table]
        assert layer.entropy == pytest.approx(fmean(entropies), abs=1e-6)
        if number == 0:
            assert math.isnan(layer.similarity) and math.isnan(layer.similarity_best)
        else:
            assert layer.similarity == pytest.approx(fmean(same), abs=1e-6)
            assert layer.similarity_best == pytest.approx(fmean(best), abs=1e-6)


@pytest.mark.parametrize("attention", ["encoder", "decoder"])
def test_weight_on_current_and_earlier_tokens_is_that_of_loops(folder, statistics, attention):
    for number, layer in enumerate(statistics[attention]):
        current, earlier = [], []
        for maps in all_maps(folder):
            for head in maps[attention][number].probs.tolist():
                for t, row in enumerate(head):
                    current.append(row[t])
                    earlier += row[:t]
        assert layer.current == pytest.approx(fmean(current), abs=1e-6)
        assert layer.earlier == pytest.approx(fmean(earlier), abs=1e-6)
        assert layer.earlier_deviation == pytest.approx(pstdev(earlier), abs=1e-6)
        assert layer.ratio == pytest.approx(fmean(current) / fmean(earlier), abs=1e-5)
    assert all(math.isnan(layer.current) for layer in statistics["encoder-decoder"])


@pytest.mark.parametrize("attention", ["encoder", "decoder", "encoder-decoder"])
def test_shares_are_those_of_equation_4(folder, statistics, attention):
    """Z = A_in + what is added, A_in = alpha carry + (1 - alpha) L, alpha 0.3."""
    found = all_maps(folder)
    for number, layer in enumerate(statistics[attention]):
        alpha = 0.3 if number and attention != "encoder-decoder" else 0.0
        weights = {"fresh": 1 - alpha, "carry": alpha, "added": 1}
        sizes = dict.fromkeys(TERMS, 0.0)
        for head in range(4):
            squares = dict.fromkeys(TERMS, 0.0)
            for maps in found:
                for name in TERMS:
                    term = getattr(maps[attention][number], name)
                    if term is None:
                        continue
                    rows = {}
                    for row, column in entries(attention, term, with_single=True):
                        rows.setdefault(row, []).append(float(term[head, row, column]))
                    squares[name] += sum((v - fmean(r)) ** 2 for r in rows.values() for v in r)
            for name in TERMS:
                sizes[name] += weights[name] * math.sqrt(squares[name])
        for name in TERMS:
            expected = sizes[name] / sum(sizes.values())
            assert layer.shares[name] == pytest.approx(expected, abs=1e-4), (number, name)
        assert layer.shares["other"] == pytest.approx(0, abs=1e-6)
        assert layer.shares["added"] > 0.05


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_has_statistics(tmp_path, variant):
    name, options = next(iter(settings_of(variant)))
    translator = Translator(write_folder(tmp_path / "model", options=options))
    other = False
    for layers in map_statistics(translator, TEXTS).values():
        for layer in layers:
            assert sum(layer.shares.values()) == pytest.approx(1)
            other |= layer.shares["other"] > 0.01
    # What these do to the logits is no sum of L, carry and what a convolution adds.
    assert other == (variant in ("bird_eye", "multi_token", "talking_heads"))


def test_a_plain_transformer_is_fresh_alone(tmp_path):
    translator = Translator(write_folder(tmp_path / "model", "transformer_lite"))
    for layers in map_statistics(translator, TEXTS).values():
        for layer in layers:
            assert layer.shares == {"fresh": 1.0, "carry": 0.0, "added": 0.0, "other": 0.0}


def test_two_models_as_tables_numbers_and_a_picture(tmp_path, folder, capsys):
    plain = write_folder(tmp_path / "plain", "transformer_lite")
    test = tmp_path / "test.de"
    test.write_text("\n".join(TEXTS) + "\n")
    options = ["--plot", str(tmp_path / "x.png"), "--json", str(tmp_path / "x.json")]
    assert command.main([str(plain), str(folder), "--test", str(test), *options]) == 0
    assert image.imread(tmp_path / "x.png").std() > 0.05
    numbers = json.loads((tmp_path / "x.json").read_text())
    tables = capsys.readouterr().out.split("\n\n")
    assert tables[::2] == [f"{a}, plain / ea" for a in ("encoder", "decoder", "encoder-decoder")]
    assert " CA " in tables[1] and " CA " not in tables[5]
    header, _, *rows = ([c.strip() for c in row.split("|")[1:-1]] for row in tables[1].split("\n"))
    for number, row in enumerate(rows):
        cells = dict(zip(header, row, strict=True))
        assert cells["layer"] == str(number + 1)
        layers = [numbers[name]["encoder"][number] for name in ("plain", "ea")]
        assert cells["entropy"] == " / ".join(f"{layer['entropy']:.2f}" for layer in layers)
        shares = [100 * layer["shares"]["added"] for layer in layers]
        assert cells["added"] == " / ".join(f"{share:.1f}" for share in shares)
    assert rows[0][1] == "- / -"


@pytest.mark.parametrize(
    ("models", "test", "options", "message"),
    [
        (["ea"], "empty", [], "empty: no text in it"),
        (["ea"], "invisible", [], "invisible: no text in it"),
        (["ea"], "nothing", [], "nothing: no such file"),
        (["ea"], "long", [], "text 2: "),
        (["ea"], "test", ["--plot", "x.gif"], "x.gif: choose a name in .png"),
        (["ea"], "test", ["--plot", "x.svg", "--json", "x.svg"], "x.svg: is the file of --plot"),
        (["ea", "ea"], "test", [], "is given twice"),
        (["ea"] * 3, "test", [], "MODEL: 3 are given: one, or two to compare"),
        (["none"], "test", [], "none: no such folder"),
    ],
)
def test_mistakes_end_in_one_line(tmp_path, folder, capsys, models, test, options, message):
    (tmp_path / "empty").write_text("\n\n")
    (tmp_path / "invisible").write_text("\x7f\n")
    (tmp_path / "test").write_text("w1\n")
    (tmp_path / "long").write_text("w1\n" + "w2 " * 2000 + "\n")
    paths = [str(folder.with_name(name)) for name in models]
    assert command.main([*paths, "--test", str(tmp_path / test), *options]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1

"""A model as a folder: whole or refused, and the same model on both sides."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from fairseq_commands import corpus, generation, run, trained
from small_folders import strong, write_folder

from ea_fairseq import Translator
from ea_fairseq.errors import UserError
from ea_fairseq.inference.build_model import load_model
from ea_fairseq.inference.export_checkpoint import export_checkpoint
from ea_fairseq.inference.fairseq_checkpoint import write_fairseq_folder
from ea_fairseq.inference.model_folder import Longest, Search, read_model_folder
from ea_fairseq.recipes.runs.export_run import longest_sources, search_settings


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("folder") / "model")


OTHER_SIZES = {"encoder_normalize_before": False, "encoder_layers": 2}
OUTPUT, INPUT = "decoder.output_projection.weight", "decoder.embed_tokens.weight"


@pytest.mark.parametrize(
    ("arch", "options", "left_out", "same"),
    [
        ("ea_transformer_lite", {**OTHER_SIZES, "ea_kernel_size": 5}, set(), INPUT),
        ("transformer_lite", OTHER_SIZES, set(), INPUT),
        ("transformer", OTHER_SIZES, set(), INPUT),
        ("transformer_lite", {"share_decoder_input_output_embed": True}, {OUTPUT}, INPUT),
        (
            *("ea_transformer_lite", {"share_all_embeddings": True}),
            *({OUTPUT, INPUT}, "encoder.embed_tokens.weight"),
        ),
    ],
)
def test_weights_and_options_come_back_and_what_is_shared_is_stored_once(
    tmp_path, arch, options, left_out, same
):
    """Of what is stored once, all names have it."""
    folder = read_model_folder(write_folder(tmp_path / "model", arch, seed=3, options=options))
    model, _ = load_model(folder)
    expected, found = strong(arch, seed=3, **options).state_dict(), model.state_dict()
    assert expected.keys() == found.keys() and expected.keys() - folder.weights().keys() == left_out
    assert all(torch.equal(value, expected[name]) for name, value in found.items())
    assert all(model.get_parameter(name) is model.get_parameter(same) for name in left_out)


def test_moved_or_zipped_it_is_the_same_and_nothing_in_it_is_a_pickle(folder, tmp_path):
    archive = shutil.make_archive(str(tmp_path / "model"), "zip", folder)
    shutil.unpack_archive(archive, tmp_path / "elsewhere")
    texts = ["w1 w2", "w3 w4 w5"]
    here, elsewhere = Translator(folder), Translator(tmp_path / "elsewhere")
    assert elsewhere.translate(texts) == here.translate(texts)
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["README.md", "config.json", "dict.de.txt", "dict.en.txt", "model.safetensors"]


def damaged(folder, tmp_path, change):
    copy = Path(shutil.copytree(folder, tmp_path / "copy", dirs_exist_ok=True))
    change(copy)
    with pytest.raises(UserError) as refusal:
        load_model(read_model_folder(copy))
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def edit(**changes):
    def change(copy):
        path = copy / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


@pytest.mark.parametrize("name", ["model.safetensors", "dict.de.txt", "dict.en.txt", "config.json"])
def test_a_missing_or_changed_file_is_named(folder, tmp_path, name):
    assert name in damaged(folder, tmp_path, lambda copy: (copy / name).unlink())
    shutil.rmtree(tmp_path / "copy")

    def flip(copy):
        content = bytearray((copy / name).read_bytes())
        content[len(content) // 2] ^= 255
        (copy / name).write_bytes(content)

    assert name in damaged(folder, tmp_path, flip)


def test_what_config_json_says_is_checked(folder, tmp_path):
    content = json.loads((folder / "config.json").read_text())
    sizes, text, search = content["options"], content["text"], content["search"]
    for changes, words in (
        ({"format": 2}, "format 2: this version of ea_fairseq reads format 1"),
        ({"arch": "no_such"}, "'no_such' is not known"),
        ({"arch": "lightconv_lm"}, "lightconv_lm"),
        ({"options": {**sizes, "encoder_layers": 4}}, "does not fit the model"),
        ({"options": {**sizes, "encoder_embed_path": "/etc/passwd"}}, "encoder_embed_path is no"),
        ({"arch": "fconv", "options": {"encoder_layers": "[exit()]"}}, "was not executed"),
        ({"options": {**sizes, "dropout": {"a": 1}}}, "option dropout of ea_transformer_lite"),
        ({"options": {**sizes, "ea_alpha": 7}}, "--ea-alpha must be a number in [0, 1], not 7"),
        ({"options": {**sizes, "dropout": 10**400}}, "config.json: not JSON: 1000"),
        ({"options": {**sizes, "encoder_attention_heads": 0}}, "expected a number from 1"),
        ({"options": {**sizes, "encoder_embed_dim": 0}}, "expected a number from 1"),
        ({"options": {**sizes, "encoder_layers": 10**11}}, "expected at most 1,000"),
        ({"options": {**sizes, "encoder_ffn_embed_dim": 10**11}}, "expected at most 1,000,000"),
        ({"options": {**sizes, "encoder_layers": "3"}}, "expected a whole number"),
        ({"options": {**sizes, "max_source_positions": False}}, "expected a whole number"),
        ({"options": {**sizes, "encoder_normalize_before": "no"}}, "choose true or false"),
        ({"options": {**sizes, "dropout": float("nan")}}, "expected a finite number"),
        ({"options": {**sizes, "adaptive_softmax_cutoff": 1.5}}, "no longer supported"),
        ({"search": {**search, "max_len_a": 1e308}}, "max_len_a is 1e+308: expected a number fr"),
        ({"text": {**text, "source_lang": "../de"}}, "'../de' is no language code"),
        ({"text": {**text, "subword": "morfessor"}}, "subword is 'morfessor': choose from bpe"),
        ({"search": {"beam": 5}}, "search: expected the keys beam, lenpen"),
        ({"longest": {"tokens": 0, "sentences": 1}}, "longest: tokens is 0"),
        ({"files": {}}, "model.safetensors: damaged or exchanged"),
        ({"files": None}, "model.safetensors: damaged or exchanged"),
    ):
        assert words in damaged(folder, tmp_path, edit(**changes))
    for content in ("", "[]", "{", "[" * 100_000, '{"format": 1}'):
        message = damaged(folder, tmp_path, lambda c, t=content: (c / "config.json").write_text(t))
        assert "config.json" in message


def test_only_an_earlier_model_is_replaced(folder, tmp_path):
    path = tmp_path / "mine"
    path.mkdir()
    (path / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="is there already and is no model folder"):
        write_folder(path)
    assert (path / "thesis.tex").read_text() == "years of work"
    again = Path(shutil.copytree(folder, tmp_path / "again"))
    before = (again / "model.safetensors").read_bytes()
    write_folder(again, seed=5)
    assert (again / "model.safetensors").read_bytes() != before


def test_there_and_back_fairseq_generates_the_same(tmp_path):
    """From fairseq's plain Transformer to a folder, and from that to fairseq again."""
    export_checkpoint(trained() / "checkpoint_last.pt", tmp_path / "model", corpus())
    write_fairseq_folder(read_model_folder(tmp_path / "model"), tmp_path / "back")
    outputs = []
    for checkpoint in (trained() / "checkpoint_last.pt", tmp_path / "back" / "model.pt"):
        done = run("generate", *generation(corpus(), checkpoint))
        assert done.status == 0, done.errors()
        outputs.append(re.findall(r"^[HP]-.*", done.output(), re.M))
    assert outputs[0] == outputs[1] and len(outputs[0]) == 22


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    for state, words in (
        ({"model": {}, "cfg": {"task": {"_name": "masked_lm"}}}, "masked_lm"),
        ({"model": {}, "cfg": {"task": {"_name": "translation", "data": "/nowhere"}}}, "/nowhere"),
    ):
        path = tmp_path / "checkpoint.pt"
        others = {"optimizer_history": [{"lr_scheduler_state": {}}], "extra_state": {}}
        torch.save({**others, **state}, path)
        with pytest.raises(UserError) as refusal:
            export_checkpoint(path, tmp_path / "model")
        assert words in str(refusal.value) and not (tmp_path / "model").exists()


def test_the_longest_sources_are_those_but_for_a_few():
    tokens = ["a " * 7] * 2000 + ["a " * 90]
    text = ["Ein Satz."] * 980 + ["Ein Satz. Noch einer."] * 15 + ["Eins. Zwei. Drei."] * 5
    assert longest_sources(text, tokens, "de") == Longest(7, 2)
    assert longest_sources([], [], "de") == Longest(None, None)


def test_search_settings_are_the_recipes_and_others_are_told():
    options = {"beam": 4, "lenpen": 0.6, "max-len-a": 1.2, "max-len-b": 10, "max-tokens": 4000}
    search, unknown = search_settings({**options, "sampling": True, "diverse-beam-groups": None})
    assert search == Search(beam=4, lenpen=0.6, max_len_a=1.2, max_len_b=10)
    assert unknown == ["sampling"]
    with pytest.raises(UserError, match="beam is 0: expected a whole number from 1"):
        search_settings({"beam": 0})
    with pytest.raises(UserError, match="max_len_b is 3: expected at least min_len, 5"):
        search_settings({"max-len-b": 3, "min-len": 5})
    every = {"beam": 3, "lenpen": 0.7, "unkpen": 0.5, "unnormalized": True}
    lengths = {"min-len": 2, "max-len-a": 1.5, "max-len-b": 7}
    expected = Search(**every, min_len=2, max_len_a=1.5, max_len_b=7)
    assert search_settings(every | lengths) == (expected, [])


def test_the_card_says_what_it_is_and_how_good(tmp_path):
    score = {"label": "sacreBLEU", "score": 12.35, "signature": "nrefs:1|case:mixed"}
    bits = {"label": "bits per character", "score": 1.23456, "digits": 4, "signature": "x"}
    path = write_folder(tmp_path / "model", scores={"first": {"scores": [score, bits]}})
    card = (path / "README.md").read_text()
    assert "| first | sacreBLEU | 12.35 | `nrefs:1|case:mixed` |" in card
    assert "| first | bits per character | 1.2346 | `x` |" in card
    assert "de to en" in card and "12 subwords and 2 sentence(s)" in card

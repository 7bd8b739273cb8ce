"""corpus.yml: what is accepted, what is refused and how."""

from pathlib import Path

import pytest

from ea_fairseq.corpus.config import load

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted((ROOT / "examples" / "translation").glob("*/corpus.yml"))
GOOD = "source_lang: de\ntarget_lang: en\nfiles: {train: t, valid: v, test: x}\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "corpus.yml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.parent.name)
def test_shipped_corpora_load_and_their_folder_names_the_languages(path):
    corpus = load(path)
    name, _, pair = path.parent.name.partition(".")
    assert (corpus.name, f"{corpus.source_lang}-{corpus.target_lang}") == (name, pair)
    assert corpus.test_sets
    listed = {file for download in corpus.downloads for file in download.files}
    for part in (part for parts in corpus.files.values() for part in parts):
        for lang in corpus.languages:
            name = part.archive or part.path.replace("{lang}", lang) + ".gz"
            assert name in listed


def test_all_shipped_corpora_are_tested():
    assert len(SHIPPED) == 7


def test_test_sets_keep_their_order():
    corpus = load(ROOT / "examples/translation/multi30k.en-fr/corpus.yml")
    assert corpus.test_sets == ["test_2016_flickr", "test_2017_flickr", "test_2017_mscoco"]
    assert corpus.subword_size == 6000


def test_a_short_file_is_enough_and_takes_its_name_from_its_folder(tmp_path):
    corpus = load(write(tmp_path, GOOD))
    assert corpus.name == tmp_path.name
    assert corpus.splits == ["train", "valid", "test"]
    assert corpus.files["train"][0].path == "t.{lang}"


def test_a_base_is_added_to_and_files_are_replaced(tmp_path):
    (tmp_path / "sub").mkdir()
    write(tmp_path, GOOD + "tokenize: {lowercase: true, escape: true}\nseed: 3\n")
    delta = "base: ../corpus.yml\ntokenize: {escape: false}\nfiles: {train: a, valid: b, t2: c}\n"
    corpus = load(write(tmp_path / "sub", delta), source_lang="fr", target_lang=None)
    assert (corpus.tokenize.lowercase, corpus.tokenize.escape, corpus.seed) == (True, False, 3)
    assert corpus.languages == ("fr", "en")
    assert corpus.test_sets == ["t2"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("subwrod: bpe", "unknown key 'subwrod': choose from name, language, source_lang"),
        ("subword: unigram", "subword is 'unigram': choose from bpe, sentencepiece"),
        ("subword_size: 0", "subword_size is 0"),
        ("subword_size: many", "subword_size is 'many'"),
        ("reader: gzip", "reader is 'gzip': choose from plain, cldr"),
        ("dictionary: both", "dictionary is 'both': choose from joint, separate"),
        ("target_lang: no", "target_lang is False: expected a language code"),
        ("target_lang: de", "source_lang and target_lang are both 'de'"),
        ("clean: {ratio: 0.5}", "clean: ratio is 0.5"),
        ("clean: {longest: 5}", "clean: unknown key 'longest': choose from min, max"),
        ("clean: 5", "clean is 5"),
        ("tokenize: {normalize: [dev]}", "tokenize: normalize is 'dev': choose from train, valid"),
        ("tokenize: {normalize: train}", "tokenize: normalize is 'train': choose true, false or"),
        ("tokenize: {tokenizer: spacy}", "tokenizer is 'spacy': choose from moses, none"),
        ("hold_out: 23", "both hold_out and files: valid"),
        ("hold_out: 1", "hold_out is 1"),
        ("files: {train: t, test: x}", "files has no 'valid'"),
        ("files: {train: t, valid: v}", "files has no test set"),
        ("files: {train: t, valid: v, a/b: x}", "files: 'a/b' cannot name a file"),
        ("files: {train: {path: t}, valid: v, test: x}", "does not hold {lang}"),
        ("files: {train: {archive: t}, valid: v, test: x}", "files: train: lacks one of"),
        ("files: {train: {path: 't.{lang}', weight: 0}, valid: v, test: x}", "train: weight is 0"),
        ("files: {train: {path: 't.{lang}', weight: .inf}, valid: v, test: x}", "weight is inf"),
        ("files: {train: {path: 't.{lang}', weight: .nan}, valid: v, test: x}", "weight is nan"),
        ("files: {train: {path: 't.{lang}', weight: two}, valid: v, test: x}", "weight is 'two'"),
        ("files: {train: {path: 't.{lang}', tag: BT}, valid: v, test: x}", "tag is 'BT'"),
        ("files: {train: {path: 't.{lang}', tag: <B T>}, valid: v, test: x}", "tag is '<B T>'"),
        ("files: {train: {path: 't.{lang}', tag: <unk>}, valid: v, test: x}", "tag is '<unk>'"),
        ("files: {train: t, valid: v, test: {path: 'x.{lang}', tag: <BT>}}", "files: test: weight"),
        (
            "files: {train: t, valid: {path: 'v.{lang}', weight: 2}, test: x}",
            "files: valid: weight",
        ),
        ('target_lang: "--user-dir=evilpkg"', "target_lang is '--user-dir=evilpkg': expected a"),
        ("source_lang: ../de", "source_lang is '../de': expected a language code"),
        ("target_lang: pt-br", "target_lang is 'pt-br': expected a language code"),
        ("name: /tmp", "name: '/tmp' cannot name a file"),
        ("name: ..", "name: '..' cannot name a file"),
        ("name: a/../../b", "name: 'a/../../b' cannot name a file"),
        ("files: {train: t, valid: v, --x: y}", "files: '--x' cannot name a file"),
        ("files: {train: t, valid: v, 'a b': y}", "files: 'a b' has a space"),
        (f"files: {{train: t, valid: v, {'x' * 201}: y}}", "200 bytes at most"),
        (
            "files: {train: {archive: ../t, path: 't.{lang}'}, valid: v, test: x}",
            "files: train: archive: '../t' cannot name a file",
        ),
        (
            "downloads: [{urls: ['https://x/{file}'], files: {/etc/x: }}]",
            "downloads: files: '/etc/x' cannot name a file",
        ),
        (
            "downloads: [{urls: ['https://x/{file}'], files: {.lock: }}]",
            "downloads: files: '.lock' cannot name a file",
        ),
        (
            "downloads: [{urls: ['file:///etc/{file}'], files: {x: }}]",
            "downloads: urls: 'file:///etc/{file}': choose from https://, http://",
        ),
        (
            "downloads: [{urls: ['ftp://x/{file}'], files: {x: }}]",
            "downloads: urls: 'ftp://x/{file}': choose from https://, http://",
        ),
        ("base: corpus.yml", "its base leads back to it"),
        ("base: other.yml", "other.yml"),
    ],
)
def test_what_is_wrong_is_named_with_its_value_and_choices_in_one_line(tmp_path, change, message):
    key = change.split(":")[0]
    kept = "".join(f"{line}\n" for line in GOOD.splitlines() if not line.startswith(key + ":"))
    path = write(tmp_path, kept + change + "\n")
    with pytest.raises((ValueError, OSError)) as error:
        load(path)
    assert message in str(error.value)
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)


def test_settings_of_data_prepared_before_parts_had_weights_and_tags_are_the_same(tmp_path):
    """What prepared.json says of data made by earlier versions; other settings prepare it anew."""
    path = write(tmp_path, GOOD + "name: own\nclean: {ratio: 2}\n")

    def part(name):
        return [{"path": f"{name}.{{lang}}", "archive": None, "format": "lines"}]

    before = {
        "name": "own",
        "source_lang": "de",
        "target_lang": "en",
        "reader": "plain",
        "files": {"train": part("t"), "valid": part("v"), "test": part("x")},
        "sizes": {},
        "seed": 1,
        "tokenize": {
            "tokenizer": "moses",
            "normalize": [],
            "straight_apostrophes": [],
            "printable_only": [],
            "lowercase": False,
            "escape": False,
            "split_hyphens": False,
        },
        "clean": {"min": 1, "max": 250, "ratio": 2, "unit": "words"},
        "hold_out": None,
        "subword": "bpe",
        "subword_size": 10000,
        "dictionary": "joint",
    }
    assert load(path).settings() == before
    same = "{path: 't.{lang}', weight: 1, tag: null}"
    path.write_text(path.read_text().replace("train: t,", f"train: {same},"))
    assert load(path).settings() == before
    path.write_text(path.read_text().replace("weight: 1", "weight: 2"))
    assert load(path).settings() != before
    path.write_text(path.read_text().replace("weight: 2", "weight: 1") + "tokenize: {nfc: true}\n")
    kinds = ["train", "valid", "test"]
    assert load(path).settings() == {**before, "tokenize": {**before["tokenize"], "nfc": kinds}}


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [1\nb: 2\n", "", "\x00"])
def test_what_is_no_mapping_is_refused_in_one_line(tmp_path, text):
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=str(path)) as error:
        load(path)
    assert "\n" not in str(error.value)

"""Recipes of language models: corpora of one language, and runs from raw text to perplexities."""

import io
import itertools
import json
import math
import shlex
import tarfile
import zipfile
from ast import literal_eval
from pathlib import Path

import prepare
import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.data import Dictionary
from fairseq.data.data_utils import load_indexed_dataset
from forked_steps import preprocess, recipe_in_forks
from pages import blocks, commands, program
from tiny_language import LINES, make_corpus
from tiny_translation import REPOSITORY, arguments, write_yaml

from ea_fairseq import LanguageModel
from ea_fairseq.commands import generate as generate_command
from ea_fairseq.commands import recipe as run_recipe
from ea_fairseq.corpus import binarize, config, pipeline, subwords
from ea_fairseq.corpus.archives import extract
from ea_fairseq.corpus.cldr import generate_alone
from ea_fairseq.corpus.inputs import Source
from ea_fairseq.corpus.readers import read_bytes
from ea_fairseq.recipes.results.perplexity import read_losses
from ea_fairseq.recipes.says.recipe import load_recipe, variants

EXAMPLES = REPOSITORY / "examples" / "language_modeling"


@pytest.fixture(autouse=True)
def _in_forks(monkeypatch):
    monkeypatch.setattr(binarize, "_run", preprocess)


ARTICLE = " \n = A title = \n \n A <unk> dog <unk> sees a cat , 3 @,@ 000 times . \n A dog . \n"


def prepared(corpus, output, *options):
    """prepare.py's exit status."""
    fixed = [corpus, "--output", output, "--workers", 1]
    return prepare.main([str(argument) for argument in [*fixed, *options]])


def binary(folder, split):
    """fairseq's dictionary, and the lines of a split as words."""
    words = Dictionary.load(str(folder / "bin" / "dict.txt"))
    data = load_indexed_dataset(str(folder / "bin" / split), words, "mmap")
    return words, [[words[int(token)] for token in line] for line in data]


def test_wikitext_is_read_as_it_is_with_every_line_and_its_unknown_words(tmp_path):
    """From a zip archive in the originals' layout: empty lines count, as published numbers do."""
    texts = {"train": ARTICLE * 3, "valid": ARTICLE, "test": ARTICLE + " A cow . \n"}
    with zipfile.ZipFile(tmp_path / "wikitext-2-v1.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for split, text in texts.items():
            archive.writestr(f"wikitext-2/wiki.{split}.tokens", text)
    base = str(EXAMPLES / "wikitext2" / "corpus.yml")
    write_yaml(tmp_path / "corpus.yml", {"base": base, "downloads": []})
    assert prepared(tmp_path / "corpus.yml", tmp_path / "out", "--raw", tmp_path) == 0
    for split, text in texts.items():
        words, lines = binary(tmp_path / "out", split)
        expected = [[*line.split(), "</s>"] for line in text.split("\n")[:-1]]
        if split == "test":
            expected[-1][1] = "<unk>"  # no cow was trained on
        assert lines == expected
    assert words.index("<unk>") == words.unk()


@pytest.mark.parametrize("subword", ["bpe", "none"])
def test_text_that_speaks_of_fairseqs_symbols_has_no_end_or_padding_within(tmp_path, subword):
    """Text that is tokenised already may; BPE makes one piece of what is frequent."""
    content = {
        "language": "en",
        "files": {split: split for split in ("train", "valid", "test")},
        "tokenize": {"tokenizer": "none"},
        "subword": subword,
    }
    write_yaml(tmp_path / "corpus.yml", content)
    lines = ["a </s> b<pad> c", "</s> <pad> <s>", "<s><s> <unk> a</s>"]
    codes = tmp_path / "codes"
    if subword == "bpe":
        (tmp_path / "tok").write_text("<s> <pad> </s> b<pad> a</s>\n" * 9)
        subwords.learn("bpe", [tmp_path / "tok"], 30, 1, 1, codes)
    found = pipeline.split_chunk(
        config.load(tmp_path / "corpus.yml"), "test", codes, [(line,) for line in lines]
    )
    pieces = [line.split() for (line,) in found]
    assert not {"<s>", "<pad>", "</s>"} & set(itertools.chain.from_iterable(pieces))
    whole = [" ".join(line).replace("@@ ", "").split() for line in pieces]
    none = ["a <unk> b<pad> c", "<unk> <unk> <unk>", "<s><s> <unk> a</s>"]
    if subword == "none":
        assert pieces == whole == [line.split() for line in none]
    else:
        assert [len(line) for line in whole] == [4, 3, 3] and whole[1] == ["<unk>"] * 3


def test_enwik8_is_bytes_in_the_usual_parts(tmp_path):
    """An unzipped file does as well; a line's end is the byte 10, and no byte is lost."""
    text = bytes(range(256)) * 4 + "Ünïcode\n\n<xml>".encode() * 10
    (tmp_path / "enwik8").write_bytes(text)
    real = config.load(EXAMPLES / "enwik8" / "corpus.yml")
    spans = [part.span for parts in real.files.values() for part in parts]
    assert spans == [[0, 90 * 10**6], [90 * 10**6, 95 * 10**6], [95 * 10**6, 10**8]]
    assert real.unit == "character"
    ends = {"train": [0, 1000], "valid": [1000, 1100], "test": [1100, len(text)]}
    part = {"archive": "enwik8.zip", "path": "enwik8", "format": "bytes"}
    corpus = {
        "base": str(EXAMPLES / "enwik8" / "corpus.yml"),
        "files": {split: {**part, "span": span} for split, span in ends.items()},
        "downloads": [],
    }
    write_yaml(tmp_path / "corpus.yml", corpus)
    assert prepared(tmp_path / "corpus.yml", tmp_path / "out", "--raw", tmp_path) == 0
    for split, (first, end) in ends.items():
        words, lines = binary(tmp_path / "out", split)
        found = b"\n".join(bytes(int(byte) for byte in line[:-1]) for line in lines)
        assert found == text[first:end].removesuffix(b"\n")
    # 256 bytes less the one that ends lines; fairseq's four, and nothing to fill up with.
    assert len({word for word in words.symbols if word.isdigit()}) == 255


@pytest.mark.parametrize("span", [None, (0, 7), (3, 9), (4, 4 + 6), (2, 14)])
def test_bytes_are_those_of_the_span_and_a_shorter_file_is_refused(tmp_path, span):
    text = b"ab\ncd\n\nef\ng"
    (tmp_path / "f").write_bytes(text)
    source = Source(tmp_path / "f", "f", "bytes", "f", span=span)
    first, end = span or (0, len(text))
    if end > len(text):
        with pytest.raises(ValueError, match="f: ends 3 bytes before byte 14, the end of its span"):
            list(read_bytes(source))
        return
    expected = text[first:end].removesuffix(b"\n").split(b"\n")
    found = [bytes(int(byte) for byte in line.split()) for line in read_bytes(source)]
    assert found == expected


def test_a_tar_archive_that_ends_with_a_zip_archive_is_a_tar_archive(tmp_path):
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("text", "of the zip archive")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, content in (("text", b"of the tar archive"), ("more.zip", inner.getvalue())):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    extract(tmp_path / "a.tar", {"text": tmp_path / "text"})
    assert (tmp_path / "text").read_text() == "of the tar archive"


def test_a_broken_zip_archive_is_named(tmp_path, capfd):
    names = {split: f"wiki.{split}.tokens" for split in ("train", "valid", "test")}
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in names.values():
            archive.writestr(name, ARTICLE * 50)
    content = bytearray((tmp_path / "a.zip").read_bytes())
    content[100] ^= 1
    (tmp_path / "a.zip").write_bytes(content)
    files = {split: {"archive": "a.zip", "path": name} for split, name in names.items()}
    write_yaml(tmp_path / "corpus.yml", {"language": "en", "files": files})
    assert prepared(tmp_path / "corpus.yml", tmp_path / "out", "--raw", tmp_path) == 1
    assert "a.zip: broken archive" in capfd.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    "lines, message",
    [
        ("language: en\nsource_lang: de", "both language and source_lang are given"),
        ("language: no", "language is False: expected a language code"),
        ("language: en-GB", "language is 'en-GB'"),
        ("language: en\nsubword: words", "choose from bpe, sentencepiece, none"),
        ("source_lang: de\ntarget_lang: en\nsubword: none", "choose from bpe, sentencepiece$"),
        ("language: en\nfiles: {train: {path: a, span: [0, 5]}}", "span goes with format bytes"),
        (
            "language: en\nfiles: {train: {path: a, format: bytes, span: [5, 5]}}",
            r"span is \[5, 5\]: expected an end",
        ),
    ],
)
def test_a_corpus_that_cannot_be_is_refused_in_one_line(tmp_path, lines, message):
    (tmp_path / "corpus.yml").write_text(lines)
    with pytest.raises(ValueError, match=message):
        config.load(tmp_path / "corpus.yml")


def test_one_language_takes_the_place_of_two(tmp_path):
    corpus = config.load(EXAMPLES / "multi30k.en" / "corpus.yml")
    assert corpus.languages == ("en",) and corpus.test_sets[0] == "test_2016_flickr"
    assert corpus.downloads == config.load(corpus_of("multi30k.de-en")).downloads
    base = {"base": str(EXAMPLES / "multi30k.en" / "corpus.yml")}
    write_yaml(tmp_path / "corpus.yml", {**base, "source_lang": "en", "target_lang": "fr"})
    assert config.load(tmp_path / "corpus.yml").languages == ("en", "fr")


def corpus_of(name):
    return REPOSITORY / "examples" / "translation" / name / "corpus.yml"


def test_settings_of_a_pair_are_what_earlier_versions_wrote():
    """Else every run trained so far would be told that its corpus has changed."""
    for name in ("multi30k.de-en", "iwslt14.de-en"):
        settings = config.load(corpus_of(name)).settings()
        assert "language" not in settings
        parts = [part for parts in settings["files"].values() for part in parts]
        assert {frozenset(part) for part in parts} == {frozenset(("path", "archive", "format"))}


def test_generated_sentences_differ_and_are_the_same_every_time():
    sizes = {"train": 60, "valid": 20, "test": 20}
    splits = generate_alone("en", sizes, seed=1)
    sentences = [line for lines in splits.values() for (line,) in lines]
    assert len(set(sentences)) == sum(sizes.values())
    assert generate_alone("en", {**sizes, "train": 5}, seed=1)["test"] == splits["test"]
    with pytest.raises(ValueError, match="language is 'xx': choose one of"):
        generate_alone("xx", sizes, seed=1)


def test_every_recipe_is_one_that_fairseq_takes(tmp_path, capsys):
    """Options of training and evaluation, checked by its parsers, and the commands they make."""
    folders = [path.parent for path in sorted(EXAMPLES.glob("*/common.yml"))]
    assert {path.name for path in folders} == {
        "cldr.en", "multi30k.en", "wikitext2", "wikitext103", "enwik8",
    }  # fmt: skip
    options = ["--variant", "ea_transformer_lm_lite", "--dry-run", "--work-dir", str(tmp_path)]
    assert run_recipe.main([*map(str, folders), *options]) == 0
    printed = capsys.readouterr().out
    assert printed.count("fairseq_cli.train") == len(folders) and "generate" not in printed
    assert printed.count("evaluate_lm.py") == len(folders) + 2  # two more test sets of Multi30K


def test_names_of_models_are_language_models():
    names = variants(EXAMPLES / "cldr.en")
    assert {"transformer_lm_lite", "bet_transformer_lm_lite", "residual"} <= set(names)
    assert not {"transformer_lite", "predictive", "kernel_5"} & set(names)
    residual = load_recipe(EXAMPLES / "cldr.en" / "residual.yml").options("train")
    assert (residual["arch"], residual["ea-variant"]) == ("ea_transformer_lm_lite", "residual")
    with pytest.raises(ValueError, match="_lite is no variant, .*: perhaps you meant .*_lm_lite"):
        load_recipe(EXAMPLES / "cldr.en" / "transformer_lite.yml")


@pytest.fixture(scope="module")
def recipes(tmp_path_factory):
    """A language model, trained and scored by one command."""
    folder = make_corpus(tmp_path_factory.mktemp("whole"))
    assert recipe_in_forks(given(folder)) == 0
    return folder


def given(recipes, *options):
    """The runner's arguments."""
    fixed = arguments(recipes / "x", "--variant", "ea_transformer_lm_lite", *options)
    return [str(recipes), *fixed[1:]]


def main(recipes, *options):
    """The runner's exit code."""
    return run_recipe.main(given(recipes, *options))


def run_of(recipes):
    return recipes.parent / "work" / "runs" / "tiny.en" / "ea_transformer_lm_lite" / "seed1"


def losses_by_hand(run, data, block, context):
    """The loss of every token, block by block, from full passes of the averaged model."""
    (model,), _, task = load_model_ensemble_and_task(
        [str(run / "averaged.pt")], {"data": str(data / "bin")}
    )
    model.eval()
    stored = load_indexed_dataset(str(data / "bin" / "test"), task.dictionary, "mmap")
    text = [int(token) for line in stored for token in line]
    found = []
    for start in range(0, len(text), block):
        before = text[max(0, start - context) : start]
        targets = text[start : start + block]
        first = text[start - len(before) - 1] if start else task.dictionary.eos()
        with torch.no_grad():
            scores = model(torch.tensor([[first, *before, *targets[:-1]]]))[0].log_softmax(-1)
        scores = scores[0, len(before) :].double()
        found.append(-sum(scores[i, token].item() for i, token in enumerate(targets)))
    return found


def test_results_hold_perplexities_of_words_with_and_without_a_window(recipes):
    run, data = run_of(recipes), recipes.parent / "work" / "data" / "tiny.en"
    results = json.loads((run / "results.json").read_text())
    assert set(results["seconds"]) == {"train", "average", "evaluate"}
    assert results["cost"]["parameters"] > 0 and results["cost"]["flops"] > 0
    test = results["scores"]["test"]
    assert [score["label"] for score in test["scores"]] == [
        "perplexity per word",
        "perplexity per word, context window 8",
    ]
    lines = (data / "tok" / "test.en").read_text().splitlines()
    words = sum(len(line.split()) for line in lines) + LINES["test"]
    assert (test["units"], test["line_ends"]) == (words, LINES["test"])
    measures = read_losses(run / "losses" / "test.json")
    for score, measure, block, context in zip(
        test["scores"], measures, (24, 16), (0, 8), strict=True
    ):
        by_hand = losses_by_hand(run, data, block, context)
        assert measure.nats == pytest.approx(by_hand, rel=1e-4)
        assert score["score"] == pytest.approx(math.exp(sum(by_hand) / words), rel=1e-4)
        assert score["interval"][0] < score["score"] < score["interval"][1]
        assert f"words:{words}|of these line ends:21" in score["signature"]


def test_what_is_done_is_not_done_again(recipes, capfd):
    assert main(recipes) == 0
    printed = capfd.readouterr().out
    assert printed.count("done before") == 3
    assert "perplexity per word, context window 8" in printed and "translate" not in printed
    assert f"ea-generate {run_of(recipes) / 'model'} < beginnings.txt" in printed
    assert run_recipe.main(["--list", "--work-dir", str(recipes.parent / "work")]) == 0
    assert "perplexity per word" in capfd.readouterr().out


@pytest.fixture
def as_on_the_page(recipes, tmp_path, monkeypatch):
    """A folder with runs of CLDR's sentences, which take minutes: this one twice, as two."""
    monkeypatch.chdir(tmp_path)
    Path("work/runs/cldr.en").mkdir(parents=True)
    for name in ("transformer_lm_lite", "ea_transformer_lm_lite"):
        Path("work/runs/cldr.en", name).symlink_to(run_of(recipes).parent)
    Path("work/data").mkdir()
    Path("work/data/cldr.en").symlink_to(recipes.parent / "work" / "data" / "tiny.en")
    Path("lines.en").symlink_to("work/data/cldr.en/bpe/test.en")  # the page's are its first


def test_the_pages_commands_run_on_what_was_trained(as_on_the_page, capsys):
    for page in ("README.md", "RESULTS.md"):
        looks = ("python scripts/", "ea-compare")
        shown = [c for c in commands(EXAMPLES / page) if c.startswith(looks)]
        assert len(shown) == 2
        for main, words in map(program, shown):
            assert main(words) == 0
        printed = capsys.readouterr().out
        assert "perplexity per word, context window 8" in printed and "\n| layer |" in printed


def test_the_page_uses_what_was_trained(as_on_the_page, capsys):
    Path("beginnings.txt").write_text("A dog\n\nA cat sees\n")
    shown = [
        shlex.split(c) for c in commands(EXAMPLES / "README.md") if c.startswith("ea-generate")
    ]
    assert len(shown) == 2
    for number, words in zip((1, 3), shown, strict=True):
        arguments = [{"<": "--input", ">": "--output"}.get(word, word) for word in words[1:]]
        assert generate_command.main(arguments) == 0
        lines = Path(arguments[-1]).read_text().splitlines()
        assert len(lines) == 3 * number and all(line.startswith("A dog") for line in lines[:number])
    (code,) = blocks(EXAMPLES / "README.md", "python")
    exec(code, {})
    text, drawn, perplexity = capsys.readouterr().out.splitlines()
    assert text.startswith("I would like") and len(literal_eval(drawn)) == 3
    assert float(perplexity) > 1


@pytest.fixture(scope="module")
def untrained(tmp_path_factory):
    """The same recipe before its first run."""
    return make_corpus(tmp_path_factory.mktemp("before"))


@pytest.mark.parametrize(
    "options, message",
    [
        ("--set generate.beam=5", "section 'generate': the task language_modeling has none"),
        ("--set evaluate.post-process=sentencepiece", "is set by ea-recipe itself"),
        ("--set evaluate.lowercase=true", "not an option of fairseq-eval-lm"),
        ("--set evaluate.model-overrides=x", "is not allowed in a recipe"),
        ("--set evaluate.tokens-per-sample=25", "is 25, and the model reads 24 tokens"),
        ("--set evaluate.tokens-per-sample=null", "is 1024, and the model reads 24 tokens"),
        ("--set train.tokens-per-sample=0", "is 0: expected a number from 1"),
        ("--set evaluate.context-window=-1", "is -1: expected a number from 0"),
        ("--set evaluate.sample-break-mode=eos", "see nothing before them"),
        ("--set evaluate.context-window=24", "no token would be scored"),
        ("--set train.task=masked_lm", "may choose from translation, translation_lev, language_"),
        ("--set arch=transformer_lite", "transformer_lite is no language model"),
        ("--examples 2", "translates nothing"),
    ],
)
def test_a_recipe_that_cannot_be_run_is_refused_in_one_line(untrained, options, message, capfd):
    assert main(untrained, *options.split(), "--dry-run") == 1
    (line,) = capfd.readouterr().err.strip().splitlines()
    assert message in line


def test_a_corpus_of_the_other_task_is_refused(untrained, capfd):
    pair = {"base": "corpus.yml", "source_lang": "de", "target_lang": "en"}
    write_yaml(untrained / "parallel.yml", pair)
    own = {"corpus": "parallel.yml", "train": {"arch": "transformer_lm_lite"}}
    write_yaml(untrained / "pair.yml", {"base": "common.yml", **own})
    options = ["--dry-run", "--steps", "train"]  # it has no files to prepare
    assert run_recipe.main([str(untrained / "pair.yml"), *options]) == 1
    (line,) = capfd.readouterr().err.strip().splitlines()
    assert "has source_lang: de, target_lang: en: choose task translation" in line


def test_a_run_ends_with_a_model_that_takes_raw_text(recipes):
    run, data = run_of(recipes), recipes.parent / "work" / "data" / "tiny.en"
    model = LanguageModel(run / "model")
    raw, split = ((data / kind / "test.en").read_text().splitlines() for kind in ("raw", "bpe"))
    assert [model.tokens(line) for line in raw] == [line.split() for line in split]
    assert model.generate("A dog", beam=2).startswith("A dog")
    # It was trained on such lines, and not on their words in another order.
    line = raw[0].rstrip(".")
    turned = " ".join(reversed(line.split()))
    assert model.score(f"{line}.").score > model.score(f"{turned}.").score
    results = json.loads((run / "results.json").read_text())
    assert model.config.scores == results["scores"] and model.config.search.max_len_a == 1
    assert "perplexity per word |" in (run / "model" / "README.md").read_text()

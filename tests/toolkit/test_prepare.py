"""prepare.py from raw files in the originals' formats to what fairseq-train reads."""

import gzip
import io
import json
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import unicodedata
import warnings
import zipfile
from pathlib import Path

import prepare
import pytest
import torch  # noqa: F401 (fairseq's data modules expect it)
from fairseq.data import Dictionary, data_utils
from forked_steps import preprocess
from sacremoses import MosesTokenizer
from subword_nmt.learn_bpe import learn_bpe
from time_limit import wait_for

from ea_fairseq.corpus import binarize, config, inputs, pipeline
from ea_fairseq.corpus.archives import extract
from ea_fairseq.corpus.readers import read_pairs
from ea_fairseq.files import sha256, write_json

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "translation"
WORDS = {
    "de": "Haus Hund Straße läuft schön gehen über den kleinen Garten".split(),
    "en": "house dog street walks nice go over the little garden".split(),
    "fr": "maison chien rue marche belle aller dans le petit jardin".split(),
}


@pytest.fixture(autouse=True)
def _in_forks(monkeypatch):
    """fairseq-preprocess runs in forks; as it is installed in test_run_recipe.py."""
    monkeypatch.setattr(binarize, "_run", preprocess)


def modified(folder: Path) -> dict[Path, int]:
    """When each file was last written."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {path: path.stat().st_mtime_ns for path in files}


def sentence(lang: str, number: int, length: int = 0) -> str:
    """A sentence that differs for each number; the number is the same in every language."""
    draw = random.Random(f"{number}")
    indexes = [draw.randrange(10) for _ in range(length or draw.randint(3, 9))]
    return " ".join(WORDS[lang][i] for i in indexes) + f", {number}."


def sentences(lang: str, first: int, count: int) -> list[str]:
    return [sentence(lang, number) for number in range(first, first + count)]


def text(lines: list[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    mode = "w:gz" if path.suffix == ".tgz" else "w"
    with tarfile.open(path, mode) as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def run(capfd, *arguments: object) -> tuple[int, str]:
    """prepare.py's exit status and its last line; the handler of SIGTERM stays as it was."""
    before = signal.getsignal(signal.SIGTERM)
    status = prepare.main([str(argument) for argument in arguments])
    signal.signal(signal.SIGTERM, before)
    return status, capfd.readouterr().err.strip().split("\n")[-1]


def lines_of(path: Path) -> list[str]:
    return path.read_bytes().decode().removesuffix("\n").split("\n")


def binary(folder: Path, split: str, lang: str, pair: str) -> list[str]:
    """The text that fairseq finds in its binary data."""
    words = Dictionary.load(str(folder / f"dict.{lang}.txt"))
    data = data_utils.load_indexed_dataset(str(folder / f"{split}.{pair}.{lang}"), words)
    return [words.string(tokens) for tokens in data]


@pytest.fixture
def own(tmp_path):
    """A person's own corpus: a short YAML and plain files beside it."""
    folder = tmp_path / "own"
    folder.mkdir()
    for split, first, count in [("train", 0, 60), ("dev", 100, 7), ("a", 200, 5), ("b", 300, 4)]:
        for lang in ("de", "en"):
            (folder / f"{split}.{lang}").write_bytes(text(sentences(lang, first, count)))
    (folder / "corpus.yml").write_text(
        "source_lang: de\ntarget_lang: en\nsubword_size: 40\n"
        "tokenize: {lowercase: true}\nclean: {max: 20, ratio: 3}\n"
        "files: {train: train, valid: dev, b: b, a: a}\n"
    )
    return folder


def test_an_own_corpus_becomes_binary_data_and_a_second_run_does_nothing(own, tmp_path, capfd):
    # Two training pairs to drop; in the test set nothing may be dropped, however odd it is.
    for lang, odd in [("de", ["", "Haus " * 30]), ("en", ["dog", "house"])]:
        train = sentences(lang, 0, 60)
        (own / f"train.{lang}").write_bytes(text(train[:30] + odd + train[30:]))
    odd = ["", "Haus\u2028Hund", "Haus @@ Hund@@ \x00.", "Straße " * 30, "ende\r"]
    (own / "b.de").write_bytes(text(odd))
    (own / "b.en").write_bytes(text(["", "", "house", "x", "end"]))
    output = tmp_path / "out"
    status, last = run(capfd, own / "corpus.yml", "--output", output, "--workers", 2)
    assert status == 0, last

    prepared = json.loads((output / "prepared.json").read_text())
    assert prepared["test_sets"] == {"test": "b", "test1": "a"}
    assert prepared["pairs"] == {"train": 60, "valid": 7, "b": 5, "a": 5}
    assert prepared["training_pairs_read"] == 62
    for lang in ("de", "en"):
        assert lines_of(output / "raw" / f"train.{lang}") == sentences(lang, 0, 60)
        expected = [
            MosesTokenizer(lang).tokenize(line, escape=False, return_str=True).lower()
            for line in sentences(lang, 0, 60)
        ]
        assert lines_of(output / "tok" / f"train.{lang}") == expected
        for split, name in [("train", "train"), ("valid", "valid"), ("test", "b"), ("test1", "a")]:
            found = binary(output / "bin", split, lang, "de-en")
            assert len(found) == prepared["pairs"][name]
            pieces = lines_of(output / "bpe" / f"{name}.{lang}")
            unknown = [line for line in found if "<unk>" in line]
            assert [f for f in found if f not in unknown] == [
                p for f, p in zip(found, pieces, strict=True) if f not in unknown
            ]
            words = [data_utils.post_process(line, "subword_nmt") for line in pieces]
            assert words == lines_of(output / "tok" / f"{name}.{lang}")
        entries = len(Dictionary.load(str(output / "bin" / f"dict.{lang}.txt")))
        assert prepared["dictionary"][lang] == entries
    assert lines_of(output / "raw" / "b.de") == [
        "",
        "Haus Hund",
        "Haus @@ Hund@@  .",
        ("Straße " * 30).strip(),
        "ende",
    ]
    assert (output / "bin/dict.de.txt").read_bytes() == (output / "bin/dict.en.txt").read_bytes()
    # Of both languages' training text together, and of nothing that is tested on.
    codes, training = io.StringIO(), [output / "tok" / f"train.{lang}" for lang in ("de", "en")]
    learn_bpe([line for path in training for line in lines_of(path)], codes, 40)
    assert lines_of(output / "codes") == codes.getvalue().splitlines()
    assert not [path for path in output.iterdir() if "tmp" in path.name]

    before = modified(output)
    status, last = run(capfd, own / "corpus.yml", "--output", output)
    assert (status, "already prepared" in last) == (0, True)
    assert before == modified(output)


def test_what_training_lacks_is_told_by_split_and_language(own, tmp_path, capfd):
    (own / "a.de").write_bytes(text([*sentences("de", 200, 4), "\u2603 \u2602 \u2708"]))
    training = sentences("de", 0, 60)[:-1] + ["ein haus , ein hund ."]
    (own / "train.de").write_bytes(text(training))
    lines = ["ein xylophon , ein xylophon .", "ein haus ."]  # 9 words, of which 2 are not known
    (own / "b.de").write_bytes(text(lines * 2))
    (own / "b.en").write_bytes(text(sentences("en", 0, 4)))
    output = tmp_path / "out"
    status, last = run(capfd, own / "corpus.yml", "--output", output, "--workers", 1)
    assert status == 0, last
    told = re.search(r"; words that are not in the training text: ([^;]*)", last)[1]
    assert f"b.de {100 * 2 / 9:.1f} %" in told.split(", "), last
    assert "train.de" not in told and "b.en" not in told
    status, last = run(capfd, own / "corpus.yml", "--output", output)  # prepared already
    pieces = " ".join(lines_of(output / "bpe" / "a.de")).split()
    words = (output / "bin" / "dict.de.txt").read_text().split()[::2]
    found = re.search(r"; unknown tokens: (.*)$", last)[1]
    told = dict(part.removesuffix(" %").split(" ") for part in found.split(", "))
    # fairseq counts the ends of sentences among the tokens.
    part = 100 * sum(piece not in words for piece in pieces) / (len(pieces) + 5)
    assert float(told["a.de"]) == pytest.approx(part, rel=0.01) and "train.de" not in told


def test_one_tsv_is_what_two_files_are(own, tmp_path, capfd):
    shutil.copytree(own, tmp_path / "tsv")
    for split in ("train", "dev"):
        sides = [lines_of(own / f"{split}.{lang}") for lang in ("de", "en")]
        rows = ["\t".join((*pair, "0.9\tx")) for pair in zip(*sides, strict=True)]
        (tmp_path / "tsv" / f"{split}.tsv").write_bytes(text(rows))
        for lang in ("de", "en"):
            (tmp_path / "tsv" / f"{split}.{lang}").unlink()
    config = tmp_path / "tsv" / "corpus.yml"
    for split, name in (("train", "train"), ("valid", "dev")):
        of_tsv = f"{split}: {{path: {name}.tsv, format: tsv}}"
        config.write_text(config.read_text().replace(f"{split}: {name}", of_tsv))
    for folder in (own, tmp_path / "tsv"):
        status, last = run(capfd, folder / "corpus.yml", "--output", folder / "out")
        assert status == 0, last
    for kind in ("raw", "bpe"):
        for path in sorted((own / "out" / kind).iterdir()):
            assert path.read_bytes() == (tmp_path / "tsv/out" / kind / path.name).read_bytes()
    (tmp_path / "tsv" / "dev.tsv").write_bytes(b"Haus\thouse\nHund dog\n")
    status, last = run(capfd, config, "--output", tmp_path / "bad")
    assert status != 0 and "dev.tsv: line 2 has no tab" in last


def test_accents_apart_are_joined_where_that_is_asked_for_and_counted_where_not(
    own, tmp_path, capfd
):
    plain = {
        name: sentences("de", *part) for name, part in {"train": (0, 60), "b": (300, 4)}.items()
    }
    for name, lines in plain.items():
        (own / f"{name}.de").write_bytes(
            unicodedata.normalize("NFD", text(lines).decode()).encode()
        )
    accents = {name: sum(bool(set("äöü") & set(line)) for line in plain[name]) for name in plain}
    assert 0 < accents["b"] and 0 < accents["train"] < 60
    for _ in range(2):  # the second run finds all of it prepared
        status, last = run(capfd, own / "corpus.yml", "--output", tmp_path / "apart")
        assert status == 0
        assert f"pairs of train {accents['train']}, b {accents['b']}: `tokenize: {{nfc:" in last
    assert lines_of(tmp_path / "apart/raw/b.de") != plain["b"]

    settings = own / "corpus.yml"
    settings.write_text(
        settings.read_text().replace("lowercase: true", "lowercase: true, nfc: true")
        + "hold_out: {held: 5}\n"
    )
    status, last = run(capfd, settings, "--output", tmp_path / "joined")
    assert (status, "warning" in last) == (0, False)
    held = lines_of(tmp_path / "joined/raw/held.de")
    assert len(held) == 5 and set(held) < set(plain["train"])
    plain = {"b": plain["b"], "train": [line for line in plain["train"] if line not in held]}
    for name, lines in plain.items():
        assert lines_of(tmp_path / "joined/raw" / f"{name}.de") == lines
        tokenize = MosesTokenizer("de").tokenize
        tokens = [tokenize(line, escape=False, return_str=True).lower() for line in lines]
        assert lines_of(tmp_path / "joined/tok" / f"{name}.de") == tokens


def test_a_stopped_run_goes_on_and_a_changed_input_starts_anew(own, tmp_path, capfd):
    output = tmp_path / "out"
    arguments = own / "corpus.yml", "--output", output, "--workers", 1
    assert run(capfd, *arguments)[0] == 0
    expected = {
        path.relative_to(output): path.read_bytes()
        for path in output.rglob("*")
        if path.suffix in (".de", ".en", ".bin", ".idx", ".txt")
    }

    # As if it had been stopped while writing bin/.
    state = json.loads((output / "state.json").read_text())
    del state["steps"]["bin"]
    (output / "state.json").write_text(json.dumps(state))
    (output / "prepared.json").unlink()
    for path in (output / "bin").iterdir():
        path.unlink()
    (output / "bin").rmdir()
    (output / ".bin.tmp").mkdir()
    (output / ".bin.tmp" / "rest").write_text("half-written")
    kept = (output / "bpe" / "train.de").stat().st_mtime_ns
    assert run(capfd, *arguments)[0] == 0
    assert (output / "bpe" / "train.de").stat().st_mtime_ns == kept
    assert expected == {name: (output / name).read_bytes() for name in expected}
    assert not (output / ".bin.tmp").exists()

    # The old data stays until the new text is read.
    original = (own / "a.de").read_bytes()
    (own / "a.de").write_bytes(text(["Neu."] * 6))
    assert "has 6 sentences" in failure(capfd, list(arguments))
    (own / "a.de").write_bytes(original)
    assert run(capfd, *arguments)[1].startswith(f"{output}: already prepared")
    (own / "a.de").write_bytes(text(["Neu."] * 5))
    assert run(capfd, *arguments)[1].startswith(f"{output}: prepared")
    assert lines_of(output / "raw" / "a.de") == ["Neu."] * 5


@pytest.fixture
def begun(own, tmp_path):
    """A preparation of a larger text in its tokenizing, as a process, with the workers' ids."""
    for lang in ("de", "en"):
        (own / f"train.{lang}").write_bytes(text(sentences(lang, 0, 30_000)))
    command = [sys.executable, str(ROOT / "scripts" / "prepare.py"), str(own / "corpus.yml")]
    command += ["--output", str(tmp_path / "out"), "--workers", "2"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    made = tmp_path / "out" / ".tok.tmp" / "train.de"
    wait_for(lambda: made.exists() and children.read_text())
    return process, children.read_text().split()


@pytest.mark.thorough
def test_a_killed_run_leaves_no_process_and_the_next_one_finishes(begun, own, tmp_path, capfd):
    process, workers = begun
    process.kill()
    process.wait()
    wait_for(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))
    output = tmp_path / "out"
    assert not (output / "tok").exists()
    for lang in ("de", "en"):  # fewer, so that the test is quick
        (own / f"train.{lang}").write_bytes(text(sentences(lang, 0, 60)))
    assert run(capfd, own / "corpus.yml", "--output", output, "--workers", "2")[0] == 0
    assert len(lines_of(output / "tok" / "train.de")) == 60


def test_a_run_that_is_asked_to_stop_cleans_up(begun, tmp_path):
    process, _ = begun
    process.terminate()
    assert process.wait(timeout=900) == 143
    assert {path.name for path in (tmp_path / "out").iterdir()} == {".lock"}


def test_sentencepiece_restores_the_words(own, tmp_path, capfd):
    with open(own / "corpus.yml", "a") as file:
        file.write("subword: sentencepiece\ndictionary: separate\n")
    output = tmp_path / "out"
    status, last = run(capfd, own / "corpus.yml", "--output", output, "--workers", 1)
    assert status == 0, last
    prepared = json.loads((output / "prepared.json").read_text())
    assert prepared["post_process"] == "sentencepiece"
    for name in ("train", "valid", "a", "b"):
        for lang in ("de", "en"):
            pieces = lines_of(output / "bpe" / f"{name}.{lang}")
            words = [data_utils.post_process(line, "sentencepiece") for line in pieces]
            assert words == lines_of(output / "tok" / f"{name}.{lang}")
    assert (output / "bin/dict.de.txt").read_bytes() != (output / "bin/dict.en.txt").read_bytes()


def ted_files(count: int) -> dict[str, bytes]:
    """The files of IWSLT'14's archive: talks with tags, and XML test sets."""
    members = {}
    for lang in ("de", "en"):
        talks = []
        for talk, first in enumerate(range(0, count, 40)):
            talks += [
                f"<url>http://www.ted.com/talks/lang/{lang}/{talk}.html</url>",
                "<keywords>talks, garden</keywords>",
                f"<talkid>{talk}</talkid>",
                f"<title>{sentence(lang, 10_000 + talk)}</title>",
                f"<description>{sentence(lang, 20_000 + talk)}</description>",
                *(" " + line + " " for line in sentences(lang, first, 40)),
            ]
        members[f"de-en/train.tags.de-en.{lang}"] = text(talks)
        for number, name in enumerate(TED_SETS):
            segments = [
                f'<seg id="{i}"> {line} </seg>'
                for i, line in enumerate(sentences(lang, 30_000 + 100 * number, 3), start=1)
            ]
            head = ['<?xml version="1.0" encoding="UTF-8"?>', "<mteval>", '<refset setid="x">']
            body = ['<doc docid="1">', "<title>no segment</title>", *segments, "</doc>"]
            name = f"de-en/IWSLT14.{name}.de-en.{lang}.xml"
            members[name] = text([*head, *body, "</refset>", "</mteval>"])
    members["de-en/README"] = b"Not needed."
    return members


TED_SETS = ["TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"]


def test_iwslt14_is_split_as_everybody_splits_it(tmp_path, capfd):
    raw, output = tmp_path / "raw", tmp_path / "out"
    raw.mkdir()
    members = ted_files(200)
    train = {lang: members[f"de-en/train.tags.de-en.{lang}"].decode() for lang in ("de", "en")}
    # Too long for the ratio: gone before every 23rd pair is counted.
    train["de"] = train["de"].replace(sentence("de", 7), sentence("de", 7, length=100))
    for lang in train:
        members[f"de-en/train.tags.de-en.{lang}"] = train[lang].encode()
    write_tar(raw / "de-en.tgz", members)
    corpus = EXAMPLES / "iwslt14.de-en" / "corpus.yml"
    status, last = run(capfd, corpus, "--raw", raw, "--output", output, "--workers", 2)
    assert status == 0, last

    for lang in ("de", "en"):
        kept = []
        for talk, first in enumerate(range(0, 200, 40)):
            kept += [sentence(lang, 10_000 + talk), sentence(lang, 20_000 + talk)]
            kept += [sentence(lang, n) for n in range(first, first + 40) if n != 7]
        held_out = [line for n, line in enumerate(kept, start=1) if n % 23 == 0]
        assert lines_of(output / "raw" / f"valid.{lang}") == held_out
        assert lines_of(output / "raw" / f"train.{lang}") == [
            line for n, line in enumerate(kept, start=1) if n % 23
        ]
        tests = [line for n in range(5) for line in sentences(lang, 30_000 + 100 * n, 3)]
        assert lines_of(output / "raw" / f"test.{lang}") == tests
        tokens = lines_of(output / "tok" / f"test.{lang}")
        assert tokens == [
            MosesTokenizer(lang).tokenize(line, return_str=True).lower() for line in tests
        ]
    dictionaries = [(output / "bin" / f"dict.{lang}.txt").read_bytes() for lang in ("de", "en")]
    assert dictionaries[0] != dictionaries[1]
    assert not (output / "extracted").exists()


def wmt_files(raw: Path, pair: str, lang: str) -> None:
    """The archives of WMT'14 for English and another language."""
    archives: dict[str, dict[str, bytes]] = {
        "training-parallel-europarl-v7.tgz": {},
        "training-parallel-commoncrawl.tgz": {},
        "training-parallel-nc-v9.tgz": {},
        "training-parallel-un.tgz": {},
        "training-giga-fren.tar": {},
        "dev.tgz": {},
        "test-full.tgz": {},
    }
    for side, code in (("src", "en"), ("ref", lang)):
        names = {
            f"training/europarl-v7.{pair}.{code}": "training-parallel-europarl-v7.tgz",
            f"commoncrawl.{pair}.{code}": "training-parallel-commoncrawl.tgz",
            f"un/undoc.2000.{pair}.{code}": "training-parallel-un.tgz",
            f"training/news-commentary-v9.{pair}.{code}": "training-parallel-nc-v9.tgz",
            f"giga-fren.release2.fixed.{code}.gz": "training-giga-fren.tar",
        }
        for number, (name, archive) in enumerate(names.items()):
            data = text(sentences(code, 100 * number, 20))
            archives[archive][name] = gzip.compress(data) if name.endswith(".gz") else data
        for year in (2012, 2013):
            archives["dev.tgz"][f"dev/newstest{year}.{code}"] = text(sentences(code, year, 4))
        segments = [
            f'<seg id="{n}">{line} “x” &amp; y’s</seg>'
            for n, line in enumerate(sentences(code, 9000, 5), start=1)
        ]
        pages = ['<srcset setid="newstest2014" srclang="any">', '<doc docid="1">', "<p>"]
        name = f"test-full/newstest2014-{pair.replace('-', '')}-{side}.{code}.sgm"
        archives["test-full.tgz"][name] = text([*pages, *segments, "</p>", "</doc>", "</srcset>"])
    for archive, members in archives.items():
        write_tar(raw / archive, members)


def without_checksums(source: Path, target: Path) -> Path:
    """A copy of a shipped corpus.yml for files that are not the originals."""
    corpus = f"base: {source}\ndownloads: []\n"
    target.write_text(corpus)
    return target


@pytest.mark.thorough
def test_wmt14_en_de_reads_every_part_and_leaves_the_test_set_alone(tmp_path, capfd):
    raw, output = tmp_path / "raw", tmp_path / "out"
    raw.mkdir()
    wmt_files(raw, "de-en", "de")
    shipped = EXAMPLES / "wmt14.en-de" / "corpus.yml"
    corpus = without_checksums(shipped, tmp_path / "corpus.yml")
    status, last = run(capfd, corpus, "--raw", raw, "--output", output, "--workers", 1)
    assert status == 0, last
    prepared = json.loads((output / "prepared.json").read_text())
    # Each language's ratio of subwords decides, so compare what is left with raw/ and bpe/.
    assert prepared["training_pairs_read"] == 60
    assert prepared["pairs"]["valid"] == 4 and prepared["pairs"]["newstest2014"] == 5
    for lang in ("en", "de"):
        expected = [line for n in (0, 100, 300) for line in sentences(lang, n, 20)]
        assert lines_of(output / "raw" / f"train.{lang}") == expected
        assert lines_of(output / "raw" / f"valid.{lang}") == sentences(lang, 2013, 4)
        first = lines_of(output / "raw" / f"newstest2014.{lang}")[0]
        assert first == sentence(lang, 9000) + " “x” & y’s"
        tokens = lines_of(output / "tok" / f"newstest2014.{lang}")[0]
        assert "“ x ” &amp; y" in tokens and "&apos;" in tokens and "’" not in tokens
    pieces = [lines_of(output / "bpe" / f"train.{lang}") for lang in ("en", "de")]
    every = [lines_of(output / "tok" / f"train.{lang}") for lang in ("en", "de")]
    restored = [[data_utils.post_process(x, "subword_nmt") for x in side] for side in pieces]
    for source, target in zip(*pieces, strict=True):
        lengths = sorted([len(source.split()), len(target.split())])
        assert lengths[1] <= 1.5 * lengths[0]
    assert set(zip(*restored, strict=True)) <= set(zip(*every, strict=True))
    assert len(pieces[0]) == prepared["pairs"]["train"]


def test_wmt14_en_fr_has_five_parts_and_two_years_of_validation(tmp_path):
    wmt_files(tmp_path, "fr-en", "fr")
    shipped = EXAMPLES / "wmt14.en-fr" / "corpus.yml"
    corpus = config.load(without_checksums(shipped, tmp_path / "corpus.yml"))
    sources = inputs.locate(corpus, tmp_path, tmp_path, tmp_path)
    unpacked = inputs.unpack(sources, tmp_path)
    pairs = {
        split: [pair for part in parts for pair in read_pairs(*part)]
        for split, parts in unpacked.items()
    }
    for index, lang in enumerate(("en", "fr")):
        found = {split: [pair[index] for pair in pairs[split]] for split in pairs}
        assert found["train"] == [x for n in range(5) for x in sentences(lang, 100 * n, 20)]
        assert found["valid"] == [x for y in (2012, 2013) for x in sentences(lang, y, 4)]
        assert found["newstest2014"][4] == sentence(lang, 9004) + " “x” & y’s"


def test_own_text_beside_downloads_is_looked_at_again(tmp_path, monkeypatch):
    names = [f"{split}.{lang}" for split in ("train", "valid", "test") for lang in ("de", "en")]
    output, settings = tmp_path / "out", tmp_path / "corpus.yml"
    output.mkdir()
    for name in pipeline.MADE:
        (output / name).touch()
    for lang in ("de", "en"):
        (tmp_path / f"back.{lang}").write_text("a\n")
    back = {f"back.{lang}": tmp_path / f"back.{lang}" for lang in ("de", "en")}
    content = {
        "source_lang": "de",
        "target_lang": "en",
        "files": {"train": ["train", "back"], "valid": "valid", "test": "test"},
        "downloads": [{"urls": ["https://name.invalid/{file}"], "files": dict.fromkeys(names)}],
    }

    def corpus():
        write_json(settings, content)  # which is YAML, too
        return config.load(settings)

    def say_prepared(of):
        """Writes a prepared.json with these inputs; returns its content."""
        done = {"settings": pipeline.data_settings(corpus()), "inputs": of, "pairs": {}}
        done |= {"test_sets": binarize.subsets(["test"]), "training_pairs_read": 2}
        write_json(output / pipeline.FINAL, done)
        return done

    def is_prepared():
        """Whether nothing is to be downloaded, as each file that is missing would be."""
        try:
            return pipeline.prepare(corpus(), tmp_path, output, None, tmp_path, 1) == done
        except ValueError as error:
            assert str(error) == "asked for train.de"
            return False

    def fetch(name, *_):
        raise ValueError(f"asked for {name}")

    monkeypatch.setattr(inputs, "fetch", fetch)
    downloaded = dict.fromkeys(names, "0" * 64)
    assert inputs.local_files(corpus(), tmp_path, None) == back | dict.fromkeys(names)
    done = say_prepared({name: sha256(file) for name, file in back.items()} | downloaded)
    assert is_prepared()
    (tmp_path / "back.de").write_text("b\n")
    assert not is_prepared()
    (tmp_path / "back.de").write_text("a\n")
    # A checksum that was corrected since is of another file than the one prepared.
    for checksum, same in [("0" * 64, True), ("A" * 32, True), ("1" * 64, False)]:
        content["downloads"][0]["files"]["train.en"] = checksum
        assert is_prepared() == same
    # A trial with a few lines of one's own, under names that are no download's, is other text.
    content["files"]["train"], content["downloads"][0]["files"] = "train", dict.fromkeys(names)
    assert inputs.local_files(corpus(), tmp_path, None) == dict.fromkeys(names)
    done = say_prepared(downloaded)
    assert is_prepared()
    done = say_prepared({f"unpacked/{name}": "0" * 64 for name in names})
    assert not is_prepared()


def test_with_raw_nothing_is_taken_from_elsewhere(tmp_path):
    """A recipe made by --new names its text by an absolute path, which won."""
    for folder in ("old", "raw"):
        (tmp_path / folder).mkdir()
        for lang in ("de", "en"):
            (tmp_path / folder / f"all.{lang}").write_text(f"{folder}\n")
    (tmp_path / "corpus.yml").write_text(
        f"source_lang: de\ntarget_lang: en\nfiles: {{train: '{tmp_path}/old/all'}}\n"
        "hold_out: {valid: 1, test: 1}\n"
    )
    corpus = config.load(tmp_path / "corpus.yml")
    for raw, folder in ((None, "old"), (tmp_path / "raw", "raw")):
        ((source, _),) = inputs.locate(corpus, tmp_path, raw, tmp_path)["train"]
        assert source.file == tmp_path / folder / "all.de"
    (tmp_path / "raw" / "all.de").unlink()
    with pytest.raises(ValueError, match="raw: found none of .*all.de"):
        inputs.locate(corpus, tmp_path, tmp_path / "raw", tmp_path)
    text = (tmp_path / "corpus.yml").read_text()
    (tmp_path / "corpus.yml").write_text(text.replace(f"{tmp_path}/old", "../old"))
    corpus = config.load(tmp_path / "corpus.yml")  # leads from raw/ to old/
    with pytest.raises(ValueError, match="raw: found none of .*all.de"):
        inputs.locate(corpus, tmp_path, tmp_path / "raw", tmp_path)


PAIRS = "source_lang: de\ntarget_lang: en\nfiles: {train: [third, all], valid: %s, test: %s}\n"
BYTES = "language: en\nsubword: none\nfiles:\n" + "".join(
    f"  {split}: {{path: {path}, format: bytes%s}}\n"
    for split, path in (("train", "all.de"), ("test", "all.de"), ("valid", "other.de"))
)


@pytest.mark.parametrize(
    ("settings", "values", "refused"),
    [
        (PAIRS, ("all", "other"), "valid"),
        (PAIRS, ("other", "all"), "test"),
        (BYTES, (", span: [0, 90]", ", span: [85, 95]", ""), "test"),
        (BYTES, (", span: [0, 90]", ", span: [90, 95]", ""), None),
        (BYTES, (", span: [10, 20]", "", ""), "test"),
        (BYTES, ("", ", span: [85, 95]", ""), "test"),
    ],
    ids=["valid", "test", "overlapping", "side by side", "a part", "the whole"],
)
def test_what_is_trained_on_is_no_test_set(tmp_path, settings, values, refused):
    for name in ("all", "other", "third"):
        for lang in ("de", "en"):
            (tmp_path / f"{name}.{lang}").write_text(f"{name}\n" * 30)
    (tmp_path / "corpus.yml").write_text(settings % values)
    corpus = config.load(tmp_path / "corpus.yml")
    if refused is None:
        assert inputs.locate(corpus, tmp_path, None, tmp_path)
        return
    with pytest.raises(ValueError, match=rf"files: {refused} is .*/all\.de, which train is too"):
        inputs.locate(corpus, tmp_path, None, tmp_path)


def test_one_file_is_not_taken_for_two(tmp_path):
    """Of a folder without those of the names, one test set's text was that of both."""
    (tmp_path / "corpus.yml").write_text(
        "source_lang: de\ntarget_lang: en\n"
        "files: {train: train, valid: valid, first: 2016/test, second: 2017/test}\n"
    )
    raw = tmp_path / "raw"
    (raw / "2017").mkdir(parents=True)
    for lang in ("de", "en"):
        for name in ("train", "valid", "test", "2017/test"):
            (raw / f"{name}.{lang}").write_text("a\n")
    corpus = config.load(tmp_path / "corpus.yml")
    found = inputs.locate(corpus, tmp_path, raw, tmp_path)
    assert [source.file for source in found["first"][0]] == [raw / "test.de", raw / "test.en"]
    assert [source.file.parent.name for source in found["second"][0]] == ["2017", "2017"]
    for lang in ("de", "en"):
        (raw / "2017" / f"test.{lang}").unlink()
    with pytest.raises(ValueError, match=r"test.de: found for 2017/test.de and for 2016/test.de"):
        inputs.locate(corpus, tmp_path, raw, tmp_path)


@pytest.fixture
def ted(tmp_path):
    """Arguments of a run on a small IWSLT'14 archive, and the archive."""
    raw = tmp_path / "raw"
    raw.mkdir()
    write_tar(raw / "de-en.tgz", ted_files(40))
    arguments = [EXAMPLES / "iwslt14.de-en" / "corpus.yml", "--raw", raw, "--workers", 1]
    return [*arguments, "--output", tmp_path / "out"], raw / "de-en.tgz"


def failure(capfd, arguments: list) -> str:
    """The one-line error of a failing run, which must leave what was there and nothing else."""
    output = Path(arguments[arguments.index("--output") + 1])
    before = modified(output)
    status, last = run(capfd, *arguments)
    left = {path: time for path, time in modified(output).items() if path.name != "state.json"}
    assert left.items() <= before.items(), "something half-written is left"
    assert not before or modified(output) == before
    assert status == 1
    assert last.startswith("prepare.py: error: ")
    return last.removeprefix("prepare.py: error: ")


def damaged(change):
    """What changes the bytes of an archive."""
    return lambda archive: archive.write_bytes(change(archive.read_bytes()))


MEMBER = "de-en/IWSLT14.TEDX.dev2012.de-en.en.xml"
OTHERS = {name: data for name, data in ted_files(40).items() if name != MEMBER}
BROKEN = "{archive}: broken archive ("
BAD_ARCHIVES = {
    "cut": (damaged(lambda data: data[: len(data) // 2]), BROKEN),
    "noise": (damaged(lambda data: random.Random(1).randbytes(5000)), BROKEN),
    "empty": (damaged(lambda data: b""), BROKEN),
    "html": (damaged(lambda data: b"<html>404 not found</html>"), BROKEN),
    "flipped": (damaged(lambda data: data[:999] + bytes([data[999] ^ 255]) + data[1000:]), BROKEN),
    "one member": (lambda archive: write_tar(archive, OTHERS), f"{{archive}}: holds no {MEMBER}"),
    "missing": (Path.unlink, "{archive.parent}: found none of de-en.tgz, de-en/train.tags"),
}


@pytest.mark.parametrize(("change", "message"), BAD_ARCHIVES.values(), ids=BAD_ARCHIVES)
def test_a_bad_archive_is_named(ted, capfd, change, message):
    arguments, archive = ted
    change(archive)
    assert failure(capfd, arguments).startswith(message.format(archive=archive))


def test_members_cannot_write_elsewhere(ted, tmp_path):
    arguments, archive = ted
    write_tar(archive, {"../escaped": b"x", "/tmp/escaped": b"x", **ted_files(40)})
    sources = inputs.locate(config.load(arguments[0]), tmp_path, archive.parent, tmp_path)
    (tmp_path / "extracted").mkdir()
    inputs.unpack(sources, tmp_path / "extracted")
    assert not (tmp_path / "escaped").exists()
    assert len(list((tmp_path / "extracted").iterdir())) == 12


def test_a_wrong_checksum_is_named(tmp_path, capfd):
    raw = tmp_path / "raw"
    raw.mkdir()
    for name in config.load(EXAMPLES / "multi30k.de-en" / "corpus.yml").downloads[0].files:
        (raw / name).write_bytes(gzip.compress(b"x\n"))
    arguments = [EXAMPLES / "multi30k.de-en" / "corpus.yml", "--raw", raw]
    message = failure(capfd, [*arguments, "--output", tmp_path / "out"])
    assert message.startswith(f"{raw / 'train.de.gz'}: wrong checksum: sha256 is ")
    assert "expected 726e39b2" in message


#: Files beside an own corpus, or None for its corpus.yml -> what they become; options; message.
FAILURES = {
    "lines": (
        {"a.en": text(sentences("en", 200, 4))},
        ["--workers", "2"],
        "{own}/a.de has 5 sentences, {own}/a.en has 4",
    ),
    "UTF-8": (
        {"train.en": text(sentences("en", 0, 41)) + b"caf\xe9\n" + text(sentences("en", 42, 18))},
        ["--workers", "2"],
        "{own}/train.en: line 42 is not valid UTF-8",
    ),
    "workers": ({}, ["--workers", "0"], "--workers is 0"),
    "raw": ({}, ["--raw", "/nowhere"], "--raw is /nowhere: no such folder"),
    "source": ({}, ["--source-lang", "en"], "source_lang and target_lang are both 'en'"),
    "target": ({}, ["--target-lang", "fr"], "found none of train.fr, train.fr.gz"),
    "corpus": ({"corpus.yml": None}, [], "{own}/corpus.yml"),
}


@pytest.mark.parametrize(("files", "options", "message"), FAILURES.values(), ids=FAILURES)
def test_what_is_wrong_is_named(own, tmp_path, capfd, files, options, message):
    for name, content in files.items():
        (own / name).unlink()
        if content is not None:
            (own / name).write_bytes(content)
    arguments = [own / "corpus.yml", "--output", tmp_path / "out", *options]
    assert message.format(own=own) in failure(capfd, arguments)


@pytest.mark.parametrize("limit", [2_000, 60_000])
def test_a_full_disk_is_named_and_leaves_nothing_half_written(ted, tmp_path, limit):
    """A limit on the size of files makes write() fail just as a full disk does."""
    arguments, archive = ted
    write_tar(archive, ted_files(4000))
    command = [sys.executable, str(ROOT / "scripts" / "prepare.py"), *map(str, arguments)]
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    last = result.stderr.strip().split("\n")[-1]
    assert result.returncode == 1
    assert last.startswith("prepare.py: error: ") and "File too large" in last
    assert str(tmp_path / "out") in last
    assert {path.name for path in (tmp_path / "out").iterdir()} <= {".lock", "state.json"}


def test_a_folder_of_somebody_else_is_left_alone(own, tmp_path, capfd):
    output = tmp_path / "out"
    (output / "raw").mkdir(parents=True)
    (output / "raw" / "precious").write_text("data")
    status, last = run(capfd, own / "corpus.yml", "--output", output)
    assert (status, f"{output}: holds raw, made by something else" in last) == (1, True)
    assert (output / "raw" / "precious").read_text() == "data"


def test_every_option_of_fairseq_preprocess_is_one_word(tmp_path):
    """Of two, fairseq would take a language or a folder that begins with --user-dir for it."""
    corpus = config.load(EXAMPLES / "multi30k.de-en" / "corpus.yml")
    words = binarize.command(corpus, tmp_path, tmp_path / "bin", 1)[3:]
    assert all(word.startswith("--") for word in words)
    assert {"--source-lang=de", "--target-lang=en"} <= set(words)


@pytest.mark.parametrize("kind", ["in --output", "own extracted", "of another program"])
def test_text_that_somebody_put_into_the_folder_is_not_deleted(own, tmp_path, capfd, kind):
    output = tmp_path / "out"
    arguments = [own / "corpus.yml", "--output", output, "--workers", 1]
    if kind == "in --output":
        assert run(capfd, *arguments)[0] == 0
        for old, new in (("train", "train"), ("valid", "dev"), ("a", "a"), ("b", "b")):
            for lang in ("de", "en"):
                content = (output / "raw" / f"{old}.{lang}").read_bytes()
                (output / "raw" / f"{new}.{lang}").write_bytes(content)
        settings = (own / "corpus.yml").read_text().replace("40", "41")
        (own / "corpus.yml").write_text(settings)
        arguments += ["--raw", output / "raw"]
        message = f"prepare.py: error: {output / 'raw' / 'a.de'}: lies in what --output replaces"
    elif kind == "own extracted":
        shutil.copytree(own, output / "extracted")
        arguments += ["--raw", output / "extracted"]
        message = f"{output}: prepared"
    else:
        (output / "raw").mkdir(parents=True)
        (output / "raw" / "mine.txt").write_text("mine")
        write_json(output / pipeline.STATE, {"epoch": 3, "steps": 9})
        message = f"prepare.py: error: {output}: holds raw, state.json, made by something else"
    before = modified(output)
    status, last = run(capfd, *arguments)
    assert last.startswith(message), last
    assert status == (kind != "own extracted")
    assert before.items() <= modified(output).items()


def test_a_preparation_stays_until_the_next_ones_text_is_read(own, tmp_path, capfd):
    output = tmp_path / "out"
    arguments = [own / "corpus.yml", "--output", output, "--workers", 1]
    assert run(capfd, *arguments)[0] == 0
    before = modified(output)
    original = (own / "a.en").read_bytes()
    (own / "a.en").write_bytes(text(sentences("en", 200, 4)))
    assert run(capfd, *arguments)[0] == 1
    assert modified(output) == before
    (own / "a.en").write_bytes(original)
    assert run(capfd, *arguments)[1].startswith(f"{output}: already prepared")
    (own / "a.en").write_bytes(text(sentences("en", 500, 5)))
    assert run(capfd, *arguments)[1].startswith(f"{output}: prepared")
    assert lines_of(output / "raw" / "a.en") == sentences("en", 500, 5)


def test_a_test_set_that_is_trained_on_is_refused_or_counted(own, tmp_path, capfd):
    arguments = [own / "corpus.yml", "--output", tmp_path / "out", "--workers", 1]
    for lang in ("de", "en"):
        shutil.copy(own / f"train.{lang}", own / f"a.{lang}")
    assert f"files: a is {own / 'a.de'}, which train is too" in run(capfd, *arguments)[1]
    for lang in ("de", "en"):  # the same text, but for one sentence
        (own / f"a.{lang}").write_bytes(text(sentences(lang, 1, 60)))
    status, last = run(capfd, *arguments)
    assert status == 0 and last.endswith("; sources that are trained on too: a 59 of 60")


@pytest.mark.parametrize("way", ["options", "base"])
def test_the_columns_of_one_file_are_not_exchanged(tmp_path, capfd, way):
    (tmp_path / "corpus.yml").write_text(
        "source_lang: de\ntarget_lang: en\nfiles: {train: {path: text.tsv, format: tsv}}\n"
        "hold_out: {valid: 5, test: 5}\nsubword_size: 50\n"
    )
    pairs = zip(sentences("de", 0, 60), sentences("en", 0, 60), strict=True)
    (tmp_path / "text.tsv").write_bytes(text([f"{de}\t{en}" for de, en in pairs]))
    reversed_ = tmp_path / "reversed.yml"
    reversed_.write_text("base: corpus.yml\nsource_lang: en\ntarget_lang: de\n")
    given = {
        "options": [tmp_path / "corpus.yml", "--source-lang", "en", "--target-lang", "de"],
        "base": [reversed_],
    }[way]
    message = failure(capfd, [*given, "--output", tmp_path / "out"])
    assert "source_lang is en, which is the target_lang of text.tsv (files: train" in message
    with open(reversed_, "a") as file:
        file.write("files: {train: {path: swapped.tsv, format: tsv}}\n")
    assert config.load(reversed_).files["train"][0].path == "swapped.tsv"


def test_languages_without_rules_are_named(own, tmp_path, capfd):
    for lang in ("de", "en"):
        for file in list(own.glob(f"*.{lang}")):
            file.rename(file.with_suffix(f".{lang}_XX" if lang == "en" else ".de"))
    settings = (own / "corpus.yml").read_text().replace("target_lang: en", "target_lang: en_XX")
    (own / "corpus.yml").write_text(settings)
    status, last = run(capfd, own / "corpus.yml", "--output", tmp_path / "out", "--workers", 1)
    assert status == 0 and last.startswith(f"warning: {tmp_path / 'out'}: target_lang is en_XX:")


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_of_a_member_that_an_archive_has_twice_the_last_is_taken(tmp_path, kind):
    archive = tmp_path / f"a.{kind}"
    with tarfile.open(archive, "w") if kind == "tar" else zipfile.ZipFile(archive, "w") as file:
        for data in (b"old", b"new and longer"):
            if kind == "tar":
                info = tarfile.TarInfo("x/t.de")
                info.size = len(data)
                file.addfile(info, io.BytesIO(data))
            else:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)  # zipfile's, of the double name
                    file.writestr("x/t.de", data)
    extract(archive, {"x/t.de": tmp_path / "t.de"})
    assert (tmp_path / "t.de").read_bytes() == b"new and longer"


def test_utf16_is_named_whatever_letters_it_holds(own, tmp_path, capfd):
    (own / "a.en").write_bytes("a house\n".encode("utf-16-le"))
    message = failure(capfd, [own / "corpus.yml", "--output", tmp_path / "out"])
    assert message.startswith(f"{own / 'a.en'}: is UTF-16LE")

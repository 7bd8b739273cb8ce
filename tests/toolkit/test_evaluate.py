"""Scores agree with sacrebleu's own command line; files that do not fit are refused."""

import json
import random
import re
import shlex
import subprocess
import sys
import time
import unicodedata

import pytest
from test_compare import write

from ea_fairseq.commands import compare, evaluate
from ea_fairseq.recipes.results.scoring import check_reference_words, check_words, split_compounds
from ea_fairseq.recipes.runs.generation import read_generated
from ea_fairseq.text.tokens import detokenize

WORDS = "The a cat Dog house sees likes not very well-known old tree , and it 's great".split()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """References and noisy translations: as tokens, as text, and as fairseq-generate prints; with
    their names in front, such as are refused. No test changes them."""
    folder = tmp_path_factory.mktemp("files")
    choose = random.Random(5)
    references = [" ".join(choose.choices(WORDS, k=choose.randint(4, 12))) for _ in range(40)]
    hypotheses = []
    for line in references:
        words = line.split()
        words[choose.randrange(len(words))] = choose.choice(WORDS)
        hypotheses.append(" ".join(words).lower() if choose.random() < 0.3 else " ".join(words))
    hypotheses[7] = ""  # an empty translation still has its line
    lines = ["INFO | D-0 is not a line of results"]
    for number in choose.sample(range(40), 40):  # ordered by length, as far as anyone can tell
        lines += [f"S-{number}\tquelle {number}", f"T-{number}\t{references[number]}"]
        lines += [f"H-{number}\t-0.5\t{hypotheses[number]}"]
        lines += [f"D-{number}\t-0.5\t{hypotheses[number]}", f"P-{number}\t-0.1 -0.2"]
    written = {"generated": lines, "tok": references, "ref": detokenize(references, "en")}
    written |= {"hyp.tok": hypotheses, "hyp": detokenize(hypotheses, "en")}
    written |= {"src": [f"Quelle {number}." for number in range(40)]}
    for name in ("tok", "ref", "src"):
        written[f"{name}.short"] = written[name][:-1]
    written["generated.short"] = [line for line in lines if "-39\t" not in line]
    for name, piece in PIECES.items():
        last = re.compile(r"([HD]-39\t\S+\t).*")
        written[f"generated.{name}"] = [last.sub(rf"\g<1>{piece}", line) for line in lines]
        written[f"hyp.tok.{name}"] = [*hypotheses[:-1], piece]
        written[f"tok.{name}"] = [*references[:-1], piece]
        written[f"pieces.{name}"] = [*references[:-3], piece, piece, piece]
    written |= {f"printed.{name}": [line] * 40 for name, line in PRINTED.items()}
    written |= {"ref.reversed": written["ref"][::-1], "empty": []}
    for name, content in written.items():
        write(folder / name, content)
    (folder / "folder").mkdir()
    (folder / "link").symlink_to(folder / "ref")
    return folder


PIECES = {"subword_nmt": "Ha@@ us", "sentencepiece": "\u2581Haus"}
PRINTED = {"generate": "D-3\t-0.5\ta b", "scores": "-0.5\ta b", "json": '{"source": "x"}'}
TOKENS = "--tokenized-references {}/tok --references {}/ref --target-lang en"
GENERATED = f"--generated {{}}/generated {TOKENS}"
TEXT = "--translations {}/hyp --references {}/ref"


def run(files, options, *more):
    """Exit status of ea-evaluate; ``{}`` stands for the folder of the files."""
    return evaluate.main([o.replace("{}", str(files)) for o in [*shlex.split(options), *more]])


def scores(files, tmp_path, options):
    """What was scored, by label."""
    assert run(files, options, "--json", str(tmp_path / "out.json")) == 0
    found = json.loads((tmp_path / "out.json").read_text())["scores"]
    return {score["label"]: score for score in found}


def sacrebleu(reference, hypothesis, *options):
    """sacrebleu as a user calls it."""
    command = [sys.executable, "-m", "sacrebleu", str(reference), "-i", str(hypothesis)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return found if isinstance(found, list) else [found]


@pytest.mark.parametrize("case", ["", ", lower-cased"])
def test_every_score_is_that_of_sacrebleus_command(files, tmp_path, case):
    ours = scores(files, tmp_path, f"{GENERATED} {'--lowercase' if case else ''}")
    lowercase, chrf = (["-lc"], ["--chrf-lowercase"]) if case else ([], [])
    tokens = ["-tok", "none", "--force", "-w", "8", *lowercase]
    theirs = sacrebleu(files / "tok", files / "hyp.tok", *tokens)
    metrics = ["-m", "bleu", "chrf", "ter", "-w", "8"]
    theirs += sacrebleu(files / "ref", files / "hyp", *metrics, *lowercase, *chrf)
    assert list(ours) == [*(f"{n}{case}" for n in ("tokenized BLEU", "sacreBLEU", "chrF")), "TER"]
    for mine, other in zip(ours.values(), theirs, strict=True):
        assert mine["score"] == pytest.approx(other["score"], abs=1e-6)
        assert mine["signature"] == other["signature"]


@pytest.mark.parametrize(
    "tokens, split",
    [
        ("a well-known cat", "a well ##AT##-##AT## known cat"),
        ("a well @-@ known cat", "a well ##AT##-##AT## known cat"),
        ("no - compound , -5", "no - compound , -5"),
        ("state-of-the-art", "state ##AT##-##AT## of ##AT##-##AT## the ##AT##-##AT## art"),
        ("", ""),
    ],
)
def test_compounds_are_split_at_hyphens_inside_words(tokens, split):
    assert split_compounds([tokens]) == [split]


def test_compound_split_bleu_has_its_own_label_and_value(files, tmp_path):
    found = scores(files, tmp_path, f"{GENERATED} --compound-split")
    for name in ("hyp.tok", "tok"):
        write(tmp_path / name, split_compounds((files / name).read_text().splitlines()))
    options = ["-tok", "none", "--force", "-w", "8"]
    (expected,) = sacrebleu(tmp_path / "tok", tmp_path / "hyp.tok", *options)
    assert found["compound-split BLEU"]["score"] == pytest.approx(expected["score"], abs=1e-6)
    assert found["compound-split BLEU"]["score"] != found["tokenized BLEU"]["score"]


def test_every_form_of_the_same_translations_has_the_same_scores(files, tmp_path):
    """Text alone has those of text; so have tokens without tokenized references."""
    generated = scores(files, tmp_path, GENERATED)
    assert scores(files, tmp_path, f"--hypotheses {{}}/hyp.tok {TOKENS}") == generated
    text = scores(files, tmp_path, TEXT)
    assert list(text) == ["sacreBLEU", "chrF", "TER"] and text.items() < generated.items()
    tokens = "--hypotheses {}/hyp.tok --references {}/ref --target-lang en"
    assert scores(files, tmp_path, tokens) == text


def test_translations_come_out_in_the_order_of_the_corpus_empty_ones_too(files, tmp_path):
    assert run(files, GENERATED, "--text", str(tmp_path / "text")) == 0
    assert (tmp_path / "text").read_text() == (files / "hyp").read_text()
    assert (tmp_path / "text").read_text().split("\n")[7] == ""


@pytest.mark.parametrize(
    "language, text",
    [("fr", "l'eau"), ("FR", "l' eau"), ("fr_CA", "l' eau"), ("en", "l' eau"), ("de", "l' eau")],
)
def test_text_is_made_by_the_rules_of_the_target_language(tmp_path, capsys, language, text):
    write(tmp_path / "hyp", ["l' eau"])
    options = (
        f"--hypotheses {{}}/hyp --references {{}}/hyp --text {{}}/text --target-lang {language}"
    )
    assert run(tmp_path, options) == 0
    assert (tmp_path / "text").read_text() == f"{text}\n"
    warned = f"warning: --target-lang {language}: text is made by the rules of no language"
    assert (warned in capsys.readouterr().err) == (language in ("FR", "fr_CA"))


@pytest.mark.parametrize("language", ["ko", "KO", "ko_KR", "kor"])
def test_words_of_korean_stay_apart(language):
    assert detokenize(["저는 학생 입니다 ."], language) == ["저는 학생 입니다."]


@pytest.mark.parametrize("language", ["zho_Hans", "ko_KR"])
def test_codes_of_three_letters_and_of_countries_are_known(tmp_path, language, capsys):
    """Chinese scored as one word a line has BLEU 0."""
    (tmp_path / "ref").write_text("这 是 一 个 很 大 的 房子 。\n".replace(" ", ""))
    (tmp_path / "hyp").write_text("这 是 一 个 很 大 的 花园 。\n".replace(" ", ""))
    options = f"--translations {{}}/hyp --references {{}}/ref --target-lang {language}"
    assert run(tmp_path, options) == 0
    printed = capsys.readouterr().out
    assert ("tok:zh" in printed) == (language != "ko_KR")
    assert language == "ko_KR" or float(re.search(r"^sacreBLEU +([\d.]+)", printed)[1]) > 50
    options = f"--hypotheses {{}}/hyp --references {{}}/ref --target-lang {language}"
    assert run(tmp_path, options) == 0
    assert ("rules of no language" in capsys.readouterr().err) == (language != "ko_KR")


def test_accents_apart_in_one_file_alone_are_told(tmp_path, capsys):
    """Every word with an accent counted as an error, without a word."""
    (tmp_path / "hyp").write_text("Où est la fenêtre ?\nUn café\n")
    apart = unicodedata.normalize("NFD", (tmp_path / "hyp").read_text())
    for references, told in (
        (apart, "ref: 2 lines have accents apart.*hyp 0"),
        ("Où est\nUn\n", None),
    ):
        (tmp_path / "ref").write_text(references)
        assert run(tmp_path, "--translations {}/hyp --references {}/ref") == 0
        said = capsys.readouterr().err
        assert re.search(told, said) if told else "accents" not in said


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("D-1\t-1\tb\nD-1\t-2\tworse\nD-0\t-1\ta\nD-0\t-3\tworse\n", ["a", "b"]),  # the first
        # Only a newline ends a translation.
        ("S-0\tx\nD-0\t-1\ta\u2028b\u0085c\rd\nS-1\ty\nD-1\t-1\te\n", ["a\u2028b\u0085c\rd", "e"]),
        ("D-0\t-1\ta\nD-3\t-1\td\n", "2 sentences without translation: 1, 2"),
        ("S-0\tno translation\n", "no translation in it"),
        # tee -a: the older output was scored.
        ("S-0\tx\nD-0\t-1\ta\nS-0\tx\nD-0\t-1\tb\n", "two outputs .* S-0 stands in it twice"),
        # Tokens, and what is printed of them; a text would be made text a second time.
        ("H-0\t-1\tEin Haus .\nD-0\t-1\tEin Haus .\n", ["Ein Haus ."]),
        ("H-0\t-1\tEin Ha@@ us .\nD-0\t-1\tEin Haus .\n", ["Ein Haus ."]),
        ("H-0\t-1\t\u2581Ein \u2581Ha us \u2581.\nD-0\t-1\tEin Haus .\n", ["Ein Haus ."]),
        ("H-0\t-1\t\nD-0\t-1\t\n", [""]),
        (
            "H-0\t-1\tEin Haus .\nD-0\t-1\tEin Haus.\n",  # --tokenizer moses
            "D-0 is not made of the tokens of H-0: translate wit",
        ),
    ],
)
def test_what_fairseq_prints_is_read_line_by_line(tmp_path, printed, expected):
    (tmp_path / "g").write_text(printed, newline="")
    if isinstance(expected, list):
        assert read_generated(tmp_path / "g") == expected
    else:
        with pytest.raises(ValueError, match=expected):
            read_generated(tmp_path / "g")


@pytest.mark.parametrize("marked", ["translations", "references"])
def test_a_byte_order_mark_is_no_part_of_the_first_word(tmp_path, marked, capsys):
    for name in ("translations", "references"):
        mark = "\ufeff" if name == marked else ""
        (tmp_path / name).write_text(f"{mark}a b c d\n\ufeffe f g h\n", encoding="utf-8")
    assert run(tmp_path, "--translations {}/translations --references {}/references") == 0
    assert re.search(r"^sacreBLEU +100\.00 .*\n.*\nTER +0\.00 ", capsys.readouterr().out)


#: A command line, and what its one line must name.
REFUSED = [
    ("--generated {}/generated --references {}/ref", ["--target-lang: give the language code"]),
    (f"{TEXT} --tokenized-references {{}}/tok", ["--tokenized-references: "]),
    (f"{TEXT} --compound-split", ["--compound-split: needs --tokenized-references"]),
    (f"{GENERATED} --comet", ["--comet: needs the --sources"]),
    ("--translations {}/empty --references {}/empty", ["{}/empty is empty: there is nothing"]),
    *(
        (f"{GENERATED} --sources {{}}/src {option} {{}}/{name}.short", [f"{name}.short", *counts])
        for option, name, counts in (
            ("--tokenized-references", "tok", ("39", "40")),
            ("--references", "ref", ("39", "40")),
            ("--sources", "src", ("39", "40")),
            ("--generated", "generated", ("39", "40")),
        )
    ),
    *(
        (f"{GENERATED} {option} {{}}/{name}", [f"{{}}/{name}: {reason}"])
        for option in ("--generated", "--tokenized-references", "--references", "--sources")
        for name, reason in (("nowhere", "no such file"), ("folder", "cannot be read"))
    ),
    (f"{GENERATED} --json {{}}/folder", ["{}/folder"]),
    *(
        (f"{translated} {TOKENS} {option} {{}}/{name}.{remedy}", [f"{name}.{remedy}", piece, told])
        for remedy, piece in (("subword_nmt", "Ha@@"), ("sentencepiece", "\u2581Haus"))
        for told in (f"--post-process {remedy}",)
        for translated, option, name in (
            ("--generated {}/generated", "--generated", "generated"),
            ("--hypotheses {}/hyp.tok", "--hypotheses", "hyp.tok"),
            ("--generated {}/generated", "--tokenized-references", "tok"),
        )
    ),
    *(
        (f"{TEXT} --sources {{}}/src {option} {{}}/printed.{name}", [f"printed.{name}: has ", told])
        for option in ("--translations", "--references", "--sources")
        for name, told in (
            ("generate", "give that as --generated"),
            ("scores", "ea-translate --scores"),
            ("json", "ea-translate --json"),
        )
    ),
    *(
        (
            f"--translations {{}}/hyp --references {{}}/pieces.{name}",
            [f"pieces.{name}: ", "before they were split"],
        )
        for name in ("subword_nmt", "sentencepiece")
    ),
    (
        "--hypotheses {}/printed.generate --references {}/ref --target-lang en",
        ["printed.generate: has ", "give that as --generated"],
    ),
    # References of another test set; text in the place of tokens.
    (
        "--generated {}/generated --target-lang en --references {}/ref.reversed",
        ["{}/ref.reversed: of another test set than {}/generated", "of 40 have another reference"],
    ),
    (f"{GENERATED} --tokenized-references {{}}/ref.reversed", ["ref.reversed: of another test"]),
    (
        f"--hypotheses {{}}/hyp.tok {TOKENS} --tokenized-references {{}}/ref",
        ["{}/ref: is the text of --references"],
    ),
    # Files that are read are not written over.
    (f"{GENERATED} --text {{}}/ref", ["--text {}/ref: is the same file as"]),
    (f"{GENERATED} --json {{}}/tok", ["--json {}/tok: is the same file as"]),
    (f"{GENERATED} --text {{}}/link", ["--text {}/link: is the same file as"]),
    (f"{GENERATED} --text {{}}/new --json {{}}/new", ["--json {}/new: is the file of --text"]),
]


@pytest.mark.parametrize(("options", "words"), REFUSED)
def test_what_does_not_fit_is_refused_in_a_line(files, tmp_path, capsys, options, words):
    before = {path: path.is_dir() or path.read_bytes() for path in files.iterdir()}
    more = () if "--json" in options else ("--json", str(tmp_path / "out.json"))
    assert run(files, options, *more) == 1
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert line.startswith("evaluate.py: error: ") and printed.out == ""
    assert all(word.replace("{}", str(files)) in line for word in words), line
    assert {path: path.is_dir() or path.read_bytes() for path in files.iterdir()} == before
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize("piece, remedy", [(piece, name) for name, piece in PIECES.items()])
def test_pieces_of_words_are_refused_with_the_remedy(piece, remedy):
    with pytest.raises(ValueError, match=f"{piece.split()[0]}.* --post-process {remedy}, and "):
        check_words({"text": [piece]})
    check_words({"text": ["@@ -1 +1 @@ a"]})  # the head of a part of a diff, say
    check_reference_words("corpus", [piece, *["a b"] * 19])  # what somebody wrote


def test_long_words_are_looked_through_once():
    began = time.process_time()
    check_words({"a": ["x" * 1_000_000, "@@" * 500_000 + "x", "x@@\u00a0y", "a@@\ty @@", "@@@\t"]})
    with pytest.raises(ValueError, match="^a: 'b@@' in sentence 1 is"):
        check_words({"a": ["@@ a b@@ c@@"]})
    with pytest.raises(ValueError, match=r"^a: 'x{30}\.\.\.' in sentence 1 is"):
        check_words({"a": ["x" * 1_000_000 + "@@"]})
    assert time.process_time() - began < 5


@pytest.mark.parametrize("language", ["zh", "zh_TW", "ja", "de"])
def test_text_without_spaces_is_scored_by_smaller_parts(tmp_path, language):
    """Each clause was a word: one letter amiss, and no sentence had four words in common."""
    reference = "今天天气很好，我们一起去公园散步。"
    write(tmp_path / "ref", [reference] * 3)
    write(tmp_path / "hyp", [reference.replace("散", "跑")] * 3)
    (tmp_path / "run" / "scores").mkdir(parents=True)
    options = f"{TEXT} --target-lang {language} --json {{}}/run/scores/test.json"
    assert run(tmp_path, options) == 0
    (score, *_, ter) = json.loads((tmp_path / "run/scores/test.json").read_text())["scores"]
    assert ter["score"] < 15 if language != "de" else ter["score"] == 100
    expected = {"zh": "zh", "ja": "char"}.get(language[:2], "13a")
    assert f"tok:{expected}|" in score["signature"]
    assert score["score"] > 60 if language != "de" else score["score"] < 10
    # Beside a run of that language, a file is scored as the run is, and two files if it is named.
    files = [tmp_path / "hyp", "--references", tmp_path / "ref", "--target-lang", language]
    for words in ([tmp_path / "run", tmp_path / "hyp"], [tmp_path / "hyp", *files]):
        words += ["--samples", "2", "--json", tmp_path / "rows.json"]
        assert compare.main([str(word) for word in words]) == 0
        (row, *_) = json.loads((tmp_path / "rows.json").read_text())["rows"]
        found = [*row["first"].values(), *row["second"].values()]
        assert found == [pytest.approx(score["score"])] * 2


def test_comet_says_how_to_install_it_where_it_is_not(files, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "comet", None)  # as if it were not installed
    assert run(files, f"{GENERATED} --comet --sources {{}}/src") == 1
    assert "pip install unbabel-comet" in capsys.readouterr().err


def test_a_few_references_may_differ_from_the_data(files, tmp_path):
    """Cleaning may have changed some; unknown words are printed as such."""
    references = (files / "ref").read_text().splitlines()
    write(tmp_path / "ref", [*references[:25], *(f"{line} (laughs)" for line in references[25:])])
    assert run(files, GENERATED, "--references", str(tmp_path / "ref")) == 0
    printed = (files / "generated").read_text()
    (tmp_path / "unknown").write_text(re.sub(r"(T-\d+\t)\S+", r"\1<<unk>>", printed))
    unknown = ["--generated", str(tmp_path / "unknown")]
    assert run(files, GENERATED, "--references", "{}/ref.reversed", *unknown) == 0

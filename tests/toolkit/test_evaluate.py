"""Scores agree with sacrebleu's own command line; files that do not fit are refused."""

import importlib.util
import json
import random
import re
import subprocess
import sys
import time

import pytest

from ea_fairseq.commands import compare, evaluate
from ea_fairseq.recipes.results.scoring import check_words, split_compounds
from ea_fairseq.recipes.runs.generation import read_generated
from ea_fairseq.text.tokens import detokenize

WORDS = "The a cat Dog house sees likes not very well-known old tree , and it 's great".split()


@pytest.fixture
def files(tmp_path):
    """References and noisy translations: as tokens, as text, and as fairseq-generate prints."""
    choose = random.Random(5)
    references = [" ".join(choose.choices(WORDS, k=choose.randint(4, 12))) for _ in range(40)]
    hypotheses = []
    for line in references:
        words = line.split()
        words[choose.randrange(len(words))] = choose.choice(WORDS)
        hypotheses.append(" ".join(words).lower() if choose.random() < 0.3 else " ".join(words))
    hypotheses[7] = ""  # an empty translation still has its line
    lines = []
    for number in choose.sample(range(40), 40):  # ordered by length, as far as anyone can tell
        lines += [f"S-{number}\tquelle {number}", f"T-{number}\t{references[number]}"]
        lines += [f"H-{number}\t-0.5\t{hypotheses[number]}"]
        lines += [f"D-{number}\t-0.5\t{hypotheses[number]}", f"P-{number}\t-0.1 -0.2"]
    write(tmp_path / "generated", ["INFO | D-0 is not a line of results", *lines])
    write(tmp_path / "tok", references)
    write(tmp_path / "ref", detokenize(references, "en"))
    write(tmp_path / "hyp.tok", hypotheses)
    write(tmp_path / "hyp", detokenize(hypotheses, "en"))
    write(tmp_path / "src", [f"Quelle {number}." for number in range(40)])
    return tmp_path


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))


def run(folder, *options):
    fixed = ["--tokenized-references", str(folder / "tok"), "--references", str(folder / "ref")]
    if not {"--generated", "--hypotheses"} & set(options):
        fixed += ["--generated", str(folder / "generated")]
    return evaluate.main([*fixed, "--target-lang", "en", *options])


def sacrebleu(reference, hypothesis, *options):
    """sacrebleu as a user calls it."""
    command = [sys.executable, "-m", "sacrebleu", str(reference), "-i", str(hypothesis)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return found if isinstance(found, list) else [found]


@pytest.mark.parametrize("lowercase", [False, True])
def test_every_score_is_that_of_sacrebleus_command(files, lowercase):
    case = ["--lowercase"] if lowercase else []
    assert run(files, "--json", str(files / "out.json"), *case) == 0
    ours = json.loads((files / "out.json").read_text())["scores"]
    theirs = sacrebleu(
        files / "tok", files / "hyp.tok", "-tok", "none", "--force", "-w", "8", *LC[lowercase]
    )
    metrics = ["-m", "bleu", "chrf", "ter", "-w", "8"]
    theirs += sacrebleu(files / "ref", files / "hyp", *metrics, *LC[lowercase], *CHRF_LC[lowercase])
    assert [s["label"].split(",")[0] for s in ours] == [
        "tokenized BLEU",
        "sacreBLEU",
        "chrF",
        "TER",
    ]
    for mine, other in zip(ours, theirs, strict=True):
        assert mine["score"] == pytest.approx(other["score"], abs=1e-6)
        assert mine["signature"] == other["signature"]
        assert ("lower-cased" in mine["label"]) == (lowercase and mine["label"] != "TER")


LC = {False: [], True: ["-lc"]}
CHRF_LC = {False: [], True: ["--chrf-lowercase"]}


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


def test_compound_split_bleu_has_its_own_label_and_value(files):
    assert run(files, "--compound-split", "--json", str(files / "out.json")) == 0
    scores = {
        s["label"]: s["score"] for s in json.loads((files / "out.json").read_text())["scores"]
    }
    for name in ("hyp.tok", "tok"):
        lines = split_compounds((files / name).read_text().splitlines())
        write(files / f"{name}.split", lines)
    expected = sacrebleu(
        files / "tok.split", files / "hyp.tok.split", "-tok", "none", "--force", "-w", "8"
    )
    assert scores["compound-split BLEU"] == pytest.approx(expected[0]["score"], abs=1e-6)
    assert scores["compound-split BLEU"] != scores["tokenized BLEU"]


def test_plain_files_score_as_generated_ones(files):
    assert run(files, "--json", str(files / "a.json")) == 0
    tokens = ["--hypotheses", str(files / "hyp.tok")]
    assert run(files, *tokens, "--json", str(files / "b.json")) == 0
    a, b = (json.loads((files / name).read_text())["scores"] for name in ("a.json", "b.json"))
    assert a == b


def test_translations_come_out_in_the_order_of_the_corpus_empty_ones_too(files):
    assert run(files, "--text", str(files / "text")) == 0
    assert (files / "text").read_text() == (files / "hyp").read_text()
    assert (files / "text").read_text().split("\n")[7] == ""


@pytest.mark.parametrize(
    "language, text",
    [("fr", "l'eau"), ("FR", "l' eau"), ("fr_CA", "l' eau"), ("en", "l' eau"), ("de", "l' eau")],
)
def test_text_is_made_by_the_rules_of_the_target_language(tmp_path, capsys, language, text):
    write(tmp_path / "hyp", ["l' eau"])
    options = ["--hypotheses", tmp_path / "hyp", "--references", tmp_path / "hyp"]
    options += ["--target-lang", language, "--text", tmp_path / "text"]
    assert evaluate.main([str(option) for option in options]) == 0
    assert (tmp_path / "text").read_text() == f"{text}\n"
    warned = f"warning: --target-lang {language}: text is made by the rules of no language"
    assert (warned in capsys.readouterr().err) == (language in ("FR", "fr_CA"))


def test_the_first_of_nbest_counts(tmp_path):
    write(tmp_path / "g", ["D-1\t-1\tb", "D-1\t-2\tworse", "D-0\t-1\ta", "D-0\t-3\tworse"])
    assert read_generated(tmp_path / "g") == ["a", "b"]


def test_only_a_newline_ends_a_translation(tmp_path):
    odd = "a\u2028b\u0085c\rd"
    (tmp_path / "g").write_text(f"S-0\tx\nD-0\t-1\t{odd}\nS-1\ty\nD-1\t-1\te\n", newline="")
    assert read_generated(tmp_path / "g") == [odd, "e"]


@pytest.mark.parametrize(
    ("hypothesis", "decoded", "is_tokens"),
    [
        ("Ein Haus .", "Ein Haus .", True),
        ("Ein Ha@@ us .", "Ein Haus .", True),  # --bpe, without --post-process
        ("\u2581Ein \u2581Ha us \u2581.", "Ein Haus .", True),
        ("Ein Haus .", "Ein Haus.", False),  # --tokenizer moses
        ("", "", True),
    ],
)
def test_what_a_tokenizer_made_text_of_is_not_taken_for_tokens(
    tmp_path, hypothesis, decoded, is_tokens
):
    """It was made text a second time, and compared with tokenized references."""
    write(tmp_path / "g", [f"H-0\t-1\t{hypothesis}", f"D-0\t-1\t{decoded}"])
    if is_tokens:
        assert read_generated(tmp_path / "g") == [decoded]
    else:
        with pytest.raises(ValueError, match="D-0 is not made of the tokens of H-0: translate wit"):
            read_generated(tmp_path / "g")


@pytest.mark.parametrize("marked", ["translations", "references"])
def test_a_byte_order_mark_is_no_part_of_the_first_word(tmp_path, marked, capsys):
    for name in ("translations", "references"):
        mark = "\ufeff" if name == marked else ""
        (tmp_path / name).write_text(f"{mark}a b c d\n\ufeffe f g h\n", encoding="utf-8")
    options = [f"--{name}={tmp_path / name}" for name in ("translations", "references")]
    assert evaluate.main(options) == 0
    assert re.search(r"^sacreBLEU +100\.00 .*\n.*\nTER +0\.00 ", capsys.readouterr().out)


def test_missing_translations_are_named(tmp_path):
    write(tmp_path / "g", ["D-0\t-1\ta", "D-3\t-1\td"])
    with pytest.raises(ValueError, match="2 sentences without translation: 1, 2"):
        read_generated(tmp_path / "g")
    write(tmp_path / "g", ["S-0\tno translation"])
    with pytest.raises(ValueError, match="no translation in it"):
        read_generated(tmp_path / "g")


@pytest.mark.parametrize("shorter", ["tok", "ref", "src", "generated"])
def test_files_of_different_length_are_refused_with_names_and_counts(files, shorter, capsys):
    lines = (files / shorter).read_text().splitlines()
    if shorter == "generated":
        write(files / shorter, [line for line in lines if "-39\t" not in line])
    else:
        write(files / shorter, lines[:-1])
    options = ["--sources", str(files / "src"), "--json", str(files / "out.json")]
    assert run(files, *options) == 1
    error = capsys.readouterr().err
    assert str(files / shorter) in error and "39" in error and "40" in error
    assert error.count("\n") == 1
    assert not (files / "out.json").exists()


def test_missing_files_are_named(files, capsys):
    assert run(files, "--sources", str(files / "nowhere")) == 1
    assert f"{files / 'nowhere'}: no such file" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--generated", "--tokenized-references", "--references"])
def test_files_that_cannot_be_read_are_one_line(files, option, capsys):
    for path, reason in {"nowhere": "no such file", "folder": "cannot be read"}.items():
        (files / "folder").mkdir(exist_ok=True)
        assert run(files, option, str(files / path)) == 1
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and f"{files / path}: {reason}" in error
    assert run(files, "--json", str(files / "folder")) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_text_alone_has_the_scores_of_text_and_no_others(files):
    assert run(files, "--json", str(files / "tokens.json")) == 0
    options = ["--translations", files / "hyp", "--references", files / "ref"]
    assert evaluate.main([str(o) for o in [*options, "--json", files / "text.json"]]) == 0
    tokens, text = (
        {s["label"]: s for s in json.loads((files / f"{n}.json").read_text())["scores"]}
        for n in ("tokens", "text")
    )
    assert list(text) == ["sacreBLEU", "chrF", "TER"]
    assert text.items() < tokens.items()
    # Tokens without tokenized references are made text of.
    options = ["--hypotheses", files / "hyp.tok", "--references", files / "ref"]
    options += ["--target-lang", "en", "--json", files / "text.json"]
    assert evaluate.main([str(o) for o in options]) == 0
    assert [s["label"] for s in json.loads((files / "text.json").read_text())["scores"]] == list(
        text
    )


def test_empty_files_are_named(files, capsys):
    empty = files / "empty"
    empty.touch()
    assert evaluate.main(["--translations", str(empty), "--references", str(empty)]) == 1
    assert compare.main([str(empty), str(empty), "--references", str(empty)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and all("empty is empty: there is nothing" in line for line in lines)


def test_options_that_need_others_are_refused(files, capsys):
    for options, word in {
        ("--generated", "generated"): "--target-lang",
        ("--translations", "hyp", "--tokenized-references", "tok"): "--tokenized-references",
        ("--translations", "hyp", "--compound-split"): "--compound-split",
    }.items():
        arguments = [o if o.startswith("--") else str(files / o) for o in options]
        assert evaluate.main([*arguments, "--references", str(files / "ref")]) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"evaluate.py: error: {word}: ") and error.count("\n") == 1


@pytest.mark.parametrize("piece, remedy", [("Ha@@ us", "subword_nmt"), ("\u2581Haus", "sentencep")])
def test_pieces_of_words_are_refused_with_the_remedy(files, capsys, piece, remedy):
    for option, name in {
        "--generated": "generated",
        "--hypotheses": "hyp.tok",
        "--tokenized-references": "tok",
    }.items():
        before = (files / name).read_text()
        if option == "--generated":
            changed = re.sub(r"([HD]-39\t\S+\t).*", rf"\g<1>{piece}", before)
        else:
            changed = before + f"{piece}\n"
        (files / name).write_text(changed)
        assert run(files, option, str(files / name)) == 1
        error = capsys.readouterr().err
        assert piece.split()[0] in error and f"--post-process {remedy}" in error
        assert str(files / name) in error and error.count("\n") == 1
        (files / name).write_text(before)
    # What is no mark is scored: the head of a part of a diff, say.
    lines = (files / "hyp.tok").read_text().splitlines()
    write(files / "hyp.tok", ["@@ -1 +1 @@ a", *lines[1:]])
    assert run(files, "--hypotheses", str(files / "hyp.tok")) == 0


def test_long_words_are_looked_through_once():
    began = time.process_time()
    check_words({"a": ["x" * 1_000_000, "@@" * 500_000 + "x", "x@@\u00a0y", "a@@\ty @@", "@@@\t"]})
    with pytest.raises(ValueError, match="^a: 'b@@' in sentence 1 is"):
        check_words({"a": ["@@ a b@@ c@@"]})
    with pytest.raises(ValueError, match=r"^a: 'x{30}\.\.\.' in sentence 1 is"):
        check_words({"a": ["x" * 1_000_000 + "@@"]})
    assert time.process_time() - began < 5


@pytest.mark.parametrize("language", ["zh", "zh_TW", "ja", "de"])
def test_text_without_spaces_is_scored_by_smaller_parts(tmp_path, language, capsys):
    """Each clause was a word: one letter amiss, and no sentence had four words in common."""
    reference = "今天天气很好，我们一起去公园散步。"
    write(tmp_path / "ref", [reference] * 3)
    write(tmp_path / "hyp", [reference.replace("散", "跑")] * 3)
    options = ["--translations", tmp_path / "hyp", "--references", tmp_path / "ref"]
    options += ["--target-lang", language, "--json", tmp_path / "scores.json"]
    assert evaluate.main([str(option) for option in options]) == 0
    (score, *_) = json.loads((tmp_path / "scores.json").read_text())["scores"]
    expected = {"zh": "zh", "ja": "char"}.get(language[:2], "13a")
    assert f"tok:{expected}|" in score["signature"]
    assert score["score"] > 60 if language != "de" else score["score"] < 10
    # Beside a run of that language, a file is scored as the run is, and two files if it is named.
    (tmp_path / "run" / "scores").mkdir(parents=True)
    options[-1] = tmp_path / "run" / "scores" / "test.json"
    assert evaluate.main([str(option) for option in options]) == 0
    files = [tmp_path / "hyp", "--references", tmp_path / "ref", "--target-lang", language]
    for words in ([tmp_path / "run", tmp_path / "hyp"], [tmp_path / "hyp", *files]):
        words += ["--samples", "2", "--json", tmp_path / "rows.json"]
        assert compare.main([str(word) for word in words]) == 0
        (row, *_) = json.loads((tmp_path / "rows.json").read_text())["rows"]
        found = [*row["first"].values(), *row["second"].values()]
        assert found == [pytest.approx(score["score"])] * 2
    capsys.readouterr()


def test_comet_says_how_to_install_it_where_it_is_not(files, capsys):
    if importlib.util.find_spec("comet") is None:
        assert run(files, "--comet", "--sources", str(files / "src")) == 1
        assert "pip install unbabel-comet" in capsys.readouterr().err
    assert run(files, "--comet") == 1
    assert "--sources" in capsys.readouterr().err


def test_files_that_are_read_are_not_written_over(files, capsys):
    before = {path: path.read_bytes() for path in files.iterdir()}
    (files / "link").symlink_to(files / "ref")
    for option, name in [("--text", "ref"), ("--json", "tok"), ("--text", "link")]:
        assert run(files, option, str(files / name)) == 1
        errors = capsys.readouterr()
        assert f"{option} {files / name}: is the same file as" in errors.err and errors.out == ""
    both = str(files / "new")
    assert run(files, "--text", both, "--json", both) == 1
    assert f"--json {both}: is the file of --text" in capsys.readouterr().err
    (files / "link").unlink()
    assert {path: path.read_bytes() for path in files.iterdir()} == before


def test_references_of_another_test_set_are_refused(files, capsys):
    others = (files / "ref").read_text().splitlines()[::-1]
    write(files / "others", others)
    options = ["--generated", files / "generated", "--target-lang", "en"]
    given = [*options, "--references", files / "others", "--json", files / "out.json"]
    assert evaluate.main([str(option) for option in given]) == 1
    error = capsys.readouterr().err
    assert f"{files / 'others'}: of another test set than {files / 'generated'}" in error
    assert "of 40 have another reference there" in error and error.count("\n") == 1
    given = [*options, "--references", files / "ref", "--tokenized-references", files / "others"]
    assert evaluate.main([str(option) for option in given]) == 1
    assert f"{files / 'others'}: of another test set" in capsys.readouterr().err
    assert not (files / "out.json").exists()


def test_a_few_references_may_differ_from_the_data(files):
    """Cleaning may have changed some; unknown words are printed as such."""
    references = (files / "ref").read_text().splitlines()
    write(files / "ref", [*references[:25], *(f"{line} (laughs)" for line in references[25:])])
    assert run(files) == 0
    printed = (files / "generated").read_text()
    (files / "generated").write_text(re.sub(r"(T-\d+\t)\S+", r"\1<<unk>>", printed))
    write(files / "ref", references[::-1])
    assert run(files) == 0


@pytest.mark.parametrize("option", ["--translations", "--hypotheses", "--references", "--sources"])
@pytest.mark.parametrize(
    "line, told",
    [
        ("D-3\t-0.5\ta b", "give that as --generated"),
        ("-0.5\ta b", "ea-translate --scores"),
        ('{"source": "x"}', "ea-translate --json"),
    ],
)
def test_what_commands_print_beside_text_is_not_scored(files, capsys, option, line, told):
    translated = "--hypotheses" if option == "--hypotheses" else "--translations"
    given = {translated: files / "hyp", "--references": files / "ref", "--sources": files / "src"}
    write(files / "wrong", [line] * 40)
    given |= {option: files / "wrong", "--target-lang": "en"}
    assert evaluate.main([str(part) for pair in given.items() for part in pair]) == 1
    error = capsys.readouterr().err
    assert f"{files / 'wrong'}: has " in error and told in error and error.count("\n") == 1


def test_text_is_not_taken_for_tokens_of_references(files, capsys):
    options = ["--hypotheses", str(files / "hyp.tok"), "--references", str(files / "ref")]
    options += ["--target-lang", "en", "--tokenized-references", str(files / "ref")]
    assert evaluate.main(options) == 1
    assert f"{files / 'ref'}: is the text of --references" in capsys.readouterr().err

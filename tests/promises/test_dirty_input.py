"""N lines in, N translations out, in order, whatever stands in them; wrong options are named."""

import contextlib
import functools
import io
import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from fairseq import options
from fairseq_commands import USER_DIR, corpus, generation, run, trained
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ea_fairseq.attention.configuration import EAOptions
from ea_fairseq.attention.variants.evolving import EvolvingOptions
from ea_fairseq.errors import UserError
from ea_fairseq.guard import interactive as guarded
from ea_fairseq.text.lines import read_lines

CLEAN = [b"w1 w2", b"w3 w4 w5 w6", b"w7", b"w8 w9 w10"]
ODD = [
    *(b"", b"   ", b"\t", b"\x00", b"\x01\x02 \x1f", b"\x7f\xc2\x85"),  # empty, control characters
    *(b"\xff\xfe", b"w1 \xc3", b"\xe2\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"),  # broken UTF-8
    *(b"w1\r", b"w1\rw2", "w1\u2028w2\u2029w3\x0bw4\x0cw5\x1cw6".encode()),  # other ends of lines
    *("שלום w1 עולם".encode(), "\u202ew1 w2\u202c".encode(), "e\u0301\u200d".encode()),
    *(b"x" * 10_000, "ä".encode() * 10_000, b"w1@@ w2", b"@@ @@", "\u2581w1 \u2581".encode()),
    *(b"<s>", b"</s> w1", b"<pad> <pad>", b"<unk>", b"w1 </s>", b"w2 " * 1100, b"w3 " * 30),
    *(b"\xef\xbb\xbfw1", b"S-0\tw1", b"-1", b"--help", b"%s {} \\n $HOME `true`", b"\xef\xbf\xbd"),
]


def answers(output):
    """[(number, score, text)] of the best hypotheses, in the order in which they came."""
    lines = [line[2:].split("\t") for line in output.split("\n") if line.startswith("D-")]
    return [(int(number), float(score), text) for number, score, text in lines]


def translate(file, *more):
    arguments = ("--max-tokens", "20", "--input", file, *more)
    return run("interactive", *generation(corpus(), trained() / "checkpoint_last.pt", *arguments))


@pytest.mark.parametrize("buffering", [[], ["--buffer-size", "7"]])
@pytest.mark.parametrize("skip", [[], ["--skip-invalid-size-inputs-valid-test"]])
def test_odd_lines_are_answered_in_order_and_leave_the_others_alone(tmp_path, buffering, skip):
    lines = [line for odd in ODD for line in (odd, CLEAN[len(odd) % len(CLEAN)])]
    file = tmp_path / "input"
    file.write_bytes(b"\n".join(lines))  # the last line does not end
    done = translate(file, *buffering, *skip)
    assert done.status == 0, done.errors()
    found = answers(done.output())
    assert [number for number, _, _ in found] == list(range(len(lines)))
    alone = {line: answer for line, (_, *answer) in zip(CLEAN, clean_answers(), strict=True)}
    for line, (_, score, text) in zip(lines, found, strict=True):
        if line in alone:
            assert (pytest.approx(score, abs=1e-5), text) == tuple(alone[line]), line
        elif not line.strip():
            assert text == ""
    logged = done.output() + done.errors()
    for number, line in enumerate(lines, start=1):
        broken, long = f"line {number} of the input is not valid", f"line {number} of the input has"
        assert (broken in logged) == (line.decode(errors="ignore").encode() != line), line
        assert (long in logged) == (len(line.split()) > 20), line
    assert "has 1101 tokens, --max-tokens takes 20; its translation is left empty" in logged
    # fairseq's own symbols are unknown words.
    read = [line.split("\t")[1] for line in done.output().split("\n") if line.startswith("S-")]
    for number, line in enumerate(lines, start=1):
        named = {b"<s>", b"</s>", b"<pad>"} & set(line.split())
        assert (f"line {number} of the input: <" in logged) == bool(named), line
        if named:
            assert read[number - 1].split() == re.sub(rb"</?\w+>", b"<unk>", line).decode().split()


@functools.cache
def clean_answers():
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"\n".join(CLEAN))
        file.flush()
        return answers(translate(file.name).output())


def test_without_a_limit_of_tokens_it_is_that_of_the_model(tmp_path):
    file = tmp_path / "input"
    file.write_text("w1\n" + "w2 " * 1023 + "\n" + "w2 " * 1024 + "\nw3")
    arguments = generation(corpus(), trained() / "checkpoint_last.pt", "--input", file)
    at = arguments.index("--max-tokens")
    done = run("interactive", *arguments[:at], *arguments[at + 2 :], "--batch-size", "1")
    assert done.status == 0, done.errors()
    assert [bool(text) for _, _, text in answers(done.output())] == [True, True, False, True]
    assert "line 3 of the input has 1025 tokens, the model takes 1024" in done.output()


@pytest.mark.parametrize("content, count", [(b"", 0), (b"\n", 1), (b"\n\n", 2), (b"\r\n w1", 2)])
def test_no_line_and_empty_lines(tmp_path, content, count):
    file = tmp_path / "input"
    file.write_bytes(content)
    done = translate(file)
    assert done.status == 0 and len(answers(done.output())) == count


def test_each_line_of_standard_input_is_answered_before_the_next_is_read():
    program = Path(sys.executable).with_name("fairseq-interactive")
    arguments = generation(corpus(), trained() / "checkpoint_last.pt", "--max-tokens", "20")
    # An environment in which standard input and output would be ASCII.
    env = {**os.environ, "PYTHONPATH": str(Path(USER_DIR).parent), "PYTHONIOENCODING": "ascii"}
    env.pop("PYTHONUNBUFFERED", None)
    process = subprocess.Popen(
        [program, *map(str, arguments)],
        env={**env, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    too_long = threading.Timer(300, process.kill)  # reading then ends, where it would wait for ever
    too_long.start()
    with process:
        for number, line in enumerate([b"w1", b"\xff", b"w2 " * 50, "שלום".encode(), b"", b"w3"]):
            process.stdin.write(line + b"\n")
            process.stdin.flush()
            answer = b""
            while not answer.startswith(f"D-{number}\t".encode()):
                answer = process.stdout.readline()
                assert answer, f"ended at line {number}: {line}"
        process.stdin.close()
        assert process.wait() == 0
    too_long.cancel()


@pytest.mark.thorough
def test_a_hundred_thousand_lines(tmp_path):
    count = 100_000
    file = tmp_path / "input"
    file.write_bytes(b"".join(b"w%d\n" % (i % 20) if i % 50 == 0 else b"\n" for i in range(count)))
    many = ["--buffer-size", "20000", "--max-tokens", "8000", "--beam", "1"]
    done = translate(file, *many)
    assert done.status == 0, done.errors()
    found = answers(done.output())
    assert [number for number, _, _ in found] == list(range(count))
    assert all((text == "") == (number % 50 != 0) for number, _, text in found)


def in_this_process(content, *more):
    """What fairseq-interactive prints for a file of these bytes."""
    from fairseq_cli import interactive

    with tempfile.NamedTemporaryFile() as file, contextlib.redirect_stdout(io.StringIO()) as output:
        file.write(content)
        file.flush()
        parser = options.get_interactive_generation_parser()
        arguments = generation(corpus(), trained() / "checkpoint_last.pt", "--input", file.name)
        arguments = [str(argument) for argument in (*arguments, *more)]
        interactive.main(options.parse_args_and_arch(parser, arguments))
    return output.getvalue()


#: How UTF-16 and compressed files begin.
OTHER_FILES = (b"\xff\xfe", b"\xfe\xff", b"\x1f\x8b", b"BZh91AY&SY")
OTHER_FILES += (b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"PK\3\4")

LINES = st.lists(
    st.one_of(
        st.sampled_from(ODD + CLEAN),
        st.binary(max_size=30),
        st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")),
    ).map(lambda line: line.replace(b"\n", b"")),
    max_size=12,
)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(LINES, st.sampled_from([1, 2, 5]), st.booleans())
@example([b"\xff\xfe", b"w1"], 1, True)
def test_any_bytes_are_answered_or_known_as_another_file(lines, buffer_size, ended):
    content = b"\n".join(lines) + (b"\n" if ended else b"")
    count = content.count(b"\n") + (not content.endswith(b"\n") and content != b"")
    more = ("--max-tokens", "40", "--buffer-size", str(buffer_size))
    if content.startswith(OTHER_FILES) or re.match(rb"(?:[^\0]\0){2}|(?:\0[^\0]){2}", content):
        with pytest.raises(UserError):
            in_this_process(content, *more)
        return
    output = in_this_process(content, *more)
    found = answers(output)
    assert [number for number, _, _ in found] == list(range(count))
    alone = dict(zip(CLEAN, clean_answers(), strict=True))
    for line, (_, _, text) in zip(lines, found, strict=False):
        if line in alone:
            assert text == alone[line][2]


@pytest.fixture(scope="module")
def hub():
    """The model in Python, as fairseq's documentation loads it."""
    from fairseq.models.transformer import TransformerModel

    return TransformerModel.from_pretrained(
        str(trained()), "checkpoint_last.pt", data_name_or_path=str(corpus())
    )


def test_python_translates_every_string_and_goes_on_after_an_error(hub):
    texts = [line.decode("utf-8", "surrogateescape") for line in ODD if len(line.split()) < 1000]
    texts += ["\ud800 w1", "", "w1\nw2", *(line.decode() for line in CLEAN)]
    found = hub.translate(texts, beam=3)
    assert len(found) == len(texts) and hub.translate([]) == []
    assert found[-len(CLEAN) :] == [hub.translate(line.decode(), beam=3) for line in CLEAN]
    assert [text for text in texts if not text.strip()] and all(
        not answer for text, answer in zip(texts, found, strict=True) if not text.split()
    )
    for word in ("<s>", "<pad>", "</s>"):
        assert hub.encode(f"w1 {word} w2").tolist() == hub.encode("w1 unknown w2").tolist()
    with pytest.raises(Exception, match="Size of sample #0 is invalid"):
        hub.translate(["w1 " * 1100])
    assert hub.translate(texts, beam=3) == found


VALUES = st.one_of(
    st.text(max_size=12),
    st.floats(-0.5, 1.5).map(str),
    st.integers(-3, 12).map(str),
    st.sampled_from(
        ["nan", "inf", "-0", "1e-999", "0x1", "1_0", "١", "3.0", " 3", "none", "none,"]
    ),
    st.lists(st.sampled_from(["encoder", "decoder", "encoder-decoder", "none", ""])).map(",".join),
)
NAMES = sorted(EvolvingOptions.__dataclass_fields__)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(NAMES), VALUES)
@example("kernel_size", "1" * 5000)
@example("alpha", "\x00\n\ud800")
def test_any_value_of_an_option_is_taken_or_named_in_one_line(name, value):
    flag = "--ea-" + name.replace("_", "-")
    parser = options.get_training_parser()
    errors = io.StringIO()
    arguments = ["data", "--user-dir", USER_DIR, "--arch", "ea_transformer_lite", f"{flag}={value}"]
    with contextlib.redirect_stderr(errors):
        try:
            args = options.parse_args_and_arch(parser, arguments)
        except SystemExit as stop:
            assert stop.code == 2
            last = errors.getvalue().removesuffix("\n").split("\n")[-1]
            assert re.search(rf": error: argument {flag}: .*must be", last) and "'" in last
            with pytest.raises(UserError, match=flag):
                EvolvingOptions(**{name: value})
            return
    taken = EAOptions.from_namespace(args).options["evolving"]
    assert 0 <= taken.alpha <= 1 and 0 <= taken.beta <= 1 and taken.kernel_size in (1, 3, 5, 7, 9)


def test_reading_is_in_one_place(tmp_path):
    """What is replaced is what fairseq-interactive calls."""
    from fairseq_cli import interactive

    in_this_process(b"w1")
    assert interactive.buffered_read is guarded.buffered_read
    assert interactive.make_batches.__wrapped__.__module__ == "fairseq_cli.interactive"
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfa\r\n b \rc\n\xff")
    assert list(read_lines(tmp_path / "a")) == ["a", "b \rc", "\ufffd"]
    batches = list(guarded.buffered_read(tmp_path / "a", 2))
    assert [(batch.first, len(batch)) for batch in batches] == [(1, 2), (3, 1)]

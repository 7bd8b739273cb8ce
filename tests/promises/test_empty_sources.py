"""N lines in give N lines out, in order; an empty line gives an empty translation."""

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq_commands import binarize, corpus, generation, run, trained
from small_models import EOS, PAD, build, dictionary

LINES = ["", "w1 w2 w3", "w4", "", "   ", "w5 w6 w7 w8 w9 w10 w11", "\t", "w12 unseen", ""]
EMPTY = [not line.strip() for line in LINES]


def translations(output):
    """{line number: text} of the D lines, and their line numbers."""
    lines = [line for line in output.splitlines() if line.startswith("D-")]
    fields = [line[2:].split("\t") for line in lines]
    return {int(number): text for number, _, text in fields}, [int(f[0]) for f in fields]


@pytest.mark.parametrize("alignment", [[], ["--print-alignment"], ["--print-alignment", "soft"]])
def test_generate_answers_every_line(tmp_path, alignment):
    data = binarize(tmp_path, {"test": [(line, line) for line in LINES]}, corpus())
    checkpoint = trained() / "checkpoint_last.pt"
    done = run("generate", *generation(data, checkpoint, "--nbest", "3", *alignment))
    assert done.status == 0, done.errors()
    texts, order = translations(done.output())
    assert sorted(order) == sorted(list(range(len(LINES))) * 3)
    assert [texts[i] == "" for i in range(len(LINES))] == EMPTY


def test_all_sentences_are_translated_whatever_the_batch_multiple():
    # 11 sentences: fairseq's main branch drops the 3 beyond a multiple of 8.
    done = run("generate", *generation(corpus(), trained() / "checkpoint_last.pt"))
    assert sorted(translations(done.output())[1]) == list(range(11))


def batch(sources):
    """A left-padded sample as the translation task makes it; sources are lists of tokens."""
    width = max(map(len, sources)) + 1
    rows = [[PAD] * (width - len(s) - 1) + s + [EOS] for s in sources]
    lengths = torch.tensor([len(s) + 1 for s in sources])
    return {"net_input": {"src_tokens": torch.tensor(rows), "src_lengths": lengths}}


@pytest.fixture(params=[SequenceGenerator, SequenceGeneratorWithAlignment])
def translate(request):
    """Translates lists of tokens; with ``plain=True`` as fairseq does without this project."""
    model = build("transformer").eval()
    words = dictionary()
    task = TranslationTask(TranslationConfig(), words, words)
    beam_size = 3
    generator = request.param([model], words, beam_size=beam_size, max_len_b=6)

    def translate(sources, plain=False):
        if plain:
            return generator.generate([model], batch(sources))
        return task.inference_step(generator, [model], batch(sources))

    return translate


def same(hypotheses, others):
    """True if the lists of hypotheses of one sentence are equal to the bit."""
    return all(
        all(torch.equal(torch.as_tensor(a[key]), torch.as_tensor(b[key])) for key in a)
        for a, b in zip(hypotheses, others, strict=True)
    )


@pytest.mark.parametrize("sources", [[[], [5, 6, 7], [], [8]], [[4, 5], []], [[3]]])
def test_other_sentences_of_the_batch_are_untouched(translate, sources):
    found, plain = translate(sources), translate(sources, plain=True)
    for source, hypotheses, others in zip(sources, found, plain, strict=True):
        if source:
            assert same(hypotheses, others)


@pytest.mark.parametrize("sources", [[[]], [[], []], [[5, 6], []]])
def test_empty_hypotheses_have_the_shapes_of_others(translate, sources):
    for source, hypotheses in zip(sources, translate(sources), strict=True):
        if source:
            continue
        like = translate([[5]], plain=True)[0]
        assert len(hypotheses) == 3
        for hypothesis in hypotheses:
            assert hypothesis["tokens"].tolist() == [EOS]
            assert hypothesis["score"] == 0 and hypothesis["positional_scores"].tolist() == [0]
            width = max(map(len, sources)) + 1
            assert hypothesis["attention"].shape == (width, 1)
            assert hypothesis["attention"].sum() == 1 and len(hypothesis["alignment"]) == 0
            for key in ("tokens", "score", "attention", "positional_scores"):
                assert hypothesis[key].dtype == like[0][key].dtype
                assert hypothesis[key].dim() == like[0][key].dim()

"""Rationales: ERASER's measures, held to hand-computed cases."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples" / "language_understanding"))

import rationales  # noqa: E402
from rationales import Document, auprc, comprehensiveness, sufficiency, top_words  # noqa: E402
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast  # noqa: E402

from ea_fairseq.errors import UserError  # noqa: E402
from ea_fairseq.hf import evolve  # noqa: E402

WORDS = "a b c d e f g h i good".split()


def by_counting(documents):
    """p(positive) is 0.9 with "good", 0.2 without."""
    positive = np.array([0.9 if "good" in words else 0.2 for words in documents])
    return np.stack([1 - positive, positive], axis=1)


def test_top_words_round_up_and_are_one_at_least():
    scores = [0.1, 0.5, 0.3, 0.5]
    assert top_words(scores, 0.01) == [1]
    assert top_words(scores, 0.5) == [1, 3]
    assert top_words(scores, 0.51) == [1, 2, 3]


def test_comprehensiveness_and_sufficiency_by_hand():
    right = [0.0] * 9 + [1.0]
    # "good" is in each of the five rationales: without, p falls from 0.9 to 0.2; alone, it stays.
    assert comprehensiveness(WORDS, right, by_counting) == pytest.approx(0.7)
    assert sufficiency(WORDS, right, by_counting) == pytest.approx(0.0)
    # Last of ten: in none of the rationales.
    wrong = [9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0]
    assert comprehensiveness(WORDS, wrong, by_counting) == pytest.approx(0.0)
    assert sufficiency(WORDS, wrong, by_counting) == pytest.approx(0.7)
    # Third: in the rationale of 50 % alone; of 1, 5 and 10 % it is one word, of 20 % two.
    third = [9.0, 8.0, *[0.0] * 7, 7.0]
    assert comprehensiveness(WORDS, third, by_counting) == pytest.approx(0.7 / 5)
    assert sufficiency(WORDS, third, by_counting) == pytest.approx(4 * 0.7 / 5)


def test_auprc_by_hand():
    assert auprc([0.9, 0.8, 0.1], [True, True, False]) == pytest.approx(1.0)
    # Thresholds from the best word down: precision 0, 1/2, 2/3 at recall 0, 1/2, 1; it begins at
    # precision 1, recall 0: trapezoids (0 + 1/2) / 4 + (1/2 + 2/3) / 4.
    found = auprc([0.9, 0.8, 0.7], [False, True, True])
    assert found == pytest.approx((0 + 1 / 2) / 4 + (1 / 2 + 2 / 3) / 4)


@pytest.fixture(scope="module", params=["plain", "evolved"])
def folder(request, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##s"]
    (path / "vocab.txt").write_text("\n".join(pieces) + "\n")
    BertTokenizerFast(str(path / "vocab.txt"), model_max_length=32).save_pretrained(path)
    config = BertConfig(
        **dict(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8),
        **dict(vocab_size=len(pieces), max_position_embeddings=32, initializer_range=0.8),
    )
    model = BertForSequenceClassification(config)
    if request.param == "evolved":
        evolve(model, alpha=0.3, beta=0.3)
    model.save_pretrained(path)
    return path


def test_scores_are_of_words(folder):
    model, document = rationales.Explained(folder), Document(("a", "goods", "b"))
    found = model.attention(document)
    given = model.tokenizer("a goods b", return_tensors="pt")
    row = model.model(**given, output_attentions=True).attentions[-1][0, :, 0].mean(0).detach()
    expected = [row[1], row[2] + row[3], row[4]]  # after [CLS]: a good ##s b
    np.testing.assert_allclose(found, [float(one) for one in expected], rtol=1e-5)
    gradients = model.gradients(document)
    assert gradients.shape == (3,) and (gradients > 0).all()
    assert model.lime(document, samples=50).shape == (3,)


def test_lime_finds_the_word_that_counts():
    words = [*WORDS[:9], "good", "a"]
    scores = rationales.lime(words, by_counting, samples=300, seed=1)
    assert int(scores.argmax()) == 9 and scores[9] == pytest.approx(0.7, abs=0.1)
    assert abs(scores[:9]).max() < 0.1


def test_eraser_s_folders_are_read_and_measured(folder, tmp_path, capsys):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "one.txt").write_text("a good\nb c\n")
    span = {"docid": "one.txt", "start_token": 1, "end_token": 3, "text": "good b"}
    line = {"annotation_id": "one.txt", "query": "d", "evidences": [[span]]}
    (tmp_path / "val.jsonl").write_text(json.dumps(line) + "\n")
    document = Document(("a", "good", "b", "c"), "d", (False, True, True, False))
    assert rationales.read_documents(tmp_path) == [document]
    output = tmp_path / "found"
    other = shutil.copytree(folder, tmp_path / "other")
    command = [folder, "--data", tmp_path, "--output", output, "--picture", 0, "--beside", other]
    assert rationales.main(list(map(str, command))) == 0
    assert "AUPRC is left out" not in capsys.readouterr().out
    results = json.loads(output.with_suffix(".json").read_text())
    assert results["lime"].keys() == {"comprehensiveness", "sufficiency", "auprc"}
    page = output.with_suffix(".html").read_text()
    assert page.count(">good</span>") == 2
    (tmp_path / "val.jsonl").write_text('{"evidences": 3}\n')
    with pytest.raises(UserError, match="line 1: not an annotation of ERASER"):
        rationales.read_documents(tmp_path)


def test_without_annotations_auprc_is_left_out_and_said_so(folder, tmp_path, capsys):
    (tmp_path / "SST-2").mkdir()
    (tmp_path / "SST-2" / "dev.tsv").write_text("label\tcontent\n1\ta good b\n0\tc d\n")
    assert rationales.main([str(folder), "--data", str(tmp_path / "SST-2"), "--most", "1"]) == 0
    printed = capsys.readouterr().out
    assert "1 documents" in printed and "AUPRC is left out" in printed

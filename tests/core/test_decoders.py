"""The compiled decoder: what the model's full pass says, for every search."""

import ctypes
import gc
import re
import weakref

import pytest
import torch
from compiled import needs_compiler
from small_folders import WORDS, strong, write_folder
from small_models import EOS, PAD, dictionary, padded, settings_of

from ea_fairseq import Translator
from ea_fairseq.commands.translate import main
from ea_fairseq.inference.build_model import build_model
from ea_fairseq.inference.compiled_models import compiled_model
from ea_fairseq.inference.decoders import CompiledDecoder
from ea_fairseq.inference.model_folder import Search
from ea_fairseq.inference.search import BeamSearch, _Batch
from ea_fairseq.kernels.cpp.library import torch_alone
from ea_fairseq.kernels.fused_decoder import Rules

pytestmark = needs_compiler

EVERYWHERE = "encoder,decoder,encoder-decoder"
UNK = 3
# (architecture, options): every option that the compiled decoder knows.
MODELS = {name: ("ea_transformer_lite", options) for name, options in settings_of("evolving")}
MODELS = {name: model for name, model in MODELS.items() if "learned_mixing" not in name}
MODELS |= {
    "plain": ("transformer_lite", {}),
    "plain variant": ("ea_transformer_lite", {"ea_variant": "plain"}),
    "kernel of 9": ("ea_transformer_lite", {"ea_kernel_size": 9, "ea_skip": EVERYWHERE}),
    "norms behind": ("ea_transformer_lite", {"decoder_normalize_before": False}),
    "norms in front": ("ea_transformer_lite", {"decoder_normalize_before": True}),
    "learned positions": ("ea_transformer_lite", {"decoder_learned_pos": True}),
    "no positions": ("transformer_lite", {"no_token_positional_embeddings": True}),
    "norm of embeddings": ("transformer_lite", {"layernorm_embedding": True}),
    "shared embeddings": ("transformer_lite", {"share_decoder_input_output_embed": True}),
}
# Heads of more than a vector and of less, columns that fill no panel, several pieces of logits.
SIZES = {
    **{"encoder_embed_dim": 60, "encoder_ffn_embed_dim": 30, "encoder_attention_heads": 5},
    **{"decoder_embed_dim": 60, "decoder_ffn_embed_dim": 70, "decoder_attention_heads": 3},
    **{"encoder_layers": 2, "decoder_layers": 3},
    **{"max_source_positions": 64, "max_target_positions": 64},
}


def large(arch, options, vocabulary=300, sizes=SIZES):
    """A float32 model whose every part shows in the scores."""
    torch.manual_seed(3)
    words = dictionary(vocabulary)
    model = build_model(arch, {**sizes, **options}, (words, words)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "layer_norm" in name or "layernorm" in name:
                parameter.normal_(mean=float(name.endswith("weight")), std=0.2)
            else:
                parameter.normal_(std=0.8 if ".transform." in name else 0.15)
    return model


class Steps:
    """A compiled decoder beside the full pass over the same prefixes.

    Args:
        model: in float32
        lengths: of random sources
        int8: whether what is compiled multiplies bytes
        compiled: whether there is a compiled decoder
    """

    def __init__(self, model, lengths, seed=1, int8=False, compiled=True):
        self.model, self.generator = model, torch.Generator().manual_seed(seed)
        self.vocabulary = len(model.decoder.dictionary)
        self.sources = [self.draw(length, first=4) for length in lengths]
        self.decoder = None
        if compiled:
            parts = compiled_model(model, int8)
            encoded = parts.encoder([source.tolist() for source in self.sources])
            rules = Rules(PAD, EOS, UNK, unk_penalty=0.5)
            self.decoder = CompiledDecoder(parts.decoder, encoded, lengths, rules)
        self.sentences = torch.arange(len(lengths))
        self.tokens = torch.full((len(lengths), 1), EOS)

    def draw(self, count, first=0, below=None):
        return torch.randint(first, below or self.vocabulary, (count,), generator=self.generator)

    def step(self):
        """Log-probabilities of all tokens, by token, from the compiled decoder."""
        most = self.vocabulary
        last = torch.zeros(len(self.tokens), dtype=torch.bool)
        best, token = self.decoder.best(self.tokens, self.sentences, most, False, last)
        assert torch.equal(best, best.sort(dim=1, descending=True).values)
        return torch.full_like(best, -torch.inf).scatter(1, token[:, :-1], best[:, :-1])

    @torch.no_grad()
    def full(self):
        """The same from the model's full pass, on torch alone."""
        with torch_alone():
            sources = padded([self.sources[i] for i in self.sentences], left=True)
            logits = self.model(sources, None, self.tokens)[0][:, -1]
        expected = logits.log_softmax(dim=1)
        expected[:, PAD] = -torch.inf
        expected[:, UNK] -= 0.5
        return expected

    def go_on(self, kept, beam):
        """Other hypotheses: for each sentence that stays, `beam` of its old ones at random."""
        rows = [torch.where(self.sentences == sentence)[0] for sentence in kept]
        order = torch.cat([row[self.draw(beam, below=len(row))] for row in rows])
        self.sentences = self.sentences[order]
        self.tokens = torch.cat([self.tokens[order], self.draw(len(order), 4)[:, None]], dim=1)
        if self.decoder is not None:
            self.decoder.reorder(order)


@pytest.mark.parametrize("arch, options", MODELS.values(), ids=MODELS.keys())
def test_steps_of_a_reordered_shrinking_beam_equal_the_full_pass(arch, options):
    # The longest fills more than two vectors of any processor: lines made for another's do not do.
    steps = Steps(large(arch, options), lengths=[3, 1, 37, 9])
    for time in range(22):
        assert torch.allclose(steps.step(), steps.full(), atol=3e-5, rtol=1e-5)
        # Sentences leave one after the other; the beam changes its size.
        kept = [n for n, end in enumerate((30, 4, 19, 12)) if time < end]
        steps.go_on(kept, beam=1 + (3 * time + 2) % 5)


def test_any_number_of_threads_gives_the_same_bits():
    model = large("ea_transformer_lite", {"ea_skip": EVERYWHERE})
    found = []
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            steps = Steps(model, lengths=[5, 2, 7, 3, 4])
            scores = [steps.step()]
            for kept in ([0, 1, 2, 3, 4], [0, 2, 3], [3]):
                steps.go_on(kept, beam=3)
                scores.append(steps.step())
            found.append(torch.cat(scores))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(found[0], other) for other in found[1:])


def test_a_beam_wider_than_a_block_of_rows_equals_the_full_pass():
    steps = Steps(large("ea_transformer_lite", {}, vocabulary=40), lengths=[4, 6])
    for beam in (1, 100, 130, 7):
        assert torch.allclose(steps.step(), steps.full(), atol=3e-5, rtol=1e-5)
        steps.go_on([0, 1], beam)


def searched(model, batch, search, compiled, int8=False):
    owner = BeamSearch([model], model.decoder.dictionary, int8)
    assert owner.compiled is not None
    if not compiled:
        owner.compiled = None
    return owner(batch, search)


def same(found, expected):
    assert [[h.tokens for h in hypotheses] for hypotheses in found] == [
        [h.tokens for h in hypotheses] for hypotheses in expected
    ]
    for ours, theirs in zip(found, expected, strict=True):
        for mine, other in zip(ours, theirs, strict=True):
            assert mine.score == pytest.approx(other.score, abs=2e-5)
            assert mine.token_scores == pytest.approx(other.token_scores, abs=1e-4)
            assert mine.cut == other.cut


@pytest.mark.parametrize("arch", ["ea_transformer_lite", "transformer_lite"])
@pytest.mark.parametrize(
    "search",
    [
        Search(beam=4, min_len=4, max_len_b=9, unkpen=-3.0),
        Search(max_len_a=0.3, max_len_b=0, min_len=3),
    ],
    ids=["from 4 tokens", "from 3 tokens, limits by length"],
)
def test_a_search_finds_what_torch_finds(arch, search):
    """That both find what fairseq finds, for every setting: see test_search.py."""
    model, generator = strong(arch), torch.Generator().manual_seed(5)
    lengths = torch.randint(1, 10, (30,), generator=generator).tolist()
    draw = (torch.randint(4, 24, (length,), generator=generator) for length in lengths)
    batch = [[*source.tolist(), EOS] for source in draw]
    found = searched(model, batch, search, compiled=True)
    same(found, searched(model, batch, search, compiled=False))
    # Alone, a sentence has the same bits: no padding, no sum that others are part of.
    assert found[:5] == [searched(model, [source], search, True)[0] for source in batch[:5]]


@pytest.mark.parametrize(
    "arch, options",
    [
        ("ea_transformer_lite", {"ea_variant": "residual"}),
        ("ea_transformer_lite", {"ea_variant": "talking_heads"}),
        ("ea_transformer_lite", {"ea_learned_mixing": True}),
        ("ea_transformer_lite", {"ea_scores": "multiplicative"}),
        ("ea_transformer_lite", {"ea_branch": "convolution", "ea_variant": "evolving"}),
        ("ea_transformer_lite", {"activation_fn": "gelu"}),
        ("ea_transformer_lite", {"adaptive_softmax_cutoff": "8,12"}),
        ("transformer_lite", {"cross_self_attention": True}),
        ("transformer_lite", {"no_cross_attention": True, "cross_self_attention": True}),
    ],
    ids=str,
)
def test_what_is_not_compiled_is_left_to_torch(arch, options):
    words = dictionary()
    sizes = {**SIZES, "decoder_attention_heads": 2, "encoder_attention_heads": 2}
    model = build_model(arch, {**sizes, **options}, (words, words)).eval()
    assert compiled_model(model) is None
    assert BeamSearch([model], words)([[5, 6, EOS]], Search(max_len_b=3))[0]


@pytest.mark.parametrize(
    "options",
    [
        {"ea_variant": "encoder=residual,decoder=evolving,encoder-decoder=evolving"},
        {"max_source_positions": 5},
    ],
    ids=["another variant", "sentences longer than it was made for"],
)
def test_an_encoder_that_is_not_compiled_goes_with_a_decoder_that_is(options):
    model = large("ea_transformer_lite", options)
    batch = [[*range(5, 5 + length), EOS] for length in (3, 9, 1)]
    search = Search(max_len_b=8)
    same(searched(model, batch, search, True), searched(model, batch, search, False))


def test_training_other_precisions_and_torch_alone_are_left_to_torch():
    model = strong("ea_transformer_lite")
    assert compiled_model(model) is not None
    assert compiled_model(model.train()) is None
    assert compiled_model(model.eval().to(torch.bfloat16)) is None
    assert compiled_model(model.double()) is None
    model = model.float()
    with torch_alone():
        assert compiled_model(model) is None
    model.decoder.layers[0].dropout_module.apply_during_inference = True
    assert compiled_model(model) is None


def test_weights_that_change_are_compiled_anew():
    """Half of the old ones, and words of the new, were the weights of no model."""
    model, other = strong("ea_transformer_lite", seed=1), strong("ea_transformer_lite", seed=2)
    batch, search = [[5, 6, 7, EOS], [9, EOS], [8, 4, EOS]], Search(max_len_b=9)
    owner = BeamSearch([model], model.decoder.dictionary)
    before, compiled = owner(batch, search), owner.compiled
    assert owner(batch, search) == before and owner.compiled is compiled
    model.load_state_dict(other.state_dict())
    expected = searched(other, batch, search, compiled=True)
    assert owner(batch, search) == expected != before
    with torch.no_grad():
        for changed in (model, other):
            changed.encoder.layers[0].fc1.weight.mul_(-1)
    assert owner(batch, search) == searched(other, batch, search, compiled=True) != expected
    # Behind torch's back they are seen after this.
    for changed in (model, other):
        changed.encoder.layers[1].fc1.weight.data.mul_(-1)
    model.load_state_dict(model.state_dict())
    assert owner(batch, search) == searched(other, batch, search, compiled=True)
    # What is drawn at random in training is drawn here, too.
    assert owner.usable() is owner.compiled
    model.train()
    assert owner.usable() is None


def test_what_the_library_holds_is_not_freed_while_the_process_ends():
    """Another thread may be in it: a page's, with the last request."""
    model = strong("ea_transformer_lite")
    owner = BeamSearch([model], model.decoder.dictionary)
    held = [owner.compiled.encoder, owner.compiled.decoder]
    held.append(held[1].begin(held[0]([[5, EOS]]), [2]))
    finalizers = {id(found[0]): f for f in weakref.finalize._registry if (found := f.peek())}
    assert [finalizers[id(one)].atexit for one in held] == [False] * 3


def test_a_source_with_padding_inside_is_left_to_torch():
    model = strong("ea_transformer_lite")
    batch, search = [[5, PAD, 6, EOS], [7, EOS]], Search(max_len_b=6)
    same(searched(model, batch, search, True), searched(model, batch, search, False))


def test_a_source_that_ends_at_once_leaves_its_keys_to_no_other():
    """Two rows before and after: fairseq's attention took them for the same."""
    models = [strong("transformer_lite"), strong("transformer_lite")]  # several: on torch
    search = BeamSearch(models, models[0].decoder.dictionary)
    settings = Search(beam=2, min_len=0, max_len_a=0.2, max_len_b=0)
    sources = [[5, 6, EOS], [9, 8, 7, 6, 5, 4, EOS]]
    together = search(sources, settings)
    for source, found in zip(sources, together, strict=True):
        same([found], search([source], settings))


@pytest.mark.parametrize(
    "compiled, int8, name, value",
    [
        (False, False, "bias", "nan"),
        (True, False, "bias", "nan"),
        (True, True, "bias", "nan"),
        (True, True, "weight", "nan"),
        (True, True, "weight", "inf"),
    ],
)
def test_a_model_that_is_no_number_finds_nothing(compiled, int8, name, value):
    model = strong("transformer_lite")
    with torch.no_grad():
        getattr(model.decoder.layers[0].fc1, name).view(-1)[3] = float(value)
    assert searched(model, [[5, EOS]], Search(max_len_b=3), compiled, int8) == [[]]


def test_attention_costs_a_pass_over_the_translations_that_are_wanted_alone(tmp_path):
    path = write_folder(tmp_path / "model")
    translator = Translator(path)
    passed = []  # rows of torch's decoder, which nothing else needs
    translator.models[0].decoder.register_forward_pre_hook(
        lambda module, args: passed.append(len(args[0]))
    )
    texts = [" ".join(WORDS[:n]) for n in range(1, 5)]
    without = translator.translate(texts, details=True, attention=False, n_best=2)
    assert passed == []
    for n_best in (1, 2):
        passed.clear()
        found = translator.translate(texts, details=True, n_best=n_best)
        assert sum(passed) == n_best * len(texts)
    for ours, theirs in zip(without, found, strict=True):
        for mine, other in zip(ours, theirs, strict=True):
            assert mine.attention is None and other.attention is not None
            assert (mine.text, mine.token_scores) == (other.text, other.token_scores)


def test_the_command_asks_for_attention_where_it_prints_alignments(tmp_path, monkeypatch, capsys):
    attend, asked = _Batch._attend, []
    monkeypatch.setattr(_Batch, "_attend", lambda batch: asked.append(batch) or attend(batch))
    path = write_folder(tmp_path / "model")
    (tmp_path / "in.txt").write_text("w1 w2\n")
    for options, count in (([], 0), (["--json", "--scores"], 0), (["--alignments"], 1)):
        assert main([str(path), "--input", str(tmp_path / "in.txt"), *options]) == 0
        assert len(asked) == count
    assert re.search(r"\t[01]-0 ", capsys.readouterr().out.splitlines()[-1])


def test_searches_and_models_leave_no_memory_behind():
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        pytest.skip("no mallinfo2 of glibc's")

    class Info(ctypes.Structure):
        _fields_ = [(f"field{i}", ctypes.c_size_t) for i in range(10)]

    libc.mallinfo2.restype = Info

    def in_use():
        gc.collect()
        info = libc.mallinfo2()
        return info.field4 + info.field7  # of maps of their own, and of the heap

    model = strong("ea_transformer_lite")
    search = Search(max_len_b=12)
    batch = [[*range(4, 4 + n), EOS] for n in range(1, 15)]

    def work(times):
        for _ in range(times):
            searched(model, batch, search, compiled=True)

    work(3)
    before = in_use()
    work(20)
    assert in_use() - before < 100_000  # one search alone takes some 1 MB

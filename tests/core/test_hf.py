"""Evolving attention in models of Hugging Face's transformers."""

import copy
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import hf_models
import numpy as np
import pytest
import score_references
import torch
from hf_models import (
    BOTH,
    DECODERS,
    FAMILIES,
    IMAGES,
    WORDS,
    enlarge,
    first,
    inputs,
    kept,
    make,
    settings,
)
from pages import DOCS, blocks
from reference import masked_softmax
from references.evolving import evolve_map
from safetensors.torch import load_file, save_file
from torch.nn.functional import gelu, layer_norm
from transformers import (
    AlbertConfig,
    AlbertModel,
    AttentionInterface,
    AutoModel,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertLMHeadModel,
    BertModel,
    DebertaV2Config,
    DebertaV2Model,
    EncoderDecoderModel,
    Gemma2Config,
    Gemma2Model,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    SwitchTransformersConfig,
    SwitchTransformersForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from ea_fairseq.errors import UserError
from ea_fairseq.files import read_json
from ea_fairseq.hf import evolve, load, versions
from ea_fairseq.hf.attending import NAME
from ea_fairseq.hf.finding import find_attentions
from ea_fairseq.hf.passes import PASS, Pass

SMALL = dict(
    **dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16),
    vocab_size=60,
)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("family", FAMILIES)
def test_neutral_settings_leave_the_model_as_it_was(family, side):
    plain, given = make(family), inputs(family, side)
    model = evolve(copy.deepcopy(plain), **settings(family, 0.0, 0.0))
    expected, found = first(plain, given), first(model, given)
    if (mask := kept(family, given)) is not None:
        expected, found = expected[mask], found[mask]
    assert expected.std() > 0.1
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    evolved = first(evolve(copy.deepcopy(plain), **settings(family, 0.4, 0.5)), given)
    evolved = evolved if mask is None else evolved[mask]
    assert (evolved - expected).abs().max() > 1e-2


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in IMAGES])
def test_a_sentence_is_the_same_alone_and_in_a_batch(family, side):
    if side == "left" and family in ("distilbert", "bart", "marian"):
        pytest.skip("its positions cannot be told to begin after padding")
    model = enlarge(evolve(make(family, torch.float64), **settings(family, 0.4, 0.5)))
    given = hf_models.with_positions(family, inputs(family, side))
    together, mask = first(model, given), kept(family, given)
    for index in range(3):
        alone = first(model, hf_models.one_sentence(given, index))[0]
        torch.testing.assert_close(together[index][mask[index]], alone, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("family", [*BOTH, *DECODERS])
def test_later_tokens_change_no_earlier_output(family):
    model = enlarge(evolve(make(family, torch.float64), **settings(family, 0.4, 0.5)))
    given = inputs(family)
    name = "decoder_input_ids" if family in BOTH else "input_ids"
    changed = {**given, name: given[name].clone()}
    changed[name][:, -2:] = 5
    before, after = first(model, given)[:, :-2], first(model, changed)[:, :-2]
    torch.testing.assert_close(before, after, atol=1e-10, rtol=0)
    assert not torch.equal(first(model, given)[:, -2:], first(model, changed)[:, -2:])


def test_a_model_around_it_may_leave_the_causal_mask_out():
    """As it does for sdpa: the text model of one of pictures and text, say."""
    sizes = dict(num_key_value_heads=2, head_dim=8, initializer_range=0.4)
    model = MistralForCausalLM(MistralConfig(**SMALL, **sizes, sliding_window=None)).eval()
    evolve(model, beta=0.6)
    ids = torch.randint(60, (2, 9))
    later = ids.clone()
    later[:, 5:] = 7

    def run(ids):
        begun = {PASS: Pass(keep=False)}
        states = model.model.embed_tokens(ids)
        places = model.model.rotary_emb(states, torch.arange(9)[None])
        for layer in model.model.layers:
            states = layer(states, attention_mask=None, position_embeddings=places, **begun)
        return states[:, :5]

    with torch.no_grad():
        assert torch.equal(run(ids), run(later))


def test_a_model_that_it_is_put_into_keeps_its_weights():
    """post_init() draws anew what transformers has not marked as drawn."""
    model = evolve(BertModel(BertConfig(**SMALL)), alpha=0.1, beta=0.9).eval()
    before = copy.deepcopy(model.state_dict())
    decoder = BertLMHeadModel(BertConfig(**SMALL, is_decoder=True, add_cross_attention=True))
    EncoderDecoderModel(encoder=model, decoder=decoder)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_frozen_parts_stay_in_evaluation_mode():
    model = BertModel(BertConfig(**SMALL)).train()
    model.embeddings.eval()
    evolve(model, alpha=0.1, beta=0.1)
    assert model.training and not model.embeddings.training


def test_padding_changes_nothing_in_a_decoder_of_one_layer():
    sizes = dict(vocab_size=60, d_model=16, d_kv=4, d_ff=24, num_heads=4, num_layers=2)
    config = T5Config(**sizes, num_decoder_layers=1, decoder_start_token_id=0)
    model = T5ForConditionalGeneration(config).double().eval()
    evolve(model, "encoder=evolving,decoder=evolving,encoder-decoder=evolving", alpha=0.1, beta=0.9)
    enlarge(model)
    source, target = torch.randint(3, 60, (2, 9)), torch.randint(3, 60, (2, 6))
    mask = torch.ones_like(target)
    mask[1, :3] = 0
    with torch.no_grad():
        given = dict(decoder_input_ids=target, decoder_attention_mask=mask)
        together = model(input_ids=source, **given).logits[1, 3:]
        alone = model(input_ids=source[1:], decoder_input_ids=target[1:, 3:]).logits[0]
        torch.testing.assert_close(together, alone, atol=1e-9, rtol=1e-9)
        assert model.generate(source, max_new_tokens=4).size(1) > 1


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_another_model_of_the_same_configuration_stays_plain(family):
    """The usual way to compare a plain and an evolved model."""
    plain = make(family)
    expected = first(plain, inputs(family))
    evolved = evolve(type(plain)(plain.config), beta=0.1)
    torch.testing.assert_close(first(plain, inputs(family)), expected)
    configs = {id(one.config) for one in evolved.modules() if hasattr(one, "config")}
    assert not configs & {id(one.config) for one in plain.modules() if hasattr(one, "config")}
    evolve(type(plain)(plain.config), beta=0.1)


def slow_bert(model, ids, alpha, beta):
    """A BERT of one sentence, its maps by loops: the equations, in float64."""
    weights = {name: value.detach() for name, value in model.state_dict().items()}
    size = model.config.hidden_size // model.config.num_attention_heads

    def linear(x, name):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(x, name):
        return layer_norm(
            x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-12
        )

    x = weights["embeddings.word_embeddings.weight"][ids]
    x = x + weights["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    visible, carry = np.ones((len(ids), len(ids)), dtype=bool), None
    for layer in range(model.config.num_hidden_layers):
        base = f"encoder.layer.{layer}"
        queries, keys, values = (
            linear(x, f"{base}.attention.self.{name}").unflatten(1, (-1, size)).transpose(0, 1)
            for name in ("query", "key", "value")
        )
        logits = (queries @ keys.transpose(1, 2)).numpy() / size**0.5
        convolution = f"{base}.attention.self.ea.transform.convolution"
        kernel, bias = (weights[f"{convolution}.{name}"].numpy() for name in ("weight", "bias"))
        carry = evolve_map(logits, carry, visible, kernel, bias, "encoder", alpha, beta)
        attended = torch.from_numpy(masked_softmax(carry, visible)) @ values
        attended = linear(attended.transpose(0, 1).flatten(1), f"{base}.attention.output.dense")
        x = norm(x + attended, f"{base}.attention.output.LayerNorm")
        inner = linear(gelu(linear(x, f"{base}.intermediate.dense")), f"{base}.output.dense")
        x = norm(x + inner, f"{base}.output.LayerNorm")
    return x


def test_bert_computes_the_equations():
    model = enlarge(evolve(make("bert", torch.float64), alpha=0.4, beta=0.5))
    given = inputs("bert")
    found = first(model, given)
    for index, length in enumerate((9, 6, 4)):
        expected = slow_bert(model, given["input_ids"][index, :length], 0.4, 0.5)
        torch.testing.assert_close(found[index, :length], expected, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("scores", ["dense_synthesizer", "random_synthesizer"])
def test_synthesizers_make_the_logits(scores):
    model = evolve(make("bert", torch.float64), "plain", scores=scores)
    given = hf_models.one_sentence(inputs("bert"), 1)
    found = model(**given, output_attentions=True).attentions[0][0]
    attention = model.encoder.layer[0].attention.self
    queries = attention.query(model.embeddings(given["input_ids"])[0])
    queries = queries.unflatten(1, (4, 4)).transpose(0, 1).detach().numpy()
    weights = {name: p.detach().numpy() for name, p in attention.ea.scores.named_parameters()}
    logits = score_references.logits(scores, queries, None, weights, 4, 6, 6)
    expected = masked_softmax(logits, np.ones((6, 6), dtype=bool))
    torch.testing.assert_close(found, torch.from_numpy(expected), atol=1e-9, rtol=1e-9)


def test_every_parameter_gets_a_gradient_and_first_layers_carry_is_none():
    model = evolve(make("t5"), **settings("t5", 0.3, 0.3, learned_mixing=True))
    first(model, inputs("t5")).square().sum().backward()
    for name, parameter in model.named_parameters():
        if ".ea." in name:
            assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


@pytest.mark.filterwarnings("ignore:`gradient_checkpointing_enable` is deprecated")
@pytest.mark.parametrize("family", ["bert", "t5", "gpt2"])
def test_gradient_checkpointing_gives_the_same_gradients(family):
    plain = enlarge(evolve(make(family, torch.float64), **settings(family, 0.4, 0.5)))
    model = copy.deepcopy(plain)
    given = inputs(family)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    for one in (plain, model):
        for module in one.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
            elif isinstance(getattr(module, "dropout", None), float):
                module.dropout = 0.0
        first(one.train(), given).square().sum().backward()
    for (name, expected), found in zip(plain.named_parameters(), model.parameters(), strict=True):
        if expected.grad is not None:
            torch.testing.assert_close(found.grad, expected.grad, msg=name)
    model.gradient_checkpointing_enable({"use_reentrant": True})
    with pytest.raises(UserError, match="use_reentrant=False"):
        given = {**given, "inputs_embeds": torch.randn(3, 9, 16, dtype=torch.float64)}
        del given["input_ids"]
        first(model, {**given, "inputs_embeds": given["inputs_embeds"].requires_grad_()})


def test_a_pass_leaves_nothing_behind_when_it_fails():
    model, given = evolve(make("bert"), alpha=0.4, beta=0.5), inputs("bert")
    expected = first(model, given)
    broken = model.encoder.layer[1].output.dense
    forward, broken.forward = broken.forward, None
    with pytest.raises(TypeError):
        first(model, given)
    broken.forward = forward
    assert torch.equal(first(model, given), expected)
    # Nor is a replica, as DataParallel makes them, another model.
    replica = model._replicate_for_data_parallel()
    assert replica is not model and torch.equal(first(replica, given), expected)


def test_two_threads_share_a_model():
    model = evolve(make("bert", torch.float64), alpha=0.4, beta=0.5)
    batches = [hf_models.one_sentence(inputs("bert"), index) for index in (0, 1)]
    expected = [first(model, batch) for batch in batches]
    start = threading.Barrier(2)

    def all_equal(index):
        start.wait()
        with torch.no_grad():
            found = [first(model, batches[index]) for _ in range(20)]
        return all(torch.equal(one, expected[index]) for one in found)

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(all_equal, (0, 1)))


def test_bfloat16_and_autocast_are_near_float32():
    model, given = evolve(make("bert"), alpha=0.4, beta=0.5), inputs("bert")
    expected = first(model, given)
    with torch.autocast("cpu", torch.bfloat16):
        automatic = first(model, given)
    halved = first(copy.deepcopy(model).to(torch.bfloat16), given)
    for found in (automatic, halved):
        pair = found.float()[0].flatten(), expected[0].flatten()
        assert torch.nn.functional.cosine_similarity(*pair, dim=0) > 0.999


def test_attentions_come_where_they_are_asked_for():
    model, given = evolve(make("t5"), **settings("t5", 0.4, 0.5)), inputs("t5")
    assert model(**given).encoder_attentions is None
    found = model(**given, output_attentions=True)
    for maps, shape in (
        (found.encoder_attentions, (3, 4, 9, 9)),
        (found.decoder_attentions, (3, 4, 6, 6)),
        (found.cross_attentions, (3, 4, 6, 9)),
    ):
        assert [tuple(one.shape) for one in maps] == [shape] * 3
        sums = maps[1].sum(-1)
        assert torch.all((sums - 1).abs().lt(1e-5) | sums.eq(0))


def assert_restored(again, model, given):
    """Every weight and the output, to the bit."""
    expected, found = model.state_dict(), again.state_dict()
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert torch.equal(first(again.eval(), given), first(model.eval(), given))


@pytest.mark.parametrize(
    "options",
    [
        {"alpha": 0.4, "beta": 0.5},
        {"variant": "residual"},
        {"alpha": 0.2, "beta": 0.5, "learned_mixing": True, "kernel_size": 5},
        {"variant": "plain", "scores": "dense_synthesizer"},
    ],
)
def test_a_folder_restores_the_model_to_the_bit(options, tmp_path):
    torch.manual_seed(2)
    model = evolve(BertForSequenceClassification(BertConfig(**SMALL, num_labels=3)), **options)
    model.save_pretrained(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    again = load(AutoModelForSequenceClassification, tmp_path)
    assert type(again) is BertForSequenceClassification
    given = {"input_ids": inputs("bert")["input_ids"]}
    assert_restored(again, model, given)
    again.save_pretrained(tmp_path / "again")
    assert read_json(tmp_path / "again" / "config.json") == read_json(tmp_path / "config.json")
    # Another head, and none.
    base = load(BertModel, tmp_path).eval()
    assert torch.equal(first(base, given), model.bert(**given)[0])


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_s_folder_restores_it(family, tmp_path):
    model, given = enlarge(evolve(make(family), **settings(family, 0.4, 0.5))), inputs(family)
    model.save_pretrained(tmp_path)
    assert_restored(load(type(model), tmp_path), model, given)
    if family in DECODERS:  # without its head
        found = load(AutoModel, tmp_path).eval()
        assert torch.equal(first(found, given), first(model.base_model, given))


def test_skipped_layers_hand_on_what_the_last_one_left():
    model = evolve(make("bart", torch.float64), alpha=0.4, beta=0.5)
    given = inputs("bart")
    layers = model.model.encoder.layers
    expected = model.get_encoder()(given["input_ids"], given["attention_mask"])[0]
    short = copy.deepcopy(model)
    del short.model.encoder.layers[1]
    without = short.get_encoder()(given["input_ids"], given["attention_mask"])[0]
    layers[1].forward = lambda hidden_states, *args, **kwargs: hidden_states  # as layer drop does
    found = model.get_encoder()(given["input_ids"], given["attention_mask"])[0]
    assert torch.equal(found, without) and not torch.equal(found, expected)


def test_a_folder_does_not_open_as_a_plain_model(tmp_path, monkeypatch):
    evolve(make("bert"), "residual").save_pretrained(tmp_path)
    with pytest.raises(UserError, match="ea_fairseq.hf.load"):
        first(AutoModel.from_pretrained(tmp_path).eval(), inputs("bert"))
    model = load(AutoModel, tmp_path)
    model.set_attn_implementation("sdpa")
    with pytest.raises(UserError, match="would switch off"):
        first(model, inputs("bert"))
    monkeypatch.delitem(AttentionInterface._global_mapping, NAME)  # without this package
    with pytest.raises(ValueError, match='attn_implementation="ea_fairseq.hf"` is not supported'):
        AutoModel.from_pretrained(tmp_path)


def test_folders_that_are_no_evolved_ones_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"no config\.json"):
        load(AutoModel, tmp_path)
    make("bert").save_pretrained(tmp_path)
    with pytest.raises(UserError, match="plain model"):
        load(AutoModel, tmp_path)


def _each(**values):
    def change(about):
        for one in about["attentions"]:
            one.update(values)

    return change


@pytest.mark.parametrize(
    "change, reason",
    [
        (_each(kind="decoder"), "has decoder attention, no encoder"),
        (_each(kind="junk"), "an attention must be what evolve wrote"),
        (_each(layer=0), "layer of attention .*layer.1.* must be 1, as in the model, not 0"),
        (_each(chain="one"), "chain of attention .* must be"),
        (_each(num_heads="2"), "an attention must be what evolve wrote"),
        (_each(head_dim=0), "an attention must be what evolve wrote"),
        (_each(path="encoder"), "attentions, not the model's"),
        (_each(path="nowhere"), "has no nowhere"),
        (lambda about: about.update(variant="decoder=residual") or _each(kind="decoder")(about),
         "kind of attention .* must be 'encoder', as in the model, not 'decoder'"),
        (lambda about: about["attentions"].pop(), "2 attentions, not the model's 3"),
        (lambda about: about.update(attentions=[3]), "an attention must be"),
        (lambda about: about.update(attentions={}), "attentions must be what evolve wrote, not {}"),
        (lambda about: about.pop("variant"), "variant must be what evolve wrote, not None"),
        (lambda about: about.update(variant=3), "variant must be what evolve wrote, not 3"),
        (lambda about: about.update(variant="encoder=nope"), "encoder=nope"),
        (lambda about: about.update(variant="residual"), "must be written as KIND=NAME"),
        (lambda about: about.update(form=99), "another version"),
        (lambda about: about.update(options={"skp": "none"}), "skp is no option.*skip"),
        (lambda about: about.update(options=None), "options must be what evolve wrote, not None"),
        (lambda about: about.update(options={"scores": [3]}), "options must be"),
    ],
)  # fmt: skip
def test_a_configuration_that_is_not_the_model_s_is_refused(change, reason, tmp_path):
    """The variant has no weights: nothing else would tell."""
    evolve(make("bert"), "residual").save_pretrained(tmp_path)
    load(AutoModel, tmp_path)
    config = read_json(tmp_path / "config.json")
    change(config["ea_fairseq"])
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=rf"config\.json: .*{reason}"):
        load(AutoModel, tmp_path)


@pytest.mark.parametrize("depth", [600, 100_000])
def test_a_configuration_nested_too_deeply_is_refused(depth, tmp_path):
    evolve(make("bert")).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    nested = '"x": ' + "[" * depth + "]" * depth + ", "
    path.write_text("{" + nested + path.read_text().strip()[1:])
    with pytest.raises(UserError, match=r"config\.json: .*nested too deeply"):
        load(AutoModel, tmp_path)


def _without(name):
    return lambda weights: weights.pop(name)


def _with(name, value):
    return lambda weights: weights.update(
        {name: torch.full_like(next(iter(weights.values())), value)}
    )


def _spoilt(name, value):
    return lambda weights: weights[name].view(-1)[:1].fill_(value)


_QUERY = "bert.encoder.layer.1.attention.self.query.weight"


@pytest.mark.parametrize(
    "change, reason",
    [
        (_without(_QUERY), "layer.1.attention.self.query.weight is missing among its weights"),
        (_without("classifier.bias"), "classifier.bias is missing among its weights"),
        (_without(_QUERY.replace("query", "ea.transform.convolution")), "weight is missing among"),
        (_with("bert.new.weight", 0.0), "new.weight is among its weights; Bert.* has none"),
        (_with(_QUERY.replace("query", "ea.transform.more"), 0.0), "more.weight is among"),
        (_spoilt(_QUERY, float("nan")), "query.weight has values that are NaN or infinite"),
        (_spoilt("classifier.bias", float("inf")), "classifier.bias has values that are NaN"),
        (lambda weights: weights.update({_QUERY: torch.zeros(2, 2)}), "have other sizes than"),
    ],
)
def test_weights_that_are_not_the_model_s_are_refused(change, reason, tmp_path):
    evolve(BertForSequenceClassification(BertConfig(**SMALL))).save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    change(weights)
    save_file(weights, path, {"format": "pt"})
    with pytest.raises(UserError, match=rf"model\.safetensors: .*{reason}"):
        load(AutoModelForSequenceClassification, tmp_path)
    if "classifier" not in reason:
        with pytest.raises(UserError, match=rf"model\.safetensors: .*{reason}"):
            load(BertModel, tmp_path)


@pytest.mark.parametrize("kept_bytes", [-9, 0, None], ids=["cut", "empty", "missing"])
def test_damaged_files_of_weights_are_named(kept_bytes, tmp_path):
    evolve(make("bert")).save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    if kept_bytes is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:kept_bytes])
    with pytest.raises(UserError, match=r"model\.safetensors: ") as error:
        load(AutoModel, tmp_path)
    assert "\n" not in str(error.value)


def test_a_model_with_another_head_gets_a_new_one(tmp_path):
    """And a pooler, where the one that was saved had none; tied weights are none that miss."""
    model = evolve(BertForMaskedLM(BertConfig(**SMALL)), alpha=0.4, beta=0.5).eval()
    model.save_pretrained(tmp_path / "masked")
    given = inputs("bert")
    expected = model.bert(**given)[0]
    for chosen in (BertForSequenceClassification, AutoModel):
        again = load(chosen, tmp_path / "masked").eval()
        assert torch.equal(again.base_model(**given)[0], expected)
    again.save_pretrained(tmp_path / "base")
    found = load(BertForMaskedLM, tmp_path / "base").eval()
    assert torch.equal(found.bert(**given)[0], expected)


@pytest.mark.parametrize(
    "call, told",
    [
        (lambda _: evolve(DebertaV2Model(DebertaV2Config(**SMALL))), "DebertaV2Model .* itself"),
        (lambda _: evolve(AlbertModel(AlbertConfig(**SMALL, embedding_size=8))), "share one atte"),
        (
            lambda _: evolve(Gemma2Model(Gemma2Config(**SMALL, head_dim=8, num_key_value_heads=2))),
            "softcap",
        ),
        (lambda _: evolve(torch.nn.Linear(2, 2)), "model of transformers is wanted, not Linear"),
        (lambda _: evolve(evolve(make("bert"))), "evolved already"),
        (lambda _: evolve(make("bert"), example=torch.ones(1)), "example must be a dict of keywo"),
        (lambda _: evolve(make("bert"), example=dict(foo=1)), "a run on the example failed"),
        (lambda _: evolve(make("bert"), max_positions=9), "max_positions would have no effect"),
        (lambda _: evolve(make("bert").to("meta")), "on the device meta"),
        (lambda folder: load(str(folder), BertModel), "a class of models comes first"),
        (lambda folder: load(make("bert"), folder), "a class of models comes first.* BertModel"),
        (lambda folder: load(BertForMaskedLM, folder, vocab_size=9), "have other sizes than"),
    ],
)
def test_what_cannot_be_evolved_or_loaded_is_named(call, told, tmp_path):
    evolve(make("bert"), alpha=0.4).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=told) as error:
        call(tmp_path)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(
    "family, variant, options, reason",
    [
        ("bert", "evolvng", {}, "variant must be one of"),
        ("bert", "evolving", {"alpha": 2}, r"alpha must be a number in \[0, 1\], not 2"),
        ("bert", "evolving", {"alpa": 0.1}, "alpa is no option of evolving.*perhaps.*alpha"),
        ("bert", "residual", {"alpha": 0.1}, "alpha is no option of residual"),
        ("gpt2", "evolving", {"alpha": 0.1}, "alpha would have no effect"),
        ("bert", "decoder=evolving", {}, "BertModel has encoder attention, no decoder"),
        ("bert", "plain", {"scores": "dense"}, "scores must be one of"),
        ("bert", "evolving", {"convolution": torch.nn.ReLU()}, "text or a number.*not ReLU"),
    ],
)
def test_bad_options_are_refused_and_the_model_stays_as_it_was(family, variant, options, reason):
    model = make(family)
    names = list(model.state_dict())
    with pytest.raises(UserError, match=reason):
        evolve(model, variant, **options)
    assert list(model.state_dict()) == names
    assert model.config._attn_implementation == "eager"


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_an_example_of_one_token_does_not_tell_what_the_attentions_are(family):
    """It made a decoder an encoder."""
    with pytest.raises(UserError, match="one position to attend to.*give two or more"):
        evolve(make(family), example={"input_ids": torch.tensor([[5]])})
    ids = torch.tensor([[5, 6, 0]])
    with pytest.raises(UserError, match="if example has padding, leave that out"):
        evolve(make(family), example={"input_ids": ids, "attention_mask": ids.ne(0).long()})


def test_an_encoder_that_hides_by_numbers_is_no_decoder():
    sizes = dict(vocab_size=WORDS, d_model=16, d_kv=4, d_ff=24, num_layers=2, num_heads=4)
    experts = dict(num_experts=2, num_sparse_encoder_layers=1, num_sparse_decoder_layers=1)
    model = SwitchTransformersForConditionalGeneration(
        SwitchTransformersConfig(**sizes, **experts, decoder_start_token_id=0, eos_token_id=2)
    )
    kinds = {one.chain.split(".")[0]: one.kind for one in find_attentions(model, None)}
    assert kinds["encoder"] == "encoder"


def test_a_decoder_takes_the_neutral_alpha():
    """Which has no effect there, and says what is so anyway."""
    evolve(make("gpt2"), alpha=0, beta=0)


def test_masks_of_numbers_are_understood_or_refused():
    model = evolve(make("bert", torch.float64), alpha=0.4, beta=0.5)
    given = inputs("bert")
    keys = given["attention_mask"][:, None, None].expand(-1, 1, 9, -1)
    hidden = (1 - keys.double()) * torch.finfo(torch.float64).min
    found = first(model, {**given, "attention_mask": hidden})
    mask = given["attention_mask"].bool()
    torch.testing.assert_close(found[mask], first(model, given)[mask], atol=1e-10, rtol=0)
    with pytest.raises(UserError, match="other than 0"):
        first(model, {**given, "attention_mask": hidden.clamp(min=-1.0)})


@pytest.mark.thorough
def test_compiled_by_torch_it_stays_equal():
    model, given = evolve(make("bert"), alpha=0.4, beta=0.5), inputs("bert")
    expected = first(model, given)
    found = first(torch.compile(model, backend="eager"), given)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_the_page_s_blocks_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    BertForSequenceClassification(BertConfig(**SMALL)).save_pretrained("my-bert")
    names = {}
    for block in blocks(DOCS / "huggingface.md", "python"):
        exec(block, names)
    assert sorted(path.name for path in (tmp_path / "evolved").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]


def test_fairseq_is_neither_imported_nor_needed():
    code = "import sys\nsys.modules['fairseq'] = None\nimport ea_fairseq.hf"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=900)


def test_other_versions_of_transformers_are_refused_or_warned_of(monkeypatch):
    found = []  # what importlib.metadata says
    monkeypatch.setattr(versions.metadata, "version", lambda name: found[-1])
    for version in ("4.57.1", "5.22.9"):
        found.append(version)
        with pytest.raises(UserError, match=f"needs transformers 5.23 or newer, not {version}"):
            versions.check_transformers()
    found.append("5.30.0.dev1")
    with pytest.warns(UserWarning, match=r"tested with transformers 5\.23, not 5\.30"):
        versions.check_transformers()


def test_without_transformers_it_says_what_to_install(monkeypatch):
    def missing(name):
        raise versions.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(versions.metadata, "version", missing)
    with pytest.raises(UserError, match=r"pip install ea_fairseq\[transformers\]"):
        versions.check_transformers()


def test_masks_that_hide_more_than_padding_are_refused():
    """A convolution would read across them: packed sequences would not stay apart."""
    plain, tokens = make("bert"), torch.randint(3, 19, (2, 6))
    causal = torch.ones(2, 1, 6, 6, dtype=torch.bool).tril()
    model = evolve(copy.deepcopy(plain), alpha=0.1, beta=0.1)
    with pytest.raises(UserError, match="its mask hides more than padding.*packed sequences"):
        model(tokens, attention_mask=causal)
    model(tokens, attention_mask=torch.tensor([[1] * 6, [0, 0, 1, 1, 1, 1]]))
    # One that mixes no positions keeps to whatever mask there is.
    residual = evolve(plain, "residual")
    later = tokens.clone()
    later[:, 4:] = 3
    found = [residual(x, attention_mask=causal)[0][:, :4] for x in (tokens, later)]
    torch.testing.assert_close(*found)


def test_a_sliding_window_is_refused_with_what_goes_without():
    config = MistralConfig(**SMALL, num_key_value_heads=1, sliding_window=4)
    model = evolve(MistralForCausalLM(config).eval(), beta=0.4)
    tokens = torch.randint(3, 19, (1, 6))
    for call in (
        lambda: model(tokens, use_cache=False),
        lambda: model.generate(tokens[:, :3], max_new_tokens=2),
    ):
        with pytest.raises(UserError, match="config.sliding_window = None goes without"):
            call()
    model.config.sliding_window = None
    assert model(tokens, use_cache=False).logits.isfinite().all()
    assert model.generate(tokens, max_new_tokens=2, min_new_tokens=2).shape == (1, 8)


def exchange(layers):
    layers[0], layers[2] = layers[2], layers[0]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (exchange, r"layer 2 of .* ran after layer 3"),
        (lambda layers: layers.append(copy.deepcopy(layers[0])), "layer 1 of .* ran twice"),
        (lambda layers: layers.append(copy.deepcopy(layers[2])), "layer 3 of .* ran twice"),
        (lambda layers: layers.pop(2), None),  # the others are what they were
    ],
)
def test_layers_are_changed_before_a_model_is_evolved(change, told, tmp_path):
    """An exchanged layer ran on the carry of none, and another one was saved than had run."""
    model = evolve(make("bert"), alpha=0.4)
    change(model.encoder.layer)
    given = inputs("bert")
    if told is None:
        assert model(**given).last_hidden_state.isfinite().all()
    else:
        with pytest.raises(UserError, match=told):
            model(**given)
    with pytest.raises(UserError, match="layers were exchanged, added or removed since"):
        model.save_pretrained(tmp_path / "saved")
    assert not list(tmp_path.glob("saved/*.safetensors"))


def test_a_mixture_of_experts_passes_its_routers_keyword_along():
    config = MixtralConfig(
        **SMALL, num_key_value_heads=1, num_local_experts=2, sliding_window=None, pad_token_id=0
    )
    torch.manual_seed(1)
    model = evolve(MixtralForCausalLM(config).eval(), beta=0.3)
    given = torch.tensor([[5, 6, 7, 8]])
    assert model(given, output_router_logits=True).logits.isfinite().all()
    with_cache = model.generate(given, max_new_tokens=5, do_sample=False)
    without = model.generate(given, max_new_tokens=5, do_sample=False, use_cache=False)
    assert with_cache.tolist() == without.tolist()

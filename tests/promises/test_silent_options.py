"""Options with which fairseq computed something else, and said nothing."""

import pytest
import torch
from fairseq.dataclass.configs import EMAConfig, FairseqConfig
from fairseq.distributed import utils as distributed_utils
from fairseq.models.ema import build_ema
from fairseq_commands import corpus, run, trained, training
from small_models import build

import ea_fairseq.plugin  # noqa: F401
from ea_fairseq.errors import UserError


def test_the_average_of_a_training_keeps_the_last_layer_norms():
    pre_norm = {"encoder_normalize_before": True, "decoder_normalize_before": True}
    model = build("transformer_lite", **pre_norm)
    ema = build_ema(model, EMAConfig(store_ema=True, ema_decay=0.75), torch.device("cpu"))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    ema.step(model, updates=1)
    found = ema.get_model().state_dict()
    assert found.keys() == before.keys()
    for name, value in model.named_parameters():
        assert torch.allclose(found[name], 0.75 * before[name] + 0.25 * value), name


@pytest.mark.parametrize("way", ["--restore-file", "--finetune-from-model"])
@pytest.mark.parametrize(
    "option", [("--decoder-attention-heads", "4", "2"), ("--activation-fn", "gelu", "relu")]
)
def test_another_number_of_heads_or_activation_is_refused(way, option, tmp_path):
    """All parameters have the same shapes."""
    name, now, before = option
    checkpoint = trained() / "checkpoint_last.pt"
    arguments = training(corpus(), tmp_path, way, checkpoint, "--max-epoch", "3", name, now)
    done = run("train", *arguments)
    assert done.status == 1 and not list(tmp_path.glob("*.pt"))
    message = done.errors().splitlines()[-1]
    assert f"{checkpoint} was trained with {name} {before}, and {now} was asked for" in message


def test_a_perplexity_is_of_the_whole_text_in_one_process(monkeypatch):
    """Each process printed that of its part: under torchrun, and by default with several GPUs."""
    from fairseq_cli import eval_lm

    cfg = FairseqConfig()
    cfg.distributed_training.distributed_world_size = 2
    cfg.common.cpu = True
    seen = []

    def main(cfg):
        seen.append(cfg.distributed_training.distributed_world_size)

    code = main.__code__.replace(co_filename=eval_lm.__file__)
    monkeypatch.setattr(main, "__code__", code)
    distributed_utils.call_main(cfg, main)
    assert seen == [1]
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "1")
    with pytest.raises(UserError, match="fairseq-eval-lm reads the text in one process"):
        distributed_utils.call_main(cfg, main)
    assert seen == [1]

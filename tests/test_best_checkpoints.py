"""Of a training's checkpoints as many of the best are kept as are asked for."""

import re
from types import SimpleNamespace

import pytest
from fairseq import checkpoint_utils
from fairseq.dataclass.configs import CheckpointConfig

from ea_fairseq.compat import best_checkpoints


class Trainer:
    """What fairseq asks of its trainer when it saves."""

    data_parallel_rank = 0
    should_save_checkpoint_on_current_rank = True
    checkpoint_suffix = ""
    task = None

    def __init__(self):
        self.updates = 0

    def consolidate_optimizer(self):
        pass

    def get_num_updates(self):
        return self.updates

    def save_checkpoint(self, path, extra_state):
        with open(path, "w") as file:
            file.write(str(extra_state["val_loss"]))


@pytest.fixture(autouse=True)
def a_new_training():
    yield
    del checkpoint_utils.save_checkpoint.best


@pytest.mark.parametrize("more_is_better", [False, True])
def test_below_their_number_all_are_kept_and_then_the_best(tmp_path, more_is_better):
    metric = "bleu" if more_is_better else "loss"
    cfg = CheckpointConfig(
        save_dir=str(tmp_path),
        keep_best_checkpoints=3,
        best_checkpoint_metric=metric,
        maximize_best_checkpoint_metric=more_is_better,
    )
    trainer, seen = Trainer(), []
    for epoch, score in enumerate([20, 10, 30, 50, 25, 5, 40], start=1):
        trainer.updates += 4
        seen.append(score)
        iterator = SimpleNamespace(epoch=epoch, end_of_epoch=lambda: True, state_dict=dict)
        checkpoint_utils.save_checkpoint(cfg, trainer, iterator, float(score))
        kept = [path for path in tmp_path.iterdir() if path.name.startswith("checkpoint.best_")]
        assert all(re.fullmatch(rf"checkpoint\.best_{metric}_[\d.]+\.pt", p.name) for p in kept)
        values = sorted(float(path.read_text()) for path in kept)
        assert values == sorted(sorted(seen, reverse=more_is_better)[:3])
        best = max(seen) if more_is_better else min(seen)
        assert float((tmp_path / "checkpoint_best.pt").read_text()) == best
    assert best_checkpoints._wanted is None

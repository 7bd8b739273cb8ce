"""Of a training's checkpoints as many of the best are kept as are asked for."""

import re
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.dataclass.configs import CheckpointConfig

from ea_fairseq.checkpoints.reading import read_checkpoint
from ea_fairseq.guard import saving


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
        history = [{"num_updates": self.updates}]
        torch.save({"model": {}, "optimizer_history": history, "extra_state": extra_state}, path)


@pytest.fixture(autouse=True)
def a_new_training():
    yield
    del checkpoint_utils.save_checkpoint.best


def save(cfg, trainer, epoch, score):
    iterator = SimpleNamespace(epoch=epoch, end_of_epoch=lambda: True, state_dict=dict)
    checkpoint_utils.save_checkpoint(cfg, trainer, iterator, float(score))


def kept_in(folder):
    return [path for path in folder.iterdir() if path.name.startswith("checkpoint.best_")]


def score_of(path):
    return read_checkpoint(path)["extra_state"]["val_loss"]


def updates_of(path):
    return read_checkpoint(path)["optimizer_history"][-1]["num_updates"]


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
        save(cfg, trainer, epoch, score)
        kept = kept_in(tmp_path)
        assert all(re.fullmatch(rf"checkpoint\.best_{metric}_[\d.]+\.pt", p.name) for p in kept)
        values = sorted(map(score_of, kept))
        assert values == sorted(sorted(seen, reverse=more_is_better)[:3])
        best = max(seen) if more_is_better else min(seen)
        assert score_of(tmp_path / "checkpoint_best.pt") == best
    assert saving._keeps is None


@pytest.mark.parametrize("count", [4, 12])
def test_none_takes_the_name_of_another_of_its_score(tmp_path, count):
    """Beside one of another score, they are as many as are asked for, however the digits fall."""
    cfg = CheckpointConfig(save_dir=str(tmp_path), keep_best_checkpoints=count)
    trainer = Trainer()
    for epoch, score in enumerate([2.0, *[2.5001] * count], start=1):
        trainer.updates += 4
        save(cfg, trainer, epoch, score)
        assert len(kept_in(tmp_path)) == min(epoch, count)
        save(cfg, trainer, epoch, score)  # again, as after a crash: it is the same one
        assert len(kept_in(tmp_path)) == min(epoch, count)
    found = sorted(map(updates_of, kept_in(tmp_path)))
    assert len(set(found)) == count and 4 in found


def test_a_damaged_file_of_its_name_is_written_over(tmp_path):
    cfg = CheckpointConfig(save_dir=str(tmp_path), keep_best_checkpoints=3)
    trainer = Trainer()
    save(cfg, trainer, 1, 2.5)
    (kept,) = kept_in(tmp_path)
    for content in (b"", b"PK damaged"):
        kept.write_bytes(content)
        save(cfg, trainer, 1, 2.5)
        assert kept_in(tmp_path) == [kept] and score_of(kept) == 2.5

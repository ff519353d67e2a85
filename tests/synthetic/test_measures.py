"""Scores and losses against numpy, scikit-learn and hand-computed values."""

import numpy as np
import pytest
import torch
from sklearn.metrics import r2_score
from torch.nn.functional import cross_entropy, mse_loss

from synthetic.decodability import INPUT, Rows, probe_layers
from synthetic.measures import action_scores, loss, regression_scores, score_by_hotness
from synthetic.problems import Batch


def batch_of(y, scored=None, latents=None, best=None):
    empty = torch.zeros(len(y), 0)
    scored = torch.ones(y.shape[:2], dtype=torch.bool) if scored is None else scored
    return Batch(
        empty,
        y,
        empty,
        empty if latents is None else latents,
        scored,
        empty if best is None else best,
        empty,
        empty,
    )


def test_r2_by_scikit_learn():
    rng = np.random.default_rng(0)
    y, p = rng.normal(size=(5, 8, 3)), rng.normal(size=(5, 8, 3))
    per_output = np.array([r2_score(y[i], p[i], multioutput="raw_values") for i in range(5)])
    scores = regression_scores(torch.tensor(p), torch.tensor(y))
    assert scores["r2"] == pytest.approx(per_output.mean())
    assert scores["r2_median"] == pytest.approx(np.median(per_output))
    total = ((y - y.mean(axis=1, keepdims=True)) ** 2).sum()
    assert scores["r2_pooled"] == pytest.approx(1 - ((y - p) ** 2).sum() / total)
    assert scores["undefined"] == 0


def test_constant_targets_are_counted_not_scored():
    y = torch.zeros(2, 4, 1)
    y[0, :, 0] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    scores = regression_scores(y.clone(), y)
    assert (scores["r2"], scores["undefined"]) == (1.0, 1)
    nothing = regression_scores(torch.ones(2, 4, 1), torch.zeros(2, 4, 1))
    assert nothing["r2"] is None
    assert "constant" in nothing["reason"]


def test_actions_by_hand():
    logits = torch.eye(3)[torch.tensor([[0, 1, 2], [2, 2, 0]])]
    action = torch.tensor([[0, 1, 1], [2, 0, 0]])
    scored = torch.tensor([[True, True, False], [True, True, False]])
    best = torch.zeros(2, 3, 3, dtype=torch.bool)
    best.scatter_(2, action.unsqueeze(2), True)
    best[1, 1, 2] = True  # as good as the demonstrator's action
    scores = action_scores(logits, action, scored, best)
    assert scores["accuracy"] == 3 / 4
    assert scores["accuracy_optimal"] == 1.0
    assert scores["episode_accuracy"] == 1 / 2
    assert scores["cross_entropy"] == pytest.approx(
        cross_entropy(logits[scored], action[scored]).item(), abs=1e-6
    )


def test_losses_are_torchs_own_for_each_member():
    y, p = torch.rand(2, 3, 4, 5), torch.rand(2, 3, 4, 5)
    found = loss(p, batch_of(y))
    assert found.tolist() == pytest.approx([mse_loss(p[i], y[i]).item() for i in range(2)])
    action, scored = torch.randint(5, (2, 3, 4)), torch.rand(2, 3, 4) < 0.5
    found = loss(p, batch_of(action, scored))
    assert found.tolist() == pytest.approx(
        [cross_entropy(p[i][scored[i]], action[i][scored[i]]).item() for i in range(2)]
    )


def test_hotness_splits_tasks():
    y, p = torch.rand(4, 6, 2), torch.rand(4, 6, 2)
    latents = torch.tensor([[0.5, 0], [1.0, 0.7], [0, 0.9], [0.6, 0.6]])
    found = score_by_hotness(p, batch_of(y, latents=latents))
    assert list(found) == ["1", "2"]
    assert found["1"]["r2_pooled"] == pytest.approx(
        regression_scores(p[[0, 2]], y[[0, 2]])["r2_pooled"]
    )


def test_probes_read_what_is_there_and_name_what_cannot_be_asked():
    rng = np.random.default_rng(1)

    def rows(count, absent):
        z = rng.choice([0, 0.5, 0.7, 1.0], size=(count, 4))
        z[:, absent] = 0
        mixed = z @ mixing
        return Rows(
            {"layer": np.maximum(mixed, 0), "noise": rng.normal(size=(count, 6)), INPUT: mixed}, z
        )

    mixing = rng.normal(size=(4, 12))
    scores, table = probe_layers(rows(400, 3), rows(100, 3), rows(100, 2))
    assert scores["layer"]["from_input"]["test"] == pytest.approx(1, abs=1e-6)
    assert 0.8 < scores["layer"]["test"] < 1
    assert abs(scores["noise"]["test"]) < 0.1
    assert scores["layer"]["test_dropped_modules"] == [3]  # never active where the probe is fitted
    assert scores["layer"]["held_out_dropped_modules"] == [2, 3]
    dropped = [r for r in table if r["r2"] is None]
    assert all("does not vary" in r["reason"] for r in dropped)
    assert len(table) == 3 * 2 * 4


def test_from_input_is_the_same_under_every_layer():
    rng = np.random.default_rng(2)
    parts = [Rows({"a": z, "b": -z, INPUT: z}, z) for z in (rng.random((60, 3)) for _ in range(3))]
    scores, _ = probe_layers(*parts)
    assert scores["a"]["from_input"] == scores["b"]["from_input"]

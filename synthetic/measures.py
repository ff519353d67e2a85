"""How well a student does: R2 in three forms for regression, accuracies for actions.

Axis letters: n tasks, t samples, o outputs, a actions.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from synthetic.problems import Batch

Scores = dict[str, float | int | str | None]


def regression_scores(predicted: Float[Tensor, "n t o"], target: Float[Tensor, "n t o"]) -> Scores:
    """R2 of predictions, relative to the mean of each task and output over its own samples.

    With squared errors e and the variance v of a task's output over its t samples:
    `r2` is the paper's, the mean over tasks, samples and outputs of 1 - e / v (a heavy lower tail: small v);
    `r2_pooled` is 1 - sum e / sum v; `r2_median` is the median over tasks and outputs of 1 - mean_t e / v.
    Tasks and outputs with v = 0 have no ratio: they are left out of r2 and r2_median and counted as `undefined`.
    Values are None, with a `reason`, where nothing is left.
    """
    error = ((predicted.double() - target.double()) ** 2).mean(dim=1)
    variance = target.double().var(dim=1, unbiased=False)
    defined = variance > 0
    ratios = 1 - error[defined] / variance[defined]
    scores: Scores = {"r2": None, "r2_pooled": None, "r2_median": None}
    if len(ratios):
        scores["r2"] = ratios.mean().item()
        scores["r2_pooled"] = (1 - error.sum() / variance.sum()).item()
        scores["r2_median"] = ratios.double().quantile(0.5).item()
    else:
        scores["reason"] = "every target is constant over the samples of its task"
    scores["mse"] = error.mean().item() if error.numel() else None
    scores["tasks"] = len(target)
    scores["undefined"] = int((~defined).sum())
    return scores


def action_scores(
    logits: Float[Tensor, "n t a"],
    action: Int[Tensor, "n t"],
    scored: Bool[Tensor, "n t"],
    best: Bool[Tensor, "n t a"],
) -> Scores:
    """Accuracies over the scored steps (up to the first "nothing", which ends the episode).

    `accuracy` asks for the demonstrator's own action, the lowest of equally good ones; `accuracy_optimal` takes
    any optimal action for right; `episode_accuracy` asks for every scored action of an episode.
    """
    chosen = logits.argmax(dim=2)
    right = (chosen == action) & scored
    optimal = best.gather(2, chosen.unsqueeze(2)).squeeze(2) & scored
    log_likelihood = (
        torch.log_softmax(logits.double(), dim=2).gather(2, action.unsqueeze(2)).squeeze(2)
    )
    steps = int(scored.sum())
    return {
        "accuracy": right.sum().item() / steps,
        "episode_accuracy": (right == scored).all(dim=1).double().mean().item(),
        "accuracy_optimal": optimal.sum().item() / steps,
        "cross_entropy": -(log_likelihood * scored).sum().item() / steps,
        "tasks": len(action),
    }


def score(predicted: Tensor, batch: Batch) -> Scores:
    """The scores that fit the targets of a batch."""
    if batch.y.is_floating_point():
        return regression_scores(predicted, batch.y)
    return action_scores(predicted, batch.y, batch.scored, batch.best)


def score_by_hotness(predicted: Tensor, batch: Batch) -> dict[str, Scores]:
    """The scores of tasks with 1, 2 ... active modules."""
    hotness = (batch.task_latents > 0).sum(dim=1)
    scores = {}
    for hot in sorted(set(hotness.tolist())):
        rows = hotness == hot
        part = Batch(*(value[rows] for value in vars(batch).values()))
        scores[str(hot)] = score(predicted[rows], part)
    return scores


def loss(predicted: Tensor, batch: Batch) -> Float[Tensor, " e"]:
    """Training loss of each member (e): mean squared error, or cross-entropy over the scored steps."""
    if batch.y.is_floating_point():
        return ((predicted - batch.y) ** 2).flatten(1).mean(dim=1)
    surprise = -torch.log_softmax(predicted, dim=-1).gather(-1, batch.y.unsqueeze(-1)).squeeze(-1)
    scored = batch.scored.to(surprise.dtype)
    return (surprise * scored).flatten(1).sum(dim=1) / scored.flatten(1).sum(dim=1)

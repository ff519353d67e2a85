"""One run on disk: train (or continue), evaluate, probe, and write down what came out.

A run folder holds run.json, metrics.parquet, decodability.parquet, student.safetensors and summary.json; while
training also checkpoint.safetensors. Students trained side by side share one checkpoint and have a folder each.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from synthetic.decodability import INPUT, Rows, probe_layers
from synthetic.measures import Scores, score, score_by_hotness
from synthetic.problems import Batch
from synthetic.settings import TrainSettings, as_record
from synthetic.training import Trainer, load_checkpoint, save_checkpoint, save_member
from t2iprobe.errors import ConfigError
from t2iprobe.runs.folder import RunFolder, read_json, read_table, write_json, write_table
from t2iprobe.runs.progress import bar

STAGE = "train"
SUMMARY = "summary.json"
SPLITS = ("test", "held_out")


def train(settings: TrainSettings) -> dict[str, Any]:
    """Train one student into its run folder, continuing what is there; the summary.

    Raises:
        ConfigError: a setting that cannot be used, or a folder that holds a run with other settings.
        DataError: a folder that is no run, or is in use.
    """
    return train_together([settings], settings.out)[0]


def train_together(members: list[TrainSettings], folder: Path) -> list[dict[str, Any]]:
    """Train students of equal shape side by side, each into its own run folder; their summaries.

    Args:
        members: settings that agree in everything that shapes a step.
        folder: where the common checkpoint lies while training.
    """
    records = [_record_of(member) for member in members]
    here = [
        RunFolder(member.out).accepts(record)
        for member, record in zip(members, records, strict=True)
    ]
    if all(here) and all(_is_done(RunFolder(member.out)) for member in members):
        return [read_json(member.out / SUMMARY) for member in members]
    trainer = _trainer(members)  # before any folder is made: impossible settings leave none behind
    with ExitStack() as held:
        runs = []
        for member, record in zip(members, records, strict=True):
            held.enter_context(RunFolder(member.out).locked())
            runs.append(RunFolder.open(member.out, record))
        together = f"-of-{len(members)}" if len(members) > 1 else ""
        checkpoint = folder / f"checkpoint{together}.safetensors"
        for run, problem, member in zip(runs, trainer.problems, members, strict=True):
            run.update(seeds=member.seeds(), support=problem.support.facts(), device=member.device)
            run.set_stage(STAGE, "running")
        try:
            history = _train(trainer, runs, checkpoint)
        except ConfigError:  # it diverged: nothing of it is worth keeping
            _discard(runs, checkpoint)
            raise
        summaries = _finish(trainer, runs, history)
        for left in folder.glob("checkpoint*.safetensors"):
            left.unlink()
        return summaries


def _trainer(members: list[TrainSettings]) -> Trainer:
    """A trainer that has drawn one batch.

    Raises:
        ConfigError: the sizes do not fit into memory.
    """
    try:
        trainer = Trainer(members)
        trainer.draw("train", 0)
    except (MemoryError, RuntimeError) as error:
        # For memory of the CPU torch raises a plain RuntimeError.
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        raise ConfigError(
            "not enough memory for these sizes: lower --width, --batch-tasks, --samples or --modules"
        ) from None
    return trainer


def _is_done(run: RunFolder) -> bool:
    return run.is_done(STAGE) and (run.path / SUMMARY).exists()


def _discard(runs: list[RunFolder], checkpoint: Path) -> None:
    checkpoint.unlink(missing_ok=True)
    for run in runs:
        for name in ("metrics.parquet", "run.json"):
            (run.path / name).unlink(missing_ok=True)


def _record_of(member: TrainSettings) -> dict[str, object]:
    """The settings that the result depends on."""
    elsewhere = ("out", "config", "device")
    return {name: value for name, value in as_record(member).items() if name not in elsewhere}


def _train(trainer: Trainer, runs: list[RunFolder], checkpoint: Path) -> list[list[dict[str, Any]]]:
    """Train to the last step; the rows of every run's metrics table."""
    shared = trainer.shared
    history: list[list[dict[str, Any]]] = [[] for _ in runs]
    if checkpoint.exists():
        load_checkpoint(trainer, checkpoint)
        for i, run in enumerate(runs):
            rows = (
                read_table(run.path / "metrics.parquet")
                if (run.path / "metrics.parquet").exists()
                else []
            )
            history[i] = [row for row in rows if row["step"] <= trainer.step]
    sets = {split: trainer.draw_set(split, shared.eval_tasks) for split in SPLITS}
    with bar("train", shared.steps, "steps", done=trainer.step) as progress:
        while trainer.step < shared.steps:
            trainer.train_step()
            progress.advance()
            last = trainer.step == shared.steps
            if last or trainer.step % shared.eval_every == 0:
                _record(trainer, sets, history)
            if last or trainer.step % shared.checkpoint_every == 0:
                for run, rows in zip(runs, history, strict=True):
                    write_table(run.path / "metrics.parquet", rows)
                save_checkpoint(trainer, checkpoint)
    return history


def _record(trainer: Trainer, sets: dict[str, Batch], history: list[list[dict[str, Any]]]) -> None:
    """Evaluate every member and add one row per split to its metrics."""
    losses = trainer.mean_losses()
    for split, batch in sets.items():
        predicted = trainer.predict(batch)
        for i, rows in enumerate(history):
            rows.append(
                {
                    "step": trainer.step,
                    "split": split,
                    **score(predicted[i], member_of(batch, i)),
                    "train_loss": losses[i],
                    "cpu_s": trainer.cost.cpu_s / len(history),
                    "wall_s": trainer.cost.wall_s / len(history),
                }
            )


def _finish(
    trainer: Trainer, runs: list[RunFolder], history: list[list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Score, probe and describe the trained students; write what is left of each run folder."""
    shared = trainer.shared
    sets = {split: trainer.draw_set(split, shared.eval_tasks, baselines=True) for split in SPLITS}
    predicted = {split: trainer.predict(batch) for split, batch in sets.items()}
    probed = [_probe(trainer, sets, i) for i in range(len(runs))]
    summaries = []
    for i, (run, member) in enumerate(zip(runs, trainer.members, strict=True)):
        batches = {split: member_of(batch, i) for split, batch in sets.items()}
        decodability, rows = probed[i]
        output = decodability.pop("output", None)
        summary = {
            "schema_version": 1,
            "kind": "synthetic",
            **{split: score(predicted[split][i], batches[split]) for split in SPLITS},
            "by_hotness": {s: score_by_hotness(predicted[s][i], batches[s]) for s in SPLITS},
            "baselines": baselines(batches),
            "decodability": decodability,
            "output_decodability": output,
            "support": run.manifest["support"],
            "cost": _cost(trainer, len(runs)),
            "parameters": sum(p.numel() for p in trainer.student.parameters()) // len(runs),
            "settings": as_record(member),
            "seeds": member.seeds(),
            "versions": run.manifest["versions"],
        }
        summary["composes"] = composes(summary)
        write_table(run.path / "metrics.parquet", history[i])
        if rows:
            write_table(run.path / "decodability.parquet", rows)
        save_member(trainer, i, run.path / "student.safetensors")
        write_json(run.path / SUMMARY, summary)
        run.set_stage(STAGE, "done", steps=trainer.step)
        summaries.append(summary)
    return summaries


def baselines(batches: dict[str, Batch]) -> dict[str, dict[str, Scores]]:
    """The scores of the additive and the blind baseline on each split."""
    scores_of = {
        name: {split: score(getattr(batch, name), batch) for split, batch in batches.items()}
        for name in ("additive", "blind")
    }
    for splits in scores_of.values():
        for scores in splits.values():
            scores.pop("cross_entropy", None)  # values of actions are no log-probabilities
    return scores_of


def composes(summary: dict[str, Any]) -> dict[str, Any]:
    """Whether the student beats the additive baseline on held-out combinations, by the measure with a light tail."""
    name = "r2_pooled" if "r2_pooled" in summary["held_out"] else "accuracy"
    student = summary["held_out"][name]
    additive = summary["baselines"]["additive"]["held_out"][name]
    if student is None or additive is None:
        return {"measure": name, "beats_additive": None, "reason": "undefined on this split"}
    beats = student > additive
    return {"measure": name, "student": student, "additive": additive, "beats_additive": beats}


def member_of(batch: Batch, member: int) -> Batch:
    """The part of a stacked batch that belongs to one member."""
    return Batch(*(value[member] for value in vars(batch).values()))


def _cost(trainer: Trainer, members: int) -> dict[str, float]:
    cost = trainer.cost
    return {
        "wall_s": cost.wall_s / members,
        "cpu_ms_per_step": 1000 * cost.cpu_s / max(1, trainer.step) / members,
        "threads": torch.get_num_threads(),
        "side_by_side": members,
    }


def _probe(
    trainer: Trainer, sets: dict[str, Batch], member: int
) -> tuple[dict[str, dict[str, object]], list[dict[str, object]]]:
    """Probe every layer of one member."""
    shared = trainer.members[member]
    if shared.probe_tasks == 0:
        return {}, []
    everything = {"probe": trainer.draw_set("probe", shared.probe_tasks), **sets}
    rows = {}
    for split, batch in everything.items():
        layers = trainer.activations(batch, last=shared.probe_rows == "last")
        features = {name: value[member].double().numpy() for name, value in layers.items()}
        features[INPUT] = batch.z[member].double().numpy()
        rows[split] = Rows(features, batch.task_latents[member].double().numpy())
    return probe_layers(rows["probe"], rows["test"], rows["held_out"])

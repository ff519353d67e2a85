"""Training: separate streams, exact continuation, members as if alone, and the schedule."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from synthetic.optimisers import orthogonalise
from synthetic.problems import make_problem
from synthetic.runs import train, train_together
from synthetic.settings import TrainSettings
from synthetic.training import Trainer, learning_rate_at
from t2iprobe.errors import ConfigError, DataError
from t2iprobe.runs.folder import read_json, read_table

TINY = {
    "modules": 6, "hot": 2, "steps": 12, "width": 16, "batch_tasks": 8, "samples": 4, "eval_tasks": 16,
    "probe_tasks": 32, "eval_every": 4, "checkpoint_every": 4, "inputs": 4, "outputs": 3, "hidden": (5,),
}  # fmt: skip
GRID = {**TINY, "task": "preference", "features": 8, "horizon": 4, "objects": 2}


def settings(tmp_path, name="run", **changes):
    return TrainSettings(out=tmp_path / name, **(TINY | changes))


def test_no_two_splits_share_noise(tmp_path):
    problem = make_problem(settings(tmp_path))
    batches = {s: problem.draw(s, 0, 8) for s in ("train", "test", "held_out", "probe")}
    values = [set(b.x.flatten().tolist()) for b in batches.values()]
    assert all(not a & b for i, a in enumerate(values) for b in values[i + 1 :])
    assert torch.equal(
        problem.draw("train", 3, 8).x, make_problem(settings(tmp_path)).draw("train", 3, 8).x
    )
    seen = {tuple(row) for row in problem.support.seen.tolist()}
    for split, batch in batches.items():
        inside = [tuple(row) in seen for row in (batch.task_latents > 0).tolist()]
        assert not any(inside) if split == "held_out" else all(inside)


def test_each_seed_moves_its_own_part_only(tmp_path):
    def parts(**seeds):
        made = settings(tmp_path, encoding="orthogonal", **seeds)
        problem, trainer = make_problem(made), Trainer([made])
        batch = problem.draw("train", 0, 4)
        return {
            "teacher": problem.teacher.readout,
            "split": torch.from_numpy(problem.support.seen).float(),
            "encoding": problem.encoding(torch.eye(6), torch.Generator()),
            "data": batch.x,
            "student": next(trainer.student.parameters()).detach(),
        }

    first = parts(seed=1)
    for role in first:
        changed = parts(seed=1, **{f"{role}_seed": 2})
        different = {name for name in first if not torch.equal(first[name], changed[name])}
        assert different == {role}


def test_rates(tmp_path):
    fast = settings(tmp_path, recipe="fast", steps=100, lr=1.0)
    rates = [learning_rate_at(step, fast) for step in range(100)]
    assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert rates[5] == 1.0
    assert rates[-1] < 0.001  # ends with the last step, not before
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert {learning_rate_at(step, settings(tmp_path)) for step in (0, 5, 11)} == {3e-4}


def test_decay_acts_on_matrices_alone(tmp_path):
    trainer = Trainer(
        [
            settings(
                tmp_path,
                student="transformer",
                heads=2,
                feedforward=8,
                encoding="language-embedded",
            )
        ]
    )
    (optimiser,) = trainer.optimisers
    decayed, free = optimiser.param_groups
    assert decayed["weight_decay"] == 0.003
    assert free["weight_decay"] == 0
    names = {id(p): name for name, p in trainer.student.named_parameters()}
    assert {names[id(p)].rsplit(".")[-1] for p in free["params"]} == {"bias", "scale"}


def test_training_lowers_the_loss(tmp_path):
    trainer = Trainer([settings(tmp_path, recipe="fast", steps=300)])
    losses = []
    for _ in range(300):
        trainer.train_step()
        losses += trainer.mean_losses()
    assert sum(losses[-20:]) < 0.5 * sum(losses[:20])


def test_a_training_that_diverges_says_so_and_leaves_nothing(tmp_path):
    with pytest.raises(ConfigError, match=r"diverged before step 4.*lower --lr than 1e\+30"):
        train(settings(tmp_path, lr=1e30, steps=4, eval_every=4))
    assert not [p for p in (tmp_path / "run").glob("*") if p.name != ".lock"]
    assert train(settings(tmp_path, steps=4, eval_every=4))["held_out"]["r2"] is not None


@pytest.mark.parametrize("damage", [b"", b"half a file", None])
def test_a_damaged_checkpoint_is_named(tmp_path, damage):
    given = settings(tmp_path, steps=4, eval_every=4)
    train(given)
    student = (given.out / "student.safetensors").read_bytes()
    (given.out / "checkpoint.safetensors").write_bytes(student if damage is None else damage)
    (given.out / "summary.json").unlink()
    with pytest.raises(DataError, match=r"checkpoint\.safetensors.*delete it"):
        train(given)
    (given.out / "checkpoint.safetensors").unlink()
    train(given)  # a finished run without its summary is made again
    assert (given.out / "student.safetensors").read_bytes() == student


def test_members_train_as_they_would_alone(tmp_path):
    members = [settings(tmp_path, f"m{i}", student_seed=i, split_seed=i // 2) for i in range(3)]
    train_together(members, members[0].out)
    for member in members:
        alone = replace(member, out=tmp_path / f"{member.out.name}-alone")
        train(alone)
        together = load_file(member.out / "student.safetensors")
        for name, value in load_file(alone.out / "student.safetensors").items():
            assert torch.allclose(value, together[name], atol=1e-5)
        assert not (member.out / "checkpoint.safetensors").exists()


def test_members_must_agree(tmp_path):
    with pytest.raises(ConfigError, match="width"):
        Trainer([settings(tmp_path, width=16), settings(tmp_path, width=8)])


def test_fast_recipe_gives_hidden_matrices_to_muon(tmp_path):
    adamw, muon = Trainer([settings(tmp_path, recipe="fast")]).optimisers
    shapes = sorted(tuple(p.shape[1:]) for group in muon.param_groups for p in group["params"])
    assert shapes == [(10, 16), (16, 16)]
    assert {tuple(p.shape[1:]) for p in adamw.param_groups[0]["params"]} == {(16, 3)}


@pytest.mark.parametrize("shape", [(12, 12), (5, 20), (20, 5)])
def test_orthogonal_steps_keep_directions_and_level_sizes(shape):
    matrices = torch.randn(
        3, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    found = orthogonalise(matrices)
    sizes = torch.linalg.svdvals(found)
    assert sizes.min() > 0.6
    assert sizes.max() < 1.3
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    inner = u.mT @ found @ v.mT
    assert torch.allclose(inner, torch.diag_embed(inner.diagonal(dim1=1, dim2=2)), atol=1e-9)


@pytest.mark.parametrize(
    "changes", [{}, GRID, {"recipe": "fast"}], ids=["hyperteacher", "preference", "fast"]
)
def test_continuing_from_a_checkpoint_is_exact(tmp_path, changes, monkeypatch):
    whole = settings(tmp_path, "whole", **changes)
    train(whole)
    broken = settings(tmp_path, "broken", **changes)
    steps = Trainer.train_step

    def stop_at_seven(self):
        if self.step == 7:
            raise KeyboardInterrupt
        return steps(self)

    monkeypatch.setattr(Trainer, "train_step", stop_at_seven)
    with pytest.raises(KeyboardInterrupt):
        train(broken)
    assert (broken.out / "checkpoint.safetensors").exists()
    monkeypatch.undo()
    train(broken)
    check_equal(whole.out, broken.out)


def check_equal(one, other):
    first, second = load_file(one / "student.safetensors"), load_file(other / "student.safetensors")
    assert all(torch.equal(first[name], second[name]) for name in first)
    timed = ("cpu_s", "wall_s")
    tables = [read_table(folder / "metrics.parquet") for folder in (one, other)]
    timeless = [
        [{k: v for k, v in row.items() if k not in timed} for row in rows] for rows in tables
    ]
    assert timeless[0] == timeless[1]
    summaries = [read_json(folder / "summary.json") for folder in (one, other)]
    for key in ("test", "held_out", "baselines", "decodability", "support"):
        assert summaries[0][key] == summaries[1][key]


def test_killed_run_continues_exactly(tmp_path):
    arguments = [
        f"--{name.replace('_', '-')}={value}" for name, value in TINY.items() if name != "hidden"
    ]
    arguments += [
        "--hidden",
        "5",
        "--steps",
        "1500",
        "--eval-every",
        "500",
        "--checkpoint-every",
        "100",
    ]
    code = "import sys; from synthetic.commands import main; sys.exit(main(sys.argv[1:]))"

    def start(folder):
        command = [sys.executable, "-c", code, "train", *arguments, "--out", str(folder)]
        return subprocess.Popen(
            command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL
        )

    broken = start(tmp_path / "broken")
    deadline = time.monotonic() + 300
    while not (tmp_path / "broken" / "checkpoint.safetensors").exists():
        assert broken.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    broken.send_signal(signal.SIGKILL)
    broken.wait()
    assert not (tmp_path / "broken" / "summary.json").exists()
    for folder in (tmp_path / "broken", tmp_path / "whole"):
        assert start(folder).wait(timeout=300) == 0
    check_equal(tmp_path / "whole", tmp_path / "broken")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"steps": 0}, "--steps 0: must be at least 1"),
        ({"student": "mpl"}, "did you mean 'mlp'"),
        ({"recipe": "papr"}, "did you mean 'paper'"),
        ({"samples": 1}, "at least 2 samples"),
        ({"lr": -1.0}, "finite number, 0 or more"),
    ],
)
def test_settings_that_cannot_be_used(tmp_path, changes, says):
    with pytest.raises(ConfigError) as caught:
        settings(tmp_path, **changes)
    assert says in str(caught.value)


def test_devices_that_are_not_there(tmp_path):
    with pytest.raises(ConfigError, match="not a device"):
        Trainer([settings(tmp_path, device="gpu")])
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="no CUDA device"):
            Trainer([settings(tmp_path, device="cuda")])

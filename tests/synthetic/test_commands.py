"""The commands, from arguments to files, and every kind of bad input."""

import subprocess
import sys
import time

import pytest

from synthetic.commands import main
from synthetic.settings import SweepSettings, TrainSettings
from synthetic.sweeps import presets
from synthetic.sweeps.presets import SWEEPS, TrainedSweep, command
from synthetic.sweeps.runner import ensembles
from synthetic.sweeps.table import sweep_table, tasks_needed
from t2iprobe.errors import T2IProbeError
from t2iprobe.runs.folder import read_json, read_table

QUICK = [
    *(
        "--modules=6",
        "--hot=2",
        "--steps=6",
        "--width=8",
        "--batch-tasks=8",
        "--samples=4",
        "--eval-tasks=16",
    ),
    *("--probe-tasks=200", "--eval-every=3", "--inputs=4", "--outputs=3", "--hidden", "5"),
]


def test_train_writes_what_it_promises(tmp_path, capsys):
    out = tmp_path / "ht"
    assert main(["train", *QUICK, "--out", str(out)]) == 0
    summary = read_json(out / "summary.json")
    for split in ("test", "held_out"):
        assert {"r2", "r2_pooled", "r2_median"} <= set(summary[split])
        assert {"r2", "r2_pooled", "r2_median"} <= set(summary["baselines"]["additive"][split])
        assert {"r2", "r2_pooled", "r2_median"} <= set(summary["baselines"]["blind"][split])
    layers = summary["decodability"]
    assert list(layers) == ["hidden.0/pre", "hidden.0/post", "hidden.1/pre", "hidden.1/post"]
    assert {"test", "held_out"} <= set(summary["output_decodability"])
    assert all({"test", "held_out", "from_input"} <= set(layer) for layer in layers.values())
    given = layers["hidden.0/pre"]["from_input"]  # the encoding gives it all away
    assert given["test"] == pytest.approx(1, abs=1e-3)
    assert given["held_out"] == pytest.approx(1, abs=1e-3)
    assert layers["hidden.1/post"]["test"] < given["test"]
    support = summary["support"]
    assert (support["seen"], support["held_out"], support["components"]) == (16, 5, 1)
    assert support["unseen_modules"] == []
    assert {"wall_s", "cpu_ms_per_step"} <= set(summary["cost"])
    assert {"torch", "python"} <= set(summary["versions"])
    assert summary["seeds"] == dict.fromkeys(("teacher", "split", "encoding", "data", "student"), 1)
    assert not summary["composes"]["beats_additive"]
    assert "It has not composed" in capsys.readouterr().out
    assert "It has not composed" in (out / "report.html").read_text()
    assert [row["step"] for row in read_table(out / "metrics.parquet")] == [3, 3, 6, 6]
    assert len(read_table(out / "decodability.parquet")) == 6 * 2 * 6
    before = (out / "summary.json").stat().st_mtime_ns
    assert main(["train", *QUICK, "--out", str(out)]) == 0
    assert (out / "summary.json").stat().st_mtime_ns == before
    with pytest.raises(T2IProbeError, match="--width was 8, now 9"):
        main(["train", *QUICK, "--width", "9", "--out", str(out)])


def test_train_on_the_grid(tmp_path):
    arguments = [
        *QUICK,
        "--task",
        "preference",
        "--features",
        "8",
        "--horizon",
        "4",
        "--objects",
        "2",
    ]
    assert main(["train", *arguments, "--out", str(tmp_path / "grid")]) == 0
    summary = read_json(tmp_path / "grid" / "summary.json")
    assert {"accuracy", "episode_accuracy"} <= set(summary["held_out"])
    assert 0 < summary["baselines"]["additive"]["held_out"]["accuracy"] <= 1


@pytest.mark.parametrize("preset", sorted(SWEEPS))
def test_every_sweep_at_smoke_size(tmp_path, preset, monkeypatch):
    monkeypatch.setitem(presets.SEEDS, "smoke", (1,))
    small = {
        "steps": 4,
        "eval_every": 4,
        "eval_tasks": 16,
        "probe_tasks": 24,
        "batch_tasks": 8,
        "width": 8,
    }
    monkeypatch.setitem(presets.SIZES, "smoke", presets.SIZES["smoke"] | small)
    out = tmp_path / preset
    assert main(["sweep", preset, "--size", "smoke", "--out", str(out)]) == 0
    rows = read_table(out / "results.parquet")
    assert {row["status"] for row in rows} <= {"done", "impossible"}
    assert any(row["status"] == "done" for row in rows)
    assert all(row["reason"] for row in rows if row["status"] == "impossible")
    page = (out / "report.html").read_text()
    assert "<svg" in page
    assert "http" not in page.replace("http://www.w3.org", "")
    assert (out / "figures" / f"{preset}.png").stat().st_size > 5000
    table = (out / "table.md").read_text().splitlines()
    if preset == "approximation":
        assert len(table) == 2 + len(rows)
    else:
        held_out = [row["held_out_r2"] for row in rows if row["status"] == "done"]
        assert [f"{value:.3f}".replace("-", "−") for value in held_out] == [
            line.split(" | ")[table[0].split(" | ").index("R² held out [least, most]")]
            for line in table[2:]
        ]
    if preset == "tasks":
        assert any("are needed" in row["reason"] for row in rows)  # kept with the reason
        assert "are needed" in page
    if preset == "encodings":
        done = next(row for row in rows if row["status"] == "done")
        assert (
            done["held_out_r2_pooled"]
            == read_json(out / done["folder"] / "summary.json")["held_out"]["r2_pooled"]
        )
        stamp = (out / done["folder"] / "summary.json").stat().st_mtime_ns
        assert main(["sweep", preset, "--size", "smoke", "--out", str(out)]) == 0
        assert (out / done["folder"] / "summary.json").stat().st_mtime_ns == stamp
        with pytest.raises(T2IProbeError, match="other settings"):
            main(["sweep", preset, "--size", "cpu", "--out", str(out)])


@pytest.mark.parametrize(
    ("axes", "line", "labels"),
    [
        ({"recipe": ("paper", "fast")}, "", ["paper", "fast"]),
        ({"bias": (True, False)}, "", ["True", "False"]),
        (
            {"recipe": ("paper", "fast"), "width": (8, 16)},
            "width",
            ["paper\nwidth 8", "paper\nwidth 16", "fast\nwidth 8", "fast\nwidth 16"],
        ),
        ({"width": (8, 16)}, "", None),
    ],
)
def test_any_setting_can_be_an_axis(tmp_path, monkeypatch, axes, line, labels):
    """Names become columns and numbers curves, without an entry anywhere but the sweep's own line."""
    x = next(iter(axes))
    made = TrainedSweep("A sweep", "Does it matter?", x, line, False, lambda _: axes)
    monkeypatch.setitem(SWEEPS, "mine", made)
    monkeypatch.setitem(presets.SEEDS, "smoke", (1,))
    small = {
        "steps": 2,
        "eval_every": 2,
        "eval_tasks": 16,
        "probe_tasks": 24,
        "batch_tasks": 8,
        "width": 8,
    }
    monkeypatch.setitem(presets.SIZES, "smoke", presets.SIZES["smoke"] | small)
    assert main(["sweep", "mine", "--size", "smoke", "--out", str(tmp_path / "mine")]) == 0
    assert (tmp_path / "mine" / "figures" / "mine.png").stat().st_size > 5000
    rows = read_table(tmp_path / "mine" / "results.parquet")
    panel = made.figure(rows).axes[0]
    if labels is None:
        held_out = next(curve for curve in panel.lines if curve.get_linestyle() == "-")
        assert held_out.get_xdata().tolist() == [8, 16]
        assert held_out.get_ydata().tolist() == [row["held_out_r2_pooled"] for row in rows]
    else:
        assert [label.get_text() for label in panel.get_xticklabels()] == labels
        marks = [curve.get_ydata()[0] for curve in panel.lines if curve.get_marker() == "s"]
        assert list(marks) == [row["held_out_r2_pooled"] for row in rows]


@pytest.mark.parametrize("size", ["smoke", "cpu", "paper"])
@pytest.mark.parametrize("task", ["hyperteacher", "preference"])
@pytest.mark.parametrize("preset", sorted(set(SWEEPS) - {"approximation"}))
def test_cells_have_names_of_their_own_and_commands_that_parse(tmp_path, preset, size, task):
    from t2iprobe.cli.parsing import parse

    made = list(SWEEPS[preset].cells(SweepSettings(preset, tmp_path, size=size, task=task)))
    assert len({cell.name for cell in made}) == len(made) >= 2
    for cell in made[:: max(1, len(made) // 3)]:
        words = command(cell.settings).split()
        assert words[:3] == ["t2iprobe", "synthetic", "train"]
        assert parse(TrainSettings, words[3:], "train", "") == cell.settings


def test_stacked_sweep_gives_the_same_numbers(tmp_path):
    for name in ("no", "yes"):
        main(
            ["sweep", "support", "--size", "smoke", "--stack", name, "--out", str(tmp_path / name)]
        )
    one, other = (
        {r["cell"]: r for r in read_table(tmp_path / n / "results.parquet")} for n in ("no", "yes")
    )
    for cell, row in one.items():
        assert row["held_out_r2_pooled"] == pytest.approx(
            other[cell]["held_out_r2_pooled"], abs=1e-3
        )


def test_side_by_side_are_those_that_differ_in_seed_and_support_alone(tmp_path):
    settings = SweepSettings("popularity", tmp_path, size="cpu", stack="yes")
    groups = list(ensembles(list(SWEEPS[settings.preset].cells(settings)), settings))
    assert [len(group) for group in groups] == [16, 11]  # 3 supports x 3 fractions x 3 seeds
    settings = SweepSettings("width", tmp_path, size="smoke", stack="yes")
    groups = list(ensembles(list(SWEEPS[settings.preset].cells(settings)), settings))
    assert [{(c.settings.width, c.settings.encoding) for c in group} for group in groups] == [
        {(width, encoding)} for encoding in ("identity", "interval-shuffle") for width in (8, 16)
    ]
    settings = SweepSettings("popularity", tmp_path, size="cpu", stack="auto")
    assert {
        len(group) for group in ensembles(list(SWEEPS[settings.preset].cells(settings)), settings)
    } == {1}


def test_report_can_be_written_again(tmp_path, capsys):
    main(["train", *QUICK, "--out", str(tmp_path / "ht")])
    (tmp_path / "ht" / "report.html").unlink()
    assert main(["report", str(tmp_path / "ht")]) == 0
    assert (tmp_path / "ht" / "report.html").exists()
    assert "report.html" in capsys.readouterr().out
    with pytest.raises(T2IProbeError, match=r"run\.json"):
        main(["report", str(tmp_path)])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["trian"], "did you mean 'train'"),
        (["sweep", "encoding"], "did you mean 'encodings'"),
        (["train", "--steps", "0"], "at least 1"),
        (["train", "--encoding", "identiti"], "did you mean 'identity'"),
        (["train", "--support", "ballanced"], "did you mean 'balanced'"),
        (["train", "--modules", "7", "--encoding", "invertible"], "even number"),
        (["train", "--modules", "8", "--hot", "2", "--frac-ood", "0.95"], "are needed"),
        (["train", "--modules", "3", "--hot", "4"], "1 to the number of modules"),
        (["train", "--frac-ood", "1.5"], "above 0 and below 1"),
        (["train", "--modules", "2", "--hot", "2", "--frac-ood", "0.3333"], "0.333334"),
        (["train", "--modules", "-3"], "at least 1"),
        (["train", "--probe-tasks", "1"], "2 or more"),
        (["train", "--task", "preference", "--discount", "2"], "--discount 2"),
        (["train", "--device", "meta"], "use cpu, cuda"),
        (["sweep", "law", "--device", "xpu"], "use cpu, cuda"),
        (["train", "--train-tasks", "100000"], "695"),
        (["train", "--lr", "nan"], "finite number"),
        (["train", "--scale", "inf"], "finite number"),
        (["train", "--task", "preference", "--discount", "-0.5"], "finite number"),
        (["train", "--device", "gpu"], "use cpu, cuda"),
        (["train", "--task", "preference", "--encoding", "fewshot"], "hyperteacher only"),
        (["train", "--task", "preference", "--features", "4"], "at least the number of modules"),
        (["train", "--student", "transformer", "--width", "30"], "multiple of twice"),
        (["sweep", "approximation", "--task", "preference"], "hyperteacher"),
    ],
)
def test_bad_input_is_one_line(tmp_path, arguments, says):
    with pytest.raises(T2IProbeError) as caught:
        main([*arguments, "--out", str(tmp_path / "x")] if len(arguments) > 1 else arguments)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    # The corrected command is not held up by what a mistake left.
    assert not (tmp_path / "x").exists()


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(T2IProbeError, match="not empty"):
        main(["train", *QUICK, "--out", str(tmp_path)])
    (tmp_path / "deep").mkdir()
    download = tmp_path / "deep" / ".film.mkv.part"
    download.write_text("half")
    with pytest.raises(T2IProbeError, match="not empty"):
        main(["sweep", "encodings", "--size", "smoke", "--out", str(tmp_path)])
    assert sorted(p.name for p in tmp_path.rglob("*")) == [".film.mkv.part", "deep", "thesis.txt"]


def test_list_names_everything(capsys):
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    assert all(
        name in said
        for name in ("invertible-strong", "disconnected-one", "hypernetwork", "popularity", "fast")
    )


def test_help_is_quick_and_imports_nothing_heavy():
    code = (
        "import sys; from synthetic.commands import main; main(['--help']); "
        "print([m for m in ('torch', 'matplotlib', 'datasets', 'scipy', 'sklearn') if m in sys.modules])"
    )
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")
    assert time.perf_counter() - start < 30


def test_settings_can_come_from_a_file_and_the_command_line_wins(tmp_path):
    (tmp_path / "run.yaml").write_text("steps: 3\nwidth: 8\nhidden: [5, 5]\n")
    out = tmp_path / "ht"
    assert (
        main(
            [
                "train",
                "--config",
                str(tmp_path / "run.yaml"),
                *QUICK[:2],
                *QUICK[5:10],
                "--steps",
                "4",
                "--out",
                str(out),
            ]
        )
        == 0
    )
    settings = read_json(out / "summary.json")["settings"]
    assert (settings["steps"], settings["width"], settings["hidden"]) == (4, 8, [5, 5])


def test_the_table_averages_over_seeds_by_hand():
    def row(seed, value, beats):
        scores = {
            f"{who}{split}_{measure}": value
            for who in ("", "additive_", "blind_")
            for split in ("test", "held_out")
            for measure in ("r2", "r2_pooled")
        }
        return scores | {
            "encoding": "identity",
            "seed": seed,
            "seen": 27,
            "status": "done",
            "beats_additive": beats,
            "decodability_held_out": None if seed == 1 else 0.5,
            "from_input_held_out": 1.0,
        }

    impossible = {"encoding": "fewshot", "status": "impossible", "reason": "none"}
    header, places = sweep_table([row(1, 0.2, True), row(2, 0.6, False), impossible], ["encoding"])
    assert len(places) == 1
    found = dict(zip(header, places[0], strict=True))
    assert found["R² held out [least, most]"] == "0.400 [0.200, 0.600]"
    assert (found["R² test"], found["decodability"], found["beats additive"]) == (
        "0.400",
        "0.500",
        "1 of 2",
    )


def test_tasks_needed_by_hand():
    def row(modules, seen, student, additive):
        return {
            "modules": modules,
            "seen": seen,
            "held_out_r2_pooled": student,
            "additive_held_out_r2_pooled": additive,
        }

    # Margins -0.2, then +0.2.
    rows = [row(8, 10, 0.5, 0.7), row(8, 10, 0.3, 0.5), row(8, 40, 0.9, 0.7)]
    rows += [
        row(12, 10, 0.1, 0.7),
        row(12, 40, 0.6, 0.7),
        row(16, 10, 0.8, 0.7),
        row(16, 40, 0.9, 0.7),
    ]
    assert tasks_needed(rows, "modules", "r2_pooled") == {8: pytest.approx(20), 12: None, 16: 10.0}

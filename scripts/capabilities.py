"""Run the test matrix and write what it shows into README.md.

    python scripts/capabilities.py               # every family; about ten minutes on a free core
    python scripts/capabilities.py flux sana     # only these rows
    python scripts/capabilities.py --check       # whether README lists the families of the matrix

Every family is a tiny pipeline of its real classes with random weights, built by the tests. Four things are tried, by
the command line where there is a command: inspect without weights; doctor; captured values against a second forward of
the denoiser; a small run to its summary.
"""

import argparse
import contextlib
import io
import sys
import tempfile
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
START, END = "<!-- capabilities -->", "<!-- /capabilities -->"
COLUMNS = ["family", "pipeline", "text encoders", "denoisers", "sites", "streams", "guidance"]
CHECKS = ["inspect", "doctor", "values", "run"]
RUN = "--family=shapes-single --tasks=48 --seeds=1 --folds=3 --resamples=99 --at=1"


def of_tests(name: str) -> Any:
    """A module of the tests."""
    if str(ROOT / "tests") not in sys.path:
        sys.path.insert(0, str(ROOT / "tests"))
    return import_module(name)


def short(name: str) -> str:
    """A class name without what all of them have."""
    endings = (
        "ForConditionalGeneration",
        "ForCausalLM",
        "WithProjection",
        "EncoderModel",
        "TextModel",
        "Model",
    )
    for ending in endings:
        name = name.removesuffix(ending)
    return name.removesuffix("2D").removesuffix("3D").removesuffix("2DCondition")


def guidance(words: str) -> str:
    """The form of guidance in letters."""
    if "no unconditional half" in words:
        return "[c]"
    letters = words.partition(": ")[2].replace("unconditional", "u").replace("conditional", "c")
    return letters.replace("perturbed", "p")


def distinct(values: list[str]) -> str:
    """Each value once, in order."""
    return ", ".join(dict.fromkeys(values)) or "–"


def command(arguments: list[str]) -> bool:
    """Whether a command of t2iprobe ends with 0; what it prints is dropped."""
    from t2iprobe.cli import main

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return main(arguments) == 0


def values_agree(model: Any, family: str) -> bool:
    """Whether captured values are those of a second forward, and swapping two prompts swaps them."""
    import torch

    truths = of_tests("truths")
    got, expected = truths.compared(model, (truths.TRUTHS | truths.UNSEEN)[family])
    there = truths.capture_all(model, truths.REQUESTS)
    back = truths.capture_all(model, truths.REQUESTS[::-1])
    same = torch.allclose(got, expected, atol=1e-4) and not torch.allclose(got[0], got[1])
    return same and all(
        torch.allclose(
            rows,
            back[key].flip(0),
            atol=1e-3 * float(rows.nan_to_num().abs().max()),
            equal_nan=True,
        )
        for key, rows in there.items()
    )


def row(family: str, folder: Path) -> list[str]:
    """One row of the table: what calibration found, and which of the four checks passed."""
    from t2iprobe.models.checkpoint.loading import load_model
    from t2iprobe.models.generation.plan import all_sites, calibrated
    from t2iprobe.models.settings import LoadSettings

    tiny = of_tests("tiny")
    name, kind = of_tests("matrix").ALL[family]
    path = str(tiny.save(family, folder))
    settings = LoadSettings(pipe_arg=tiny.pipe_args(family))
    arguments = [path, *(f"--pipe-arg={text}" for text in settings.pipe_arg)]
    model = load_model(path, settings)
    if model.class_name != kind:
        raise SystemExit(f"{family}: matrix.py says {kind}, the pipeline is {model.class_name}")
    found = calibrated(model)
    sites = all_sites(found)
    streams = [
        s.stream for s in sites if s.component in found.denoisers and s.path != "conditioning"
    ]
    out = str(folder / f"{family}-run")
    checks = {
        "inspect": command(["inspect", *arguments, "--json"]),
        "doctor": command(["doctor", *arguments]),
        "values": values_agree(model, family),
        "run": command(["run", "--model", *arguments, "--out", out, *RUN.split()]),
    }
    return [
        name,
        kind,
        distinct([short(type(model.encoders[part]).__name__) for part in found.encoders]),
        distinct([short(type(model.denoisers[part]).__name__) for part in found.denoisers]),
        str(len(sites)),
        distinct(sorted(streams)),
        distinct([guidance(one.guidance) for one in found.denoisers.values()]),
        *("yes" if ok else "no" for ok in checks.values()),
    ]


def written(readme: str) -> dict[str, str]:
    """Rows of the table in README by family name."""
    inside = readme.partition(START)[2].partition(END)[0]
    lines = [line for line in inside.splitlines() if line.startswith("| ")][2:]
    return {line.strip("| ").split(" | ")[0]: line for line in lines}


def table(rows: dict[str, str]) -> str:
    """The table, families in the order of the matrix; those that have no row yet are left out."""
    head = [*COLUMNS, *CHECKS]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    names = [name for name, _ in of_tests("matrix").ALL.values()]
    return "\n".join([*lines, *(rows[name] for name in names if name in rows)])


def section(lines: str, n: int) -> str:
    """The whole part of README between the marks."""
    made_with = [f"{name} {version(name)}" for name in ("diffusers", "transformers", "torch")]
    return f"""{START}
<details><summary>{n} families, each tried from inspect to a run, with tiny random weights</summary>

Rows of one denoiser call: u unconditional, c conditional, p perturbed; *then* parts the calls of a step.
*values*: captured activations equal those of a second forward, and swapping two prompts swaps them.

{lines}

Written by `scripts/capabilities.py` with {", ".join(made_with)}.
</details>
{END}"""


def listed(readme: str) -> list[tuple[str, str]]:
    """(family, pipeline) of every row in README."""
    cells = [line.strip("| ").split(" | ") for line in written(readme).values()]
    return [(first, second) for first, second, *_ in cells]


def keep(readme: Path, line: str) -> None:
    """Put one row into README in place of the family's old one."""
    text = readme.read_text(encoding="utf-8")
    name = line.strip("| ").split(" | ")[0]
    rows = written(text) | {name: line}
    before, _, rest = text.partition(START)
    whole = before + section(table(rows), len(rows)) + rest.partition(END)[2]
    readme.write_text(whole, encoding="utf-8")


def main() -> int:
    """Write, print or check the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument(
        "families", nargs="*", help="only these rows, by their name in tests/matrix.py"
    )
    parser.add_argument("--check", action="store_true", help="compare README with the matrix")
    asked = parser.parse_args()
    families = of_tests("matrix").ALL
    readme = ROOT / "README.md"
    if asked.check:
        return int(listed(readme.read_text(encoding="utf-8")) != list(families.values()))
    of_tests("tiny").load_builders()
    with tempfile.TemporaryDirectory() as folder:
        for family in asked.families or families:
            line = "| " + " | ".join(row(family, Path(folder))) + " |"
            print(line, flush=True)
            keep(readme, line)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Run the test matrix and write what it shows into t2iprobe/models/FAMILIES.md.

    python scripts/capabilities.py               # every family; about ten minutes on a free core
    python scripts/capabilities.py flux sana     # only these rows
    python scripts/capabilities.py --check       # whether the page lists the families of the matrix

Every family is a tiny pipeline of its real classes with random weights, built by the tests. Four things are tried, by
the command line where there is a command: inspect without weights; doctor; captured values against a second forward of
the denoiser; a small run to its summary.
"""

import argparse
import contextlib
import functools
import io
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "t2iprobe" / "models" / "FAMILIES.md"
COLUMNS = [
    "family",
    "pipeline",
    "text encoders",
    "denoisers",
    "sites",
    "streams",
    "words",
    "guidance",
]
WIDER = " (with a reference)"
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
    from t2iprobe.cli.main import main

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return main(arguments) == 0


def first_image(arguments: Iterable[Any]) -> int:
    """Positions of the first argument that is a batch of (channels, height, width); 0 where none is."""
    return next((a.shape[-2] * a.shape[-1] for a in arguments if getattr(a, "ndim", 0) == 4), 0)


@contextlib.contextmanager
def canvases(model: Any) -> Iterator[dict[str, int]]:
    """The most positions that a denoiser is given at once, and that a scheduler takes a step of."""
    most = {"denoiser": 0, "picture": 0}

    def note(what: str, arguments: Iterable[Any]) -> None:
        most[what] = max(most[what], first_image(arguments))

    def stepped(step: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(step)
        def inner(*args: Any, **kwargs: Any) -> Any:
            note("picture", [*args, *kwargs.values()])
            return step(*args, **kwargs)

        return inner

    def given(_: Any, args: Any, kwargs: Any) -> None:
        note("denoiser", [*args, *kwargs.values()])

    hooks = [
        part.register_forward_pre_hook(given, with_kwargs=True) for part in model.denoisers.values()
    ]
    schedulers = [part for part in model.pipe.components.values() if hasattr(part, "step")]
    for scheduler in schedulers:
        scheduler.step = stepped(scheduler.step)
    yield most
    for scheduler in schedulers:
        del scheduler.step
    for hook in hooks:
        hook.remove()


def streams(found: Any, there: dict[str, Any]) -> tuple[str, str]:
    """The denoisers' streams, and where a constituent's own tokens are pooled."""
    from t2iprobe.places import Place

    read = [Place.parse(text) for text in there]
    inside = [place for place in read if place.site.component in found.denoisers]
    blocks = [place for place in inside if not place.site.is_conditioning]
    parts = {
        "e": [place for place in read if place not in inside],
        "c": [place for place in inside if place not in blocks],
        "t": [place for place in blocks if place.site.stream == "text"],
    }
    spans = {
        part: [p for p in of if p.constituent and there[str(p)].isfinite().all()]
        for part, of in parts.items()
    }
    words = " ".join(part for part, of in spans.items() if of) or "–"
    return distinct(sorted(place.site.stream for place in blocks)), words


def values_agree(model: Any, family: str, there: dict[str, Any]) -> bool:
    """Whether captured values are those of a second forward, and swapping two prompts swaps them."""
    import torch

    truths = of_tests("truths")
    got, expected = truths.compared(model, (truths.TRUTHS | truths.UNSEEN)[family])
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
    from t2iprobe.activations.plan import all_sites, calibrated
    from t2iprobe.models.loading import load_model
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
    truths = of_tests("truths")
    with canvases(model) as most:
        there = truths.capture_all(model, truths.REQUESTS)
    shown, words = streams(found, there)
    out = str(folder / f"{family}-run")
    checks = {
        "inspect": command(["inspect", *arguments, "--json"]),
        "doctor": command(["doctor", *arguments]),
        "values": values_agree(model, family, there),
        "run": command(["run", "--model", *arguments, "--out", out, *RUN.split()]),
    }
    return [
        name,
        kind,
        distinct([short(type(model.encoders[part]).__name__) for part in found.encoders]),
        distinct([short(type(model.denoisers[part]).__name__) for part in found.denoisers]),
        str(len(all_sites(found))),
        shown.replace("image", "image" + WIDER * (most["denoiser"] > most["picture"] > 0)),
        words,
        distinct([guidance(one.guidance) for one in found.denoisers.values()]),
        *("yes" if ok else "no" for ok in checks.values()),
    ]


def written(page: str) -> dict[str, str]:
    """Rows of the page's table by family name."""
    lines = [line for line in page.splitlines() if line.startswith("| ")][2:]
    return {line.strip("| ").split(" | ")[0]: line for line in lines}


def table(rows: dict[str, str]) -> str:
    """The table, families in the order of the matrix; those that have no row yet are left out."""
    head = [*COLUMNS, *CHECKS]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    names = [name for name, _ in of_tests("matrix").ALL.values()]
    return "\n".join([*lines, *(rows[name] for name in names if name in rows)])


def without_words(rows: dict[str, str]) -> str:
    """The families in whose denoiser a constituent's own tokens are not found."""
    place = [*COLUMNS, *CHECKS].index("words")
    cells = {name: line.strip("| ").split(" | ")[place] for name, line in rows.items()}
    return ", ".join(name for name, words in cells.items() if not set(words) & {"c", "t"})


def page(rows: dict[str, str]) -> str:
    """The text of the page."""
    made_with = [f"{name} {version(name)}" for name in ("diffusers", "transformers", "torch")]
    lacking = textwrap.fill(
        f"In these denoisers they are not, and text is pooled over all tokens: {without_words(rows)}.",
        120,
        break_on_hyphens=False,
    )
    return f"""# {len(rows)} families of pipelines, tried

Each is a tiny pipeline of its real classes with random weights, taken from `inspect` to a run.

Rows of one denoiser call: u unconditional, c conditional, p perturbed; *then* parts the calls of a step.
*streams*: of the denoiser's blocks; *with a reference*: it works on a blank picture beside the one it makes, and means
and grids cover both. *words*: where a constituent's own tokens are found: e text encoders, c what the denoiser is
given, t its text stream.
{lacking}
*values*: captured activations equal those of a second forward, and swapping two prompts swaps them.

{table(rows)}

Written by `scripts/capabilities.py` with {", ".join(made_with)}.
"""


def listed(text: str) -> list[tuple[str, str]]:
    """(family, pipeline) of every row of the page."""
    cells = [line.strip("| ").split(" | ") for line in written(text).values()]
    return [(first, second) for first, second, *_ in cells]


def keep(line: str) -> None:
    """Put one row into the page in place of the family's old one."""
    name = line.strip("| ").split(" | ")[0]
    PAGE.write_text(
        page(written(PAGE.read_text(encoding="utf-8")) | {name: line}), encoding="utf-8"
    )


def main() -> int:
    """Write, print or check the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument(
        "families", nargs="*", help="only these rows, by their name in tests/matrix.py"
    )
    parser.add_argument("--check", action="store_true", help="compare the page with the matrix")
    asked = parser.parse_args()
    families = of_tests("matrix").ALL
    if asked.check:
        return int(listed(PAGE.read_text(encoding="utf-8")) != list(families.values()))
    unknown = [family for family in asked.families if family not in families]
    if unknown:
        parser.error(f"no family {', '.join(unknown)}; there are {', '.join(families)}")
    of_tests("tiny").load_builders()
    with tempfile.TemporaryDirectory() as folder:
        for family in asked.families or families:
            line = "| " + " | ".join(row(family, Path(folder))) + " |"
            print(line, flush=True)
            keep(line)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

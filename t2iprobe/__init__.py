"""t2iprobe: what a text-to-image model composes, where the parts get lost, and how sure one can be.

    import t2iprobe
    run = t2iprobe.run(model="shapes-mmdit", tasks=32, seeds=1, out="runs/quick")    # or open_run("runs/quick")
    run.probes, run.scores, run.decodability                                         # pandas tables
    run.plot_decodability()                                                          # a matplotlib figure

Public names are loaded when they are first used: `import t2iprobe` alone is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from t2iprobe.errors import T2IProbeError, unknown

if TYPE_CHECKING:
    from t2iprobe.activations.capture import capture
    from t2iprobe.api import Run, compare, load_model, open_run, run
    from t2iprobe.calibration.calibrate import calibrate
    from t2iprobe.families.reading import Family, load_family
    from t2iprobe.scorers.base import Scorer, Verdict

__version__ = "0.1.0"

__all__ = [
    "Family",
    "Run",
    "Scorer",
    "T2IProbeError",
    "Verdict",
    "calibrate",
    "capture",
    "compare",
    "load_family",
    "load_model",
    "open_run",
    "run",
]

_HOME = {
    "Family": "t2iprobe.families.reading",
    "Run": "t2iprobe.api",
    "Scorer": "t2iprobe.scorers.base",
    "Verdict": "t2iprobe.scorers.base",
    "calibrate": "t2iprobe.calibration.calibrate",
    "capture": "t2iprobe.activations.capture",
    "compare": "t2iprobe.api",
    "load_family": "t2iprobe.families.reading",
    "load_model": "t2iprobe.api",
    "open_run": "t2iprobe.api",
    "run": "t2iprobe.api",
}
"""Where each public name lives."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 't2iprobe' has no {unknown('attribute', name, __all__)}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

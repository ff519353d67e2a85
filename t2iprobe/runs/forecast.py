"""What the stages after generation will take: their pieces, timed on stand-ins of the run's own sizes.

Scoring is timed on an image of the model. Probing is timed on random numbers, one array of each width the run records,
with the run's own targets and folds, and multiplied by how many arrays there are. Correlating is timed by one
correlation with its resamples, the report by one heat map and one sheet of them.
"""

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from safetensors import safe_open
from threadpoolctl import threadpool_limits

from t2iprobe import registry
from t2iprobe.activations.generate import GeneratedBatch
from t2iprobe.places import Place
from t2iprobe.runs.array import probe
from t2iprobe.runs.config import RunConfig
from t2iprobe.runs.folder import intact_png
from t2iprobe.runs.outcomes import draws
from t2iprobe.runs.run_tasks import RunTasks
from t2iprobe.runs.shards import write_shard
from t2iprobe.runs.targets import Targets
from t2iprobe.stats import spearman

FEW_TASKS = 48
"""Besides the whole run, its first tasks are timed, so that a shorter run can be foretold."""
OTHER_FIGURES = 6
"""Figures of a report that are no heat maps."""


@dataclass(frozen=True)
class LaterStages:
    """What scoring, probing, correlating and the report take.

    Attributes:
        n_tasks: numbers of tasks that were timed, ascending.
        seconds: for each of them what all these stages take.
        report_bytes: report and figures on disk.
        import_s: seconds to import and warm up what these stages need; already spent here, so not in `seconds`.
    """

    n_tasks: tuple[int, ...]
    seconds: tuple[float, ...]
    report_bytes: int
    import_s: float = 0.0

    def at(self, n_tasks: int) -> float:
        """Seconds for a number of tasks: between those timed on a straight line, outside them as at the nearest."""
        return float(np.interp(n_tasks, self.n_tasks, self.seconds))


def foretell(
    sample: GeneratedBatch, drawn: RunTasks, config: RunConfig, batch_size: int, n_tasks: int
) -> LaterStages:
    """Time the pieces of the later stages.

    Args:
        sample: images of the run with their activations; only the first one is looked at.
        drawn: the tasks of the run; the first request of the sample belongs to one of them.
        config: the settings of the run.
        batch_size: images in a shard.
        n_tasks: the most tasks that are worth timing.
    """
    import_s = _timed(_warm_up)
    keys = {Place.parse(text): int(a.shape[1]) for text, a in sample.activations.items()}
    groups = _targets(drawn, config, 1).groups
    n_codings = len({group.coding for group in groups})
    each_image, to_load = _score(sample, drawn, config)
    each_read = _read(sample)
    report, report_bytes = _report(list(keys), len(groups), n_codings)
    numbers = sorted({min(n_tasks, FEW_TASKS), n_tasks})
    seconds = []
    for n in numbers:
        n_images = n * config.seeds
        n_reads = len(keys) * -(-n_images // batch_size)
        parts = (
            to_load + n_images * each_image,
            n_reads * each_read + _probe(keys, _targets(drawn, config, n), config),
            _correlate(n, len(groups) + n_codings, config),
            report,
        )
        seconds.append(sum(parts))
    never_less = tuple(np.maximum.accumulate(seconds).tolist())
    return LaterStages(tuple(numbers), never_less, report_bytes, import_s)


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _warm_up() -> None:
    """Import what writes tables and draws figures, and draw one; the first drawing loads the fonts."""
    import datasets  # noqa: F401

    from t2iprobe.report import page, style

    figure, _ = style.new_figure()
    page.picture(figure, "first", "")


def _targets(drawn: RunTasks, config: RunConfig, n: int) -> Targets:
    """What the probes of the first n tasks predict."""
    part = RunTasks(drawn.family, drawn.tasks[:n], drawn.folds[:n], drawn.seen[:n])
    ids = [task.id for task in part.tasks for _ in range(config.seeds)]
    return Targets.of(part, ids, config.seed)


def _score(sample: GeneratedBatch, drawn: RunTasks, config: RunConfig) -> tuple[float, float]:
    """Seconds to judge one image, and those that only the first one takes."""
    request, image = sample.requests[0], sample.images[0]
    task = next(task for task in drawn.tasks if task.id == request.task_id)
    start = time.perf_counter()
    scorer = registry.scorer(config.scorer)(config.device)
    scorer.score([image], [task])
    first = time.perf_counter() - start
    each = _timed(lambda: scorer.score([image], [task]))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "image.png")
        image.save(file)
        each += 2 * _timed(lambda: intact_png(file))  # looked over once, and opened to be judged
    return each, max(first - each, 0.0)


def _read(sample: GeneratedBatch) -> float:
    """Seconds to read one array of one shard."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "shard.safetensors")
        write_shard(file, {key: a[:1] for key, a in sample.activations.items()})
        keys = list(sample.activations)[:20]

        def read() -> None:
            for key in keys:
                with safe_open(file, framework="np") as shard:
                    shard.get_tensor(key)

        return _timed(read) / len(keys)


def _probe(keys: dict[Place, int], targets: Targets, config: RunConfig) -> float:
    """Seconds to probe every array, in as many threads as the stage uses."""
    predict = registry.probe(config.probe)
    random = np.random.default_rng(0)
    kinds = Counter((width, key.constituent is not None) for key, width in keys.items())
    spans = {key.constituent is not None: key.constituent for key in keys}
    with threadpool_limits(1):
        work, alone = {}, {}
        for width, spanned in kinds:
            X = random.standard_normal((len(targets.task_ids), width), dtype=np.float32)
            work[width, spanned] = partial(probe, X, targets, spans[spanned], predict)
            alone[width, spanned] = _timed(work[width, spanned])
        cheapest = min(alone, key=lambda kind: alone[kind])
        gain = _threads_gain(work[cheapest], alone[cheapest])
    extra = 3 * max(alone.values())  # the chosen sites again, and the bag of words
    return sum(alone[kind] * count for kind, count in kinds.items()) / gain + extra


def _threads_gain(work: Callable[[], object], alone: float) -> float:
    """How many times faster several threads are than one."""
    n_threads = os.cpu_count() or 1
    with ThreadPoolExecutor(n_threads) as pool:
        together = _timed(lambda: list(pool.map(lambda _: work(), range(n_threads))))
    return min(max(n_threads * alone / together, 1.0), float(n_threads))


def _correlate(n_tasks: int, n_groups: int, config: RunConfig) -> float:
    """Seconds for every correlation and every interval."""
    x = np.random.default_rng(0).standard_normal((2, max(n_tasks, 4)))
    return n_groups * _timed(lambda: spearman(x[0], x[1], **draws(config)))


def _report(keys: Sequence[Place], n_groups: int, n_codings: int) -> tuple[float, int]:
    """Seconds and bytes of the report: a heat map for each group and coding, a sheet for each coding."""
    from t2iprobe.report import figures, style
    from t2iprobe.report.layers import HeatGrid

    image = [key for key in keys if key.site.stream == "image"]
    sites = tuple(sorted({key.site.module for key in image}))
    steps = tuple(sorted({key.step or 0 for key in image}))
    values = tuple(tuple(0.5 for _ in steps) for _ in sites)
    grid = HeatGrid("", "", sites, steps, dict.fromkeys(steps), values, None, None)
    on_sheet = -(-n_groups // n_codings) + 1
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "sheet.png")
        start = time.perf_counter()
        drawing = style.svg(figures.heat_panel(grid), "panel")
        panel = time.perf_counter() - start
        sheet = _timed(lambda: style.save_png(figures.heat_sheet([grid] * on_sheet, "sheet"), file))
        n_panels = n_groups + n_codings + OTHER_FIGURES
        n_bytes = n_panels * len(drawing) + (n_codings + OTHER_FIGURES / 2) * file.stat().st_size
    return n_panels * panel + n_codings * sheet, int(n_bytes)

"""`t2iprobe plan`."""

import time
from math import ceil, isnan

from t2iprobe.cli.parsing import model_first, parse
from t2iprobe.models.names import local_folder
from t2iprobe.runs.config import RunConfig

DESCRIPTION = """\
Say what a run with these settings will take in time, memory and disk, and the smallest correlation between decodability
and success that it can detect. Two images are made and timed, or the whole first batch where that takes half a minute
at most, and small pieces of the later stages. Nothing is written.

  t2iprobe plan
  t2iprobe plan stabilityai/stable-diffusion-3.5-medium --tasks 256 --seeds 8
  t2iprobe plan --budget 30m                       how many tasks fit into half an hour"""


def main(arguments: list[str]) -> int:
    """Measure a few images and print what the whole run would take; 1 where the budget is too short for any run."""
    start = time.monotonic()
    config = parse(RunConfig, model_first(arguments), "plan", DESCRIPTION)
    local_folder(config.model)  # a mistyped name is told before the heavy libraries are loaded
    from t2iprobe.report.formats import duration, size
    from t2iprobe.runs.outlook import look_ahead

    found = look_ahead(config, start)
    print(
        f"{found.n_tasks} tasks x {config.seeds} seeds = {found.n_images} images of {config.model}"
    )
    print(
        f"time    {duration(found.seconds)}: loading {duration(found.loading_s)}, images {duration(found.making_s)}, "
        f"scoring to report {duration(found.later_s)}"
    )
    print(
        f"        {found.seconds_per_image:.2g} s an image, measured in a batch of {found.n_measured}"
    )
    print(f"memory  {size(found.peak_bytes)}")
    if found.device_bytes is not None:
        print(f"device  {size(found.device_bytes)}")
    print(f"disk    {size(found.disk_bytes)}")
    if isnan(found.smallest_correlation):
        print("reach   too few tasks for any correlation")
    else:
        print(
            f"reach   Spearman {found.smallest_correlation:.2f} or more, found with 80% power at p < 0.05"
        )
    fits = found.tasks_in_budget is None or found.tasks_in_budget >= found.least_tasks
    if not fits:
        print(
            f"budget  {config.budget} is too short: the least that can be probed, {found.least_tasks} tasks, takes "
            f"about {found.least_s:.0f} s; give --budget {ceil(1.2 * found.least_s)}s or more"
        )
    elif found.tasks_in_budget is not None:
        print(
            f"budget  about {found.tasks_in_budget} of {found.n_tasks} tasks fit into {config.budget}"
        )
    for note in found.notes:
        print(f"note    {note}")
    return 0 if fits else 1

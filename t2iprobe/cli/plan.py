"""`t2iprobe plan`."""

import time
from math import isnan

from t2iprobe.cli.parsing import model_first, parse
from t2iprobe.runs.budget import GENERATION_SHARE
from t2iprobe.runs.config import RunConfig

DESCRIPTION = f"""\
Say what the images of a run with these settings will take in time, memory and disk, and the smallest correlation
between decodability and success that it can detect. Two images are made and timed, or the whole first batch where that
takes half a minute at most. Nothing is written. Of a budget, {GENERATION_SHARE:.0%} is for loading and images, the
rest for scoring, probing and the report.

  t2iprobe plan
  t2iprobe plan stabilityai/stable-diffusion-3.5-medium --tasks 256 --seeds 8
  t2iprobe plan --budget 30m                       how many tasks fit into half an hour"""


def main(arguments: list[str]) -> int:
    """Measure a few images and print what all of them would take; 1 where the budget is too short for any run."""
    start = time.monotonic()
    config = parse(RunConfig, model_first(arguments), "plan", DESCRIPTION)
    from t2iprobe.report.formats import duration, size
    from t2iprobe.runs.estimate import estimate

    run = estimate(config, start)
    print(f"{run.n_tasks} tasks x {config.seeds} seeds = {run.n_images} images of {config.model}")
    print(
        f"time    {duration(run.loading_s + run.making_s)}: loading {duration(run.loading_s)}, images "
        f"{duration(run.making_s)}; scoring, probing and the report come after"
    )
    print(
        f"        {run.seconds_per_image:.2g} s an image, measured in a batch of {run.n_measured}"
    )
    print(f"memory  {size(run.peak_bytes)}")
    if run.device_bytes is not None:
        print(f"device  {size(run.device_bytes)}")
    print(f"disk    {size(run.disk_bytes)} of images and activations")
    if isnan(run.smallest_correlation):
        print("reach   too few tasks for any correlation")
    else:
        print(
            f"reach   Spearman {run.smallest_correlation:.2f} or more, found with 80% power at p < 0.05"
        )
    fits = run.tasks_in_budget is None or run.tasks_in_budget >= run.least_tasks
    if not fits:
        print(
            f"budget  {config.budget} is too short for the least that can be probed, {run.least_tasks} tasks; "
            f"give --budget {run.least_budget}s or more"
        )
    elif run.tasks_in_budget is not None:
        print(
            f"budget  about {run.tasks_in_budget} of {run.n_tasks} tasks fit into {config.budget}, of which "
            f"{GENERATION_SHARE:.0%} is for loading and images"
        )
    for note in run.notes:
        print(f"note    {note}")
    return 0 if fits else 1

"""`t2iprobe plan`."""

from t2iprobe.commands.parsing import parse
from t2iprobe.config import RunConfig
from t2iprobe.models.names import local_folder

DESCRIPTION = """\
Say what a run with these settings will take, from two measured images: time, memory, disk; and the smallest correlation
between decodability and success that it can detect. Nothing is written.

  t2iprobe plan
  t2iprobe plan --model stabilityai/stable-diffusion-3.5-medium --tasks 256 --seeds 8"""


def main(arguments: list[str]) -> int:
    """Measure two images and print what the whole run would take."""
    config = parse(RunConfig, arguments, "plan", DESCRIPTION)
    local_folder(config.model)  # a mistyped name is told before the heavy libraries are loaded
    from t2iprobe.models.estimate import estimate
    from t2iprobe.models.loading import load_model
    from t2iprobe.models.plan import plan_capture
    from t2iprobe.report.formats import duration, size
    from t2iprobe.stages.generate import check, image_requests

    drawn = check(config)
    model = load_model(config.model, config)
    plan = plan_capture(model, sites=config.sites, at=config.steps_to_read)
    requests = image_requests(drawn, config.seeds)
    names = drawn.family.names
    found = estimate(model, plan, requests, len(drawn.tasks), len(names), config.seed)
    print(
        f"{len(drawn.tasks)} tasks x {config.seeds} seeds = {found.n_images} images of {config.model}"
    )
    print(
        f"time    {duration(found.seconds)} of generation, {found.seconds_per_image:.2f} s an image"
    )
    print(f"memory  {size(found.peak_bytes)}")
    if found.device_bytes is not None:
        print(f"device  {size(found.device_bytes)}")
    print(f"disk    {size(found.disk_bytes)}")
    if found.smallest_correlation is None:
        print("reach   too few tasks for any correlation")
    else:
        print(
            f"reach   Spearman {found.smallest_correlation:.2f} or more, found with 80% power at p < 0.05"
        )
    return 0

"""`t2iprobe plan`."""

from t2iprobe.commands.parsing import parse
from t2iprobe.config import RunConfig

DESCRIPTION = """\
Say what a run would take before it starts: two of its images are made and measured. Takes the settings of
`t2iprobe run` and writes nothing.

  t2iprobe plan --tasks 512 --seeds 8
  t2iprobe plan --model stabilityai/stable-diffusion-3.5-medium --device cuda:0"""


def main(arguments: list[str]) -> int:
    """Print time, memory, disk and the smallest correlation the run can find."""
    config = parse(RunConfig, arguments, "plan", DESCRIPTION)
    from t2iprobe.models.estimate import estimate
    from t2iprobe.models.generate import ImageRequest
    from t2iprobe.models.loading import load_model
    from t2iprobe.models.plan import plan_capture
    from t2iprobe.stages.generate import check

    drawn = check(config)
    model = load_model(config.model, config)
    plan = plan_capture(model, sites=config.sites, at=config.steps_to_read)
    wanted = [
        ImageRequest(task.id, index, task.prompt, drawn.family.spans(task))
        for task in drawn.tasks
        for index in range(config.seeds)
    ]
    n_constituents = len(drawn.family.constituents)
    got = estimate(model, plan, wanted, len(drawn.tasks), n_constituents, config.seed)
    print(f"images    {got.n_images} of {len(drawn.tasks)} tasks, {len(plan.sites)} sites")
    print(
        f"time      {duration(got.seconds)} at {got.seconds_per_image:.2g} s an image, two at a time"
    )
    print(f"memory    {got.peak_bytes / 1e9:.1f} GB, whatever the number of images")
    if got.device_bytes is not None:
        print(f"on GPU    {got.device_bytes / 1e9:.1f} GB with two images at a time")
    print(f"disk      {got.disk_bytes / 1e6:.0f} MB")
    reach = got.smallest_correlation
    print(
        "reach     too few tasks for a correlation"
        if reach is None
        else f"reach     a Spearman correlation of {reach:.2f} or more is found with 80% power"
    )
    return 0


def duration(seconds: float) -> str:
    """Seconds in words a person would use.

    Example:
        >>> duration(42), duration(200), duration(9000)
        ('42 s', '3 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"

"""`t2iprobe run`."""

import time

from t2iprobe.cli.parsing import model_first, parse
from t2iprobe.runs.budget import Budget
from t2iprobe.runs.config import RunConfig

DESCRIPTION = """\
Generate images of compositional prompts while reading the model's activations, score the images, fit linear probes on
held-out combinations, and correlate decodability with success. The same command continues a run that was stopped.

  t2iprobe run                                     the embedded model: offline, on the CPU, about two minutes
  t2iprobe run --tasks 64 --seeds 2 --out runs/quick
  t2iprobe run --model shapes-unet --at 0,0.5,1
  t2iprobe run --model stabilityai/stable-diffusion-3.5-medium --device cuda:0
  t2iprobe run --budget 30m                        as many tasks as fit into 50% of half an hour, and the
                                                   report in the rest; again for more tasks
  t2iprobe run --config run.yaml --seeds 8"""


def main(arguments: list[str]) -> int:
    """Run the main job and print its summary."""
    start = time.monotonic()
    config = parse(RunConfig, model_first(arguments), "run", DESCRIPTION)
    budget = None if config.budget is None else Budget(config.budget, start)
    from t2iprobe.report.summary import print_summary
    from t2iprobe.runs import stages
    from t2iprobe.runs.records import CORRELATION, SUMMARY

    folder = stages.run(config, budget)
    print_summary(SUMMARY.read(folder.path), CORRELATION.read(folder.path))
    print(f"report: {folder.path / 'report.html'}")
    return 0

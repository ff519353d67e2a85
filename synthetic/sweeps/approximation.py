"""How many neurons the constructed network needs, by number of modules and error."""

from typing import Any

import torch

from synthetic.problems import HyperteacherProblem, make_problem
from synthetic.settings import SweepSettings, TrainSettings
from synthetic.students.constructed import construct

MODULES = {"smoke": (4, 6), "cpu": (8, 16, 32), "paper": (8, 16, 32, 48)}
PIECES = {"smoke": (4, 8), "cpu": (4, 8, 16, 32, 64), "paper": (4, 8, 16, 32, 64, 128, 256)}
TASKS = {"smoke": 64, "cpu": 256, "paper": 1024}


def approximation_rows(settings: SweepSettings) -> list[dict[str, Any]]:
    """One row per number of modules and of pieces: neurons, guaranteed error, and the error found on held-out tasks."""
    rows = []
    for modules in MODULES[settings.size]:
        problem = make_problem(
            TrainSettings(
                out=settings.out, modules=modules, hot=2, inputs=8, hidden=(8,), outputs=8
            )
        )
        assert isinstance(problem, HyperteacherProblem)
        batch = problem.draw("held_out", 0, TASKS[settings.size])
        x, latents = batch.x.double(), batch.task_latents.double()
        exact = problem.teacher(latents, x)
        for pieces in PIECES[settings.size]:
            built = construct(problem.teacher, pieces=pieces)
            with torch.no_grad():
                found = (built(latents, x) - exact).abs().max().item()
            rows.append(
                {
                    "cell": f"modules={modules}-pieces={pieces}",
                    "modules": modules,
                    "pieces": pieces,
                    "neurons": built.neurons,
                    "error_bound": built.error,
                    "error_found": found,
                    "status": "done",
                    "reason": "",
                }
            )
    return rows

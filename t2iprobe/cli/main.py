"""The command line: find the command, parse its settings, call it, turn the outcome into an exit code.

Exit codes: 0 done, 1 a check did not pass, 2 the user has to change something, 130 interrupted.
"""

import os
import shlex
import sys
from importlib import import_module

from t2iprobe import __version__
from t2iprobe.cli.installed import check_installed
from t2iprobe.errors import T2IProbeError, unknown

# name: (module:function taking the remaining arguments, one line of help)
COMMANDS = {
    "run": (
        "t2iprobe.cli.run:main",
        "generate, score, probe, correlate and report, in one run folder",
    ),
    "compare": ("t2iprobe.cli.compare:main", "decodability against success across runs"),
    "score": ("t2iprobe.cli.stage:score", "score the images of a run folder again"),
    "probe": ("t2iprobe.cli.stage:probe", "fit the probes of a run folder again"),
    "correlate": ("t2iprobe.cli.stage:correlate", "correlate decodability and success again"),
    "report": ("t2iprobe.cli.stage:report", "write report.html of a run folder again"),
    "families": ("t2iprobe.cli.families:main", "list the task families, or show one"),
    "models": ("t2iprobe.cli.models:main", "list the models of the embedded zoo"),
    "plan": ("t2iprobe.cli.plan:main", "what a run will take and can show, before it is made"),
    "inspect": ("t2iprobe.cli.inspect:main", "what can be read in a model"),
    "doctor": ("t2iprobe.cli.doctor:main", "check that a model is read rightly"),
    "synthetic": ("synthetic.commands:main", "the synthetic experiments of the paper"),
}

EXAMPLES = """\
examples:
  t2iprobe run                                          the embedded model: offline, on the CPU, minutes
  t2iprobe run --model stabilityai/stable-diffusion-3.5-medium --tasks 256
  t2iprobe run --model ./my-checkpoint --family my-family.yaml --out runs/mine
  t2iprobe compare runs/a runs/b runs/c runs/d
  t2iprobe families show shapes-pair

`t2iprobe COMMAND --help` explains a command. Docs: README.md"""


def overview() -> str:
    """The text of `t2iprobe --help`."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: t2iprobe COMMAND [options]",
            "",
            "What does a text-to-image model compose, where inside it are the parts lost, and how sure can one be?",
            "",
            "commands:",
            *lines,
            "",
            EXAMPLES,
        ]
    )


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code. Errors of the user end in one line on stderr."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    if arguments[0] in ("-V", "--version"):
        print(f"t2iprobe {__version__}")
        return 0
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        return _fail(unknown("command", name, COMMANDS))
    module, function = COMMANDS[name][0].split(":")
    try:
        check_installed()
        code: int = getattr(import_module(module), function)(rest)
    except T2IProbeError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        command = shlex.join(["t2iprobe", *arguments])
        print(f"\nt2iprobe: interrupted; `{command}` continues where it stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of a pipe, e.g. `head`, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        return _fail(
            f"{error.strerror or error}{where}: what was finished is kept; mend it and run the same command again"
        )
    return code


def _fail(message: str) -> int:
    """Print one line, also where a name in it holds line breaks."""
    print(f"t2iprobe: error: {' '.join(message.splitlines())}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())

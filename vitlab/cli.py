"""The command line `vitlab COMMAND ...`: imports vitlab.commands.COMMAND and runs it."""

import errno
import os
import shlex
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Sequence
from importlib import import_module

from vitlab.config.errors import UserError, choices_text, first_line, printable
from vitlab.console import shown_controls

DEBUG = "VITLAB_DEBUG"  # the environment variable

COMMANDS = {  # command: module in vitlab.commands and its function, what it does
    "scale": ("scale:main", "train models on nested subsets of a data set and compare them"),
    "status": ("study:status", "say how a study goes: what waits, trains, has finished, failed"),
    "work": ("study:worker", "train free runs of a study, beside its other workers"),
    "train": ("train:train", "train one model"),
    "eval": ("analyze:evaluate", "evaluate a finished run, probe its features"),
    "predict": ("inference:predict", "say what pictures or texts are, with calibrated probabilities"),
    "analyze": ("analyze:analyze", "analyse what a model has learned"),
    "generate": ("inference:generate", "write text with a trained model: continuations, translations, captions"),
    "export": ("inference:export", "write a run's model as safetensors, as ONNX or for Hugging Face"),
    "fit": ("fit:fit", "fit scaling laws to a table of errors, find where they cross"),
    "report": ("study:report", "write a study's report again, or judge runs of other programs"),
    "sync": ("study:sync", "upload a study's offline W&B runs"),
    "verify": ("verify:verify", "train a finished run again and say whether it gives the same"),
    "describe": ("describe:describe", "count a model's parameters, tokens, FLOPs and memory"),
    "advise": ("advise:advise", "say which model suits your own pictures, and what more labels would bring"),
    "data": ("advise:look", "look at a folder of pictures: counts, sizes, faults, copies"),
    "list": ("describe:list_names", "list models, data, tasks, recipes, analyses, probes, studies, mixers"),
}
USAGE = """How do transformers compare with the architectures they replaced, as the data grows?

usage: vitlab COMMAND ...

{commands}

Start with: vitlab scale            Options of a command: vitlab COMMAND --help"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code: 0 done, 2 wrong input, 1 other errors, 130 on Ctrl-C."""
    with shown_controls():
        return handle(list(sys.argv[1:] if argv is None else argv))


def handle(words: list[str]) -> int:
    """Run one command and print any error as lines on stderr; return the exit code."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    warnings.formatwarning = lambda message, *_, **__: f"vitlab: warning: {printable(str(message))}\n"  # no source code
    try:
        code = run(words)
        sys.stdout.flush()
        return code
    except UserError as error:
        for line in error.problems:
            print(f"vitlab: {printable(line)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("vitlab: stopped; run the same command again to continue", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `vitlab list models | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        code, text = 1, ""
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):  # old files are intact
            where = f"{error.filename}: " if error.filename else ""
            code, text = 2, f"{where}{error.strerror}; free some space, then run the same command again"
        print(f"vitlab: {printable(text or describe_unexpected(error, words))}", file=sys.stderr)
        return code


def describe_unexpected(error: Exception, words: Sequence[str]) -> str:
    """Describe an unexpected error in a line; write its traceback to a file, or to stderr with VITLAB_DEBUG=1."""
    kind, message = type(error).__name__, first_line(error)
    line = message if message == kind else f"{kind}: {message}"
    text = "".join(traceback.format_exception(error))
    if os.environ.get(DEBUG) == "1":
        print(text, file=sys.stderr)
        return line
    try:
        with tempfile.NamedTemporaryFile(prefix="vitlab-", suffix=".log", delete=False) as file:
            file.write(f"vitlab {shlex.join(words)}\n{text}".encode(errors="backslashreplace"))
    except OSError:
        return f"{line} ({DEBUG}=1 shows the traceback)"
    return f"{line} (traceback: {file.name}; {DEBUG}=1 shows it)"


def run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE.format(commands="\n".join(f"  {name:9} {about}" for name, (_, about) in COMMANDS.items())))
        return 0
    if words[0] == "--version":
        from importlib.metadata import version

        print(version("vitlab"))
        return 0
    if words[0] not in COMMANDS:
        raise UserError(f"unknown command '{words[0]}'; {choices_text(words[0], COMMANDS)}")
    module, _, function = COMMANDS[words[0]][0].partition(":")
    return getattr(import_module(f"vitlab.commands.{module}"), function)(words[1:])


if __name__ == "__main__":
    sys.exit(main())

"""Count vitlab's own functions and files that run between the command line and the first optimizer step.

    uv run python scripts/count_path.py ["WORDS OF vitlab train"] [--list]

Module and class bodies, lambdas and comprehensions do not count. `--list` prints the functions by file.
"""

import shlex
import sys
import tempfile
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

PACKAGE = Path(__file__).resolve().parent.parent / "vitlab"
WORDS = 'model=vit_nano data=digits recipe=adamw "analyses=[]"'
CO_OPTIMIZED = 1  # set for functions, not for the bodies of modules and classes


class FirstStep(BaseException):
    """The optimizer is about to make its first step."""


def count(words: list[str]) -> set[CodeType]:
    """The code of each function of vitlab that `vitlab train` runs before its first optimizer step."""
    functions: set[CodeType] = set()

    def see(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & CO_OPTIMIZED and not code.co_name.startswith("<"):
            functions.add(code)

    from vitlab.cli import main

    threading.setprofile(see)
    sys.setprofile(see)
    try:
        with tempfile.TemporaryDirectory() as folder:
            stop_at_first_step()
            main(["train", *words, "--out", f"{folder}/run"])
    except FirstStep:
        pass
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return {code for code in functions if Path(code.co_filename).is_relative_to(PACKAGE)}


def stop_at_first_step() -> None:
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    def stop(*_: Any) -> None:
        sys.setprofile(None)
        raise FirstStep

    register_optimizer_step_pre_hook(stop)


def main() -> None:
    listing = "--list" in sys.argv
    words = [word for word in sys.argv[1:] if word != "--list"]
    functions = count(shlex.split(words[0] if words else WORDS))
    by_file: dict[str, list[str]] = {}
    for code in sorted(functions, key=lambda code: (code.co_filename, code.co_firstlineno)):
        by_file.setdefault(str(Path(code.co_filename).relative_to(PACKAGE)), []).append(code.co_qualname)
    if listing:
        for file, names in by_file.items():
            print(f"{file}: {', '.join(names)}")
    print(f"{len(functions)} functions in {len(by_file)} files before the first optimizer step")


if __name__ == "__main__":
    main()

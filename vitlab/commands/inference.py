"""`vitlab predict`, `generate` and `export`: a finished run in use, by this program and by others."""

import argparse
import contextlib
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitlab.commands.arguments import (
    CommandParser,
    non_empty_path,
    number_between,
    positive_integer,
    status_line,
)
from vitlab.config import TrainConfig, UserError, collecting, compose, printable, raise_all, resolved
from vitlab.config.groups import affecting, select
from vitlab.config.identity import flatten
from vitlab.config.schema.fields import WEIGHTS
from vitlab.config.schema.models import is_folder
from vitlab.console import Console
from vitlab.data.opening import progress_bar
from vitlab.files import read_json, read_utf8, replacing, write_json, write_text
from vitlab.formatting import cut_names, plural
from vitlab.studies.store import format_line
from vitlab.tasks.metrics import METRICS
from vitlab.training.files import RunFiles, refuse_file, refuse_unwritable

if TYPE_CHECKING:
    from vitlab.training.finished import LoadedRun, Prediction, Predictor
    from vitlab.training.writer import TextGenerator

# ---- predict


PREDICT = """Say what pictures or texts are, with probabilities that the run's validation data have calibrated.
  vitlab predict runs/quick/vit_nano-n32000-s0 photo.jpg
  vitlab predict runs/advice-photos folder --csv > predictions.csv   # by the model that vitlab advise named
  vitlab predict runs/docstrings "Return the number of rows." --json
  vitlab predict runs/bert "Return the [MASK] of the list."   # the five likeliest tokens, of a task=masked_lm
  vitlab predict runs/facts "What does the red box hold? [SEP] The red box holds ten pens."   # of span_extraction
  vitlab predict runs/docstrings lines.txt          # a text in each line; - reads them from standard input
  vitlab predict runs/docstrings lines.txt --embed vectors.npy       # what the head reads, a row an input"""
SHOWN = 3  # classes of a line
LONGEST = 60  # characters of an input in a terminal


def predict(words: Sequence[str]) -> int:
    parser = CommandParser("predict", PREDICT)
    parser.add_argument("run", metavar="RUN", help="the folder of a run, or of vitlab advise")
    parser.add_argument("inputs", nargs="+", metavar="FILE|FOLDER|TEXT", help="pictures, folders of them, or texts")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    form.add_argument("--csv", action="store_true", help="print a table with a column for each class")
    about = "write vectors, float32 (inputs, width), what the head reads; NaN for an unreadable input"
    form.add_argument("--embed", type=non_empty_path, metavar="FILE.npy", help=about)
    args = parser.parse_intermixed_args(words)
    advised = read_json(Path(args.run) / "advice.json", lambda document: document["predictor"])
    if advised and "run" in advised:
        args.run, advised = str(Path(args.run) / advised["run"]), None
    files = RunFiles(args.run)
    if advised is None:
        files.finished_result()
    reads_text = advised is None and (files.config().get("data") or {}).get("modality") == "text"
    inputs = list(list_texts(args.inputs) if reads_text else list_pictures(args.inputs))
    with status_line("loading torch", quiet=args.json or args.csv):
        import torch

        from vitlab.training.finished import load_run
        from vitlab.training.settings import LARGE

        if advised is not None:
            from vitlab.advice.compare import AdvisedClassifier

    if args.embed and advised is not None:
        raise UserError(f"--embed: {args.run} is a classifier of scikit-learn; give a run")
    if args.embed:
        refuse_file(args.embed, "--embed")
    predictor = load_run(args.run).predictor if advised is None else AdvisedClassifier(Path(args.run), advised)
    if advised is None and sum(weights.numel() for weights in predictor.model.parameters()) < LARGE:
        torch.set_num_threads(1)  # as in training; a second thread on a busy core makes it 3 times slower
    if args.embed:
        return write_vectors(predictor, inputs, args.embed)
    if args.csv and predictor.fills:
        raise UserError(f"--csv: {args.run} writes tokens or answers and has no classes; give --json")
    with progress_bar(Console(stderr=True)) as progress:
        found = predictor.predict(inputs, progress)
    for one in found:
        if one.error:
            print(f"vitlab: {printable(one.input)}: {printable(one.error)}", file=sys.stderr)
    if predictor.not_calibrated and not all(one.error for one in found):
        print(f"vitlab: not calibrated: {printable(predictor.not_calibrated)}", file=sys.stderr)
    if args.json:
        head = {"run": args.run, "classes": list(predictor.classes), "temperature": predictor.temperature}
        head["calibrated"] = not (
            predictor.not_calibrated or predictor.is_number or predictor.several or predictor.fills
        )
        print(json.dumps({**head, "items": [describe(one) for one in found]}, indent=1))
    elif args.csv:
        rows = [["input", "prediction", *([] if predictor.is_number else ["probability", *predictor.classes])]]
        for one in map(describe, found):
            if "prediction" in one:
                shares = [one["probability"], *one["probabilities"].values()] if "probability" in one else []
                number = not shares and f"{one['prediction']:.6g}"
                rows.append([one["input"], number or one["prediction"], *(f"{share:.6f}" for share in shares)])
        print("".join(map(format_line, rows)), end="")
    else:
        show(found, SHOWN if predictor.classes else None)
    return 2 if all(one.error for one in found) else int(any(one.error for one in found))


def write_vectors(predictor: "Predictor", inputs: Sequence[str], path: Path) -> int:
    import numpy as np

    with progress_bar(Console(stderr=True)) as progress:
        vectors, errors = predictor.embed(inputs, progress)
    for place, error in errors.items():
        print(f"vitlab: {printable(inputs[place])}: {printable(error)}", file=sys.stderr)
    if len(errors) == len(inputs):
        return 2
    with replacing(path) as file:
        np.save(file, vectors)
    print(f"{path}: {plural(len(vectors), 'vector')} of {vectors.shape[1]:,}")
    return int(bool(errors))


def list_pictures(names: Sequence[str]) -> Iterator[str]:
    """Yield the files, and all pictures below the folders. Raises UserError for a name that is neither."""
    from vitlab.data.cache import walk_files
    from vitlab.data.images.imagefolder import EXTENSIONS, KINDS

    raise_all(
        f"{name}: {'neither a file nor a folder' if Path(name).exists() else 'no such file or folder'}; give pictures"
        for name in names
        if not (Path(name).is_file() or Path(name).is_dir())  # a FIFO would wait for its writer
    )
    for name in names:
        below = sorted(entry.path for entry in walk_files(name, EXTENSIONS)) if Path(name).is_dir() else [name]
        if not below:
            raise UserError(f"{name}: holds no pictures ({KINDS})")
        yield from below


def list_texts(names: Sequence[str]) -> Iterator[str]:
    """Yield the texts: as given, the lines of a .txt file, or of standard input for -."""
    for name in names:
        if name == "-":
            yield from sys.stdin.read().splitlines()
        elif name.endswith(".txt"):
            if not Path(name).is_file():
                raise UserError(f"{name}: no such file; give a file of texts, a text a line, or texts")
            yield from read_utf8(Path(name), "TEXT").splitlines()
        else:
            yield name


def describe(one: "Prediction") -> dict[str, Any]:
    if one.error:
        return {"input": one.input, "error": one.error}
    if one.number is not None:
        return {"input": one.input, "prediction": one.number}
    best, share = one.ranked[0]
    return {"input": one.input, "prediction": best, "probability": share, "probabilities": one.probabilities}


def show(found: "Sequence[Prediction]", most: int | None) -> None:
    """Print a line for each prediction: `photo.jpg  cat 97.1%  dog 2.5%  bird 0.4%`."""
    names = [printable(one.input) for one in found]
    if sys.stdout.isatty():
        names = [name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..." for name in names]
    width = max(map(len, names))
    for name, one in zip(names, found, strict=True):
        ranked = "  ".join(f"{printable(label)} {share:.1%}" for label, share in one.ranked[:most])
        if not one.error:
            print(f"{name:{width}}  {ranked if one.number is None else f'{one.number:.6g}'}")


# ---- generate


GENERATE = """Continue a text with a run's language model, or write one from a source, a text or a picture:
  vitlab generate runs/gpt --prompt "Return the" --temperature 0.8 --top-p 0.9
  vitlab generate runs/gpt --prompt "Return the" --beams 4 --tokens 40
  vitlab generate runs/numbers --prompt "forty two"
  vitlab generate runs/captions --prompt photo.jpg
  vitlab generate runs/de-en --input test.de --out test.hyp --reference test.en --beams 5 --length-penalty 0.6
Each line of --input is a source (of a captioning run the file of a picture), or a prompt of a language model; --out has
what is written from it on the same line, so an empty line, or one that is too long for the model, is refused."""
MOST = 1000  # texts, or beams, that are generated at a time
MOST_NAMED = 5  # wrong lines that are named one by one


def generate(words: Sequence[str]) -> int:
    parser = CommandParser("generate", GENERATE)
    add = parser.add_argument
    add("run", metavar="RUN", help="the run's folder, or one of Hugging Face's with a GPT-2 or T5")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--prompt", metavar="TEXT", help="the text to continue, or the source")
    source.add_argument("--input", type=non_empty_path, metavar="FILE", help="a text file, a source or prompt a line")
    add("--out", type=non_empty_path, metavar="FILE", help="where what is written from --input goes")
    about = "the wanted lines, for BLEU, chrF and exact matches"
    add("--reference", type=non_empty_path, metavar="FILE", help=about)
    add("--batch-size", type=positive_integer, default=32, metavar="N", help="lines read together (default: 32)")
    about = "maximum new tokens (default: 100 after a prompt, of a source what the model can write)"
    add("--tokens", type=positive_integer, metavar="N", help=about)
    add("--samples", type=number_between(1, MOST, int), default=1, metavar="N", help="texts to sample (default: 1)")
    about = "0: greedy (default: 1 where it samples)"
    add("--temperature", type=number_between(0, 1e6), metavar="T", help=about)
    add("--top-k", type=positive_integer, metavar="K", help="top-k sampling: from the K most likely tokens")
    about = "nucleus sampling: from the most likely tokens, with probability P in all"
    add("--top-p", type=number_between(0, 1), metavar="P", help=about)
    about = "beam search with N beams, no sampling (default: none after a prompt, of a source the run's task.beams)"
    add("--beams", type=number_between(1, MOST, int), metavar="N", help=about)
    about = "of beam search: log probability / ((5 + tokens) / 6)^A (default: the run's task.length_penalty, else 0)"
    add("--length-penalty", type=number_between(0, 10), metavar="A", help=about)
    add("--seed", type=number_between(0, 2**63 - 1, int), default=0, metavar="N", help="of the sampling (default: 0)")
    parser.add_json()
    args = parser.parse_args(words)
    given = {"--samples": args.samples > 1, "--temperature": args.temperature is not None}
    given |= {"--top-k": args.top_k is not None, "--top-p": args.top_p is not None}
    sampling = [option for option, is_given in given.items() if is_given]
    problems, lines = [*find_conflicts(args, sampling)], {}
    with collecting(problems):
        lines = read_lines(args) if args.input and args.out else {}
    with collecting(problems):
        if not is_folder(args.run):
            RunFiles(args.run).finished_result()
    raise_all(problems)
    with status_line("loading torch, lightning and timm", quiet=args.json):
        from vitlab.training.writer import load_writer

    writer = load_writer(args.run)
    search = choose_search(args, writer, bool(sampling))
    return write_file(args, writer, search, lines) if args.input else write_prompt(args, writer, search)


def find_conflicts(args: argparse.Namespace, sampling: Sequence[str]) -> Iterator[str]:
    """Yield a line for each conflict between options; `sampling`: the sampling options that are given."""
    if args.beams and sampling:
        yield f"--beams cannot be combined with sampling options ({', '.join(sampling)})"
    if args.length_penalty is not None and not args.beams:
        yield "--length-penalty only works with beam search; give --beams N too"
    if args.samples > 1 and args.input:
        yield f"--samples {args.samples}: a line of --input gets one text; leave it out"
    if bool(args.out) != bool(args.input) or (args.reference and not args.input):
        yield "--input and --out: give both, also for --reference; to print what is written, give --prompt alone"
    elif args.out and args.out.is_dir():
        yield f"--out {args.out}: is a folder; give a file"


def read_lines(args: argparse.Namespace) -> dict[str, list[str]]:
    """Read the lines of --input and --reference. Raises UserError with all problems, also of --out."""
    columns, problems = {}, []
    for option, path in (("input", args.input), ("reference", args.reference)):
        with collecting(problems):
            if path is None:
                continue
            lines = columns[option] = read_utf8(path, f"--{option}").removesuffix("\n").split("\n")
            if empty := [str(number) for number, line in enumerate(lines, start=1) if not line.strip()]:
                raise UserError(
                    f"--{option}={path}: has no text on line {cut_names(empty, MOST_NAMED)}; give one on each"
                )
    if len({len(lines) for lines in columns.values()}) > 1:
        problems.append(
            f"--reference={args.reference}: has {plural(len(columns['reference']), 'line')}, but "
            f"--input={args.input} has {len(columns['input'])}; give a reference for each line"
        )
    with collecting(problems):
        refuse_file(args.out, "--out")
    raise_all(problems)
    return columns


def choose_search(args: argparse.Namespace, writer: "TextGenerator", sampling: bool) -> dict[str, Any]:
    """Choose the options of sampling or of the beam search: the given ones, else the writer's own."""
    if args.beams is not None:
        own = writer.search.get("length_penalty", 0.0)
        return {"beams": args.beams, "length_penalty": own if args.length_penalty is None else args.length_penalty}
    if not sampling and "beams" in writer.search:
        return writer.search
    import torch

    generator = torch.Generator(next(writer.model.parameters()).device).manual_seed(args.seed)
    temperature = 1.0 if args.temperature is None else args.temperature
    return {"temperature": temperature, "top_k": args.top_k, "top_p": args.top_p, "generator": generator}


def write_file(
    args: argparse.Namespace, writer: "TextGenerator", search: dict[str, Any], lines: dict[str, list[str]]
) -> int:
    """Write a line for each line of --input, and print how well they match --reference. Raises UserError."""
    from vitlab.tasks.measures import score_exact_match, score_translation
    from vitlab.training.writer import encode_texts, write_lines

    sources = {f"--input={args.input}: line {number}": line for number, line in enumerate(lines["input"], start=1)}
    rows, steps = encode_texts(writer, args.run, sources), args.tokens or writer.most_tokens
    with progress_bar(None if args.json else Console(stderr=True)) as progress:
        written = write_lines(writer, rows, steps, search, args.batch_size, partial(progress, "lines"))
    write_text(args.out, "".join(line + "\n" for line in written))
    scores = {}
    if references := lines.get("reference"):
        scores = score_translation(written, references) | score_exact_match(written, references)
    if args.json:
        print(json.dumps({"run": args.run, "out": str(args.out), "lines": len(written), **scores}, indent=1))
        return 0
    print(f"{args.out}: {len(written):,} lines")
    if scores:
        print(f"BLEU {scores['bleu']:.2f}, chrF {scores['chrf']:.2f}, exact matches {scores['exact_match']:.1%}")
    return 0


def write_prompt(args: argparse.Namespace, writer: "TextGenerator", search: dict[str, Any]) -> int:
    """Print texts written from --prompt: `--samples` of them, or one by beam search. Raises UserError."""
    from vitlab.training.writer import encode_texts, write_rows

    prompt = args.prompt or ""
    if not writer.continues and not prompt.strip():
        raise UserError(f"--prompt: {args.run} writes a text from a source; give --prompt TEXT, or --input FILE")
    rows, steps = encode_texts(writer, args.run, {"--prompt": prompt}), args.tokens or writer.most_tokens
    with progress_bar(None if args.json else Console(stderr=True)) as progress:
        rows = write_rows(writer, rows * args.samples, steps, search, partial(progress, "tokens"))
    texts = [
        {
            "text": writer.tokenizer.decode(row.tolist()),
            "tokens": len(row),
            "ended": "end" if writer.end in row[-1:] else "tokens" if len(row) == steps else "model",
        }
        for row in rows
    ]
    if args.json:
        print(json.dumps({"run": args.run, "prompt": prompt, "samples": texts}, indent=1, ensure_ascii=False))
        return 0
    for number, written in enumerate(texts, start=1):
        if len(texts) > 1:
            print(f"--- {number} of {len(texts)}")
        print(prompt + written["text"] if writer.continues else written["text"])
        if written["ended"] == "model":
            Console(stderr=True).print(f"(stopped at the length of {args.run})")
    return 0


# ---- export


SLACK = 1e-2  # of the largest logit: how far those in another library may be from the run's
EXPORT = """Write a finished run's model for other programs.
  vitlab export runs/quick/vit_nano-n32000-s0 vit.safetensors    # weights in timm's names, or --names own
  vitlab export runs/quick/vit_nano-n32000-s0 vit.onnx           # the whole model, for any batch size
  vitlab export runs/gpt gpt-folder                              # a folder for Hugging Face's transformers
  vitlab export runs/vit vit-folder --format hub                 # of timm or transformers, with a model card"""


def export(words: Sequence[str]) -> int:
    parser = CommandParser("export", EXPORT)
    parser.add_argument("run", metavar="RUN", help="the run's folder")
    about = ".safetensors (weights), .onnx (the whole model), or a folder"
    parser.add_argument("file", type=non_empty_path, metavar="FILE", help=about)
    parser.add_argument("--names", choices=["timm", "own"], default="timm", help="of the weights (default: timm)")
    about = "hub: a folder that timm (images) or transformers (text) loads, with a model card"
    parser.add_argument("--format", choices=["hub"], help=about)
    args = parser.parse_args(words)
    path, run, hub = args.file, args.run, args.format == "hub"
    RunFiles(run).finished_result()
    if path.is_dir() and (path.suffix or any(path.iterdir())):
        raise UserError(f"{path}: is a folder that holds something; give another name")
    if (hub or path.suffix not in (".safetensors", ".onnx")) and (path.suffix or path.is_file()):
        wanted = "a file that ends in .safetensors or .onnx, or a folder for transformers"
        raise UserError(f"{path}: give {'a folder without a dot in its name' if hub else wanted}")
    refuse_unwritable(path, "FILE") if path.is_dir() else refuse_file(path, "FILE")
    with status_line("loading torch, lightning and timm"):
        from vitlab.models.export import compare_onnx, save_onnx, save_safetensors, save_timm
        from vitlab.models.huggingface import compare_huggingface
        from vitlab.training.finished import load_run

    loaded = load_run(run)
    about, data = describe_use(loaded), loaded.config.data
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as within:  # all of a folder, or nothing
        made = Path(within) / path.name
        if hub and data.modality == "image":
            seen = {"mean": data.mean, "std": data.std, "interpolation": "bilinear"}
            report_difference(path, save_timm(loaded.model, made, loaded.classes, **seen), "timm")
            write_card(loaded, run, made, "timm", f'timm.create_model("local-dir:{path.name}", pretrained=True)')
        elif path.suffix == ".safetensors":
            save_safetensors(loaded.model, made, "own" if data.modality == "text" else args.names, about)
        elif path.suffix:
            if loaded.config.task.kind in ("classification", "text_classification"):
                predictor = loaded.predictor  # softmax(logits / temperature) is what `vitlab predict` prints
                about |= {} if predictor.not_calibrated else {"temperature": str(predictor.temperature)}
            save_onnx(loaded.model, made, about=about)
            report_difference(path, compare_onnx(loaded.model, made), "onnxruntime")
        else:
            write_folder(loaded, run, made)
            seen = {"mean": data.mean, "std": data.std} if data.modality == "image" else {}
            report_difference(path, compare_huggingface(loaded.model, made, **seen), "transformers")
            if hub:
                kind = read_json(made / "config.json")["architectures"][0]
                write_card(loaded, run, made, "transformers", f'transformers.{kind}.from_pretrained("{path.name}")')
        os.replace(made, path)
    print(path)
    return 0


def report_difference(path: Path, difference: float | None, library: str) -> None:
    """Report how far the written model's logits are from the run's. Raises UserError if too far."""
    if difference is None:
        says = f"not compared with the run, which needs {library}: pip install {library}"
    elif difference <= SLACK:
        says = f"its logits are the run's to within {difference:.1e} of the largest"
    else:
        raise UserError(f"{path}: its logits are off by {difference:.1%} of the largest; give .safetensors")
    print(f"{path}: {says}", file=sys.stderr)


def write_folder(loaded: "LoadedRun", run: str, folder: Path) -> None:
    """Write a folder for Hugging Face's transformers, with the tokenizer or the preprocessing of images."""
    from vitlab.data.text.tokenization import from_file
    from vitlab.models import LABELLED
    from vitlab.models.huggingface import save_huggingface

    task, is_image = loaded.config.task, loaded.config.data.modality == "image"
    is_labelled, about = is_image or loaded.shape["head"] in LABELLED, {}
    if is_labelled and task.kind != "span_extraction":
        problems = {"regression": "regression", "multilabel": "multi_label_classification"}
        kind = task.kind if is_image or loaded.classes else "regression"
        about = {"problem_type": problems.get(kind, "single_label_classification")}
        if labels := dict(enumerate(loaded.classes)):
            about |= {"id2label": labels, "label2id": {name: index for index, name in labels.items()}}
        if loaded.scale is not None:  # a number is output * std + mean
            about |= {"target_mean": loaded.scale[0], "target_std": loaded.scale[1]}
    if is_image:
        data, (height, width) = loaded.config.data, loaded.shape["image_size"]
        save_huggingface(loaded.model, folder, **about)
        normalization = {"image_mean": list(data.mean), "image_std": list(data.std)}
        size = {"height": height, "width": width}
        processor = {"image_processor_type": "ViTImageProcessor", "size": size, **normalization}
        write_json(folder / "preprocessor_config.json", processor)
        return
    tokenizer = from_file(RunFiles(run).tokenizer_path)
    ids = {"bos_token_id": tokenizer.start, "eos_token_id": tokenizer.document_end, "pad_token_id": tokenizer.pad}
    ids |= {} if tokenizer.mask is None else {"mask_token_id": tokenizer.mask}
    if vars(task).get("both_orders") or (about and loaded.shape["num_classes"] != max(1, len(loaded.classes))):
        raise UserError(f"{run}: reads several sequences of an item; export to a .safetensors file instead")
    roles = {"bos": tokenizer.start, "eos": tokenizer.document_end, "pad": tokenizer.pad}
    roles |= {"unk": tokenizer.unknown, "mask": tokenizer.mask}
    if loaded.shape["head"] == "seq2seq":
        ids |= {"decoder_start_token_id": tokenizer.decoder_start, "eos_token_id": tokenizer.end}
        tokenizer, roles["eos"] = tokenizer.framing("$A {end}"), tokenizer.end
    elif loaded.shape["head"] != "next_token":
        roles |= {"cls": tokenizer.start, "sep": tokenizer.separator}
        tokenizer = tokenizer.framing("{start} $A {end}", "{start} $A {separator} $B:1 {end}:1")
    answers = "BertForQuestionAnswering" if task.kind == "span_extraction" else None
    save_huggingface(loaded.model, folder, answers, **ids, **about)
    tokenizer.save(folder / "tokenizer.json")
    names = {f"{role}_token": tokenizer.inner.id_to_token(id) for role, id in roles.items() if id is not None}
    # without a class AutoTokenizer would take the architecture's own
    names["tokenizer_class"] = "PreTrainedTokenizerFast"
    if "cls" in roles:
        names["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
        names["model_max_length"] = loaded.shape["length"]
    write_json(folder / "tokenizer_config.json", names)


def write_card(loaded: "LoadedRun", run: str, folder: Path, library: str, load: str) -> None:
    """Write the README.md of a hub's folder: data, recipe, results, command, the study's table, limits."""
    from huggingface_hub import ModelCard, ModelCardData

    from vitlab.reports.words import MARKDOWN, escape, format_markdown
    from vitlab.studies.results import load_results

    result, config, study = loaded.result, loaded.config, RunFiles(run).folder.parent
    shown = {m.name: m.text(m.value(result)) for m in METRICS if m.is_compared and m.value(result) is not None}
    facts = {
        "data": f"{config.data.name}, {result['train_items']:,} items, SHA-256 {RunFiles(run).data_hash()}",
        "test": ", ".join(f"{name} {text}" for name, text in shown.items()),
        "recipe": f"{config.recipe.name}, {result['steps']:,} steps, seed {config.seed}",
        **{key: text for key, text in describe_use(loaded).items() if key.startswith(("model", "target_"))},
    }
    table = "".join(f"| {key} | {escape(text, MARKDOWN)} |\n" for key, text in facts.items())
    table = f"| | |\n|---|---|\n{table}\n"
    with contextlib.suppress(UserError):  # where a folder or an own YAML of its groups is gone
        table += f"Train it again:\n\n    {describe_command(config)}\n"
    if (study / "study.yaml").is_file():
        table += f"\n## Its study\n{format_markdown(load_results(study))}"
    about = ModelCardData(library_name=library, tags=["vitlab", config.task.name])
    text = f"---\n{about.to_yaml()}\n---\n# {escape(folder.name, MARKDOWN)}\n\n    {load}\n\n{table}\n## Limits\n"
    text += "One run: other seeds give other numbers. Tested on the same data alone. The licence is yours to add.\n"
    ModelCard(text).save(folder / "README.md")


def describe_command(config: TrainConfig) -> str:
    """Describe the command that trains a run again: what differs from the defaults of its groups."""
    names = {key: vars(config)[key].name for key in ("model", "data", "task", "recipe")}
    if config.init.weights and Path(config.init.weights).resolve().name == config.model.name:
        names["model"] = config.init.weights  # a Hugging Face folder
    places = {f"data.{key}": vars(config.data).get(key) for key in ("root", "path", "source", "target")}
    names |= {key: place for key, place in places.items() if isinstance(place, str)}
    settings, default = (
        dict(flatten(select(resolved(one), TrainConfig, affecting(WEIGHTS)), choices=True))
        for one in (config, compose(TrainConfig, [*names.items()]))
    )
    names |= {key.removesuffix(".name"): value for key, value in settings.items() if value != default.get(key, key)}
    words = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in names.items()]
    needless = r"[\w.]+\.(kind|modality)=|budget\.\w+=null"
    return shlex.join(["vitlab", "train", *(word for word in words if not re.match(needless, word))])


def describe_use(loaded: "LoadedRun") -> dict[str, str]:
    """Describe the facts that a user of the model needs; a model of images takes (pixels / 255 - mean) / std."""
    name, data = {"model": loaded.config.model.name}, loaded.config.data
    if loaded.scale is not None:  # a number is output * std + mean
        name |= {"target_mean": str(loaded.scale[0]), "target_std": str(loaded.scale[1])}
    if data.modality == "text":
        return name | {key: str(value) for key, value in loaded.shape.items()}
    return {
        **name,
        "classes": json.dumps(list(loaded.classes)),
        "image_size": json.dumps(list(loaded.shape["image_size"])),
        "channels": str(loaded.shape["channels"]),
        "mean": json.dumps(list(data.mean)),
        "std": json.dumps(list(data.std)),
        "resize": "bilinear with antialiasing, of the largest central box of that aspect ratio",
    }

"""Train small networks on digits under the loggers of other programs, and pack what these leave as runs.zip.

    pip install transformers accelerate timm lightning tensorboard wandb mlflow trackio scikit-learn
    cd tests/others && python make.py

means.json has the mean accuracy of each model and size as the program itself gives it.
"""

import argparse
import json
import os
import sqlite3
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import torch
import yaml
from sklearn.datasets import load_digits
from torch import nn

PIXELS, DIGITS = (torch.tensor(part) for part in load_digits(return_X_y=True))
PIXELS, DIGITS = PIXELS.float() / 16, DIGITS.long()
TEST = slice(-800, None)
RUNS = [(model, size, seed) for model in ("linear", "mlp") for size in (100, 300) for seed in (1, 2, 3)]
loss_of = nn.functional.cross_entropy


def build(model):
    return nn.Linear(64, 10) if model == "linear" else nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def train(model, size, seed, log):
    torch.manual_seed(seed)
    net = build(model)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for epoch in range(3):
        for some in torch.randperm(size).split(20):
            optimizer.zero_grad()
            loss = loss_of(net(PIXELS[some]), DIGITS[some])
            loss.backward()
            optimizer.step()
        outputs = net(PIXELS[TEST])
        right = (outputs.argmax(1) == DIGITS[TEST]).float().mean().item()
        log(epoch, {"train_loss": loss.item(), "val_loss": loss_of(outputs, DIGITS[TEST]).item(), "val_acc": right})
    return right


def timm(folder, model, size, seed):
    from timm.utils import update_summary

    out = folder / f"{model}-{size}-{seed}"
    out.mkdir()
    args = argparse.Namespace(model=model, train_subset=size, seed=seed, lr=0.02, output=out.name)
    (out / "args.yaml").write_text(yaml.safe_dump(args.__dict__, default_flow_style=False))

    def log(epoch, values):
        parts = {"loss": values["train_loss"]}, {"loss": values["val_loss"], "top1": 100 * values["val_acc"]}
        update_summary(epoch, *parts, out / "summary.csv", lr=0.02, write_header=epoch == 0)

    return train(model, size, seed, log)


def transformers(folder, model, size, seed):
    from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments

    class Net(PreTrainedModel):
        config_class = PretrainedConfig

        def __init__(self, config):
            super().__init__(config)
            self.net = build(config.arch)
            self.post_init()

        def forward(self, pixels, labels=None):
            return {"loss": loss_of(self.net(pixels), labels), "logits": self.net(pixels)}

    rows = [{"pixels": pixels, "labels": label} for pixels, label in zip(PIXELS, DIGITS, strict=True)]
    options = {
        "num_train_epochs": 3,
        "learning_rate": 0.02,
        "per_device_train_batch_size": 20,
        "eval_strategy": "epoch",
    }
    args = TrainingArguments(
        f"{model}-n{size}-s{seed}", seed=seed, use_cpu=True, save_strategy="no", report_to=[], **options
    )
    torch.manual_seed(seed)
    parts = {"train_dataset": rows[:size], "eval_dataset": rows[TEST]}
    parts["compute_metrics"] = lambda of: {"accuracy": float((of.predictions.argmax(1) == of.label_ids).mean())}
    trainer = Trainer(Net(PretrainedConfig(arch=model)), args, **parts)
    trainer.train()
    trainer.save_state()
    torch.save(args, Path(args.output_dir, "training_args.bin"))
    trainer.model.config.save_pretrained(args.output_dir)
    return trainer.evaluate()["eval_accuracy"]


def lightning(folder, model, size, seed, logger="CSVLogger"):
    import lightning as L

    class Module(L.LightningModule):
        def __init__(self, model, n_train, seed):
            super().__init__()
            self.save_hyperparameters()
            self.net = build(model)

        def training_step(self, batch, _):
            return loss_of(self.net(batch[0]), batch[1])

        def validation_step(self, batch, _):
            self.log("val_acc", (self.net(batch[0]).argmax(1) == batch[1]).float().mean())

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.02)

    L.seed_everything(seed)
    sets = [[*zip(PIXELS[part], DIGITS[part], strict=True)] for part in (slice(size), TEST)]
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = L.Trainer(max_epochs=3, accelerator="cpu", logger=getattr(L.pytorch.loggers, logger)("."), **quiet)
    trainer.fit(Module(model, size, seed), *(torch.utils.data.DataLoader(one, 20, one is sets[0]) for one in sets))
    return trainer.callback_metrics["val_acc"].item()


def tensorboard(folder, model, size, seed):
    return lightning(folder, model, size, seed, "TensorBoardLogger")


def mlflow(folder, model, size, seed, address="sqlite:///mlflow.db"):
    import mlflow

    mlflow.set_tracking_uri(address)
    mlflow.set_experiment("digits")
    with mlflow.start_run(run_name=f"{model} {size} {seed}") as run:
        mlflow.log_params({"model": model, "n_train": size, "seed": seed})
        train(model, size, seed, lambda epoch, values: mlflow.log_metrics(values, step=epoch))
    return mlflow.get_run(run.info.run_id).data.metrics["val_acc"]


def mlruns(folder, model, size, seed):
    return mlflow(folder, model, size, seed, "file:.")


def wandb(folder, model, size, seed):
    import wandb

    settings = wandb.Settings(
        x_disable_meta=True, x_disable_stats=True, disable_git=True, console="off", program="make.py"
    )
    config = {"model": model, "data": {"n_train": size}, "seed": seed}
    with wandb.init(name=f"{model} {seed}", config=config, mode="offline", dir=folder, settings=settings) as run:
        train(model, size, seed, lambda epoch, values: run.log(values))
        return run.summary["val_acc"]


def trackio(folder, model, size, seed):
    os.environ["TRACKIO_DIR"] = str(folder)
    import trackio

    config = {"model": model, "n_train": size, "seed": seed}
    trackio.init(project="digits", name=f"{model} {size} {seed}", config=config)
    last = train(model, size, seed, lambda epoch, values: trackio.log(values))
    trackio.finish()
    return last


def sklearn(folder, model, size, seed):
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import learning_curve
    from sklearn.neural_network import MLPClassifier

    net = LogisticRegression() if model == "linear" else MLPClassifier(32, max_iter=30, random_state=0)
    options = {"train_sizes": [100, 300], "cv": 3, "shuffle": True, "random_state": 0}
    sizes, *scores = learning_curve(net, PIXELS.numpy(), DIGITS.numpy(), **options)
    np.savez(f"{model}.npz", train_sizes=sizes, train_scores=scores[0], test_scores=scores[1])
    return float(scores[1][sizes == size].mean())


if __name__ == "__main__":
    target, whole, means = Path("runs.zip").resolve(), Path(tempfile.mkdtemp()), {}
    os.environ |= {"MLFLOW_ALLOW_FILE_STORE": "true", "WANDB_SILENT": "true"}
    for use in (timm, transformers, lightning, tensorboard, mlflow, mlruns, wandb, trackio, sklearn):
        folder = whole / use.__name__
        folder.mkdir()
        os.chdir(folder)
        values = {run: use(folder, *run) for run in RUNS}
        cells = {f"{model} {size}": [] for model, size, _ in RUNS}
        for (model, size, _), value in values.items():
            cells[f"{model} {size}"].append(value)
        means[use.__name__] = {cell: float(np.mean(of_cell)) for cell, of_cell in cells.items()}
    with sqlite3.connect(whole / "mlflow" / "mlflow.db") as database:
        database.execute("delete from tags")  # paths of this machine
    (whole / "means.json").write_text(json.dumps(means, indent=1))
    with zipfile.ZipFile(target, "w", zipfile.ZIP_LZMA) as file:
        for path in sorted(whole.rglob("*")):
            parts = path.relative_to(whole).parts
            if (
                path.is_file()
                and path.suffix not in (".log", ".lock")
                and not {"tags", "files", "latest-run"} & {*parts}
            ):
                file.write(path, Path(*parts))

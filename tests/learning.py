"""Models with random weights; the loss of a whole batch, and a model that learns one by heart."""

import torch

from vitlab import build_model, models, tasks
from vitlab.config import TrainConfig, compose
from vitlab.tasks.base import fill


def build(words, data):
    """(task, configuration)"""
    config = compose(TrainConfig, words)
    return tasks.build(config.task, recipe=config.recipe, data=data, data_config=config.data), config


def build_with_model(words, data):
    task, config = build(words, data)
    torch.manual_seed(0)
    return task, models.build(config.model, **task.shape)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def language_model(vocabulary, **sizes):
    """GPT-2 without dropout."""
    return build_model("gpt2", vocabulary=vocabulary, **{"dropout": 0.0, "attention_dropout": 0.0, **sizes})


def bert(vocabulary, **sizes):
    return build_model("bert_base", vocabulary=vocabulary, **sizes)


def randomized(model, std=0.4, mean=0.0):
    """The model for evaluation, with weights that hide no error: no zeros and ones, no two heads alike."""
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean, std)
    return model.eval()


def mean_loss(task, model, batch):
    """Compute the scalar that a step on one device minimizes."""
    return (task.loss(model, batch) / task.count_targets(batch).clamp(min=1)).sum()


def learn_by_heart(task, model, batch, *, steps, rate):
    """The task's detailed metrics on the batch that the model was trained on, and the loss before."""
    optimizer, before = torch.optim.AdamW(model.parameters(), rate), mean_loss(task, model, batch).detach()
    for _ in range(steps):
        loss = mean_loss(task, model, batch)
        if loss < 0.01:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    metrics = task.metrics(detailed=True)
    with torch.inference_mode():
        fill(metrics, task.measure(model.eval(), batch, detailed=True))
    return metrics.compute(), before

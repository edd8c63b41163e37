"""Whether W&B is used online. Imports W&B and nothing that trains."""

import os

import wandb
from omegaconf import DictConfig


def mode_of(config: DictConfig) -> str:
    """`auto` resolved."""
    return default_mode() if config.mode == "auto" else config.mode


def default_mode() -> str:
    """What WANDB_MODE says, else online for who is logged in, else offline."""
    asked = os.environ.get("WANDB_MODE")
    if asked:
        return {"disabled": "off", "online": "online"}.get(asked, "offline")
    return "online" if wandb.login(prompt=False, verify=False) else "offline"

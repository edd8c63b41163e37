"""Whether W&B is used online. Imports W&B where it must be asked, and nothing that trains."""

import os

from vitlab.config.schema import WandbConfig


def resolve_mode(config: WandbConfig) -> str:
    """`wandb.mode`, with `auto` resolved."""
    return default_mode() if config.mode == "auto" else config.mode


def default_mode() -> str:
    """WANDB_MODE if set, else online for a user who is logged in, else offline."""
    mode = os.environ.get("WANDB_MODE")
    if mode:
        return {"disabled": "off", "online": "online"}.get(mode, "offline")
    import wandb

    return "online" if wandb.login(prompt=False, verify=False) else "offline"

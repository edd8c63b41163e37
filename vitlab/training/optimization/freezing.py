"""Training the head alone, with a frozen body."""

from torch import nn

from vitlab.config import UserError
from vitlab.models.heads import TextModel
from vitlab.models.weights.load import head_names


def freeze_body(model: nn.Module) -> None:
    """Freeze all but the head: no gradients, and eval mode, so no dropout and no new statistics of its norms.

    The head is the classifier; in a text model it is all outside the body `text`, so BERT's pooler too. Raises
    UserError for a model without a head.
    """
    is_text = isinstance(model, TextModel)
    names = [name for name, _ in model.named_parameters()]
    head = {name for name in names if not name.startswith("text.")} if is_text else {*head_names(model)} & {*names}
    if not head:
        raise UserError(f"recipe.freeze=body: {type(model).__name__} has no head to train; give recipe.freeze=null")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in head)
    (model.text if is_text else model).eval()  # a linear head has no modes

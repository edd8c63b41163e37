"""Training the head alone, over a body that stays as it is."""

from torch import nn

from vitlab.config import UserError
from vitlab.models.weights.load import head_names


def freeze_body(model: nn.Module) -> None:
    """Leave the head to train: nothing else has gradients, and it stays in eval mode, without dropout and with the
    statistics that its norms have.

    The head is the classifier; of a model of text it is all that is not its body `text`, so BERT's pooler too, which
    an encoder from another source does not bring. Raises UserError for a model that has none.
    """
    is_text = hasattr(model, "text")
    names = [name for name, _ in model.named_parameters()]
    head = {name for name in names if not name.startswith("text.")} if is_text else {*head_names(model)} & {*names}
    if not head:
        raise UserError(f"recipe.freeze=body: {type(model).__name__} has no head, nothing would train; give null")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in head)
    (model.text if is_text else model).eval()  # a linear head has no modes

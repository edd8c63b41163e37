"""What somebody builds in Python: a model of texts with a head, its features of padded texts."""

import pytest
import torch

import vitlab
from vitlab.data.text.tokenization import train

SMALL = {"vocabulary": 23, "length": 11}


@pytest.mark.parametrize("name", ["bert_nano", "gpt_nano", "lstm_nano"])
@pytest.mark.parametrize(("head", "shape"), [("classes", (2, 3)), ("tags", (2, 7, 3))])
def test_a_model_of_texts_has_the_head_that_it_is_asked_for(name, head, shape):
    model = vitlab.build_model(name, head=head, num_classes=3, **SMALL).eval()
    assert model(torch.randint(23, (2, 7))).shape == shape


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"name": "bert_nano", "num_classes": 2}, "num_classes=2: no argument of bert_nano.*head=classes or head=tags"),
        ({"name": "gpt_nano", "image_size": 32}, "image_size=32: no argument of gpt_nano, which takes length, vocab"),
        ({"name": "vit_nano", "length": 9}, "length=9: no argument of vit_nano, which takes num_classes, image_size"),
        ({"name": "vit_nano", "head": "classes"}, "head=classes: no argument of vit_nano"),
        ({"name": "bert_nano", "head": "classes"}, "head=classes: needs num_classes"),
        ({"name": "bert_nano", "head": "classes", "num_classes": 0}, "head=classes: needs num_classes"),
        ({"name": "t5_nano", "num_classes": 3}, "no argument of t5_nano, which takes length, vocabulary, head$"),
        ({"name": "vit_caption_nano", "image_size": 48, "head": "masked"}, "takes image_size, channels, length, voc"),
        ({"name": "bert_nano", "head": "clases", "num_classes": 2}, "head=clases: unknown; did you mean 'classes'"),
    ],
)
def test_arguments_of_the_other_kind_of_model_are_refused(words, says):
    with pytest.raises(vitlab.UserError, match=says):
        vitlab.build_model(**words)


@pytest.mark.parametrize("name", ["bert_nano", "gpt_nano", "lstm_nano"])
@torch.inference_mode()
def test_features_of_a_padded_text_are_those_of_the_text(name):
    model = vitlab.build_model(name, head="classes", num_classes=3, **SMALL).eval()
    tokens = torch.randint(23, (1, 9))
    attention_mask = torch.tensor([[1] * 5 + [0] * 4])
    alone = vitlab.extract_features(model, tokens[:, :5])
    torch.testing.assert_close(vitlab.extract_features(model, tokens, mask=attention_mask), alone)
    torch.testing.assert_close(model(input_ids=tokens, attention_mask=attention_mask), model(tokens[:, :5]))
    read = {"input_ids": tokens, "token_type_ids": torch.ones_like(tokens)}  # as transformers' tokenizers give them
    torch.testing.assert_close(model(**read), model(tokens, segments=read["token_type_ids"]))
    with pytest.raises(vitlab.UserError, match="mask: ViT reads no texts"):
        vitlab.extract_features(vitlab.build_model("vit_nano"), torch.rand(1, 3, 224, 224), mask=attention_mask)


def test_a_str_is_one_text():
    tokenizer = train(["a text", "another"], "characters", 50)
    assert tokenizer.encode("a text") == tokenizer.encode(["a text"])

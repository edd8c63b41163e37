"""Tokenizers of every kind: what they lose, what they repeat, where their special tokens are."""

import json
import pickle

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from vitlab.config import UserError
from vitlab.data.text import NO_TAG, tokenization

TEXTS = [
    "The cat sat on the mat, and the dog sat on the log.",
    "A dog is not a cat; a log is not a mat.\n\nCats and dogs: sitting, sat, sits.",
    "Über die Brücke, naïve café: 12,345 + 678 = 13,023.\n\tindented\r\n",
]
ROLES = ("pad", "unknown", "start", "separator", "end", "document_end", "mask")


def trained(kind, vocabulary=331, **options):
    return tokenization.train(TEXTS, kind, vocabulary, **options)


ODD = ["", "\n\n \t x  y ", "日本語 \U0001f600 e\u0301 \u202e\ufeff\x00\x7f", "<|mask|> [MASK] <|endoftext|>"]


@pytest.mark.parametrize("text", [*TEXTS, *ODD])
def test_byte_level_bpe_loses_nothing(text):
    bpe = trained("bpe")
    (ids,) = bpe.encode([text])
    assert bpe.decode(ids) == text
    assert not set(ids) & set(bpe.special)
    assert "".join(bpe.token_texts(ids)).isascii() is text.isascii()


@pytest.mark.parametrize("kind", tokenization.KINDS)
def test_sentinels_are_special_tokens_after_all_others(kind, tmp_path):
    plain = trained(kind)
    assert plain.sentinels == ()
    found = plain.with_sentinels(3)
    assert found.sentinels == (plain.size, plain.size + 1, plain.size + 2)
    assert set(found.special) == set(plain.special) | set(found.sentinels)
    assert found.encode(["a <extra_id_1> cat"]) == plain.encode(["a <extra_id_1> cat"]), "plain text, no sentinel"
    (ids,) = found.encode(["cat"])
    assert found.decode([*ids, found.sentinels[1]]) == "cat"
    found.save(tmp_path / "tokenizer.json")
    again = tokenization.from_file(tmp_path)
    assert again.with_sentinels(3) is again
    assert again.with_sentinels(4).sentinels == (*found.sentinels, found.size)


def test_characters_lose_only_what_was_never_seen():
    characters = trained("characters")
    for text in TEXTS:
        (ids,) = characters.encode([text])
        assert len(ids) == len(text)
        assert characters.decode(ids) == text
        assert characters.unknown not in ids
    (ids,) = characters.encode(["c日t"])
    assert ids[1] == characters.unknown
    assert characters.decode(ids) == "ct"
    assert characters.decode(ids, keep_special=True) == "c<|unk|>t"
    assert characters.token_texts(ids) == ["c", "<|unk|>", "t"]
    assert characters.size == 7 + len(set("".join(TEXTS)))


@pytest.mark.parametrize("kind", tokenization.KINDS)
def test_save_and_load(kind, tmp_path):
    tokenizer = trained(kind)
    written = {*tokenizer.encode(["<|mask|> [MASK] <|endoftext|> [SEP] cat"])[0]}
    assert written & {*tokenizer.special} <= {tokenizer.unknown}, "text never produces a special token"
    tokenizer.save(tmp_path / "tokenizer.json")
    for copy in (tokenization.from_file(tmp_path / "tokenizer.json"), pickle.loads(pickle.dumps(tokenizer))):
        assert copy.encode([*TEXTS, "<|mask|>[MASK]"]) == tokenizer.encode([*TEXTS, "<|mask|>[MASK]"])
        assert [getattr(copy, role) for role in ROLES] == [getattr(tokenizer, role) for role in ROLES]
        assert (copy.size, copy.special) == (tokenizer.size, tokenizer.special)
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]


@pytest.mark.parametrize("kind", tokenization.KINDS)
def test_the_same_texts_give_the_same_tokenizer_on_one_core_and_on_several(kind, monkeypatch):
    found = set()
    for parallel in ("false", "true"):
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", parallel)
        found.add(trained(kind).inner.to_str())
    assert len(found) == 1


@pytest.mark.parametrize("kind", tokenization.KINDS)
def test_pieces_and_batches_of_texts_change_no_token(kind, monkeypatch):
    texts = ["\n".join(TEXTS) * 3, *TEXTS, *ODD]

    def encode():
        tokenizer = tokenization.train(texts, kind, 331)
        return tokenizer.inner.to_str(), tokenizer.encode(texts)

    whole = encode()
    monkeypatch.setattr(tokenization, "LONG", 20)
    monkeypatch.setattr(tokenization, "CHUNK", 70)
    assert encode() == whole


@pytest.mark.parametrize("kind", tokenization.KINDS)
def test_words_are_encoded_as_the_text_they_make(kind):
    tokenizer = trained(kind)
    words = ["The", "dog", "sat", "on", "naïve", "cafés", "."]
    ids, tags = tokenizer.encode_tags(words, range(7))
    assert ids.tolist() == tokenizer.encode([" ".join(words)])[0]
    assert tags[tags != NO_TAG].tolist() == list(range(7))
    of_words = np.split(ids, np.flatnonzero(tags != NO_TAG)[1:])
    assert [tokenizer.decode(own).strip() for own in of_words] == words


def gpt2(folder):
    """A file as Hugging Face's GPT-2 has it: byte-level BPE with one special token, the last."""
    inner = tokenizers.Tokenizer(
        models.BPE({c: n for n, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, [])
    )
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    inner.add_special_tokens(["<|endoftext|>"])
    inner.enable_truncation(5)
    inner.enable_padding(length=7)
    inner.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def test_roles_that_a_file_lacks_are_the_one_token_it_has(tmp_path):
    tokenizer = tokenization.from_file(gpt2(tmp_path))
    assert tokenizer.special == (256,)
    assert {getattr(tokenizer, role) for role in ("pad", "start", "separator", "end", "document_end")} == {256}
    assert tokenizer.mask is None
    assert tokenizer.unknown is None
    assert tokenizer.size == 257
    assert len(tokenizer.encode(["neither cut nor filled"])[0]) == 22


def test_berts_file(tmp_path):
    vocabulary = trained("wordpiece", lowercase=True).inner.get_vocab()
    theirs = tokenizers.BertWordPieceTokenizer(vocabulary, lowercase=True)
    theirs.save(str(tmp_path / "tokenizer.json"))
    tokenizer = tokenization.from_file(tmp_path)
    for text in TEXTS:
        assert tokenizer.encode([text])[0] == theirs.encode(text).ids[1:-1]  # without [CLS] and [SEP]
    assert (tokenizer.start, tokenizer.separator) == (vocabulary["[CLS]"], vocabulary["[SEP]"])
    assert tokenizer.decoder_start == tokenizer.start
    assert tokenizer.end == tokenizer.document_end == tokenizer.separator
    assert (tokenizer.pad, tokenizer.mask) == (vocabulary["[PAD]"], vocabulary["[MASK]"])


def test_t5s_file_has_no_start_so_its_decoder_starts_with_padding(tmp_path):
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581a", -1.0), ("b", -2.0)]
    theirs = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=2))
    theirs.pre_tokenizer = pre_tokenizers.Metaspace()
    theirs.decoder = decoders.Metaspace()
    theirs.add_special_tokens(["<pad>", "</s>", "<unk>"])
    theirs.save(str(tmp_path / "tokenizer.json"))
    tokenizer = tokenization.from_file(tmp_path)
    assert (tokenizer.decoder_start, tokenizer.pad, tokenizer.end, tokenizer.unknown) == (0, 0, 1, 2)
    assert tokenizer.decode([0, *tokenizer.encode(["a ab"])[0], 1]) == "a ab"


def test_kinds_and_paths(tmp_path):
    (tmp_path / "mine").mkdir()
    assert [tokenization.is_path(name) for name in ("bpe", "x.json", "a/b", "mine")] == [False, True, True, True]
    with pytest.raises(UserError, match=r"data\.tokenizer=wordpeice: unknown kind; did you mean 'wordpiece'"):
        tokenization.is_path("wordpeice")


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
@pytest.mark.parametrize("word", ["x" * 10**5, "ACGTTGCA" * 10**4, "語" * 10**4])
def test_a_word_without_end_does_not_hold_the_training(kind, word):
    found = tokenization.train([f"{TEXTS[0]} {word} {TEXTS[1]}"], kind, 331)
    assert found.ids("cat"), "the words beside it are learned"
    assert "".join(tokenization.cut_words(f"a {word} b")) == f"a {word} b"
    assert max(map(len, tokenization.cut_words(word))) == tokenization.WORD


def test_words_of_any_language_are_whole():
    for text in (*TEXTS, "Donaudampfschifffahrtsgesellschaft " * 99, "我能吞下玻璃而不伤身体。\n" * 99, "="[:1] * 250):
        assert list(tokenization.cut_words(text)) == [text]


@pytest.mark.parametrize(
    "changes",
    [
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},  # the library panics
        {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": False}},
        {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}},
    ],
)
def test_what_the_library_cannot_read_is_one_line(changes, tmp_path):
    written = json.loads(tokenization.train(["seven"], "bpe", 300).inner.to_str())
    (tmp_path / "tokenizer.json").write_text(json.dumps(written | changes))
    with pytest.raises(UserError, match=r"data\.tokenizer"):
        tokenization.from_file(tmp_path).encode(["a" * 40 + "b"])

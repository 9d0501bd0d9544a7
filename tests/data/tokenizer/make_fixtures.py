#!/usr/bin/env python3
"""Makes the files of this folder: a small BPE tokenizer in each of Gemma's two forms, and what the reference libraries
make of a list of texts. The files here are of tokenizers 0.23.3 and sentencepiece 0.2.3.

usage: make_fixtures.py [FOLDER]"""
import io
import json
import pathlib
import random
import sys

import sentencepiece
import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = [
    "The tuner times every kernel and keeps the fastest; the cache remembers which one it was.",
    "A draft head proposes tokens, and the model verifies them in one step: what it accepts is free.",
    "Speculative decoding must not change the text, only the time that the text takes.",
    "for (int row = 0; row < num_rows; ++row) {\n    out[row] = in[row] * scale;\n    sum += out[row];\n}\n",
    "def forward(x, weights):\n\treturn [sum(a * b for a, b in zip(x, w)) for w in weights]\n",
    "Der Kern rechnet schnell, größer als üblich, und die Zeile ist äußerst lang.",
    "Le noyau est rapide, même très rapide, où l'on a déjà mesuré.",
    "Ядро работает быстро, и кэш помнит, какое оно было.",
    "カーネルは速い。キャッシュはそれを覚えている。速い速い。",
    "内核很快，缓存记得它。内核很快。",
    "numbers 0 1 2 3 10 11 12 100 1024 131072 262144 and 3.14159",
    "the the the  and   and    spaces     of      every       width",
    "kernel kernels tuner tuners token tokens cache caches fast faster fastest",
]

CONTROL = ["<pad>", "<eos>", "<bos>", "<unk>"]
MARKERS = ["<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|tool>"]

TEXTS = [
    "", " ", "  ", "     ", "\n", "\n\n", "\n\n\n\n\n", "\t", " \t\n ", "a", " a", "a ", "  a  b   c    ",
    "The tuner times every kernel.", "the fastest kernel", " the fastest kernel ", "unseen Wörter wie Straßenbahn",
    "même où déjà", "Ядро быстро помнит", "速い。カーネル", "内核很快，缓存", "한국어 문장", "עברית العربية हिन्दी ไทย",
    "\U0001f642", "ok \U0001f469\u200d\U0001f469\u200d\U0001f467 family", "\U0001f1e9\U0001f1ea flags", "e\u0301 and \u00e9",
    "zero\u200bwidth \u00a0nbsp \u3000ideographic", "\u2581", "a\u2581b \u2581\u2581", "\ufeffbom", "\ufffd", "\x00\x01\x7f",
    "tabs\tand\r\nCRLF\r\n", "for (int i = 0; i < 10; ++i) {\n    x[i] *= 2;\n}\n", "1234567890 3.14159 1,000,000",
    "<|turn>user\nhello<turn|>\n<|turn>model\n", "<|turn><|turn><turn|>", "a<|turn>b", "<|turn", "|turn>", "<<|turn>>", "<turn|",
    "<|tool> kernel <|tool>kernel", "<0x41> is no byte", "<0xE2><0x82>", "a<0x0A>b", "kernel" * 40, "ab" * 50 + " " * 33 + "x",
    "\U0010ffff\U00010000", "\u0430\u0431\u0432 abc \u03b1\u03b2\u03b3", "\u1e9e\ufb01\u2126\u212b", "(\u2248 \u2211 \u221e) \u2192 \u20ac",
    "new word, new  word, anew word", "new\u2581word",
]


def train_hf():
    normalizer = normalizers.Replace(" ", "\u2581")
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizer
    trained.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    trained.train_from_iterator(CORPUS * 4, trainers.BpeTrainer(vocab_size=520, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    order = sorted(model["vocab"], key=model["vocab"].get)
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]
    # Runs of spaces and line breaks, as Gemma merges them.
    for run in ("\u2581", "\n"):
        if run not in order:
            order.append(run)
        for length in (2, 3, 4, 8):
            half = length // 2 if length != 3 else 2
            order.append(run * length)
            merges.append((run * half, run * (length - half)))
    words = CONTROL + MARKERS + [f"<0x{b:02X}>" for b in range(256)] + order
    vocab = {}
    for word in words:
        vocab.setdefault(word, len(vocab))
    made = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizer
    made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    made.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    made.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A <bos>:1 $B:1", special_tokens=[("<bos>", vocab["<bos>"])])
    made.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in CONTROL + MARKERS])
    made.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("\u2581\u2581", normalized=False),
                     AddedToken("new word", normalized=True)])
    return made


def train_sentencepiece():
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in CORPUS * 4 for line in text.split("\n") if line), model_writer=out,
        model_type="bpe", vocab_size=640, byte_fallback=True, normalization_rule_name="identity",
        add_dummy_prefix=False, remove_extra_whitespaces=False, split_digits=True, allow_whitespace_only_pieces=True,
        user_defined_symbols=MARKERS[:4] + ["\n", "\n\n", "\u2581\u2581", "\u2581\u2581\u2581\u2581"],
        control_symbols=["<|tool>"], pad_id=0, eos_id=1, bos_id=2, unk_id=3, pad_piece="<pad>", eos_piece="<eos>",
        bos_piece="<bos>", unk_piece="<unk>", hard_vocab_limit=False, minloglevel=2)
    return out.getvalue()


def train_prefixed():
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c"] * 20), model_writer=out, model_type="bpe", vocab_size=20,
        normalization_rule_name="identity", hard_vocab_limit=False, minloglevel=2)
    return out.getvalue()


def random_ids(reference_text, size, rng, count):
    """Lists of ids whose bytes are whole characters, so that no reading of malformed text matters."""
    found = []
    while len(found) < count:
        ids = [rng.randrange(4, size) for _ in range(rng.randrange(1, 12))]
        if "\ufffd" not in reference_text(ids):
            found.append(ids)
    return found


def lines(part):
    """JSON with a line for each element of a list."""
    dump = lambda value: json.dumps(value, separators=(",", ":"))
    return "[\n" + ",\n".join(map(dump, part)) + "]" if isinstance(part, list) else dump(part)


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    folder = folder if folder.is_dir() else folder.parent
    hf = train_hf()
    model = train_sentencepiece()
    sp = sentencepiece.SentencePieceProcessor(model_proto=model)
    hf.save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "tokenizer.model").write_bytes(model)
    (folder / "prefixed.model").write_bytes(train_prefixed())

    rng = random.Random(7)
    letters = "".join(CORPUS) + "\u2581<|>\U0001f642\u00df\u0416"
    texts = TEXTS + ["".join(rng.choice(letters) for _ in range(rng.randrange(1, 60))) for _ in range(90)]
    texts += [" ".join(rng.choice(" ".join(CORPUS).split(" ")) for _ in range(20)) for _ in range(30)]
    hf_text = lambda ids: hf.decode(ids, skip_special_tokens=True)
    cases = {
        "versions": {"tokenizers": tokenizers.__version__, "sentencepiece": sentencepiece.__version__},
        "encode": [{"text": t, "hf": hf.encode(t, add_special_tokens=False).ids,
                    # Control symbols have no text there.
                    "sp": None if "<|tool>" in t else sp.encode(t)} for t in texts],
        "decode_hf": [{"ids": i, "text": hf_text(i)} for i in random_ids(hf_text, hf.get_vocab_size(), rng, 60)],
        "decode_sp": [{"ids": i, "text": sp.decode(i)} for i in random_ids(sp.decode, sp.vocab_size(), rng, 60)],
    }
    for case in cases["encode"]:
        text = hf_text(case["hf"])
        if text != case["text"]:  # special tokens have no text
            case["hf_text"] = text
    with open(folder / "cases.json", "w", encoding="utf-8") as file:
        file.write(",\n".join(f"{json.dumps(name)}:{lines(part)}" for name, part in cases.items()).join("{}") + "\n")


main()

#!/usr/bin/env python3
"""Generates tokens with a Gemma 4 checkpoint through the C ABI, with and without drafts.

    generate.py CHECKPOINT [--prompt 2,17,250] [--max-new-tokens 16] [--device host]

Token ids in, token ids out. Exits with 0 when drafts changed no token, 1 when they did, 3 without a GPU.
"""

import argparse
import sys

import attune_ctypes
import attune_model_ctypes


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkpoint", help="folder of a Hugging Face checkpoint")
    parser.add_argument("--prompt", default="2,17,250,33,8,17,250,33", help="token ids")
    parser.add_argument("--max-new-tokens", type=int, default=16)
    parser.add_argument("--device", help="a GPU's number, or host for the CPU")
    return parser.parse_args()


def run(arguments):
    """The tokens of each drafter."""
    prompt = [int(token) for token in arguments.prompt.split(",")]
    engine = attune_ctypes.Engine(attune_ctypes.Library(), device=arguments.device,
                                  log=lambda text: print("attune:", text, file=sys.stderr))
    model = attune_model_ctypes.Model(engine, arguments.checkpoint, max_verify=5, max_sequences=2,
                                      max_tokens=len(prompt) + arguments.max_new_tokens)
    generators = {draft: attune_model_ctypes.Generator(model, draft) for draft in ("none", "ngram")}
    engine.seal()
    tokens = []
    for draft, generator in generators.items():
        result = generator.run(prompt, max_new_tokens=arguments.max_new_tokens,
                               ignore_stop_tokens=True,
                               on_tokens=lambda ids: print(*ids, end=" ", flush=True))
        print(f"\n{draft}: {result.num_tokens} tokens in {result.num_rounds} rounds, "
              f"{result.num_accepted} proposals accepted, first one after {result.prefill_s:.3f} s, "
              f"{(result.num_tokens - 1) / result.decode_s:.1f} tokens/s")
        tokens.append(result.tokens)
    return tokens


def main():
    try:
        plain, drafted = run(parse_arguments())
    except attune_ctypes.AttuneError as error:
        print(error, file=sys.stderr)
        return 3 if error.status == attune_ctypes.NO_DEVICE else 1
    print("the same tokens" if plain == drafted else "drafts CHANGED tokens")
    return 0 if plain == drafted else 1


if __name__ == "__main__":
    sys.exit(main())

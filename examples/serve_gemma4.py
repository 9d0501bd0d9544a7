#!/usr/bin/env python3
"""Serves the attention of a small Gemma 4 model from Python: a prompt, a decoded token, a verify of
drafted tokens of which some are accepted, and checks the results of a sliding and a global layer.

The device is the argument, else ATTUNE_DEVICE, else GPU 0; "host" needs no GPU and no driver.
Exit code: 0 right, 1 an error or a wrong result, 3 no GPU.
"""

import json
import math
import os
import sys

import attune_ctypes
import attune_gemma4_ctypes as gemma4
import serve

CONFIG = {
    "model_type": "gemma4_text", "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_global_key_value_heads": 1,
    "attention_k_eq_v": True, "head_dim": 64, "global_head_dim": 128, "sliding_window": 16,
    "layer_types": ["sliding_attention", "full_attention"], "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
}
PROMPT, DRAFTED, ACCEPTED = 20, 4, 2
MAX_TOKENS = 64


class LayerData:
    """Projections of all positions of one layer, and the device memory of a step."""

    def __init__(self, memory, shape, seed):
        self.memory, self.shape = memory, shape
        self.q_row = 2 * shape.num_q_heads * shape.head_dim  # bytes
        self.kv_row = 2 * shape.num_kv_heads * shape.head_dim
        exponents = (0x3D, 0x3E, 0x3F)  # below 2
        self.q = serve.noise(MAX_TOKENS * self.q_row // 2, exponents, seed)
        self.k = serve.noise(MAX_TOKENS * self.kv_row // 2, exponents, seed + 1)
        self.v = None if shape.k_eq_v else serve.noise(MAX_TOKENS * self.kv_row // 2, exponents,
                                                       seed + 2)
        self.q_norm = serve.noise(shape.head_dim, (0x3E,), seed + 3)  # below 1/2
        self.k_norm = serve.noise(shape.head_dim, (0x3E,), seed + 4)
        self.out = memory.allocate(PROMPT * self.q_row)

    def args(self, begin, num_tokens):
        """Arguments of a step of these positions, as the application's GEMMs would leave them."""
        def upload(data, row):
            return self.memory.copy_of(data[begin * row:(begin + num_tokens) * row])

        args = {"q": upload(self.q, self.q_row), "k": upload(self.k, self.kv_row), "out": self.out}
        if self.v is not None:
            args["v"] = upload(self.v, self.kv_row)
        return args

    def head(self, data, row, position, head):
        begin = position * row + 2 * head * self.shape.head_dim
        return serve.to_floats(data[begin:begin + 2 * self.shape.head_dim])

    def normed(self, head, weight, position):
        """A head after its norm, and turned where it has a weight, rounded to bf16."""
        dim = self.shape.head_dim
        factor = 1 / math.sqrt(sum(x * x for x in head) / dim + CONFIG["rms_norm_eps"])
        head = [x * factor for x in head]
        if weight is not None:
            head = [x * w for x, w in zip(head, serve.to_floats(weight))]
            for i in range(self.shape.rope_num_pairs):
                angle = position * self.shape.rope_theta ** (-2 * i / dim) / self.shape.rope_factor
                x, y = head[i], head[i + dim // 2]
                head[i] = x * math.cos(angle) - y * math.sin(angle)
                head[i + dim // 2] = y * math.cos(angle) + x * math.sin(angle)
        return [round_to_bf16(x) for x in head]

    def expected_row(self, position, q_head):
        """Attention of one query token and head, straight from the formula."""
        kv_head = q_head // (self.shape.num_q_heads // self.shape.num_kv_heads)
        query = self.normed(self.head(self.q, self.q_row, position, q_head), self.q_norm, position)
        begin = max(0, position + 1 - self.shape.window) if self.shape.window else 0
        scores, values = [], []
        for p in range(begin, position + 1):
            raw_k = self.head(self.k, self.kv_row, p, kv_head)
            raw_v = raw_k if self.v is None else self.head(self.v, self.kv_row, p, kv_head)
            key = self.normed(raw_k, self.k_norm, p)
            scores.append(sum(a * b for a, b in zip(query, key)))
            values.append(self.normed(raw_v, None, p))
        weights = [math.exp(score - max(scores)) for score in scores]
        return [sum(w * value[d] for w, value in zip(weights, values)) / sum(weights)
                for d in range(self.shape.head_dim)]

    def error(self, row, position):
        """Largest relative error of the first and the last head of a row of the results."""
        data = self.memory.download(self.out, PROMPT * self.q_row)
        worst = 0.0
        for head in (0, self.shape.num_q_heads - 1):
            expected = self.expected_row(position, head)
            got = self.head(data, self.q_row, row, head)
            error = math.sqrt(sum((a - b) ** 2 for a, b in zip(got, expected)) /
                              sum(b * b for b in expected))
            if not error <= worst:  # keeps a NaN
                worst = error
        return worst


def round_to_bf16(x):
    mantissa, exponent = math.frexp(x)
    return math.ldexp(round(mantissa * 256), exponent - 8)


def run(engine, memory):
    """Returns whether all results are right."""
    geometry = gemma4.Geometry(engine.library, text=json.dumps(CONFIG))
    model = gemma4.Model(engine, geometry, max_tokens=MAX_TOKENS, max_prefill=PROMPT,
                         max_verify=DRAFTED)
    layers = [LayerData(memory, shape, 10 * i) for i, shape in enumerate(geometry.layers)]
    for i, layer in enumerate(layers):
        model.set_norm_weights(i, layer.q_norm, layer.k_norm)
    engine.seal()
    print(model.explain(), end="")

    session = model.open_session()
    worst = 0.0
    for name, num_tokens, accepted in (("prefill", PROMPT, PROMPT), ("decode", 1, 1),
                                       ("verify", DRAFTED, ACCEPTED), ("verify", DRAFTED, DRAFTED)):
        begin = session.length()
        for i, layer in enumerate(layers):
            args = layer.args(begin, num_tokens)
            if name == "decode":
                session.decode(i, **args)
            else:
                getattr(session, name)(i, num_tokens, **args)
            error = layer.error(accepted - 1, begin + accepted - 1)
            if not error <= worst:
                worst = error
            for field in ("q", "k", "v"):  # the download has waited for the step
                if field in args:
                    memory.free(args[field])
        session.commit(accepted)
        print(f"{name:10} {accepted} of {num_tokens} tokens, length {session.length()}")
    right = worst <= serve.MAX_ROW_ERROR
    print(f"result     {'right' if right else 'WRONG'}: largest relative error of a row "
          f"{worst:.2e}, limit {serve.MAX_ROW_ERROR:.2e}")
    return right


def main():
    device = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ATTUNE_DEVICE") or None
    try:
        engine = attune_ctypes.Engine(attune_ctypes.Library(), strict=True, device=device,
                                      log=lambda text: print("attune:", text, file=sys.stderr))
        return 0 if run(engine, serve.open_memory(device)) else 1
    except attune_ctypes.AttuneError as error:
        print(error, file=sys.stderr)
        return 3 if error.status == attune_ctypes.NO_DEVICE else 1
    except (OSError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())

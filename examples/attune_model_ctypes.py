"""The C ABI of whole Gemma 4 models (runtime/attune_model_c.h) for Python, by ctypes alone.

    engine = attune_ctypes.Engine(attune_ctypes.Library())
    model = Model(engine, "gemma-4-31b-it", max_tokens=8192)
    generator = Generator(model, draft="ngram")
    engine.seal()
    run = generator.run(prompt, max_new_tokens=100, on_tokens=lambda ids: print(ids))
    run.tokens, run.end, run.num_accepted

Tokens are integers; a stream is one too, as are the device pointers of `Model.info`.
"""

import ctypes
import os

DRAFTS = {"none": 0, "ngram": 1, "eagle3": 2}
WEIGHTS = {"bf16": 0, "int4": 1}
ENDS = ("stop_token", "max_new_tokens", "context_end", "cancelled")

_HANDLE, _INT, _SIZE = ctypes.c_void_p, ctypes.c_int32, ctypes.c_size_t
_INTS = ctypes.POINTER(_INT)
TokensFunction = ctypes.CFUNCTYPE(_INT, _INTS, _SIZE, _HANDLE)


def _fields(*groups):
    """struct_size, then (type, names) in turn."""
    return [("struct_size", _SIZE)] + [(name, kind) for kind, names in groups
                                       for name in names.split()]


class Options(ctypes.Structure):
    """attune_model_options"""

    _fields_ = _fields(
        (_INT, "max_tokens max_sequences max_prefill max_verify weights not_invariant"),
        (ctypes.c_char_p, "eagle3"))


class Info(ctypes.Structure):
    """attune_model_info"""

    _fields_ = _fields(
        (_INT, "vocab_size hidden_size num_layers max_positions max_tokens max_prefill max_verify "
               "bos_token"),
        (ctypes.c_uint64, "logits best"), (_SIZE, "weight_bytes activation_bytes cache_bytes"))


class RunOptions(ctypes.Structure):
    """attune_generate_options"""

    _fields_ = _fields(
        (_INT, "chain max_new_tokens"), (_INTS, "stop_tokens"), (_SIZE, "num_stop_tokens"),
        (_INT, "ignore_stop_tokens no_cuda_graph top_k reserved"),
        (ctypes.c_double, "temperature top_p"), (ctypes.c_uint64, "seed"),
        (TokensFunction, "on_tokens"), (_HANDLE, "context"))


class RunResult(ctypes.Structure):
    """attune_generate_result; `tokens` is a list."""

    _fields_ = _fields(
        (_INT, "end_value num_tokens"), (ctypes.c_int64, "num_rounds num_accepted"),
        (ctypes.c_double, "prefill_s decode_s verify_s draft_s"))

    @property
    def end(self):
        return ENDS[self.end_value]


def _sized(kind, **fields):
    return kind(struct_size=ctypes.sizeof(kind), **fields)


def _ints(values):
    return (_INT * len(values))(*values)


_OUT_HANDLE = ctypes.POINTER(_HANDLE)
_STEP = [_HANDLE, _INT, _HANDLE]
_SIGNATURES = {
    "model_open": [_HANDLE, ctypes.c_char_p, ctypes.POINTER(Options), _OUT_HANDLE],
    "model_random": [_HANDLE, ctypes.c_char_p, ctypes.c_uint64, ctypes.POINTER(Options),
                     _OUT_HANDLE],
    "model_get_info": [_HANDLE, ctypes.POINTER(Info)],
    "model_explain": [_HANDLE, ctypes.c_char_p, _SIZE, ctypes.POINTER(_SIZE)],
    "model_set_tokens": [_HANDLE, _INTS, _SIZE, _HANDLE],
    "model_read_logits": [_HANDLE, _INT, ctypes.POINTER(ctypes.c_float), _HANDLE],
    "model_read_best": [_HANDLE, _INT, _INTS, _HANDLE],
    "model_session_open": [_HANDLE, _OUT_HANDLE],
    "model_session_prefill": _STEP,
    "model_session_verify": _STEP,
    "model_session_begin_step": _STEP,
    "model_session_commit": _STEP,
    "model_session_rollback": _STEP,
    "model_session_length": [_HANDLE, _INTS],
    "model_session_largest_step": [_HANDLE, _INTS],
    "generator_create": [_HANDLE, _INT, _HANDLE, _OUT_HANDLE],
    "generator_run": [_HANDLE, _INTS, _SIZE, ctypes.POINTER(RunOptions),
                      ctypes.POINTER(RunResult)],
    "generator_tokens": [_HANDLE, _INTS, _SIZE, ctypes.POINTER(_SIZE)],
}


class _Object:
    """A handle of the library; `destroy` is the function that ends it."""

    def __init__(self, library, destroy, create, *arguments):
        self.handle = None
        self.library = library
        self.destroy = getattr(library.c, "attune_" + destroy)
        self.destroy.restype = None
        self.destroy.argtypes = [_HANDLE]
        handle = _HANDLE()
        self.call(create, *arguments, ctypes.byref(handle), on_self=False)
        self.handle = handle

    def __del__(self):
        if self.handle:
            self.destroy(self.handle)

    def call(self, name, *arguments, on_self=True):
        function = getattr(self.library.c, "attune_" + name)
        function.restype = ctypes.c_int
        function.argtypes = _SIGNATURES[name]
        self.library.call("attune_" + name, *((self.handle,) if on_self else ()), *arguments)

    def number(self, name):
        value = _INT()
        self.call(name, ctypes.byref(value))
        return value.value


class Model(_Object):
    """attune_model: a checkpoint's folder, or with `random_seed` a config.json. `options` are the fields of
    attune_model_options."""

    def __init__(self, engine, path, random_seed=None, weights="bf16", eagle3=None, **options):
        given = _sized(Options, weights=WEIGHTS[weights], eagle3=eagle3 and os.fsencode(eagle3),
                       **options)
        seed = () if random_seed is None else (random_seed,)
        super().__init__(engine.library, "model_destroy",
                         "model_open" if random_seed is None else "model_random", engine.handle,
                         os.fsencode(path), *seed, ctypes.byref(given))
        self.info = _sized(Info)
        self.call("model_get_info", ctypes.byref(self.info))

    def explain(self):
        return self.library.text("attune_model_explain", self.handle)

    def set_tokens(self, tokens, stream=None):
        self.call("model_set_tokens", _ints(tokens), len(tokens), stream)

    def read_best(self, rows=1, stream=None):
        best = (_INT * rows)()
        self.call("model_read_best", rows, best, stream)
        return list(best)

    def read_logits(self, rows=1, stream=None):
        """Rows behind each other, as a ctypes array of floats."""
        logits = (ctypes.c_float * (rows * self.info.vocab_size))()
        self.call("model_read_logits", rows, logits, stream)
        return logits


class Session(_Object):
    """attune_model_session"""

    def __init__(self, model):
        super().__init__(model.library, "model_session_close", "model_session_open", model.handle)

    def prefill(self, num_tokens, stream=None):
        self.call("model_session_prefill", num_tokens, stream)

    def verify(self, num_tokens, stream=None):
        self.call("model_session_verify", num_tokens, stream)

    def begin_step(self, num_tokens, stream=None):
        self.call("model_session_begin_step", num_tokens, stream)

    def commit(self, num_tokens, stream=None):
        self.call("model_session_commit", num_tokens, stream)

    def rollback(self, num_tokens, stream=None):
        self.call("model_session_rollback", num_tokens, stream)

    def length(self):
        return self.number("model_session_length")

    def largest_step(self):
        return self.number("model_session_largest_step")


class Generator(_Object):
    """attune_generator; `draft` is one of DRAFTS."""

    def __init__(self, model, draft="none", stream=None):
        super().__init__(model.library, "generator_destroy", "generator_create", model.handle,
                         DRAFTS[draft], stream)

    def run(self, prompt, on_tokens=None, stop_tokens=None, **options):
        """`options` are the fields of attune_generate_options. `on_tokens` gets lists of new tokens and
        ends the run by returning False; what it raises ends the run too, and is raised here."""
        raised = []

        def call(tokens, count, _):
            try:
                return on_tokens(tokens[:count]) is not False
            except BaseException as error:  # a ctypes callback cannot raise
                raised.append(error)
                return False

        stops = None if stop_tokens is None else _ints(stop_tokens)
        given = _sized(RunOptions, stop_tokens=stops, num_stop_tokens=len(stop_tokens or ()),
                       on_tokens=TokensFunction(call) if on_tokens else TokensFunction(), **options)
        result = _sized(RunResult)
        self.call("generator_run", _ints(prompt), len(prompt), ctypes.byref(given),
                  ctypes.byref(result))
        if raised:
            raise raised[0]
        tokens = (_INT * result.num_tokens)()
        self.call("generator_tokens", tokens, result.num_tokens, None)
        result.tokens = list(tokens)
        return result

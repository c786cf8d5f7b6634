"""llama.cpp behind five verbs: open, move, run, logits, close.

The only place that knows a llama context. Everything that can abort or corrupt is checked before
it is called; what goes wrong inside kills this process, never the daemon.
"""

import ctypes
import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from appliance.engine.commands import Load, LoraSet
from appliance.engine.keeping import Costs
from appliance.engine.llama import llama_cpp
from appliance.engine.plan import Chunk, Clear, Copy, Move, Restore, Save
from appliance.engine.reports import Ready
from appliance.engine.vocab import Vocab

log = logging.getLogger(__name__)

_KV_TYPES = {
    "f32": llama_cpp.GGML_TYPE_F32,
    "f16": llama_cpp.GGML_TYPE_F16,
    "bf16": 30,  # GGML_TYPE_BF16: the bindings do not name it
    "q8_0": llama_cpp.GGML_TYPE_Q8_0,
    "q4_0": llama_cpp.GGML_TYPE_Q4_0,
}
_FLASH = {"auto": -1, "off": 0, "on": 1}
PROBE_TOKENS = (1, 2, 4, 8, 16)
"""Batch sizes timed at start, so that drafting knows what a token more costs."""


class EngineError(RuntimeError):
    """llama.cpp refused; the message says what and what to do."""


class Runner:
    """One model in one context with one unified KV cache."""

    def __init__(self, load: Load) -> None:
        """Opens the model; raises EngineError with a message for the operator."""
        began = time.monotonic()
        llama_cpp.llama_backend_init()
        self._load = load
        self._model = self._open_model(load)
        self.vocab = Vocab(self._model)
        self._check_model()
        self._context = self._open_context(load)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._adapters = [self._open_adapter(path) for path, _ in load.lora]
        self._applied: LoraSet = ()
        self.n_vocab = self.vocab.n_tokens
        self.n_ctx: int = llama_cpp.llama_n_ctx(self._context)
        self._batch = _Batch(_capacity(load))
        self._logits = self._view = np.empty((0, 0), dtype=np.float32)
        self._logits_at = 0
        self._load_seconds = time.monotonic() - began

    # -- opening ---------------------------------------------------------------------------------

    @staticmethod
    def _open_model(load: Load) -> Any:
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = load.n_gpu_layers if load.n_gpu_layers >= 0 else 999
        params.use_mlock = load.mlock
        model = llama_cpp.llama_model_load_from_file(load.model_path.encode(), params)
        if not model:
            raise EngineError(
                "llama.cpp cannot load the model file: see the log above; "
                "`steelyard selftest` repeats this alone"
            )
        return model

    def _check_model(self) -> None:
        if llama_cpp.llama_model_has_encoder(self._model):
            raise EngineError("the model has an encoder; only decoder models are served")
        recurrent = llama_cpp.llama_model_is_recurrent(self._model)
        if recurrent or llama_cpp.llama_model_is_hybrid(self._model):
            raise EngineError(
                "the model keeps recurrent state, whose prefixes cannot be shared or rewound; "
                "serve an attention-only model"
            )

    def _open_context(self, load: Load) -> Any:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = load.n_ctx
        params.n_batch = _capacity(load)
        params.n_ubatch = load.n_ubatch
        params.n_seq_max = load.max_sequences + load.cached_sequences
        params.n_threads = load.threads
        params.n_threads_batch = load.threads_batch
        params.flash_attn_type = _FLASH[load.flash_attention]
        params.type_k = params.type_v = _KV_TYPES[load.kv_type]
        params.kv_unified = True
        params.swa_full = True
        params.no_perf = True
        context = llama_cpp.llama_init_from_model(self._model, params)
        if not context:
            raise EngineError(
                f"llama.cpp cannot make a context of {load.n_ctx} cells (KV type {load.kv_type}): "
                "too little memory, or a KV type that needs flash attention; lower "
                "engine.context or set engine.kv_type = 'f16'"
            )
        return context

    def _open_adapter(self, path: str) -> Any:
        adapter = llama_cpp.llama_adapter_lora_init(self._model, path.encode())
        if not adapter:
            raise EngineError(
                f"{path}: llama.cpp cannot load this LoRA adapter beside the model: see the log "
                "above, and correct model.lora"
            )
        if llama_cpp.llama_adapter_get_alora_n_invocation_tokens(adapter):
            raise EngineError(
                f"{path}: this adapter acts from certain tokens on (aLoRA), which the box does not "
                "do: take it out of model.lora"
            )
        return adapter

    def ready(self) -> Ready:
        """The facts about what was opened, and why it is not as asked, if so."""
        load, model = self._load, self._model
        n_layers = llama_cpp.llama_model_n_layer(model)
        asked = n_layers if load.n_gpu_layers < 0 else min(load.n_gpu_layers, n_layers)
        can_offload = bool(llama_cpp.llama_supports_gpu_offload())
        wanted = asked if load.n_gpu_layers > 0 or can_offload else 0
        offloaded = wanted if can_offload else 0
        description = ctypes.create_string_buffer(256)
        llama_cpp.llama_model_desc(model, description, 256)
        return Ready(
            model_desc=description.value.decode("utf-8", "replace"),
            n_params=llama_cpp.llama_model_n_params(model),
            model_bytes=llama_cpp.llama_model_size(model),
            n_vocab=self.n_vocab,
            n_ctx=self.n_ctx,
            n_ctx_train=llama_cpp.llama_model_n_ctx_train(model),
            n_embd=llama_cpp.llama_model_n_embd(model),
            vocab_type=llama_cpp.llama_vocab_type(self.vocab.handle),
            n_layers=n_layers,
            layers_offloaded=offloaded,
            layers_asked=wanted,
            flash_attention=load.flash_attention != "off",
            system_info=llama_cpp.llama_print_system_info().decode("utf-8", "replace").strip(),
            load_seconds=self._load_seconds,
            degraded=self._degraded(wanted, offloaded),
        )

    @staticmethod
    def _degraded(wanted: int, offloaded: int) -> tuple[str, ...]:
        if offloaded >= wanted:
            return ()
        return (
            f"gpu: {wanted} layers were asked for and this build offloads none, so the CPU "
            "serves; install the CUDA build (make run BACKEND=cuda) or set engine.gpu_layers = 0",
        )

    # -- running ---------------------------------------------------------------------------------

    def move(self, moves: Iterable[Move]) -> None:
        """Applies the scheduler's cache moves, in order."""
        for step in moves:
            if isinstance(step, Clear):
                # Also puts llama.cpp's search for free cells back to the first one.
                llama_cpp.llama_memory_clear(self._memory, True)
            elif isinstance(step, Copy):
                llama_cpp.llama_memory_seq_cp(
                    self._memory, step.source, step.target, 0, step.length
                )
            elif isinstance(step, Save):
                step.state.data = self._state(step.seq_id)
            elif isinstance(step, Restore):
                step.state.restored = self._put_back(step.seq_id, step.state.data)
            elif not llama_cpp.llama_memory_seq_rm(self._memory, step.seq_id, step.start, -1):
                raise EngineError(
                    f"the cache cannot forget sequence {step.seq_id} from {step.start}"
                )

    def _state(self, seq_id: int) -> bytearray | None:
        """What the cache holds of a sequence; None if llama.cpp cannot tell."""
        size = llama_cpp.llama_state_seq_get_size(self._context, seq_id)
        data = bytearray(size)
        buffer = (ctypes.c_uint8 * size).from_buffer(data)
        read = llama_cpp.llama_state_seq_get_data(self._context, buffer, size, seq_id)
        return data if size and read == size else None

    def _put_back(self, seq_id: int, data: bytearray | None) -> bool:
        """Whether the cache holds that again; if not, it holds nothing of the sequence."""
        if data is None:
            return False
        size = len(data)
        buffer = (ctypes.c_uint8 * size).from_buffer(data)
        read = llama_cpp.llama_state_seq_set_data(self._context, buffer, size, seq_id)
        return bool(read == size)

    def run(self, chunks: Sequence[Chunk]) -> NDArray[np.float32]:
        """Decodes one step, all of it with the LoRA set of its first chunk. Returns logits, shape
        (outputs, n_vocab), in the order of the chunks; the array is llama.cpp's own memory, valid
        and writable until the next step."""
        lora = chunks[0].sequence.request.lora
        if lora != self._applied:
            self._apply(lora)
        outputs = self._batch.fill(chunks)
        code = llama_cpp.llama_decode(self._context, self._batch.raw)
        if code != 0:
            raise EngineError(f"llama_decode failed with code {code} on {self._batch.size} tokens")
        if outputs == 0:
            # Waits for the backend, so that the step's time is the step's own.
            llama_cpp.llama_synchronize(self._context)
            return np.empty((0, self.n_vocab), dtype=np.float32)
        first = llama_cpp.llama_get_logits(self._context)
        return self._rows(ctypes.addressof(first.contents), outputs)

    def _apply(self, lora: LoraSet) -> None:
        """From now on these adapters and no others. The weights stay as they are; llama.cpp plans
        its graph anew with the next step, which costs some milliseconds."""
        count = len(lora)
        adapters = (llama_cpp.llama_adapter_lora_p_ctypes * count)(
            *(self._adapters[id] for id, _ in lora)
        )
        scales = (ctypes.c_float * count)(*(scale for _, scale in lora))
        code = llama_cpp.llama_set_adapters_lora(self._context, adapters, count, scales)
        if code != 0:
            raise EngineError(f"llama.cpp cannot apply LoRA adapters (code {code})")
        self._applied = lora

    def _rows(self, address: int, outputs: int) -> NDArray[np.float32]:
        """llama.cpp's memory as an array: the same one as long as it lies there and has as many
        rows. An array made anew for each step takes longer than choosing the token."""
        if address != self._logits_at or outputs > len(self._logits):
            count = outputs * self.n_vocab
            memory = memoryview((ctypes.c_float * count).from_address(address)).cast("B")
            self._logits = np.frombuffer(memory, np.float32).reshape(outputs, self.n_vocab)
            self._logits_at = address
            self._view = self._logits
        if len(self._view) != outputs:
            self._view = self._logits[:outputs]
        return self._view

    @property
    def library(self) -> Any:
        """llama.cpp's, with whatever of ours the build put into it."""
        return llama_cpp._lib

    @property
    def context(self) -> Any:
        """llama.cpp's own, for tests that compare its cache with our account of it."""
        return self._context

    def probe(self) -> list[tuple[int, float]]:
        """One decode of each of `PROBE_TOKENS` tokens: proof that the engine computes, and ms per
        batch size (the second of two runs). Leaves the cache empty."""
        timings = []
        for count in PROBE_TOKENS:
            if count > self._load.n_batch or count > self.n_ctx:
                break
            for _ in range(2):
                llama_cpp.llama_memory_clear(self._memory, True)
                began = time.perf_counter()
                code = llama_cpp.llama_decode(self._context, self._batch.probe(count))
                if code != 0:
                    raise EngineError(f"the first decode failed with code {code}")
                llama_cpp.llama_synchronize(self._context)
                ms = (time.perf_counter() - began) * 1e3
            timings.append((count, ms))
        llama_cpp.llama_memory_clear(self._memory, True)
        return timings

    def probe_state(self, compute_ms: float) -> Costs | None:
        """What it takes to take a state out and put it back, by doing so with `PROBE_TOKENS[-1]`
        tokens; `compute_ms` is what computing a token takes. None where it cannot be done. Leaves
        the cache empty."""
        count = min(PROBE_TOKENS[-1], self._load.n_batch, self.n_ctx)
        if llama_cpp.llama_decode(self._context, self._batch.probe(count)) != 0:
            raise EngineError("the cache takes no tokens while it is empty")
        llama_cpp.llama_synchronize(self._context)
        began = time.perf_counter()
        data = self._state(0)
        llama_cpp.llama_memory_clear(self._memory, False)
        worked = self._put_back(0, data)
        ms = (time.perf_counter() - began) * 1e3
        llama_cpp.llama_memory_clear(self._memory, True)
        return Costs(-(-len(data) // count), ms / count, compute_ms) if data and worked else None

    def close(self) -> None:
        llama_cpp.llama_free(self._context)
        llama_cpp.llama_model_free(self._model)


def _capacity(load: Load) -> int:
    """Tokens that one llama_decode takes. Never fewer than sequences: each may have a token in a
    step however few the configuration allows, and llama.cpp aborts when told otherwise."""
    return max(load.n_batch, load.max_sequences + load.cached_sequences)


class _Batch:
    """A llama_batch whose arrays are NumPy views. The bindings' own helper restarts positions at
    0 for every sequence and fills token by token in Python."""

    def __init__(self, capacity: int) -> None:
        self.raw = llama_cpp.llama_batch_init(capacity, 0, 1)
        self.size = 0
        self._tokens = np.ctypeslib.as_array(self.raw.token, shape=(capacity,))
        self._positions = np.ctypeslib.as_array(self.raw.pos, shape=(capacity,))
        self._outputs = np.ctypeslib.as_array(self.raw.logits, shape=(capacity,))
        self._counts = np.ctypeslib.as_array(self.raw.n_seq_id, shape=(capacity,))
        self._counts[:] = 1
        # seq_id is an array of pointers: point them into one array of ours, once.
        self._sequences = np.zeros(capacity, dtype=np.int32)
        base, item = self._sequences.ctypes.data, self._sequences.itemsize
        pointer = ctypes.POINTER(llama_cpp.llama_seq_id)
        for i in range(capacity):
            self.raw.seq_id[i] = ctypes.cast(base + i * item, pointer)

    def fill(self, chunks: Sequence[Chunk]) -> int:
        """Writes the chunks; returns how many rows of logits they ask for."""
        at = outputs = 0
        for chunk in chunks:
            count = len(chunk.tokens)
            if count == 1:
                self._put(at, chunk)
            else:
                self._put_all(slice(at, at + count), chunk)
            outputs += chunk.outputs
            at += count
        self.size = self.raw.n_tokens = at
        return outputs

    def _put(self, at: int, chunk: Chunk) -> None:
        """A chunk of one token: written as numbers, without the cost of slices."""
        self._tokens[at] = chunk.tokens[0]
        self._positions[at] = chunk.start
        self._sequences[at] = chunk.sequence.seq_id
        self._outputs[at] = chunk.outputs

    def _put_all(self, place: slice, chunk: Chunk) -> None:
        self._tokens[place] = chunk.tokens
        self._positions[place] = np.arange(chunk.start, chunk.start + len(chunk.tokens))
        self._sequences[place] = chunk.sequence.seq_id
        self._outputs[place] = 0
        self._outputs[place.stop - chunk.outputs : place.stop] = 1

    def probe(self, count: int) -> Any:
        """`count` tokens of one sequence, logits for all of them."""
        self._tokens[:count] = 1
        self._positions[:count] = np.arange(count)
        self._sequences[:count] = 0
        self._outputs[:count] = 1
        self.size = self.raw.n_tokens = count
        return self.raw

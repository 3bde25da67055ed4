"""A restored state goes on bit for bit as the live one it was copied from.

Both compute the same rows in the same passes, and no BLAS is preloaded, so bits can be compared.
"""

import mlx.core as mx
import numpy as np
import pytest

from qmlx_lsp.engine.backend import Sampling
from qmlx_lsp.engine.mlx.caches import adapter, parts
from qmlx_lsp.errors import CheckpointRejected
from qmlx_lsp.state import RowSpec, StateCopy, Tensor, TensorSpec
from tests.support import tiny_models
from tests.support.memory_stored import MemoryStored
from tests.support.tiny_models import WINDOW, ids

GREEDY = Sampling()
MODELS = tiny_models.EACH
# Around the window's edge and around the 256 rows by which a cache grows.
EDGES = [1, WINDOW - 1, WINDOW, WINDOW + 1, 256, 257]
MORE_EDGES = [pytest.param(count, marks=pytest.mark.slow) for count in (2, 2 * WINDOW, 255, 512)]


def read_in_chunks(backend, state, count: int, chunk: int) -> None:
    wanted = ids(count)
    for at in range(0, count, chunk):
        backend.prefill(state, wanted[at : at + chunk])


STEPS = [[7], ids(5, salt=3), [8], [9]]


def same_bits(backend, one, two) -> None:
    for step in STEPS:
        assert backend.logits(one, step) == backend.logits(two, step)


@MODELS
@pytest.mark.parametrize("position", [*EDGES, *MORE_EDGES])
def test_restored_logits_are_live_logits(name, position):
    backend = tiny_models.backend(name)
    live = backend.new_state()
    read_in_chunks(backend, live, position, 100)
    copy = backend.copy_state(live, 0)
    restored = backend.restore(MemoryStored([copy]))
    assert backend.position(restored.state) == position
    assert restored.bytes == copy.nbytes
    same_bits(backend, live, restored.state)


# Without gpt-oss: MLX's expert product is float32 on a CPU.
HALF = [
    "llama",
    "hybrid",
    "gemma",
    "int4",
    "llama4",
    *tiny_models.slow("nested", "int8", "baichuan", "falcon", "deepseek"),
]


@pytest.mark.parametrize("name", HALF)
@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16])
@pytest.mark.parametrize("position", [30, *MORE_EDGES])
def test_half_precision(name, dtype, position):
    backend = tiny_models.backend(name, dtype=dtype)
    live = backend.new_state()
    read_in_chunks(backend, live, position, 16)
    copy = backend.copy_state(live, 0)
    kinds = {tensor.spec.dtype for tensor in (*copy.rows, *(copy.snapshot or ()))}
    assert {mx.bfloat16: "BF16", mx.float16: "F16"}[dtype] in kinds
    assert ("U32" in kinds) == name.startswith("int")
    same_bits(backend, live, backend.restore(MemoryStored([copy])).state)


@MODELS
def test_after_a_reply_and_twenty_tokens_later(name):
    backend = tiny_models.backend(name)
    live = backend.new_state()
    read_in_chunks(backend, live, 40, 16)
    list(backend.decode(live, [3, 4], GREEDY, 15))  # the window has wrapped and is written in place
    restored = backend.restore(MemoryStored([backend.copy_state(live, 0)])).state
    same_bits(backend, live, restored)
    assert list(backend.decode(live, [1], GREEDY, 20)) == list(backend.decode(restored, [1], GREEDY, 20))
    same_bits(backend, live, restored)


@MODELS
def test_pieces_put_together_are_the_whole(name):
    backend = tiny_models.backend(name)
    live = backend.new_state()
    pieces, done = [], 0
    for count in (5, 1, 30, 260):
        read_in_chunks(backend, live, count, 64)
        pieces.append(backend.copy_state(live, done))
        done += count
    assert [(piece.start, piece.end) for piece in pieces] == [(0, 5), (5, 6), (6, 36), (36, 296)]
    whole = backend.copy_state(live, 0)
    one = backend.restore(MemoryStored(pieces)).state
    two = backend.restore(MemoryStored([whole])).state
    same_bits(backend, one, two)
    again = backend.copy_state(one, 0)
    assert again.start == 0
    assert backend.position(one) == 296 + 8


@MODELS
def test_copy_with_no_new_rows(name):
    """A snapshot where the rows are stored already."""
    backend = tiny_models.backend(name)
    live = backend.new_state()
    read_in_chunks(backend, live, 20, 20)
    first, second = backend.copy_state(live, 0), backend.copy_state(live, 20)
    assert [tensor.data.nbytes for tensor in second.rows] == [0] * len(first.rows)
    same_bits(backend, live, backend.restore(MemoryStored([first, second])).state)


@MODELS
def test_copy_is_not_changed_by_what_the_state_does_next(name):
    backend = tiny_models.backend(name)
    live = backend.new_state()
    read_in_chunks(backend, live, 30, 16)
    copy = backend.copy_state(live, 0)
    tensors = (*copy.rows, *(copy.snapshot or ()))
    before = [bytes(tensor.data) for tensor in tensors]
    list(backend.decode(live, [3], GREEDY, 20))
    backend.drop_state(live)
    assert [bytes(tensor.data) for tensor in tensors] == before
    assert all(tensor.data.nbytes == tensor.spec.nbytes for tensor in tensors)


@pytest.mark.parametrize("position", [1, WINDOW - 1, WINDOW, WINDOW + 1, 3 * WINDOW])
def test_copying_changes_nothing_of_a_chunked_cache(position):
    """It forgets by rule at the start of a pass, so the copied state goes on as one that was never copied."""
    backend, control = tiny_models.backend("llama4"), tiny_models.backend("llama4")
    live, other = backend.new_state(), control.new_state()
    read_in_chunks(backend, live, position, 16)
    read_in_chunks(control, other, position, 16)
    backend.copy_state(live, 0)
    for step in STEPS:
        assert backend.logits(live, step) == control.logits(other, step)


@MODELS
def test_copying_changes_nothing_a_mark_has_kept(name):
    backend = tiny_models.backend(name)
    live = backend.new_state()
    read_in_chunks(backend, live, 30, 16)
    mark = backend.mark(live)
    want = bytes(backend.logits(live, [5]))
    backend.copy_state(live, 0)
    backend.rewind(live, mark)
    assert backend.logits(live, [5]) == want


def addresses(backend, state) -> dict[str, int]:
    """Where the row buffers lie."""
    single = parts(backend._states[state].caches)
    arrays = {f"{p}.{name}": array for p, c in single.items() for name, array in adapter(c).rows(c).items()}
    mx.eval(arrays)
    return {name: np.frombuffer(array, dtype=np.uint8).ctypes.data for name, array in arrays.items()}


@pytest.mark.parametrize("name", ["hybrid", "int4", "llama4", "nested"])
def test_first_append_to_a_restored_state_moves_no_buffer(name):
    backend = tiny_models.backend(name)
    live = backend.new_state()
    read_in_chunks(backend, live, 256, 100)
    restored = backend.restore(MemoryStored([backend.copy_state(live, 0)])).state
    before = addresses(backend, restored)
    assert before
    backend.prefill(restored, ids(5))
    list(backend.decode(restored, [3], GREEDY, 20))
    assert addresses(backend, restored) == before


@MODELS
def test_restore_reads_no_row_again(name):
    backend = tiny_models.backend(name)
    live = backend.new_state()
    read_in_chunks(backend, live, 30, 16)
    stored = MemoryStored([backend.copy_state(live, 0)])
    passes, rows = backend.passes.passes, backend.passes.rows
    backend.restore(stored)
    assert (backend.passes.passes, backend.passes.rows) == (passes, rows)


@MODELS
def test_rejected_restore_leaves_the_live_state_alone(name):
    backend, control = tiny_models.backend(name), tiny_models.backend(name)
    live, other = backend.new_state(), control.new_state()
    read_in_chunks(backend, live, 30, 16)
    read_in_chunks(control, other, 30, 16)
    copy = backend.copy_state(live, 0)
    control.copy_state(other, 0)
    before = dict(backend._states)
    with pytest.raises(CheckpointRejected) as caught:
        backend.restore(MemoryStored([copy], fail=True))
    assert caught.value.reason == "corrupt"
    assert backend._states == before
    for step in ([7], ids(5, salt=3), [8]):
        assert backend.logits(live, step) == control.logits(other, step)


def _renamed(tensor: Tensor, name: str) -> Tensor:
    return Tensor(TensorSpec(name, tensor.spec.dtype, tensor.spec.shape), tensor.data)


def _retyped(tensor: Tensor, dtype: str) -> Tensor:
    return Tensor(TensorSpec(tensor.spec.name, dtype, tensor.spec.shape), tensor.data)


def _damaged(copy: StateCopy) -> dict[str, StateCopy]:
    """Copies that are not this model's, by what is wrong."""
    rows, snapshot = copy.rows, copy.snapshot or ()
    made = {
        "row missing": (rows[:-1], snapshot),
        "row name": ((_renamed(rows[0], "0.q"), *rows[1:]), snapshot),
        "row of no layer": ((_renamed(rows[0], "99.k"), *rows[1:]), snapshot),
        "row without layer": ((_renamed(rows[0], "k"), *rows[1:]), snapshot),
        "row type": ((_retyped(rows[0], "I32"), *rows[1:]), snapshot),
        "unknown type": (rows, (*snapshot, Tensor(TensorSpec("0.x", "F64", (0,)), memoryview(b"")))),
        "one too many": (rows, (*snapshot, Tensor(TensorSpec("0.x", "F32", (0,)), memoryview(b"")))),
    }
    if snapshot:
        made |= {
            "snapshot part missing": (rows, snapshot[:-1]),
            "snapshot name": (rows, (_renamed(snapshot[0], "0.9"), *snapshot[1:])),
            "snapshot empty": (rows, ()),
        }
    found = {what: StateCopy(0, copy.end, tuple(r), tuple(s)) for what, (r, s) in made.items()}
    if snapshot:
        found["no snapshot"] = StateCopy(0, copy.end, rows, None)
    return found


@MODELS
def test_foreign_checkpoints_are_refused(name):
    backend = tiny_models.backend(name)
    live = backend.new_state()
    read_in_chunks(backend, live, 30, 16)
    copy = backend.copy_state(live, 0)
    for damaged in _damaged(copy).values():
        with pytest.raises(CheckpointRejected):
            backend.restore(MemoryStored([damaged]))
    assert len(backend._states) == 1


def test_checkpoint_of_another_width_is_refused():
    backend = tiny_models.backend("llama")
    live = backend.new_state()
    read_in_chunks(backend, live, 8, 8)
    stored = MemoryStored([backend.copy_state(live, 0)])
    stored.rows = [RowSpec(row.name, row.dtype, row.heads, row.width * 2) for row in stored.rows]
    with pytest.raises(CheckpointRejected):
        backend.restore(stored)


def test_window_snapshot_of_another_position_is_refused():
    backend = tiny_models.backend("gemma")
    live = backend.new_state()
    read_in_chunks(backend, live, 5, 5)
    stored = MemoryStored([backend.copy_state(live, 0)])
    stored.position = 4
    with pytest.raises(CheckpointRejected):
        backend.restore(stored)

"""Messages and shared regions: what an untrusted peer may send, and what guard bands see."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.core.dtypes import DType
from kernelwright.judge.regions import Region, canary, layout
from kernelwright.judge.wire import LARGEST_BYTES, Channel, Closed, Garbled
from kernelwright.tasks.arrays import to_float64

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture
def ends():
    one, other = socket.socketpair()
    yield Channel(one), Channel(other)
    one.close()
    other.close()


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_messages_arrive_as_sent(message):
    one, other = map(Channel, socket.socketpair())
    one.send(message)
    one.send({"second": 2})
    assert other.receive() == message
    assert other.receive() == {"second": 2}
    one.close()
    other.close()


def test_a_large_message_and_a_descriptor_arrive(ends):
    one, other = ends
    read, write = os.pipe()
    sender = threading.Thread(target=one.send, args=({"text": "x" * (3 << 20)}, [write]))
    sender.start()
    assert len(other.receive()["text"]) == 3 << 20
    sender.join()
    os.close(write)
    (copy,) = other.take_descriptors()
    os.write(copy, b"through")
    assert os.read(read, 7) == b"through"
    assert not os.get_inheritable(copy)
    os.close(copy)
    os.close(read)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<I", LARGEST_BYTES + 1),
        struct.pack("<I", 3) + b"\xff\xfe{",
        struct.pack("<I", 2) + b"[]",
        struct.pack("<I", 100_000) + b"[" * 100_000,
    ],
    ids=["too long", "not JSON", "no object", "nested too deeply"],
)
def test_garbage_is_garbled(ends, data):
    one, other = ends
    sender = threading.Thread(target=one.socket.sendall, args=(data,))
    sender.start()
    with pytest.raises(Garbled):
        other.receive()
    sender.join()


def test_a_closed_or_silent_peer_does_not_hold_anybody(ends):
    one, other = ends
    assert other.receive_until(time.monotonic() + 0.05) is None
    one.close()
    with pytest.raises(Closed):
        other.receive()


def test_a_canary_is_not_a_number_in_every_floating_type():
    pattern = canary(np.random.default_rng(0))
    for dtype in (DType.FLOAT64, DType.FLOAT32, DType.FLOAT16):
        assert np.isnan(pattern.view(dtype.value)).all()
    assert np.isnan(to_float64(pattern.view(np.uint16), DType.BFLOAT16)).all()


@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from(list(DType))), min_size=1, max_size=4), st.data())
def test_a_write_beside_a_tensor_is_seen_and_one_inside_is_not(tensors, data):
    placed = layout([((count,), dtype) for count, dtype in tensors])
    region = Region(placed)
    pattern = canary(np.random.default_rng(1))
    region.fill_bands(pattern)
    for array in region.arrays():
        array[...] = 1
    assert region.damaged_band(pattern) is None
    begin, end = data.draw(st.sampled_from(placed.bands))
    place = data.draw(st.integers(begin, end - 1))
    region.bytes[place] ^= 0x40
    number = region.damaged_band(pattern)
    assert number is not None
    assert 0 <= number < len(tensors)
    assert all(slot.offset % 64 == 0 for slot in placed.slots)
    region.close()


def test_a_private_mapping_keeps_its_writes_to_itself():
    region = Region(layout([((4,), DType.FLOAT32)]))
    region.array(0)[...] = 1.0
    private = Region(region.layout, os.dup(region.descriptor), private=True)
    private.array(0)[...] = 2.0
    assert region.array(0).tolist() == [1.0] * 4
    private.close()
    region.close()


def test_a_descriptor_that_is_too_small_is_refused():
    small = os.memfd_create("small")
    with pytest.raises(ValueError, match="are needed"):
        Region(layout([((1 << 20,), DType.FLOAT32)]), small)
    os.close(small)

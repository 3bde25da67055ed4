"""The allocator's settings, in a process of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHECK = """
import ctypes
from pathlib import Path
from qmlx_lsp.daemon.memory import give_back_freed_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]

def block(size):
    made = libc.malloc(size)
    ctypes.memset(made, 1, size)
    return made

assert give_back_freed_memory()
libc.free(block(30 << 20))  # from here on, glibc alone would take such blocks from its heap
many = [block(8 << 20) for _ in range(8)]
keeper = block(1000)  # on top of them, if they are in the heap
before = resident()
for one in many:
    libc.free(one)
print((before - resident()) >> 20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_freed_blocks_go_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", CHECK], capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 60

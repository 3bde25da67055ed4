"""The figures of the whole program on this machine: ``python -m benchmarks.figures``.

* start: ``qmlx-lsp --version``, and the connector's first relayed byte with a running daemon (medians of whole
  processes, interleaved);
* ``initialize`` against the model: which of the two is ready first;
* demo: the six questions, their tokens and their factor against a cold start of the same run;
* store: a restore of a large state against a plain read of the same files, and bytes written against new rows.

``--json FILE`` writes all of it; ``--readme`` puts the demo's table into README.md. Takes some minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from qmlx_lsp import __version__, paths
from qmlx_lsp.cli.client import Client
from qmlx_lsp.state import RowBuffer, RowSpec, StateCopy, Tensor
from qmlx_lsp.storage.checkpoints import CheckpointStore
from qmlx_lsp.transcript.tokens import TokenLog

ROOT = Path(__file__).parents[1]
ROUNDS = 15
READ_ROUNDS = 7
COMMAND = [sys.executable, "-m", "qmlx_lsp"]
SCRIPT = str(Path(sys.executable).with_name("qmlx-lsp"))
# The shape of a 122B hybrid's attention rows: 12 layers of 2 heads × 256, bfloat16 (24 KiB a token).
LAYERS, HEADS, WIDTH = 12, 2, 256
SEGMENT_TOKENS, SEGMENTS = 512, 16


def main() -> int:
    given = _arguments()
    with tempfile.TemporaryDirectory(prefix="qmlx-") as folder:
        figures = {
            "when": datetime.now(UTC).date().isoformat(),
            "machine": _machine(),
            "start": start_times(Path(folder) / "start"),
            "initialize": initialize_before_model(Path(folder) / "init"),
            "store": store_figures(Path(folder) / "store"),
            "demo": demo_figures(),
        }
    print(json.dumps({key: value for key, value in figures.items() if key != "demo"}, indent=1))
    print(demo_table(figures))
    if given.json:
        Path(given.json).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    if given.readme:
        put_into_readme(demo_table(figures))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="write all figures to this file")
    parser.add_argument("--readme", action="store_true", help="put the demo's table into README.md")
    return parser.parse_args()


def _machine() -> dict[str, Any]:
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "qmlx-lsp": __version__,
        "mlx": metadata.version("mlx"),
        "mlx-lm": metadata.version("mlx-lm"),
    }


def _processor() -> str:
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    for line in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


# --- start ----------------------------------------------------------------------------------------------------------


def _environment(home: Path, **more: str) -> dict[str, str]:
    home.mkdir(parents=True, exist_ok=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("QMLX_")}
    return {**kept, "QMLX_HOME": str(home), **more}


def start_times(home: Path) -> dict[str, float]:
    """Milliseconds of whole processes, medians of interleaved rounds."""
    environment = _environment(home, QMLX_MODEL="scripted")
    subprocess.run([*COMMAND, "daemon", "start"], env=environment, check=True, stdout=subprocess.DEVNULL)
    version, relayed, python = [], [], []
    try:
        for _ in range(ROUNDS):
            python.append(_timed([sys.executable, "-c", "pass"], environment))
            version.append(_timed([SCRIPT, "--version"], environment))
            relayed.append(_first_byte(environment))
    finally:
        subprocess.run([*COMMAND, "daemon", "stop"], env=environment, check=True, stdout=subprocess.DEVNULL)
    return {
        "bare_python_ms": round(statistics.median(python), 1),
        "version_ms": round(statistics.median(version), 1),
        "connector_first_byte_ms": round(statistics.median(relayed), 1),
        "connector_first_byte_ms_max": round(max(relayed), 1),
    }


def _timed(command: list[str], environment: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - began) * 1000


def _first_byte(environment: dict[str, str]) -> float:
    """From starting the connector to the first byte of the daemon's answer to ``initialize``."""
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"processId": None, "capabilities": {}}}
    ).encode()
    began = time.perf_counter()
    connector = subprocess.Popen([SCRIPT, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    assert connector.stdin is not None
    assert connector.stdout is not None
    connector.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    connector.stdin.flush()
    connector.stdout.read(1)
    took = (time.perf_counter() - began) * 1000
    connector.stdin.close()
    connector.stdout.close()
    connector.wait()
    return took


def initialize_before_model(home: Path) -> dict[str, float | bool]:
    """Start everything from nothing with the embedded model: when is ``initialize`` answered, when is it ready?"""
    where = paths.find()
    environment = _environment(home, QMLX_MODEL=str(where.models / "smollm2-135m-instruct"))
    began = time.perf_counter()
    connector = subprocess.Popen([SCRIPT, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    client = Client.over_stdio(connector)
    client.initialize([])
    answered = (time.perf_counter() - began) * 1000
    loaded_then = client.request("qmlx/status", {})["model"]["state"] == "ready"
    while client.request("qmlx/status", {})["model"]["state"] != "ready":
        time.sleep(0.05)
    ready = (time.perf_counter() - began) * 1000
    client.close()
    connector.wait()
    subprocess.run([*COMMAND, "daemon", "stop"], env=environment, check=True, stdout=subprocess.DEVNULL)
    return {
        "answered_ms": round(answered, 1), "model_ready_ms": round(ready, 1), "answered_before_model": not loaded_then
    }  # fmt: skip


# --- demo -----------------------------------------------------------------------------------------------------------


def demo_figures() -> list[dict[str, Any]]:
    done = subprocess.run([*COMMAND, "demo", "--json"], stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def demo_table(figures: dict[str, Any]) -> str:
    """The demo's figures as a Markdown table, with the machine below."""
    lines = [
        "| step | live | restored | prefilled | generated | first token | against cold |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in figures["demo"]:
        usage = row["usage"]
        numbers = " | ".join(f"{usage[key]:,}" for key in ("live", "restored", "prefilled", "generated"))
        lines.append(
            f"| {row['step']} {row['name']} | {numbers} | {usage['ttft_ms'] / 1000:.2f} s | {row['factor']:.0f} × |"
        )
    machine, last = figures["machine"], figures["demo"][-1]
    cold = last["cold_ttft_ms"]
    lines.append("")
    lines.append(
        f"Without its checkpoint the last question waited {cold / 1000:.1f} s for its first token: "
        f"{cold / last['usage']['ttft_ms']:.0f} times as long. ({machine['processor']}, {machine['cores']} cores, no "
        f"GPU, {machine['system']}, mlx {machine['mlx']}, mlx-lm {machine['mlx-lm']}, {figures['when']}; "
        "`python -m benchmarks.figures --readme`)"
    )
    return "\n".join(lines)


def put_into_readme(table: str) -> None:
    readme = ROOT / "README.md"
    before, _, rest = readme.read_text(encoding="utf-8").partition("<!-- demo:begin -->\n")
    _, _, after = rest.partition("<!-- demo:end -->")
    readme.write_text(f"{before}<!-- demo:begin -->\n{table}\n<!-- demo:end -->{after}", encoding="utf-8")


# --- store ----------------------------------------------------------------------------------------------------------


def store_figures(folder: Path) -> dict[str, float | int]:
    """A chain of segments: bytes written against rows, and a verified restore against a plain read of the files."""
    specs = [RowSpec(f"{layer}.{kind}", "BF16", HEADS, WIDTH) for layer in range(LAYERS) for kind in ("k", "v")]
    log = TokenLog(range(SEGMENTS * SEGMENT_TOKENS))
    store = CheckpointStore(folder, quota_bytes=1 << 40, free_floor_bytes=0, clock=time.time)
    rows = written = 0
    for number in range(SEGMENTS):
        start = number * SEGMENT_TOKENS
        data = memoryview(os.urandom(specs[0].row_bytes * HEADS * SEGMENT_TOKENS))
        tensors = tuple(Tensor(spec.tensor(SEGMENT_TOKENS), data) for spec in specs)
        copy = StateCopy(start, start + SEGMENT_TOKENS, tensors, None)
        rows += copy.nbytes
        written += store.save(b"f" * 16, log, copy)
    files = sorted((folder / "segments").rglob("*.seg"))
    restored, plain = [], []
    for _ in range(READ_ROUNDS):
        restored.append(_restore_once(store, log, specs))
        plain.append(_read_once(files))
    store.close()
    ratios = [a / b for a, b in zip(restored, plain, strict=True)]
    return {
        "mib": rows >> 20,
        "segments": SEGMENTS,
        "written_per_row_byte": round(written / rows, 4),
        "restore_per_plain_read": round(statistics.median(ratios), 2),
        "restore_ms": round(statistics.median(restored) * 1000, 1),
    }


def _restore_once(store: CheckpointStore, log: TokenLog, specs: list[RowSpec]) -> float:
    """Seconds to find, allocate fresh memory, read and verify."""
    began = time.perf_counter()
    found = store.find(b"f" * 16, log, needs_snapshot=False, limit=len(log))[0]
    capacity = len(log) + SEGMENT_TOKENS
    buffers = [RowBuffer(s, capacity, memoryview(bytearray(HEADS * capacity * s.row_bytes))) for s in specs]
    with store.open(found) as stored:
        stored.fill(buffers, [])
    return time.perf_counter() - began


def _read_once(files: list[Path]) -> float:
    """Seconds to read the same files into as much fresh memory, unverified."""
    began = time.perf_counter()
    held = []
    for file in files:
        held.append(bytearray(file.stat().st_size))
        with file.open("rb") as stream:
            stream.readinto(held[-1])
    return time.perf_counter() - began


if __name__ == "__main__":
    raise SystemExit(main())

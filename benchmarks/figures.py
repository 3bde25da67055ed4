"""The figures of the whole program on this machine: ``python -m benchmarks.figures``.

* start: ``qmlx-lsp --version``, and the connector's first relayed byte with a running daemon (medians of whole
  processes, interleaved);
* ``initialize`` against the model: which of the two is ready first;
* demo: the six questions, their tokens and their factor against a cold start of the same run.

``--json FILE`` writes all of it; ``--readme`` puts the demo's table into README.md. Takes some minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from qmlx_lsp import paths
from qmlx_lsp.cli.client import Client

ROOT = Path(__file__).parents[1]
ROUNDS = 15
COMMAND = [sys.executable, "-m", "qmlx_lsp"]
SCRIPT = str(Path(sys.executable).with_name("qmlx-lsp"))


def main() -> int:
    given = _arguments()
    with tempfile.TemporaryDirectory(prefix="qmlx-") as folder:
        figures = {
            "when": datetime.now(UTC).date().isoformat(),
            "machine": machine(),
            "start": start_times(Path(folder) / "start"),
            "initialize": initialize_before_model(Path(folder) / "init"),
            "demo": demo_figures(),
        }
    print(json.dumps({key: value for key, value in figures.items() if key != "demo"}, indent=1))
    print(demo_table(figures))
    if given.json:
        Path(given.json).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    if given.readme:
        put_into_readme("demo", demo_table(figures))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="write all figures to this file")
    parser.add_argument("--readme", action="store_true", help="put the demo's table into README.md")
    return parser.parse_args()


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
    about, last = figures["machine"], figures["demo"][-1]
    cold = last["cold_ttft_ms"]
    lines.append("")
    lines.append(
        f"Without its checkpoint the last question waited {cold / 1000:.1f} s for its first token: "
        f"{cold / last['usage']['ttft_ms']:.0f} times as long. ({about['processor']}, {about['cores']} cores, no "
        f"GPU, {about['system']}, mlx {about['mlx']}, mlx-lm {about['mlx-lm']}, {figures['when']}; "
        "`python -m benchmarks.figures --readme`)"
    )
    return "\n".join(lines)


def put_into_readme(place: str, text: str) -> None:
    """Between the comments that name ``place``."""
    begin, end = f"<!-- {place}:begin -->\n", f"<!-- {place}:end -->"
    readme = ROOT / "README.md"
    before, _, rest = readme.read_text(encoding="utf-8").partition(begin)
    _, _, after = rest.partition(end)
    readme.write_text(f"{before}{begin}{text}\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())

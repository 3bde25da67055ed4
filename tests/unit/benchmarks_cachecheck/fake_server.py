"""A server that speaks as OpenAI's and has exactly the bugs it is told to have.

A token is a character; roles and ends of messages are one each. What it has computed it keeps as texts, and reuses
the longest common beginning. It stands still where a client is going to hang up, until that has happened, so nothing
depends on time; its own time is the clock of the client under test, moved by what was computed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECONDS_PER_TOKEN = 0.0005
OPEN, CLOSE, THINK = "\ue000", "\ue001", "\ue002"
REPLY = "Because it does so here, and nowhere else. "
THOUGHT = "Hm, let me see what there is. "
LONG_REPLY = 100  # tokens wanted at least: this reply will be cut
HUNG_UP_S = 20.0


class Clock:
    """Seconds that pass when the server computes."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Faults:
    """What is wrong with it. ``entries`` are what it keeps at most."""

    moving: bool = False
    fields: bool = False
    cut_all: bool = False
    cut_reply: bool = False
    cut_prefill: bool = False
    forgets: bool = False
    entries: int = 1_000


@dataclass
class Fake:
    """``dialect`` is how it states usage; ``cuts`` whether its state can be cut anywhere, as attention's can."""

    faults: Faults = field(default_factory=Faults)
    dialect: str = "openai"
    cuts: bool = True
    thinks: bool = False
    shows_tools: bool = True
    refuses: str = ""  # a field of messages that it does not take
    clock: Clock = field(default_factory=Clock)
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    held: set[str] = field(default_factory=set)

    def prompt(self, body: dict[str, Any]) -> str:
        text = f"{len(self.bodies)};" if self.faults.moving else ""
        for at, message in enumerate(body["messages"]):
            text += f"{OPEN}{message['role']}:{message.get('content') or ''}"
            for call in message.get("tool_calls", ()):
                text += self.shows_tools * call["function"]["arguments"]
            if at == 0 and self.shows_tools:
                text += "".join(json.dumps(tool) for tool in body.get("tools", ()))
            text += CLOSE
        return f"{text}{OPEN}assistant:"

    def cached(self, body: dict[str, Any], prompt: str) -> int:
        if self.faults.fields and any("id" in message for message in body["messages"]):
            return 0
        if self.cuts:
            longest = max((common(prompt, text) for text in self.kept), default=0)
        else:
            longest = max((len(text) for text in self.kept if prompt.startswith(text)), default=0)
        return min(longest, len(prompt) - 1)

    def keep(self, text: str) -> None:
        if self.cuts:
            self.kept = [other for other in self.kept if not text.startswith(other)]
        elif text in self.kept:
            self.kept.remove(text)
        self.kept = [*self.kept, text][-self.faults.entries :]

    def restart(self) -> None:
        if self.faults.forgets:
            self.kept = []

    def usage(self, prompt: int, cached: int, out: int) -> dict[str, Any]:
        counts = {"prompt_tokens": prompt, "completion_tokens": out}
        return {
            "openai": {"usage": {**counts, "prompt_tokens_details": {"cached_tokens": cached}}},
            "llama.cpp": {"timings": {"prompt_n": prompt - cached, "cache_n": cached, "predicted_n": out}},
            "ollama": {"prompt_eval_count": prompt, "prompt_eval_cached_count": cached, "eval_count": out},
            "hidden": {"usage": {**counts, "prompt_tokens_details": None}},
            "silent": {},
        }[self.dialect]


def common(one: str, other: str) -> int:
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return at
    return min(len(one), len(other))


class Handler(BaseHTTPRequestHandler):
    fake: Fake

    def log_message(self, *_arguments: Any) -> None:
        return None

    def do_GET(self) -> None:
        if self.path.endswith("/restart"):
            self.fake.restart()
        self.answer({"data": [{"id": "fake-model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.fake.lock:
            self.fake.bodies.append({**body, "authorization": self.headers["Authorization"]})
            if self.fake.refuses and any(self.fake.refuses in message for message in body["messages"]):
                self.answer({"error": {"message": f"unknown field {self.fake.refuses}"}}, 400)
                return
            self.serve(body)

    def answer(self, content: Any, status: int = 200) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def serve(self, body: dict[str, Any]) -> None:
        prompt = self.fake.prompt(body)
        name = next((name for name in ("prefill_once", "prefill_wait") if name in prompt), "")
        if name and name not in self.fake.held:
            self.fake.held.add(name)
            self.hung_up()
            if not self.fake.faults.cut_prefill:
                self.fake.keep(prompt[: len(prompt) // 2])
            return
        cached = self.fake.cached(body, prompt)
        if not self.fake.cuts:
            self.fake.keep(prompt)
        self.fake.clock.now += (len(prompt) - cached) * SECONDS_PER_TOKEN
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.reply(prompt, cached, body["max_tokens"])

    def reply(self, prompt: str, cached: int, wanted: int) -> None:
        cut = wanted >= LONG_REPLY
        length = 32 if cut else wanted
        thought = THOUGHT[: length // 2] if self.fake.thinks else ""
        text = (REPLY * (1 + length // len(REPLY)))[: length - len(thought)]
        for piece in thought:
            self.event({"choices": [{"delta": {"reasoning_content": piece}}]})
        for piece in text:
            self.event({"choices": [{"delta": {"content": piece}}]})
        produced = f"{THINK}{thought}{THINK}{text}" if thought else text
        if cut:
            self.hung_up()
            if not self.fake.faults.cut_all:
                self.fake.keep(prompt if self.fake.faults.cut_reply else prompt + produced)
            return
        self.event({"choices": [{"delta": {}, "finish_reason": "length"}]})
        self.event({"choices": [], "system_fingerprint": "fake-1", **self.fake.usage(len(prompt), cached, length)})
        self.wfile.write(b"data: [DONE]\n\n")
        self.fake.keep(prompt + produced)

    def event(self, content: Any) -> None:
        self.wfile.write(b"data: " + json.dumps(content).encode() + b"\n\n")

    def hung_up(self) -> None:
        """Until the client has closed its side."""
        self.connection.settimeout(HUNG_UP_S)
        assert self.connection.recv(1) == b"", "the client says more instead of hanging up"


@contextmanager
def serving(fake: Fake) -> Iterator[Fake]:
    handler = type("Serving", (Handler,), {"fake": fake})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

"""The client of foreign servers: what it sends, how it hangs up, what it says when a server does not do its part."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cachecheck.conversation import (
    CUT,
    PREFILL_CUT,
    Change,
    CheckError,
    Impossible,
    NotTested,
    Refused,
    Restart,
)
from benchmarks.cachecheck.openai import OpenAI
from tests.unit.benchmarks_cachecheck.fake_server import Fake, serving

LONG = 128


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def client(fake: Fake, **options: Any) -> OpenAI:
    return OpenAI(fake.url, clock=fake.clock, timeout_s=30, **options)


def test_a_turn_is_sent_whole_and_its_figures_are_the_servers() -> None:
    with serving(Fake()) as fake:
        conversation = client(fake, key="secret", extra={"chat_template_kwargs": {"enable_thinking": True}}).new(
            "a", None
        )
        first = conversation.turn("Why?", max_tokens=8)
        then = conversation.turn("And?", max_tokens=4)
    asked, again = fake.bodies
    assert asked["authorization"] == "Bearer secret"
    assert asked["model"] == "fake-model"
    assert (asked["temperature"], asked["stream"], asked["max_tokens"]) == (0, True, 8)
    assert asked["stream_options"] == {"include_usage": True}
    assert asked["chat_template_kwargs"] == {"enable_thinking": True}
    assert [message["content"] for message in again["messages"][1:]] == ["Why?", "Because ", "And?"]
    assert (first.text, first.finish, first.tokens_out, first.cached) == ("Because ", "length", 8, 0)
    assert (then.text, then.tokens_out) == ("Beca", 4)
    # All but what closes the reply and the new question, written as the server renders them.
    assert then.prompt is not None
    assert first.prompt is not None
    assert then.cached == first.prompt + 8
    assert then.computed == len("\ue001\ue000user:And?\ue001\ue000assistant:")
    assert first.ttft_s == pytest.approx(first.prompt * 0.0005)


def test_a_reply_is_cut_and_what_was_got_is_part_of_the_history() -> None:
    with serving(Fake()) as fake:
        conversation = client(fake).new("a", None)
        cut = conversation.turn("Why?", max_tokens=LONG, cut_after=20)
        follow_up = conversation.turn("And?", max_tokens=4)
        measured = conversation.measured(cut, follow_up)
    assert (cut.finish, len(cut.text), cut.prompt) == (CUT, 20, None)
    assert fake.bodies[1]["messages"][2] == {"role": "assistant", "content": cut.text}
    assert measured.prompt == len(fake.prompt(fake.bodies[0]))
    assert measured.tokens_out == 20


def test_a_prefill_is_cut_and_its_question_is_no_part_of_the_history() -> None:
    with serving(Fake()) as fake:
        conversation = client(fake).new("a", None)
        cut = conversation.turn("prefill_once", max_tokens=4, cut_prefill_at=0.01)
        then = conversation.turn("And?", max_tokens=4)
    assert (cut.finish, cut.ttft_s, cut.text) == (PREFILL_CUT, None, "")
    assert [message["content"] for message in fake.bodies[1]["messages"][1:]] == ["And?"]
    assert then.finish == "length"


def test_a_reply_that_begins_in_time_is_not_cut() -> None:
    with serving(Fake()) as fake:
        turn = client(fake).new("a", None).turn("Why?", max_tokens=4, cut_prefill_at=30.0)
    assert (turn.finish, turn.text) == ("length", "Beca")


def test_a_change_is_for_once() -> None:
    with serving(Fake()) as fake:
        conversation = client(fake).new("a", None)
        conversation.turn("Why?", max_tokens=4)
        conversation.changed("And?", Change.DATE, max_tokens=4)
        conversation.turn("And?", max_tokens=4)
    dates = ["Tuesday" in body["messages"][0]["content"] for body in fake.bodies]
    assert dates == [False, True, False]
    assert len(fake.bodies[2]["messages"]) == 4


def test_signs_of_life_do_not_keep_a_client_from_hanging_up() -> None:
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_arguments: Any) -> None:
            return None

        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(b": keepalive 1/2\n\n")
            ended.set()

    with listening(Handler) as url:
        turn = OpenAI(url, model="m", timeout_s=30).new("a", None).turn("Why?", max_tokens=4, cut_prefill_at=0.01)
        assert ended.wait(20)
    assert (turn.finish, turn.ttft_s) == (PREFILL_CUT, None)


# --- servers that do not do their part ------------------------------------------------------------------------------


@contextmanager
def answering(status: int, body: bytes, kind: str = "application/json") -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that answers everything with that, once the model list aside."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_arguments: Any) -> None:
            return None

        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.do_GET()

        def do_GET(self) -> None:
            if status:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.end_headers()
                self.wfile.write(body)

    with listening(Handler) as url:
        yield f"{url}/v1/", asked


@pytest.mark.parametrize(
    ("status", "body", "error", "words"),
    [
        (400, b'{"error": {"message": "no such model"}}', Refused, "400, no such model"),
        (404, b'{"error": "not found"}', Refused, "404, not found"),
        (500, b"<html>broken", Refused, "500, <html>broken"),
        (200, b"data: {oh\n\n", CheckError, "no JSON"),
        (200, b'data: {"error": {"message": "out of memory"}}\n\n', Refused, "out of memory"),
        (0, b"", CheckError, "broke off"),
    ],
)
def test_what_a_server_says_instead_is_one_line(
    status: int, body: bytes, error: type[CheckError], words: str
) -> None:
    with answering(status, body) as (url, _):
        conversation = OpenAI(url, model="m", timeout_s=30).new("a", None)
        with pytest.raises(error, match=words) as caught:
            conversation.turn("Why?", max_tokens=4)
    assert "\n" not in str(caught.value)


def test_an_older_server_is_asked_without_what_it_does_not_know() -> None:
    with answering(400, b'{"error": "unknown: stream_options"}') as (url, asked):
        conversation = OpenAI(url, model="m", timeout_s=30).new("a", None)
        for _ in range(2):
            with pytest.raises(Refused):
                conversation.turn("Why?", max_tokens=4)
    assert ["stream_options" in body for body in asked] == [True, False, False]


def test_a_silent_server_is_given_up() -> None:
    with serving(Fake()) as fake:
        conversation = OpenAI(fake.url, model="m", timeout_s=0.05).new("a", None)
        with pytest.raises(CheckError, match=r"said nothing for 0\.05 s: raise --timeout"):
            conversation.turn("prefill_once", max_tokens=4)


@pytest.mark.parametrize(("listed", "words"), [(b'{"data": []}', "lists no model"), (b"[]", "lists no model"),
                                               (b"?", "no JSON")])  # fmt: skip
def test_a_server_without_a_list_needs_a_model(listed: bytes, words: str) -> None:
    with answering(200, listed) as (url, _), pytest.raises(CheckError, match=words):
        OpenAI(url, timeout_s=30)


@pytest.mark.parametrize("url", ["qml", "ftp://a/v1", "http://", "127.0.0.1:80"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(CheckError, match="no URL"):
        OpenAI(url, model="m")


def test_restarts_are_a_command_of_the_users(tmp_path: Path) -> None:
    with serving(Fake()) as fake:
        with pytest.raises(NotTested, match="no --restart command"):
            client(fake).restart(Restart.ORDERLY)
        target = client(fake, restart=f"touch {tmp_path}/done")
        target.restart(Restart.ORDERLY)
        assert (tmp_path / "done").exists()
        with pytest.raises(Impossible, match="decides how"):
            target.restart(Restart.KILL)
        with pytest.raises(Impossible, match="quota"):
            target.limit_store(0.5)
        with pytest.raises(CheckError, match="ended with 3: exit 3"):
            client(fake, restart="exit 3").restart(Restart.ORDERLY)


def test_a_server_that_does_not_come_back_is_waited_for_and_given_up() -> None:
    with serving(Fake()) as fake:
        waited: list[float] = []

        def sleep(seconds: float) -> None:
            waited.append(seconds)
            fake.clock.now += 60.0

        target = client(fake, restart="true", sleep=sleep)
    with pytest.raises(CheckError, match="Nothing answers at"):
        target.restart(Restart.ORDERLY)  # it is closed now
    assert waited == [0.5] * 4  # at 0, 60, 120 and 180 s; behind that no more

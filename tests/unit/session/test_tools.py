"""Which tools run and when, what is told of them, and how a result becomes an entry of the conversation."""

from __future__ import annotations

import asyncio
import os
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qmlx_lsp.errors import ToolError
from qmlx_lsp.session.event import Job
from qmlx_lsp.session.model import SYSTEM_TEXT
from qmlx_lsp.session.process import CANCELLED, End
from qmlx_lsp.session.tools import RUNS_MAX, Outcome, Tools, Watch
from qmlx_lsp.settings import Tools as Limits
from qmlx_lsp.transcript.entry import Kind
from qmlx_lsp.workspace.toolbox import Tool
from tests.support.bench import Bench, bench, quick, text_of
from tests.support.processes import alive
from tests.support.waiting import until


@pytest.fixture
async def tools() -> AsyncIterator[Tools]:
    made = Tools(Limits())
    yield made
    await made.stop(20.0)


def shell(command: str, name: str = "t", **more: object) -> Tool:
    return Tool(name, ("/bin/sh", "-c", command), command, name, **more)  # type: ignore[arg-type]


async def end(task: asyncio.Task[Outcome]) -> Outcome:
    return await asyncio.wait_for(asyncio.shield(task), 60.0)


async def test_what_is_told(tmp_path: Path, tools: Tools) -> None:
    (tmp_path / "sub").mkdir()
    run = shell("echo \"$A in ${PWD##*/}\"; printf '1%%\\r99%%\\n\\377'; exit 2", "unit", cwd="sub", env={"A": "b"})
    outcome = await end(tools.begin(tmp_path, run, Job()))
    assert outcome.end == End(2)
    assert outcome.text == (f"Result of {run.shown} (tool unit): exit code 2\n```\nb in sub\n99%\n\ufffd\n```\n")
    assert (await end(tools.begin(tmp_path, run, Job()))).text == outcome.text
    silent = await end(tools.begin(tmp_path, shell("true"), Job()))
    assert silent.text == "Result of true (tool t): exit code 0, no output.\n"


async def test_a_cancelled_run_is_told_if_it_has_said_something(tmp_path: Path, tools: Tools) -> None:
    for command, told in (
        ("echo begun; exec sleep 1000", "cancelled\n```\nbegun\n```\n"),
        ("exec sleep 1000", None),
    ):
        job, seen = Job(), list[str]()
        task = tools.begin(tmp_path, shell(command), job, Watch(on_text=seen.append))
        if told:
            await until(lambda: seen)  # noqa: B023
        job.cancel()
        outcome = await end(task)
        assert outcome.end == CANCELLED
        assert outcome.text == (None if told is None else f"Result of {command} (tool t): {told}")
    job = Job()
    job.cancel()
    assert await end(tools.begin(tmp_path, shell("echo x > made"), job)) == Outcome(CANCELLED, None)
    assert not (tmp_path / "made").exists()


async def test_whoever_watches_sees_all_and_the_last_line(tmp_path: Path, tools: Tools) -> None:
    texts, lines = list[str](), list[str]()
    task = tools.begin(
        tmp_path,
        shell("echo one; printf 'half'; while [ ! -e go ]; do sleep 0.01; done; echo; echo three"),
        Job(),
        Watch(texts.append, lines.append),
    )
    await until(lambda: lines and lines[-1] == "half")
    assert texts == ["one\n"]
    (tmp_path / "go").touch()
    await end(task)
    assert "".join(texts) == "one\nhalf\nthree\n"


async def test_200_mb_leave_memory_and_the_loop_alone(tmp_path: Path, tools: Tools) -> None:
    shown = list[str]()
    tracemalloc.start()
    try:
        flood = shell("echo first; yes 0123456 | head -c 200000000; echo last")
        task = tools.begin(tmp_path, flood, Job(), Watch(shown.append))
        outcome = await end(task)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # 16 KiB told: 64 KiB of head, 128 of tail; a MiB shown; the pieces in between
    assert peak < 12 << 20
    assert outcome.text is not None
    lines = outcome.text.splitlines()
    assert lines[2:4] == ["first", "0123456"]
    assert lines[-3:-1] == ["0123456", "last"]
    (mark,) = [line for line in lines if line.startswith("… ")]
    kept = len(lines) - 4  # less the heading, the fences and the mark
    assert mark == f"… {25_000_002 - kept:,} lines left out …"
    assert len(outcome.text.encode()) < 17 << 10
    assert sum(map(len, shown)) < (1 << 20) + 200


async def test_one_at_a_time_by_name_and_so_many_in_all(tmp_path: Path, tools: Tools) -> None:
    other = tmp_path / "other"
    other.mkdir()
    jobs = [Job() for _ in range(RUNS_MAX)]
    held = shell("exec sleep 1000")
    tasks = [tools.begin(tmp_path, held, jobs[0]), tools.begin(other, held, jobs[1])]
    with pytest.raises(
        ToolError, match=r"^t is running already: wait for its end, or cancel it with qmlx\.cancel\.$"
    ):
        tools.begin(tmp_path, held, Job())
    tasks += [tools.begin(tmp_path, shell("exec sleep 1000", f"t{at}"), jobs[at]) for at in range(2, RUNS_MAX)]
    with pytest.raises(ToolError, match=r"^4 tools are running already"):
        tools.begin(tmp_path, shell("true", "more"), Job())
    jobs[0].cancel()
    await end(tasks[0])
    assert (await end(tools.begin(tmp_path, shell("true"), Job()))).end == End(0)
    await tools.stop(20.0)
    assert [(await end(task)).end for task in tasks] == [CANCELLED] * RUNS_MAX
    with pytest.raises(ToolError, match=r"^The daemon is stopping: run t again"):
        tools.begin(tmp_path, held, Job())


async def test_turned_off(tmp_path: Path) -> None:
    tools = Tools(Limits(enabled=False))
    with pytest.raises(ToolError, match=r"turned off by tools\.enabled: turn them on, then run t again"):
        tools.begin(tmp_path, shell("true"), Job())


async def test_the_projects_own_limits_come_first(tmp_path: Path) -> None:
    tools = Tools(Limits(timeout_s=0.3, output_kb=1))
    late = await end(tools.begin(tmp_path, shell("exec sleep 1000"), Job()))
    assert str(late.end) == "stopped after 0.3 s, for it had not ended"
    assert late.text == "Result of exec sleep 1000 (tool t): stopped after 0.3 s, for it had not ended, no output.\n"
    large = "yes 0123456 | head -c 4000"
    whole = await end(tools.begin(tmp_path, shell(large, output_kb=4, timeout_s=60.0), Job()))
    part = await end(tools.begin(tmp_path, shell(large, timeout_s=60.0), Job()))
    assert whole.text is not None
    assert part.text is not None
    assert whole.text.count("0123456\n") == 500
    assert 100 < part.text.count("0123456\n") < 128


async def test_a_link_does_not_lead_out_of_the_project(tmp_path: Path, tools: Tools) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "out").symlink_to(tmp_path)
    with pytest.raises(ToolError, match=r"tools\.t\.cwd leads to .*, outside the project"):
        await end(tools.begin(root, shell("true", cwd="out"), Job()))


async def test_the_file_is_read_anew_and_only_if_it_is_one(tmp_path: Path, tools: Tools) -> None:
    file = tmp_path / ".qmlx.toml"
    assert await tools.offered(tmp_path) == {}
    file.write_bytes(b"\xef\xbb\xbf[tools.a]\r\ncommand = 'x'\r\n")
    assert list(await tools.offered(tmp_path)) == ["a"]
    file.write_text("[tools.b]\ncommand = 'x'")
    assert list(await tools.offered(tmp_path)) == ["b"]
    for said, make in (
        ("is not UTF-8: invalid start byte at byte 0", lambda: file.write_bytes(b"\xff")),
        ("has more than 256 KiB", lambda: file.write_text("#" * ((256 << 10) + 1))),
        ("is not a file", lambda: (file.unlink(), os.mkfifo(file))),
        ("is not a file", lambda: (file.unlink(), file.mkdir())),
    ):
        make()  # type: ignore[no-untyped-call]
        with pytest.raises(ToolError, match=said):
            await asyncio.wait_for(tools.offered(tmp_path), 20.0)


# --- telling -------------------------------------------------------------------------------------------------------


async def tell(b: Bench, text: str) -> int:
    return await asyncio.wait_for(b.app.registry.tell_result(b.project, text), 20.0)


async def test_a_result_is_one_entry_and_the_next_question_stands_behind_it(tmp_path: Path) -> None:
    async with bench(tmp_path, replies=["One.", "Two."]) as b:
        assert await tell(b, "Result of tool t: x\n") == len("Result of tool t: x\n")
        assert [(e.kind, e.text, e.path) for e in b.entries()] == [
            (Kind.SYSTEM, SYSTEM_TEXT, None),
            (Kind.CONTEXT, "Result of tool t: x\n", None),
        ]
        await b.ask("Why?")
        await tell(b, "Result of tool t: y\n")
        answer = await b.ask("And?")
        said = text_of(b.ids()).split("<|im_start|>user\n", 1)[1]
        assert said == (
            "Result of tool t: x\nWhy?<|im_end|>\n<|im_start|>assistant\nOne.<|im_end|>\n"
            "<|im_start|>user\nResult of tool t: y\nAnd?<|im_end|>\n<|im_start|>assistant\nTwo.<|im_end|>"
        )
        assert answer.usage.plan == "live"
        await b.check()
        await b.restart()
        assert [e.text for e in b.entries()][-3] == "Result of tool t: y\n"


async def test_a_result_waits_for_the_reply_that_streams(tmp_path: Path) -> None:
    async with bench(tmp_path, replies=["abcdefgh"]) as b:
        b.gate.hold("decode", 3)
        asked, _ = b.begin("Q")
        await b.gate.reached()
        told = asyncio.create_task(tell(b, "Result of tool t: x\n"))
        await until(lambda: b.app.registry.busy)
        assert not told.done()
        b.gate.open()
        await asked
        await told
        assert [e.kind for e in b.entries()] == [Kind.SYSTEM, Kind.QUESTION, Kind.ASSISTANT, Kind.CONTEXT]
        assert b.entries()[2].text == "abcdefgh"
        await b.check()


async def test_a_result_behind_a_question_that_was_withdrawn(tmp_path: Path) -> None:
    async with bench(tmp_path, replies=["Two."]) as b:
        await b.cancelled("Q", "prefill")
        await tell(b, "Result of tool t: x\n")
        await b.ask("And?")
        texts = [e.text for e in b.entries()]
        assert texts == [SYSTEM_TEXT, "Q", "Result of tool t: x\n", "And?", "Two."]
        await b.check()


async def test_telling_is_carried_through_when_nobody_waits(tmp_path: Path) -> None:
    async with bench(tmp_path, replies=["abcdefgh"]) as b:
        b.gate.hold("decode", 3)
        asked, _ = b.begin("Q")
        await b.gate.reached()
        told = asyncio.create_task(b.app.registry.tell_result(b.project, "Result of tool t: x\n"))
        await asyncio.sleep(0)
        told.cancel()
        with pytest.raises(asyncio.CancelledError):
            await told
        b.gate.open()
        await asked
        await until(lambda: b.entries()[-1].text == "Result of tool t: x\n")


async def test_a_result_of_a_forgotten_conversation_begins_a_new_one(tmp_path: Path) -> None:
    async with bench(tmp_path, replies=["abcdefgh"]) as b:
        b.gate.hold("decode", 3)
        asked, _ = b.begin("Q")
        await b.gate.reached()
        told = asyncio.create_task(tell(b, "Result of tool t: x\n"))
        session = await b.session()
        await until(lambda: session.lock._waiters)
        gone = asyncio.create_task(b.app.registry.forget(b.project))
        b.gate.open()
        await asyncio.gather(asked, gone, told)
        assert [e.text for e in b.entries()] == [SYSTEM_TEXT, "Result of tool t: x\n"]
        assert await b.session() is not session
        await b.check()


async def test_a_result_that_does_not_fit_begins_an_epoch_or_says_so(tmp_path: Path) -> None:
    async with bench(tmp_path, quick(context={"max_tokens": 4096}), replies=["One."]) as b:
        await b.ask("x" * 3000)
        first = (await b.session()).conversation
        text = f"Result of tool t:\n```\n{'y' * 1500}\n```\n"
        await tell(b, text)
        session = await b.session()
        assert session.conversation.epoch == first.epoch + 1
        assert b.entries()[-1].text == text
        await b.check()
        with pytest.raises(
            ToolError, match=r"too many for the 4,096 that are read at most: lower tools\.output_kb\."
        ):
            await tell(b, "y" * 4000 + "\n")
        assert b.entries()[-1].text == text
        assert (await b.ask("Now?")).text


async def test_stopping_the_daemon_ends_what_runs(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        task = b.app.registry.tools.begin(b.project, shell("echo $$ > pid; sleep 1000 & echo $! >> pid; wait"), Job())
        file = b.project / "pid"
        await until(lambda: file.exists() and len(file.read_text().split()) == 2)
    assert (await end(task)).end == CANCELLED
    assert [pid for pid in map(int, file.read_text().split()) if alive(pid)] == []

"""What an editor sees of epochs: nothing of one that was prepared, one line of one that was forced, its limit."""

from __future__ import annotations

from pathlib import Path

from tests.support.bench import bench, quick
from tests.support.fake_editor import InMemory, initialize_params

LIMIT = 2_048


async def test_editor_sees_a_forced_epoch_and_its_limit_and_no_prepared_one(tmp_path: Path) -> None:
    settings = quick(context={"max_tokens": LIMIT})
    async with bench(tmp_path, settings, replies=["one", "SUM", "two", "three", "four"]) as b:
        editor = InMemory(b.app)
        await editor.initialize(initialize_params("vscode-1.139", b.project))

        async def conversation() -> dict[str, object]:
            status = await editor.request("qmlx/status", {})
            assert status["model"]["context_tokens"] == LIMIT
            return dict(status["conversations"][0])

        await editor.request("qmlx/ask", {"text": "q" * 1_300})
        assert (await conversation())["preparing"] is None
        b.gate.hold("decode", 1)
        await b.idle.passes()
        await b.gate.reached()
        found = await conversation()
        # Nobody waits for an answer, so it is not busy.
        assert (found["preparing"], found["epoch"], found["busy"]) == ("summary", 0, False)
        b.gate.open()
        await b.rested()
        found = await conversation()
        assert (found["preparing"], found["epoch"]) == (None, 1)
        assert (found["tokens"], found["live_tokens"]) == (len(b.ids()), len(b.ids()))
        assert editor.of("window/showMessage") == []
        for number in range(3):  # the second one and the third do not fit behind the one before
            await editor.request("qmlx/ask", {"text": f"{number}" * 1_000})
        shown = [said["message"] for said in editor.of("window/showMessage")]
        assert len(shown) == 2
        assert all("project had come to its limit of 2,048 tokens" in said for said in shown)
        assert await editor.leave()

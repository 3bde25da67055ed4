"""A round against a target that writes down what is asked of it."""

from __future__ import annotations

from typing import Any

from benchmarks.cachecheck.conversation import Change, Context, Restart, Turn
from benchmarks.sidebyside import rounds
from benchmarks.sidebyside.rounds import Round, Step

TEXTS = (Context("one", "ONE = 1\n"), Context("two", "TWO = 2\n"))


class Recorder:
    """Every turn takes half a second and reads 10 tokens of 100."""

    name = "recorder"

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []

    def about(self) -> dict[str, Any]:
        return {}

    def new(self, name: str, context: Context | None, *, tools: bool = False) -> Recorded:
        assert not tools
        self.log.append(("new", name, context))
        return Recorded(self, name)

    def restart(self, how: Restart) -> None:
        self.log.append(("restart", how))

    def limit_store(self, share: float) -> None:
        raise AssertionError

    def close(self) -> None:
        raise AssertionError


class Recorded:
    def __init__(self, target: Recorder, name: str) -> None:
        self._target = target
        self._name = name

    def turn(self, question: str, **how: Any) -> Turn:
        self._target.log.append((self._name.split("_")[0], question.split(":", maxsplit=1)[0], how))
        return Turn(100, 90, 0.5, 0.6, "yes", "stop", 1)

    def changed(self, question: str, change: Change, *, max_tokens: int) -> Turn:
        self._target.log.append((self._name.split("_")[0], change))
        return Turn(100, 20, 0.5, 0.6, "yes", "stop", 1)

    def measured(self, cut: Turn, follow_up: Turn) -> Turn:
        raise AssertionError


def ran() -> tuple[Recorder, list[Step]]:
    target, steps = Recorder(), list[Step]()
    Round(target, "embedded", 1_024, 3, TEXTS, steps.append, 1).run()
    return target, steps


def test_every_scenario_is_measured_once_or_as_often_as_it_says() -> None:
    _, steps = ran()
    assert {step.scenario for step in steps} == set(rounds.SCENARIOS)
    names = [step.scenario for step in steps]
    assert [names.count(name) for name in rounds.SCENARIOS] == [1, 3, 1, 1, 1, 4, 1]
    cold, edit = steps[0], steps[-1]
    assert cold.as_dict() == {
        "server": "recorder", "model": "embedded", "tokens": 1_024, "round": 3, "scenario": "cold", "prompt": 100,
        "computed": 10, "ttft_s": 0.5,
    }  # fmt: skip
    assert (edit.scenario, edit.computed) == (rounds.EDIT, 80)


def test_what_is_loaded_at_a_first_request_is_loaded_in_front_of_it() -> None:
    log = ran()[0].log
    restarted = log.index(("restart", Restart.ORDERLY))
    for began, name in ((0, "first"), (restarted + 1, "again")):
        assert log[began] == ("new", f"{name}_embedded_1024_3", None)
        assert log[began + 1] == (name, "Hello.", {"max_tokens": 1})


def test_what_is_cut_is_asked_for_behind_it() -> None:
    log = ran()[0].log
    at = log.index(("one", "Explain line by line", {"max_tokens": 64, "cut_after": 16}))
    assert log[at + 1] == ("one", "And in one word?", {"max_tokens": 8})
    # Of a server that is not ours the prefill is cut by the time of the cold one in the same round: 0.9 of 0.5 s.
    assert log[at + 2] == ("two", rounds.FIRST, {"max_tokens": 8, "cut_prefill_at": 0.45})
    assert log[at + 3] == ("two", rounds.FIRST, {"max_tokens": 8})
    assert [entry[0] for entry in log[at + 4 : at + 8]] == ["one", "two", "one", "two"]
    assert log[-1] == ("one", Change.EARLY_EDIT)


def test_contexts_of_rounds_have_names_of_their_own() -> None:
    assert [entry[1:] for entry in ran()[0].log if entry[0] == "new" and entry[2]] == [
        ("one_embedded_1024_3", TEXTS[0]), ("two_embedded_1024_3", TEXTS[1])
    ]  # fmt: skip

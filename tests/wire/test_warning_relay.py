"""Warnings of a thread are recorded while they are shown as usual, and issued again elsewhere."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator

import pytest

from sensorium.errors import NonFiniteStateWarning, SensoriumWarning
from sensorium.wire.warning_relay import MOST, recording_warnings, relay_warnings


class OwnWarning(SensoriumWarning):
    """A category that only one side can resolve."""


def complain(text: str = "it is dark", category: type[Warning] = OwnWarning) -> None:
    warnings.warn(text, category, stacklevel=1)


@pytest.fixture
def shown() -> Iterator[list[str]]:
    """The warnings that this process shows, with Python's initial filters."""
    with warnings.catch_warnings():
        warnings.resetwarnings()
        out: list[str] = []
        warnings.showwarning = lambda message, category, *_: out.append(f"{category.__name__} {message}")  # type: ignore[assignment]
        yield out


def test_what_is_shown_is_overheard_each_once_and_shown_still(shown: list[str]) -> None:
    with recording_warnings() as found:
        complain()
        complain("and cold", UserWarning)
        complain()
    complain("afterwards")
    assert found == [("OwnWarning", "it is dark"), ("UserWarning", "and cold")]
    assert shown == ["OwnWarning it is dark", "UserWarning and cold", "OwnWarning afterwards"]


def test_what_was_shown_before_is_overheard_again(shown: list[str]) -> None:
    """Another client with the same spawn must get the same warnings."""
    heard = []
    for _ in range(3):
        with recording_warnings() as found:
            complain()
        heard += found
    assert heard == [("OwnWarning", "it is dark")] * 3
    assert warnings.filters == [("default", None, Warning, None, 0)], "what applies without any filter"


def test_filters_hold(shown: list[str]) -> None:
    warnings.simplefilter("ignore", UserWarning)
    warnings.simplefilter("error", RuntimeWarning)
    with recording_warnings() as found:
        complain()
        with pytest.raises(RuntimeWarning, match="cold"):
            complain("cold", RuntimeWarning)
    assert found == shown == []


def test_warnings_of_other_threads_are_theirs(shown: list[str]) -> None:
    with recording_warnings() as found:
        other = threading.Thread(target=complain, args=("elsewhere",))
        other.start()
        other.join()
        complain("here")
    assert found == [("OwnWarning", "here")]
    assert shown == ["OwnWarning elsewhere", "OwnWarning here"]


def test_whoever_puts_the_hook_back_later_does_no_harm(shown: list[str]) -> None:
    """Another thread may start to catch warnings meanwhile, and stop afterwards."""
    with recording_warnings() as found:
        theirs = warnings.catch_warnings()
        theirs.__enter__()
    theirs.__exit__(None, None, None)
    complain()
    assert found == [] and shown == ["OwnWarning it is dark"]


def test_two_threads_that_overhear_at_the_same_time_leave_nothing(shown: list[str]) -> None:
    """Whichever ends first, the display of warnings is restored afterwards."""
    before = warnings.showwarning
    first, second = recording_warnings(), recording_warnings()
    heard = first.__enter__(), second.__enter__()
    complain("together")
    first.__exit__(None, None, None)
    complain("alone")
    second.__exit__(None, None, None)
    assert warnings.showwarning is before
    assert [[text for _, text in each] for each in heard] == [["together"], ["together", "alone"]]
    assert shown == ["OwnWarning together", "OwnWarning alone"]


def test_an_answer_does_not_grow_without_end(shown: list[str]) -> None:
    with recording_warnings() as found:
        for number in range(2 * MOST):
            complain(f"fault {number}")
    assert len(found) == MOST and len(shown) == 2 * MOST


@pytest.mark.parametrize(
    ("category", "here"),
    [
        ("SensoriumWarning", SensoriumWarning),
        ("NonFiniteStateWarning", NonFiniteStateWarning),
        ("RuntimeWarning", RuntimeWarning),
        ("OwnWarning", UserWarning),
        ("ConfigError", UserWarning),
        ("print", UserWarning),
        ("", UserWarning),
    ],
)
def test_a_category_that_both_sides_know_is_the_same_and_any_other_is_named(category: str, here: type[Warning]) -> None:
    with pytest.warns() as caught:
        relay_warnings([(category, "it is dark")], "spawning 'cam'")
    (warning,) = caught
    assert warning.category is here and warning.filename == __file__
    assert str(warning.message) == f"spawning 'cam', the server warned: {category}: it is dark"

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


def test_shown_warnings_are_recorded_once_and_still_shown(shown: list[str]) -> None:
    with recording_warnings() as found:
        complain()
        complain("and cold", UserWarning)
        complain()
    complain("afterwards")
    assert found == [("OwnWarning", "it is dark"), ("UserWarning", "and cold")]
    assert shown == ["OwnWarning it is dark", "UserWarning and cold", "OwnWarning afterwards"]


def test_previously_shown_warnings_are_recorded_again(shown: list[str]) -> None:
    """Another client with the same spawn must get the same warnings."""
    received = []
    for _ in range(3):
        with recording_warnings() as found:
            complain()
        received += found
    assert received == [("OwnWarning", "it is dark")] * 3
    assert warnings.filters == [("default", None, Warning, None, 0)], "what applies without any filter"


def test_warning_filters_apply(shown: list[str]) -> None:
    warnings.simplefilter("ignore", UserWarning)
    warnings.simplefilter("error", RuntimeWarning)
    with recording_warnings() as found:
        complain()
        with pytest.raises(RuntimeWarning, match="cold"):
            complain("cold", RuntimeWarning)
    assert found == shown == []


def test_warnings_of_other_threads_are_not_recorded(shown: list[str]) -> None:
    with recording_warnings() as found:
        other = threading.Thread(target=complain, args=("elsewhere",))
        other.start()
        other.join()
        complain("here")
    assert found == [("OwnWarning", "here")]
    assert shown == ["OwnWarning elsewhere", "OwnWarning here"]


def test_late_restoration_of_the_hook_is_harmless(shown: list[str]) -> None:
    """Another thread may start to catch warnings meanwhile, and stop afterwards."""
    with recording_warnings() as found:
        theirs = warnings.catch_warnings()
        theirs.__enter__()
    theirs.__exit__(None, None, None)
    complain()
    assert found == [] and shown == ["OwnWarning it is dark"]


def test_concurrent_recordings_leave_nothing(shown: list[str]) -> None:
    """Whichever ends first, the display of warnings is restored afterwards."""
    before = warnings.showwarning
    first, second = recording_warnings(), recording_warnings()
    received = first.__enter__(), second.__enter__()
    complain("together")
    first.__exit__(None, None, None)
    complain("alone")
    second.__exit__(None, None, None)
    assert warnings.showwarning is before
    assert [[text for _, text in each] for each in received] == [["together"], ["together", "alone"]]
    assert shown == ["OwnWarning together", "OwnWarning alone"]


def test_number_of_warnings_in_an_answer_is_limited(shown: list[str]) -> None:
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
def test_known_category_is_kept_and_any_other_is_named(category: str, here: type[Warning]) -> None:
    with pytest.warns() as caught:
        relay_warnings([(category, "it is dark")], "spawning 'cam'")
    (warning,) = caught
    assert warning.category is here and warning.filename == __file__
    assert str(warning.message) == f"spawning 'cam', the server warned: {category}: it is dark"

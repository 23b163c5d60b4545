"""Warnings are recorded and still shown, and issued again elsewhere."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

from sensorium.errors import NonFiniteStateWarning, SensoriumWarning
from sensorium.wire.warning_relay import MAX_WARNINGS, recording_warnings, relay_warnings


class OwnWarning(SensoriumWarning):
    """A category that only one side can resolve."""


def complain(text: str = "it is dark", category: type[Warning] = OwnWarning) -> None:
    warnings.warn(text, category, stacklevel=1)


@pytest.fixture
def shown() -> Iterator[list[warnings.WarningMessage]]:
    """The warnings that this process shows, with Python's initial filters."""
    with warnings.catch_warnings(record=True) as shown:
        warnings.resetwarnings()
        yield shown


def texts(shown: list[warnings.WarningMessage]) -> list[str]:
    return [f"{each.category.__name__} {each.message}" for each in shown]


def test_shown_warnings_are_recorded_once_and_still_shown(shown: list[warnings.WarningMessage]) -> None:
    show = warnings.showwarning
    with recording_warnings() as found:
        complain()
        complain("and cold", UserWarning)
        complain()
        assert warnings.showwarning is show
    complain("afterwards")
    assert found == [("OwnWarning", "it is dark"), ("UserWarning", "and cold")]
    assert texts(shown) == ["OwnWarning it is dark", "UserWarning and cold", "OwnWarning afterwards"]
    assert {each.filename for each in shown} == {__file__}


def test_previously_shown_warnings_are_recorded_again(shown: list[warnings.WarningMessage]) -> None:
    """Another client with the same spawn must get the same warnings."""
    received = []
    for _ in range(3):
        with recording_warnings() as found:
            complain()
        received += found
    assert received == [("OwnWarning", "it is dark")] * 3
    assert warnings.filters == []


def test_warning_filters_apply_and_an_exception_loses_no_warning(shown: list[warnings.WarningMessage]) -> None:
    warnings.simplefilter("ignore", UserWarning)
    warnings.simplefilter("error", RuntimeWarning)
    warnings.simplefilter("default", OwnWarning)
    with pytest.raises(RuntimeWarning, match="cold"), recording_warnings() as found:
        complain("unseen", UserWarning)
        complain()
        complain("cold", RuntimeWarning)
    assert found == [("OwnWarning", "it is dark")] and texts(shown) == ["OwnWarning it is dark"]


def test_number_of_warnings_in_an_answer_is_limited(shown: list[warnings.WarningMessage]) -> None:
    with recording_warnings() as found:
        for number in range(2 * MAX_WARNINGS):
            complain(f"fault {number}")
    assert len(found) == MAX_WARNINGS and len(shown) == 2 * MAX_WARNINGS


@pytest.mark.parametrize(
    ("category", "expected"),
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
def test_known_category_is_kept_and_any_other_is_named(category: str, expected: type[Warning]) -> None:
    with pytest.warns() as caught:
        relay_warnings([(category, "it is dark")], "spawning 'cam'")
    (warning,) = caught
    assert warning.category is expected and warning.filename == __file__
    assert str(warning.message) == f"spawning 'cam', the server warned: {category}: it is dark"

"""Data and configuration of the contact sensor; see `contact_sensor` for their conventions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import ValidationInfo, field_validator
from torch import Tensor

from sensorium.cfg import COLUMN_KNOBS, bad, in_unit, must
from sensorium.errors import ConfigError, Fault, SelectionError, listed, shown
from sensorium.measurement.sensor_cfg import Evaluate, SimpleSensorCfg
from sensorium.spec import CONTACT_FIELDS, CONTACT_REPORT, ContactReduce, Field, Requirement
from sensorium.world.contacts import ContactMatch, Side, resolve_match, resolve_paths
from sensorium.world.select import Named

_W: dict[str, Any] = {"frame": "world"}
_P: dict[str, Any] = {**_W, "parity": "polar"}


@dataclass(frozen=True, slots=True)
class ContactSensorData:
    """Contacts at one tick, and their recent history; fields that were not requested are None.

    A config with `primary` provides the first fields and their histories, a config with `prim_path` the next ones.
    Timers and latches exist in both forms.
    """

    primary_names: list[str]
    """Names along the primary (or body) axis."""
    filter_names: list[str]
    """Names along the filter axis; with `primary`, the names of the secondaries, or empty for anything."""
    found: Annotated[Tensor, Field("1", (1,), ("contact",), kind="id", low=0.0)]
    """Number of contacts of the primary, in each filled slot; contacts beyond the slots are included. 0 in an empty
    slot. `[env, body]` with `prim_path`."""
    force: Annotated[Tensor, Field("N", (1, 3), ("contact", "xyz"), frame="contact")]
    """Force `[env, contact, 3]`, N, in the contact's frame, x > 0 under pressure. With ``netforce`` or `global_frame`,
    in world axes and acting on the primary (see `force_on`)."""
    torque: Annotated[Tensor, Field("N m", (1, 3), ("contact", "xyz"), frame="contact")]
    """Torque about `pos` `[env, contact, 3]`, N m, with the axes and sign of `force`."""
    dist: Annotated[Tensor, Field("m", (1,), ("contact",))]
    """Signed distance `[env, contact]`, m, negative where the two penetrate."""
    pos: Annotated[Tensor, Field("m", (1, 3), ("contact", "xyz"), role="point", **_P)]
    """Position `[env, contact, 3]`, m, world; 0 in an empty slot."""
    normal: Annotated[Tensor, Field("1", (1, 3), ("contact", "xyz"), low=-1.0, high=1.0, **_P)]
    """Unit normal from the primary to the secondary `[env, contact, 3]`, world."""
    tangent: Annotated[Tensor, Field("1", (1, 3), ("contact", "xyz"), low=-1.0, high=1.0, **_P)]
    """First unit direction of friction `[env, contact, 3]`, world."""
    found_history: Annotated[Tensor, Field("1", (1, 1), ("contact", "history"), kind="id")]
    """`found` of the last ticks `[env, contact, history]`."""
    force_history: Annotated[
        Tensor, Field("N", (1, 1, 3), ("contact", "history", "xyz"), kind="derived", frame="contact")
    ]
    """`force` of the last ticks `[env, contact, history, 3]`, N."""
    torque_history: Annotated[
        Tensor, Field("N m", (1, 1, 3), ("contact", "history", "xyz"), kind="derived", frame="contact")
    ]
    """`torque` of the last ticks `[env, contact, history, 3]`, N m."""
    dist_history: Annotated[Tensor, Field("m", (1, 1), ("contact", "history"), kind="derived")]
    """`dist` of the last ticks `[env, contact, history]`, m."""
    pos_history: Annotated[Tensor, Field("m", (1, 1, 3), ("contact", "history", "xyz"), kind="derived", **_P)]
    """`pos` of the last ticks `[env, contact, history, 3]`, m."""
    normal_history: Annotated[Tensor, Field("1", (1, 1, 3), ("contact", "history", "xyz"), kind="derived", **_P)]
    """`normal` of the last ticks `[env, contact, history, 3]`."""
    tangent_history: Annotated[Tensor, Field("1", (1, 1, 3), ("contact", "history", "xyz"), kind="derived", **_P)]
    """`tangent` of the last ticks `[env, contact, history, 3]`."""

    net_forces_w: Annotated[Tensor, Field("N", (1, 3), ("body", "xyz"), **_P)]
    """Sum of the normal forces on each body `[env, body, 3]`, N, world; without friction."""
    net_forces_w_history: Annotated[Tensor, Field("N", (1, 1, 3), ("history", "body", "xyz"), kind="derived", **_P)]
    """`net_forces_w` of the last ticks `[env, history, body, 3]`, N; one entry where `history_length` is 0."""
    force_matrix_w: Annotated[Tensor, Field("N", (1, 1, 3), ("body", "filter", "xyz"), **_P)]
    """Sum of the normal forces of each filter on each body `[env, body, filter, 3]`, N, world."""
    force_matrix_w_history: Annotated[
        Tensor, Field("N", (1, 1, 1, 3), ("history", "body", "filter", "xyz"), kind="derived", **_P)
    ]
    """`force_matrix_w` of the last ticks `[env, history, body, filter, 3]`, N."""
    friction_forces_w: Annotated[Tensor, Field("N", (1, 1, 3), ("body", "filter", "xyz"), **_P)]
    """Friction on the primary, N, world: the sum of each pair `[env, body, filter, 3]`, or of each contact
    `[env, contact, 3]`; 0 without contact."""
    contact_pos_w: Annotated[Tensor, Field("m", (1, 1, 3), ("body", "filter", "xyz"), role="point", **_P)]
    """Contact position, m, world: the mean point of each pair `[env, body, filter, 3]`, or each contact `[env, contact,
    3]`; NaN without contact."""
    pos_w: Annotated[Tensor, Field("m", (1, 3), ("body", "xyz"), role="point", **_P)]
    """Positions of the bodies `[env, body, 3]`, m, world."""
    quat_w: Annotated[Tensor, Field("1", (1, 4), ("body", "wxyz"), kind="rotation", role="pose", **_W)]
    """Orientations of the bodies `[env, body, 4]`, (w, x, y, z)."""

    current_air_time: Annotated[Tensor, Field("s", (1,), ("primary",), kind="derived", low=0.0)]
    """Time since the last contact `[env, primary]`, s; 0 in contact."""
    last_air_time: Annotated[Tensor, Field("s", (1,), ("primary",), kind="derived", low=0.0)]
    """Duration of the last phase without contact `[env, primary]`, s, including the tick that ended it."""
    current_contact_time: Annotated[Tensor, Field("s", (1,), ("primary",), kind="derived", low=0.0)]
    """Duration of the current contact `[env, primary]`, s, including the tick that started it; 0 in the air."""
    last_contact_time: Annotated[Tensor, Field("s", (1,), ("primary",), kind="derived", low=0.0)]
    """Duration of the last contact `[env, primary]`, s, including the tick that ended it."""

    latched_any: Annotated[Tensor, Field("1", (1,), ("primary",), dtype="bool", kind="flag")]
    """Whether there was a contact at any tick of the control step `[env, primary]`."""
    latched_peak_force: Annotated[Tensor, Field("N", (1,), ("primary",), low=0.0)]
    """Maximum net force of those ticks `[env, primary]`, N."""
    latched_impulse_w: Annotated[Tensor, Field("N s", (1, 3), ("primary", "xyz"), **_P)]
    """Sum of net force * dt over those ticks `[env, primary, 3]`, N s, on the primary, world."""
    latched_first_time: Annotated[Tensor, Field("s", (1,), ("primary",), low=0.0)]
    """Time of the first contact since the start of the control step `[env, primary]`, s; +inf without contact."""


REPORTED = tuple(CONTACT_FIELDS)
FIELDS = (*REPORTED, "friction")
TIMES = ("current_air_time", "last_air_time", "current_contact_time", "last_contact_time")
LATCHES = ("latched_any", "latched_peak_force", "latched_impulse_w", "latched_first_time")
REDUCTIONS: tuple[ContactReduce, ...] = ("none", "mindist", "maxforce", "netforce")
OF_PRIMARY = ("secondary", "secondary_policy", "fields", "reduce", "num_slots", "global_frame", "force_on")
OF_PRIM_PATH = ("filter_prim_paths_expr", "track_pose", "max_contact_data_count_per_prim")


Count = Annotated[int, must(lambda count: 1 <= count <= 10_000, "a whole number >= 1, at most 10000")]


class ContactSensorCfg(SimpleSensorCfg[ContactSensorData]):
    """Configuration of a contact sensor, in either of two forms.

    With `primary`, the sensor reports contacts: `fields` of the contacts in `num_slots` slots per primary, chosen by
    `reduce`. With `prim_path`, it reports forces: normal forces on each body, in total and per filter. `OF_PRIMARY` and
    `OF_PRIM_PATH` list the options of one form; all others apply to both.

    Knobs such as `noise` act on the forces and positions of the measured data, also without contact, as in a force
    sensor: ``noise={"force": 2.0}`` or ``noise={"net_forces_w": 2.0}``. With a `force_threshold`, the measured times
    follow the switch of the measured force. Counts (`found`), latches and the truth are not altered. Delay, jitter and
    loss apply to all fields.

    Raises:
        ConfigError: neither or both of `primary` and `prim_path`, options of the other form, fields that a reduction
            does not provide, air time without ``found``, no slots, friction or contact points without filters, ...
    """

    primary: ContactMatch | None = None
    """Elements whose contacts are reported."""
    secondary: ContactMatch | None = None
    """Elements on the other side of the contacts; None for anything. By default, several matches mean contact with any
    of them. Their contacts are merged by depth (``mindist``), by force (``maxforce``), in the order of the matches
    (``none``) or summed (``netforce``; only found and force, since the centres of several sums cannot be merged)."""
    secondary_policy: Literal["each", "first", "any", "error"] = "each"
    """What several matches of `secondary` mean: ``each`` contacts with all of them, ``first`` contacts with the first
    match only, ``any`` contacts with anything; ``error`` rejects them."""
    fields: tuple[str, ...] = ("found", "force")
    """Fields reported for each contact: found, force, torque, dist, pos, normal, tangent; ``friction`` is the same as
    `track_friction_forces`."""
    selectable: ClassVar[tuple[str, ...]] = FIELDS
    reduce: ContactReduce = "maxforce"
    """Which contacts of a primary fill its slots: ``none`` the engine's first, ``mindist`` the deepest, ``maxforce``
    the strongest, ``netforce`` the sum of all at the force-weighted centre."""
    num_slots: Count = 1
    """Contacts kept per primary; no effect with ``netforce``, which has one slot."""
    global_frame: bool = False
    """Whether force and torque are in world axes instead of the contact's frame."""
    force_on: Literal["primary", "secondary"] = "primary"
    """Side on which `force` and `torque` in world axes act (``netforce`` and `global_frame`). Under a standing foot,
    the force on the ``primary`` reads +z, and that on the ``secondary`` -z, along `normal`."""

    prim_path: Annotated[str | None, must(bool, "a path", 'For the world, give "{ENV_REGEX_NS}".')] = None
    """Path, or pattern of paths, of the reported bodies (or geoms): ``{ENV_REGEX_NS}/Robot/.*_FOOT``."""
    filter_prim_paths_expr: tuple[str, ...] = ()
    """Paths, or patterns of paths, of bodies or geoms whose forces are reported separately, for each reported body. The
    namespace alone means the world's own geoms; a body that is fixed to the world has its own path."""
    track_pose: bool = False
    """Whether `pos_w` and `quat_w` are computed."""
    max_contact_data_count_per_prim: Count = 8
    """Contacts that are summed per body, and per body and filter. If there are more, only the strongest are summed,
    `found` still counts all, and a warning is issued once per body."""

    track_air_time: bool = False
    """Whether the four air and contact times are tracked."""
    force_threshold: Annotated[
        float | None,
        must(lambda force: 0.0 <= force < math.inf, "a finite force >= 0 in newton, or None"),
        in_unit("N"),
    ] = None
    """Net force above which the times count as contact, N. None: with `primary` any contact (``found`` > 0), with
    `prim_path` 1 N. It affects only the times, `compute_first_contact`, `compute_first_air` and the markers."""
    latch: bool = True
    """Whether the latches are tracked. With `primary`, latches and `force_threshold` use the net force of all
    contacts."""
    track_contact_points: bool = False
    """Whether `contact_pos_w` is computed."""
    track_friction_forces: bool = False
    """Whether `friction_forces_w` is computed."""
    history_length: Annotated[int, in_unit(minimum=0)] = 0
    """Number of entries in the history fields; 0 keeps none."""
    history_of: Literal["tick", "sample"] = "tick"
    """Whether histories have one entry per physics tick or per sample. Where knobs alter the measured values, measured
    histories have one entry per sample, because nothing is measured in between."""
    evaluate: Annotated[
        Evaluate,
        must(
            {"auto", "always"}.__contains__,
            "'auto' or 'always'",
            "Use 'auto', since times, latches and histories need every tick.",
        ),
    ] = "auto"
    """When samples are computed. ``auto`` and ``always``: at each due tick. Other modes are rejected, since no tick may
    be missed."""

    if not TYPE_CHECKING:  # type checkers derive the arguments from the fields

        def __init__(self, /, **data: Any) -> None:
            self._init_with(data, self._form_faults(data))
            if faults := self._faults():
                raise ConfigError(self.title, faults)

    @classmethod
    def kind(cls) -> str:
        """Return the kind of this config in files."""
        return "contact_sensor"

    @classmethod
    def example(cls) -> Self:
        """Return a config for an engine with a body ``"body"`` and contacts."""
        return cls(primary=ContactMatch(mode="body", pattern="body"), track_air_time=True, history_length=3)

    @property
    def is_prim_form(self) -> bool:
        """Whether the config uses `prim_path`."""
        return self.prim_path is not None

    @property
    def reported(self) -> tuple[str, ...]:
        """Entries of `fields` that are columns of a report, in order."""
        return tuple(name for name in REPORTED if name in self.fields)

    @property
    def has_friction(self) -> bool:
        """Whether friction is requested, under either of its names."""
        return self.track_friction_forces or (not self.is_prim_form and "friction" in self.fields)

    @property
    def slots(self) -> int:
        """Slots per primary in the output."""
        return 1 if self.is_prim_form or self.reduce == "netforce" else self.num_slots

    @property
    def threshold(self) -> float | None:
        """Net force above which the times count as contact, N; None if any contact counts."""
        return 1.0 if self.force_threshold is None and self.is_prim_form else self.force_threshold

    @staticmethod
    def _form_faults(data: Mapping[str, Any]) -> list[Fault]:
        given = [name for name in ("primary", "prim_path") if data.get(name) is not None]
        if len(given) == 2:
            got = f"primary={data['primary']!r}, prim_path={data['prim_path']!r}"
            return [Fault("primary", got, "one of primary and prim_path", "Keep one of the two.")]
        if not given:
            fix = 'Write primary=ContactMatch(mode="body", pattern="...") or prim_path="...".'
            return [Fault("primary", "nothing", "primary or prim_path", fix)]
        others = OF_PRIM_PATH if given == ["primary"] else OF_PRIMARY
        other = "prim_path" if given == ["primary"] else "primary"
        return [Fault(name, shown(data[name]), "no such option", f"Omit it; it belongs to a config with {other}=.")
                for name in others if data.get(name) is not None]  # fmt: skip

    @property
    def alters_force(self) -> bool:
        """Whether knobs or stages make the measured force differ from the true one."""
        return bool(self.stages) or any(getattr(self, knob) is not None for knob in COLUMN_KNOBS)

    @property
    def has_own_times(self) -> bool:
        """Whether the measured times follow the measured force."""
        return self.alters_force and self.track_air_time and self.threshold is not None

    def _faults(self) -> list[Fault]:
        """Return the faults in combinations of options."""
        faults = []
        if self.has_own_times and not self.is_prim_form and "force" not in self.fields:
            fix = f"Write fields={(*self.fields, 'force')!r}."
            faults.append(Fault("fields", shown(self.fields), "'force', which the measured times follow", fix))
        if self.is_prim_form:
            for name in ("track_contact_points", "track_friction_forces"):
                if getattr(self, name) and not self.filter_prim_paths_expr:
                    fix = 'Give filter_prim_paths_expr=[...]; "{ENV_REGEX_NS}" means the world.'
                    faults.append(Fault(name, "True", "at least one filter", fix))
            return faults
        if self.track_air_time and "found" not in self.fields:
            fix = f"Write fields={('found', *self.fields)!r}."
            faults.append(Fault("track_air_time", "True", "'found' in fields", fix))
        if self.reduce == "netforce":
            refused = [name for name in self.fields if name in ("dist", "normal", "tangent", "friction")]
            refused += [name for name in ("track_contact_points", "track_friction_forces") if getattr(self, name)]
            if refused:
                fix = f"Omit {', '.join(refused)}, which a sum of contacts does not have, or use reduce='maxforce'."
                faults.append(Fault("reduce", "'netforce'", "fields that a sum has: found, force, torque, pos", fix))
        return faults

    @field_validator("fields", "filter_prim_paths_expr", mode="before")
    @classmethod
    def _list(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, str):
            what = "fields" if info.field_name == "fields" else "paths"
            raise bad(f"a list of {what}", f"Write {info.field_name}=({value!r},).")
        return value


class ContactPlan(NamedTuple):
    """Model elements that a config resolves to."""

    primary: Side
    others: tuple[tuple[str, str], ...]
    """The secondaries, or the filters."""
    reports: tuple[Requirement, ...]
    """Merged reports of contacts; with `prim_path`, the one report of all contacts."""
    nets: tuple[Requirement, ...]
    """Reports of net forces, which are summed; with `prim_path`, those of the filters."""


def plan_of(cfg: ContactSensorCfg, model: Named) -> ContactPlan:
    """Return the model elements that a config resolves to."""
    title = cfg.title
    if cfg.prim_path is not None:
        paths = resolve_paths((cfg.prim_path,), model, config=title, field="prim_path")
        primary: Side = (paths[0][0], tuple(name for _, name in paths))
        others = resolve_paths(cfg.filter_prim_paths_expr, model, config=title, field="filter_prim_paths_expr")
        cap = cfg.max_contact_data_count_per_prim
        columns = ["found", "force", "normal"]
        total = CONTACT_REPORT(primary, None, tuple(columns), "maxforce", cap)
        columns += ["tangent"] * cfg.has_friction + ["pos"] * cfg.track_contact_points
        filters = [CONTACT_REPORT(primary, other, tuple(columns), "maxforce", cap) for other in others]
        return ContactPlan(primary, tuple(others), (total,), tuple(filters))
    assert cfg.primary is not None
    primary = resolve_match(cfg.primary, model, config=title, field="primary")
    sides: list[tuple[str, str] | None] = [None]
    if cfg.secondary is not None:
        kind, names = resolve_match(cfg.secondary, model, config=title, field="secondary")
        if cfg.secondary_policy == "error" and len(names) > 1:
            fix = f"It matches {listed(names)}. Narrow the pattern, or choose another secondary_policy."
            raise SelectionError(title, [Fault("secondary", shown(cfg.secondary.pattern), f"exactly one {kind}", fix)])
        if cfg.secondary_policy != "any" or len(names) == 1:
            sides = [(kind, name) for name in (names[:1] if cfg.secondary_policy == "first" else names)]
    several = len(sides) > 1
    if several and cfg.reduce == "netforce" and (left := [name for name in ("torque", "pos") if name in cfg.fields]):
        fix = f"Omit {' and '.join(left)}, name one secondary, or use another reduction."
        expected = "only found and force, since several secondaries match"
        raise SelectionError(title, [Fault("fields", shown(cfg.fields), expected, fix)])
    wanted = {"found", *cfg.reported}
    if cfg.reduce != "netforce":
        if cfg.has_friction or (cfg.global_frame and {"force", "torque"} & wanted):
            wanted |= {"force", "normal", "tangent"}
        if cfg.track_contact_points:
            wanted.add("pos")
        if several:
            wanted |= {"mindist": {"dist"}, "maxforce": {"force"}, "none": set[str]()}[cfg.reduce]
    needs_net = cfg.latch or (cfg.track_air_time and cfg.threshold is not None)
    if cfg.reduce == "netforce" and needs_net:
        wanted.add("force")
    reports = [CONTACT_REPORT(primary, side, tuple(wanted), cfg.reduce, cfg.slots) for side in sides]
    nets: list[Requirement] = []
    if needs_net:
        nets = [CONTACT_REPORT(primary, side, ("found", "force"), "netforce", 1) for side in sides]
        nets = reports if cfg.reduce == "netforce" else nets
    return ContactPlan(primary, tuple(side for side in sides if side is not None), tuple(reports), tuple(nets))

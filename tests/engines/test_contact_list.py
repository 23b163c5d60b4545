"""Contact reports reduced from an engine's list of contacts, against MuJoCo's contact sensors on the same contacts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from test_mujoco_contact import REPORTS, SCENE, contacts_of, forwarded, throw

from sensorium.compute import Compute
from sensorium.engines.contacts import ContactList, ContactReducer
from sensorium.engines.mujoco.engine import MujocoEngine
from sensorium.engines.tensor import TensorEngine
from sensorium.errors import ArgumentError
from sensorium.spec import CONTACT_REPORT, contact_array, contact_columns

ENVS, PLACES = 3, 80


class Lists:
    """The contacts of MuJoCo's environments as one list for each form."""

    def __init__(self, geoms: int) -> None:
        size = ENVS * PLACES
        self.counts = torch.zeros(ENVS, dtype=torch.int32)
        self.total = torch.zeros(1, dtype=torch.int32)
        ids = torch.arange(geoms * ENVS, dtype=torch.int32)
        shapes = {"sides": (2,), "env": (), "dist": (), "ids": (2,), **dict.fromkeys(VECTORS, (3,))}
        self.one, self.many = ({name: self._empty(size, name, shape) for name, shape in shapes.items()} for _ in "12")
        self.rows, self.envs = ids % geoms, torch.where(ids % geoms == 0, -1, ids // geoms)
        self.geoms = geoms

    @staticmethod
    def _empty(size: int, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        integer = name in ("sides", "env", "ids")
        return torch.full((size, *shape), 7, dtype=torch.int32 if integer else torch.float32)

    def write(self, contacts: list[tuple[int, Any]]) -> None:
        """Write (env, contact) pairs: in the given order into one list, and by environment into the other."""
        self.counts.zero_()
        self.total[0] = len(contacts)
        for i, (env, contact) in enumerate(contacts):
            place = env * PLACES + int(self.counts[env])
            self.counts[env] += 1
            first, second, force, torque, dist, pos, normal, tangent = contact
            values = {"sides": (first, second), "env": env, "dist": dist, "point": pos, "normal": normal,
                      "force": force, "torque": torque, "tangent": tangent}  # fmt: skip
            values["ids"] = [side + env * self.geoms if side else 0 for side in (first, second)]
            for name, value in values.items():
                self.one[name][i] = self.many[name][place] = torch.as_tensor(np.asarray(value))

    def forms(self) -> dict[str, ContactList]:
        vectors = {name: self.one[name] for name in ("dist", *VECTORS)}
        apart = {name: self.many[name] for name in ("sides", "dist", *VECTORS)}
        return {
            "per env": ContactList(self.counts, **apart),
            "with envs of contacts": ContactList(self.total, self.one["sides"], env=self.one["env"], **vectors),
            "with envs of ids": ContactList(
                self.total, self.one["ids"], rows=self.rows, envs=self.envs.int(), **vectors
            ),
        }


VECTORS = ("point", "normal", "force", "torque", "tangent")


def tensors(model: Any, engine: MujocoEngine, contacts: ContactList) -> TensorEngine:
    bodies = engine.names("body")
    geoms = {name: engine.frame("geom", name) for name in engine.names("geom")}
    parents = [engine.parent_body(row) for row in range(len(bodies))]
    return TensorEngine(ENVS, bodies=bodies, geoms=geoms, parents=parents, provides=("pose",), contact_list=contacts)


def test_every_report_equals_mujocos_sensor() -> None:
    """Each report of a quadruped and a stack, from three forms of the list, has the values of MuJoCo's own sensor."""
    engine = MujocoEngine(SCENE, ENVS)
    reports = dict.fromkeys(REPORTS, "probe")
    engine.prepare(reports)
    throw(engine.model, engine.qpos, engine.qvel)
    model, lists = engine.model, Lists(engine.model.ngeom)
    assert engine.names("geom")[0] == model.geom(0).name == "ground"
    others = {form: tensors(model, engine, contacts) for form, contacts in lists.forms().items()}
    for other in others.values():
        other.prepare(reports)
    addresses = [[other.array(contact_array(r)).data_ptr() for r in REPORTS] for other in others.values()]
    seen, generator = set(), np.random.default_rng(3)
    for _ in range(15):
        engine.step(substeps=8)
        engine.refresh()
        found = [contacts_of(model, forwarded(model, engine.batch.state[env])) for env in range(ENVS)]
        order = generator.permutation(np.repeat(np.arange(ENVS), [len(each) for each in found]))
        remaining = [iter(each) for each in found]
        lists.write([(int(env), next(remaining[env])) for env in order])
        strongest = max(float(np.linalg.norm(contact[2])) for each in found for contact in each) if order.size else 1.0
        for form, other in others.items():
            other.refresh()
            for report in REPORTS:
                mine, its = other.array(contact_array(report)), engine.array(contact_array(report))
                for name, columns in contact_columns(report).items():
                    scale = max(strongest, 1.0) if name in ("force", "torque") else 1.0
                    got, wanted = (array[..., columns].double() / scale for array in (mine, its))
                    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-6, err_msg=f"{form} {report}")
                if its.any():
                    seen.add(report)
        first = next(iter(others.values()))
        for other in others.values():  # equal lists give equal bits
            assert all(torch.equal(first.array(contact_array(r)), other.array(contact_array(r))) for r in REPORTS)
    assert seen == set(REPORTS)
    assert addresses == [[other.array(contact_array(r)).data_ptr() for r in REPORTS] for other in others.values()]


TOUCH = CONTACT_REPORT(("body", ("cup",)), None, ("found", "force", "torque", "pos", "normal", "tangent"), "none", 2)


def touching(kind: str = "body", **options: Any) -> tuple[ContactList, dict[str, torch.Tensor]]:
    """Return a list for two envs: the table (row 1) carries the cup (row 0) in env 1, and the cup the world's load."""
    arrays = {
        "sides": torch.tensor([[1, 0], [0, -1], [0, 1]], dtype=torch.int32),
        "env": torch.tensor([1, 1, 0], dtype=torch.int32),
        "point": torch.tensor([[0.1, 0.2, 0.3]] * 3),
        "normal": torch.tensor([[0.0, 0.0, 1.0]] * 3),
        "force": torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 4.0], [0.0, 0.0, 5.0]]),
    }
    return ContactList(torch.tensor([3], dtype=torch.int32), **arrays, kind=kind, **options), arrays  # type: ignore[arg-type]


def test_a_list_of_bodies_is_read_where_it_is() -> None:
    """Signs follow the side of the primary, a side of -1 is the world, and later writes and counts take effect."""
    contacts, arrays = touching()
    engine = TensorEngine(2, bodies=("cup", "table"), contact_list=contacts)
    assert engine.supports(TOUCH) is None
    report = engine.contacts[TOUCH]
    second, first = report[1, 0].tolist(), report[0, 0, 0].tolist()
    assert second[0] == pytest.approx([2, 3, 2, 1, 0, 0, 0, 0.1, 0.2, 0.3, 0, 0, -1, 0, -1, 0])
    assert second[1] == pytest.approx([2, 4, 0, 0, 0, 0, 0, 0.1, 0.2, 0.3, 0, 0, 1, 0, 1, 0])
    assert first[:2] == [1, 5]
    arrays["force"][2, 2] = 6.0
    engine.refresh()
    assert report[0, 0, 0, 1] == 6 and not report[0, 0, 1].any()
    contacts.count[0] = 2
    engine.refresh()
    assert not report[0].any() and report[1, 0, 1, 0] == 2
    with pytest.raises(AttributeError, match="computed from the arrays of contact_list"):
        engine.contacts[TOUCH] = 0.0
    of_numpy = replace(contacts, sides=arrays["sides"].numpy(), force=arrays["force"].numpy())
    assert of_numpy.sides.data_ptr() == arrays["sides"].data_ptr()
    assert of_numpy.force.data_ptr() == arrays["force"].data_ptr()


def test_a_report_that_the_list_cannot_give_is_rejected() -> None:
    """The reason names what the list lacks."""
    engine = TensorEngine(2, bodies=("cup", "table"), geoms={"rim": "cup"}, contact_list=touching()[0])
    for report, why in (
        (CONTACT_REPORT(("geom", ("rim",))), "contacts of bodies, not of geoms"),
        (CONTACT_REPORT(("subtree", ("cup",))), "knows no kinematic tree"),
        (CONTACT_REPORT(("body", ("cup",)), reduce="mindist"), "does not report the distance"),
        (CONTACT_REPORT(("body", ("cup",)), fields=("dist",)), "does not report the distance"),
        (CONTACT_REPORT(("body", ("mug",))), "there is no body 'mug'"),
    ):
        assert why in str(engine.supports(report))
    contacts, arrays = touching()
    with pytest.raises(
        ArgumentError, match=r"ContactList env: got torch.int64 of shape \(3,\) on cpu, expected a contiguous"
    ):
        ContactList(contacts.count, **{**arrays, "env": arrays["env"].long()})
    for count, what in (
        (torch.tensor(3, dtype=torch.int32), "torch.int32"),
        (np.array([3.0]), "float64"),
        ([3], "list"),
    ):
        with pytest.raises(ArgumentError, match=f"ContactList count: got {what} of shape .* contiguous torch.int32"):
            replace(contacts, count=count)
    for name in ("count", "sides", "point", "normal", "force"):
        with pytest.raises(ArgumentError, match=f"ContactList {name}: got None, expected real numbers"):
            replace(contacts, **{name: None})
    with pytest.raises(ArgumentError, match="kind: got 'site', expected 'geom' or 'body'"):
        replace(contacts, kind="site")
    with pytest.raises(ArgumentError, match="count: got 1 counts for 3 places in 2 environments"):
        TensorEngine(2, contact_list=replace(contacts, env=None))


def test_a_reset_reduces_the_reports_of_some_envs() -> None:
    """With env ids, only these rows are written; without, all are."""
    contacts, arrays = touching()
    engine = TensorEngine(2, bodies=("cup", "table"), provides=("pose", "contact"))
    reducer = ContactReducer(engine, contacts, Compute("cpu", 2))
    report = reducer.add(TOUCH)
    assert reducer.add(TOUCH) is report and not report.any()
    reducer.run(torch.tensor([1]))
    assert not report[0].any() and report[1, 0, 0, 0] == 2
    arrays["force"].mul_(2.0)
    reducer.run(torch.tensor([True, False]))
    assert report[0, 0, 0, 1] == 10 and report[1, 0, 0, 1] == 3
    reducer.run()
    assert report[1, 0, 0, 1] == 6


def test_a_missing_tangent_is_mujocos() -> None:
    """Without tangents, the frames of contacts are those that MuJoCo derives from their normals."""
    engine = MujocoEngine(SCENE, ENVS)
    report = CONTACT_REPORT(("geom", ("ground", "kerb", "low")), None, ("found", "normal", "tangent"), "none", 12)
    engine.prepare({report: "probe"})
    throw(engine.model, engine.qpos, engine.qvel)
    engine.step(substeps=100)
    engine.refresh()
    lists = Lists(engine.model.ngeom)
    found = [contacts_of(engine.model, forwarded(engine.model, engine.batch.state[env])) for env in range(ENVS)]
    lists.write([(env, contact) for env, contacts in enumerate(found) for contact in contacts])
    other = tensors(engine.model, engine, replace(lists.forms()["per env"], tangent=None))
    its = engine.array(contact_array(report))
    torch.testing.assert_close(other.contacts[report], its, rtol=0, atol=1e-6)
    assert (its[..., 0] > 0).sum() > 5


def test_a_list_without_places_reports_nothing() -> None:
    """A simulator without contacts may bind an empty list."""
    arrays = {name: torch.zeros(0, 3) for name in ("point", "normal", "force")}
    sides, count = torch.zeros(0, 2, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    engine = TensorEngine(2, bodies=("cup",), contact_list=ContactList(count, sides, **arrays, kind="body"))
    assert not engine.contacts[TOUCH].any()


@pytest.mark.parametrize("wrong", [-2, 2, 1_000_000])
def test_contacts_with_unknown_ids_are_ignored(wrong: int) -> None:
    """A wrong id in a device array cannot be reported without waiting for the device; it reads no memory."""
    contacts, arrays = touching()
    ids = torch.arange(2, dtype=torch.int32)
    for given in (contacts, replace(contacts, env=None, rows=ids, envs=torch.zeros_like(ids))):
        engine = TensorEngine(2, bodies=("cup", "table"), contact_list=given)
        report = engine.contacts[TOUCH]
        count = int(report[..., 0].sum())
        kept, arrays["sides"][2, 1] = int(arrays["sides"][2, 1]), wrong
        engine.refresh()
        assert int(report[..., 0].sum()) < count
        arrays["sides"][2, 1] = kept

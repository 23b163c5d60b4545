"""Steps of a Newton solver, and accelerations, contacts and forces of a state without a step."""

from __future__ import annotations

from typing import Any

import warp as wp

from sensorium.compute import Compute
from sensorium.engines.graphs import WorkGraphs
from sensorium.engines.newton.solvers import CONTACTS, SolverAccess


class Stepper:
    """A solver with its contacts and the observables that it provides.

    Args:
        model: a `newton.Model`.
        access: the solver.
        compute: device of the launches.
        dt: time step, s.
        pipeline: a `newton.CollisionPipeline`; None if the solver finds contacts itself.
        contacts: the `newton.Contacts` that a step uses or exports to; None without contacts.
        observables: the container of all observables that the solver provides; None if it provides none.

    Attributes:
        contacts: see above.
        observables: see above.
        wanted: the observables that the prepared requirements need; None for none.
    """

    def __init__(
        self,
        model: Any,
        access: SolverAccess,
        compute: Compute,
        dt: float,
        pipeline: Any,
        contacts: Any,
        observables: Any,
    ) -> None:
        self._access, self._dt, self._pipeline = access, dt, pipeline
        self._graphs = WorkGraphs(compute, lambda: access.parts(model))
        self.contacts, self.observables = contacts, observables
        self.wanted: Any = None
        self._spare = model.state()
        self._saves: dict[str, Any] = {}

    def want(self, kinds: set[str]) -> None:
        """Compute only these observables."""
        self.wanted = self.observables.select(kinds) if kinds else None

    def tick(self, state: Any, control: Any, observables: Any) -> None:
        """Advance a state by one step under a `newton.Control`; `observables` are filled for the state before it."""
        if self._access.is_mujoco:
            self._move(state, state, control, observables)
            return
        forces = [(array, wp.clone(array)) for array in (state.body_f, state.particle_f) if array is not None]
        self._move(state, self._spare, control, observables)
        state.assign(self._spare)
        for array, kept in forces:  # a solver may add its own forces to those of the user
            wp.copy(array, kept)

    def observe(self, state: Any, control: Any) -> None:
        """Fill the wanted observables for a state under a `newton.Control`, by a trial step that leaves no trace.

        The trial step of SolverMuJoCo ends before the integration.
        """
        kept = dict(self._access.internals())  # some solvers create arrays in a step
        if not self._access.is_mujoco:  # others also write into the state that they step from
            kept |= {f"state.{name}": array for name, array in vars(state).items() if isinstance(array, wp.array)}
        for name, array in kept.items():
            if name not in self._saves or self._saves[name].shape != array.shape:
                self._saves[name] = wp.empty_like(array)
            wp.copy(self._saves[name], array)
        with self._access.without_integration():
            self._move(state, self._spare, control, self.wanted)
        for name, array in kept.items():
            wp.copy(array, self._saves[name])

    def _move(self, state: Any, out: Any, control: Any, observables: Any) -> None:
        """Step from one state to another, which may be the same for `SolverMuJoCo`."""
        contacts = None
        if self._pipeline is not None:
            self._pipeline.collide(state, self.contacts)
            contacts = self.contacts
        elif self._access.is_mujoco and observables is not None and observables.is_requested(CONTACTS):
            contacts = self.contacts

        def step() -> None:
            self._access.solver.step(state, out, control, contacts, self._dt, observables=observables)

        if self._access.is_mujoco:  # other solvers may allocate
            self._graphs.run((id(state), id(out), id(control), id(observables)), step)
        else:
            step()

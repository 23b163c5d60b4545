"""Newton as an engine: the worlds of a Newton model are the environments."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, cast

import numpy as np
import torch
import warp as wp

from sensorium.compute import Compute, check_envs, graph, keeps_current
from sensorium.engines.base import Engine, FrameOnBody, NameKind
from sensorium.engines.contacts import contact_fault, is_contact
from sensorium.engines.envs import (
    check_quat,
    copies,
    env_rows,
    env_selection,
    mark,
    positive_int,
    put,
    restore,
    row_values,
    time_step,
    write_controls,
)
from sensorium.engines.newton.derived import DerivedArrays
from sensorium.engines.newton.layout import NewtonLayout, newton
from sensorium.engines.newton.shapes import colors_of, lighting_of, shapes_of, sites_of
from sensorium.engines.newton.solvers import CONTACTS, OBSERVABLES, SolverAccess
from sensorium.errors import ArgumentError, ModelError, UnknownNameError, listed, shown
from sensorium.geometry.appearance import Lighting, Varied
from sensorium.geometry.shapes import Shape
from sensorium.spec import BODY_POSE, BODY_VELOCITY, GRAVITY, JOINT_EFFORT, JOINT_STATE, MAGNETIC, SHAPES, Requirement

Control = Literal["joint_target_q", "joint_target_qd", "joint_f", "mujoco.ctrl"]
CONTROLS: tuple[Control, ...] = ("joint_target_q", "joint_target_qd", "joint_f", "mujoco.ctrl")
_NUMBERS = {BODY_POSE, BODY_VELOCITY, GRAVITY, JOINT_STATE}
"""Requirements that every solver provides."""


Method = TypeVar("Method", bound=Callable[..., Any])


def launches(method: Method) -> Method:
    """Decorate a method of an engine whose Warp work must run in the order of torch's work."""

    @graph.launching
    @keeps_current
    @functools.wraps(method)
    def ordered(self: NewtonEngine, *args: Any, **kwargs: Any) -> Any:
        if self._compute.is_cpu:
            return method(self, *args, **kwargs)
        with wp.ScopedStream(self._compute.stream, sync_exit=True):
            return method(self, *args, **kwargs)

    return cast(Method, ordered)


class NewtonEngine(Engine):
    """Worlds of a Newton model, stepped by one of Newton's solvers.

    Body positions, angular velocities and joint coordinates are Newton's own memory; the rest is converted in one
    launch. A solver computes accelerations, contacts and forces for the state from which it steps. With `fresh=True` a
    trial step into a second state gives them for the current state; the solver's internal state is restored after it.
    `SolverMuJoCo` skips the integration in this step.

    Args:
        model: a `newton.Model`. Its worlds are the environments and have the same bodies, joints, sites and shapes.
        solver: a solver of `newton.solvers` for this model.
        dt: time step, s.
        fresh: whether accelerations, contacts and forces are computed for the current state. With False all state is
            one tick old, at no cost.
        control: the array of `newton.Control` that `step` writes: ``"joint_target_q"``, ``"joint_target_qd"`` or
            ``"joint_f"``, with one number per scalar joint, or ``"mujoco.ctrl"``.
        pipeline: a `newton.CollisionPipeline` that finds contacts before each step; None uses Newton's default where
            the solver does not find contacts itself.

    Attributes:
        model: the Newton model.
        solver: the solver.
        newton_state: the current `newton.State`. External forces in `body_f` act until they are changed.
        newton_control: the `newton.Control` of the steps.

    Raises:
        ModelError: the solver or the pipeline belongs to another model, the bodies differ between the worlds, or
            `fresh=False` with the integrator RK4.
        MissingDependencyError: newton is not installed.
    """

    name = "newton"
    owns_time = True

    @graph.launching
    @keeps_current
    def __init__(
        self,
        model: Any,
        solver: Any,
        *,
        dt: float,
        fresh: bool = True,
        control: Control = "joint_target_q",
        pipeline: Any = None,
    ) -> None:
        package = newton()
        if not isinstance(model, package.Model):
            raise ModelError(f"NewtonEngine: got {shown(model)} as model, expected a newton.Model: builder.finalize().")
        if pipeline is not None and getattr(pipeline, "model", None) is not model:
            raise ModelError(
                f"NewtonEngine: got {shown(pipeline)} as pipeline, expected one of this model: "
                "newton.CollisionPipeline(model)."
            )
        if control not in CONTROLS:
            raise ArgumentError(f"control: got {shown(control)}, expected one of {listed(CONTROLS)}.")
        self.model, self.solver = model, solver
        self._access = SolverAccess(model, solver)
        if not fresh:
            self._access.check_unfresh()
        self._layout = NewtonLayout(model)
        self.num_envs, self.dt = self._layout.num_envs, time_step(dt, "dt")
        self.device = str(wp.device_to_torch(model.device))
        check_envs("NewtonEngine", self.num_envs, 4 * 13 * self._layout.bodies.shape[1], self.device)
        self.tick, self.lag, self.fresh = 0, 0, fresh
        self.prepared: frozenset[Requirement] = frozenset()
        self._compute = Compute(self.device, self.num_envs)
        self.newton_state = model.state()
        self.newton_control = model.control()
        if self._access.is_reduced:
            package.eval_fk(model, self.newton_state.joint_q, self.newton_state.joint_qd, self.newton_state)
        self._shown = self.newton_state if fresh else model.state()
        self._is_implicit = int(model.world_count) < 1 or bool((model.body_world.numpy() < 0).all())
        self._world_mask = torch.zeros(self.num_envs + 1, dtype=torch.bool, device=self.device)
        if pipeline is None and not self._access.detects_contacts and model.shape_count:
            pipeline = package.CollisionPipeline(model)
        contacts = self._new_contacts(pipeline)
        self._access.equip(self._compute, self.dt, pipeline, contacts, self._new_observables(contacts))
        self._derived = DerivedArrays(self, model, self._layout, self._access, self._shown, self._compute)
        self._shapes: tuple[Shape, ...] | None = None
        self._sites: tuple[Shape, ...] | None = None
        self._control = control
        self._ctrl_to = self._control_places(control)
        self.ctrl = self._ctrl_to[0][self._ctrl_to[1]]
        """Controls `[env, nu]`, live and writable; `step` writes them to Newton's control."""
        self._start = copies(self._rows())
        self._is_current = False
        self._keep_shown()

    @staticmethod
    def from_newton(
        model: Any,
        solver: Any,
        state: Any,
        *,
        dt: float,
        control: Any = None,
        pipeline: Any = None,
        observables: Any = None,
    ) -> NewtonEngine:
        """Wrap a loop that steps a Newton model itself and calls `scene.update()` after each step.

        Args:
            model: a `newton.Model`.
            solver: the solver of the loop.
            state: the `newton.State` that the loop steps in place, or a function that returns the current one, such as
                ``lambda: state_0`` in a loop that swaps two states.
            dt: time step of the loop, s.
            control: the `newton.Control` of the loop; None if it has none.
            pipeline: as for `NewtonEngine`.
            observables: the `Observables` of the solver that the loop passes to each step. All state is then one tick
                old, at no cost. Without them, the engine computes those of the current state.

        Raises:
            ModelError: as for `NewtonEngine`, or the state or the observables have another type or solver.
        """
        from sensorium.engines.newton.live import LiveNewtonEngine

        return LiveNewtonEngine(
            model, solver, state, dt=dt, control=control, pipeline=pipeline, observables=observables
        )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self._access.name}, num_envs={self.num_envs}, dt={self.dt:g} s, "
            f"{len(self.names('body'))} bodies, device={self.device!r}, tick={self.tick})"
        )

    def _new_contacts(self, pipeline: Any) -> Any:
        """Return the `newton.Contacts` that a step uses or exports to; None without contacts."""
        if pipeline is not None:
            return pipeline.contacts()
        if self._access.is_mujoco:
            return newton().Contacts(self.solver.get_max_contact_count(), 0, device=self.model.device)
        return getattr(self.solver, "contacts", None)

    def _new_observables(self, contacts: Any) -> Any:
        """Return the container of all observables that the solver provides; None if it provides none."""
        provided = self._access.provided
        return self.solver.observables(provided, contacts=contacts) if provided else None

    def _lacks(self, observable: str) -> str | None:
        """Return why an observable is not available, or None."""
        return self._access.lacks(observable)

    def _control_places(self, control: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Return an array of Newton's control, and the rows `[env, nu]` of the controls in it."""
        layout, source = self._layout, self.newton_control
        rows = layout.joint_q if control == "joint_target_q" else layout.joint_qd
        for part in control.split("."):
            source = getattr(source, part, None)
        if source is None and control != "mujoco.ctrl" and not rows.size:
            return torch.zeros(0, device=self.device), torch.from_numpy(rows.copy()).to(self.device)
        if not isinstance(source, wp.array):
            raise ModelError(f"control: got {control!r}, but the control of this model has no such array.")
        target = wp.to_torch(source)
        if control == "mujoco.ctrl":
            rows = np.arange(len(target), dtype=np.int64).reshape(self.num_envs, -1)
        return target, torch.from_numpy(rows.copy()).to(self.device)

    # Model ------------------------------------------------------------------------------------------------------------

    def names(self, kind: NameKind) -> tuple[str, ...]:
        """Return the names of a kind in model order: the shortest unique ends of Newton's labels."""
        return self._layout.names(kind)

    @property
    def control_names(self) -> tuple[str, ...]:
        """Names of the controls, in the order of `ctrl`: those of the scalar joints, or `actuator_0`, ... of MuJoCo."""
        if self._control != "mujoco.ctrl":
            return self.names("scalar_joint")
        return tuple(f"actuator_{i}" for i in range(self.ctrl.shape[1]))

    @property
    def diverged(self) -> torch.Tensor:
        """Bool `[env]`: environments whose bodies currently have poses or velocities that are not finite."""
        rows = (self._layout.of_bodies(getattr(self.newton_state, name)) for name in ("body_q", "body_qd"))
        return ~torch.cat([each.flatten(1) for each in rows], dim=1).isfinite().all(dim=1)

    def frame(self, kind: NameKind, name: str) -> FrameOnBody:
        """Return the body of a named body, site, geom or joint, with the frame's pose on it; body `"world"` is -1.

        Raises:
            UnknownNameError: there is no such element.
        """
        return self._layout.frame(kind, name)

    def offsets(self, frames: Any, inner: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return poses of mounts on their bodies where they differ between worlds; None if they do not."""
        found = self._layout.mounts(frames, inner)
        if found is None:
            return None
        poses = torch.from_numpy(found).to(device=self.device, dtype=torch.float32)
        return poses[..., :3].contiguous(), poses[..., 3:].contiguous()

    def slide_joints(self) -> tuple[str, ...]:
        """Return the names of the sliding joints."""
        return self._layout.slides

    def parent_body(self, body: int) -> int | None:
        """Return the index of a body's parent, -1 for the world."""
        return self._layout.parents[body]

    def shapes(self) -> tuple[Shape, ...]:
        """Return the shapes of one environment, in the order of `names("geom")`.

        Raises:
            ModelError: the worlds have different shapes.
        """
        if self._shapes is None:
            self._shapes = shapes_of(self.model, self._layout)
        return self._shapes

    def decorations(self) -> tuple[Shape, ...]:
        """Return the sites of one environment, in the order of `names("site")`; Newton knows no paths of tendons."""
        if self._sites is None:
            self._sites = sites_of(self.model, self._layout)
        return self._sites

    def lighting(self) -> Lighting:
        """Return a headlight, since a Newton model has no lights."""
        return lighting_of(self.model, self._layout)

    def looks(self) -> Varied:
        """Return the current colours of the shapes of each world."""
        return colors_of(self.model, self._layout)

    # Support ----------------------------------------------------------------------------------------------------------

    def supports(self, requirement: Requirement) -> str | None:
        """Return None if model and solver provide the requirement, otherwise the reason and the fix."""
        if requirement == JOINT_STATE or requirement == JOINT_EFFORT:
            if "scalar_joint" in self._layout.faults:
                return self._layout.faults["scalar_joint"]
        if requirement in _NUMBERS:
            return None
        if requirement in OBSERVABLES:
            return self._lacks(OBSERVABLES[requirement])
        if requirement == MAGNETIC:
            return None if self._access.is_mujoco else f"{self._access.name} has no magnetic field. Use SolverMuJoCo."
        if requirement == SHAPES:
            try:
                self.shapes()
            except ModelError as error:
                return str(error)
            return None
        if is_contact(requirement):
            return self._supports_contacts(requirement)
        if requirement.kind == "NATIVE_SENSOR":
            return (
                "Newton models have no sensors of MuJoCo. Use a sensor that sensorium computes, e.g. ContactForceCfg."
            )
        return f"Newton does not provide it: {self._access.name} has no such quantity."

    def _supports_contacts(self, report: Requirement) -> str | None:
        if (why := self._lacks(CONTACTS)) is not None:
            return why
        for kind in ("geom", "body"):
            if kind in self._layout.faults:
                return self._layout.faults[kind]
        if "torque" in report.args[2] and not self._access.is_mujoco:
            return f"{self._access.name} does not report torques of contacts. Omit the field 'torque'."
        return contact_fault(self, report)

    # Arrays -----------------------------------------------------------------------------------------------------------

    @launches
    def _apply(self, requirements: frozenset[Requirement]) -> None:
        prepared = self.prepared | requirements
        kinds = {OBSERVABLES[each] for each in prepared if each in OBSERVABLES}
        if any(map(is_contact, prepared)):
            kinds.add(CONTACTS)
        self._access.want(kinds)
        self._derived.bind(prepared)
        self._is_current = False

    def array(self, name: str) -> torch.Tensor:
        """Return a derived array by name, float32, fixed address.

        Raises:
            UnknownNameError: the array's requirement was not prepared (a KeyError).
        """
        arrays = self._derived.arrays
        if name not in arrays:
            raise UnknownNameError("array", name, arrays, "Prepare its requirement first.")
        return arrays[name]

    # Steps ------------------------------------------------------------------------------------------------------------

    def capture(self, on: bool) -> None:
        """Replay the steps of SolverMuJoCo and the engine's own kernels as captured graphs, or launch each."""
        self._compute.capture = on

    @launches
    def step(self, ctrl: Any = None, substeps: int = 1) -> None:
        """Advance `substeps` ticks with one control.

        Args:
            ctrl: `[env, nu]`, or `[nu]` for all environments; None keeps `engine.ctrl`.
            substeps: number of ticks.

        Raises:
            ArgumentError: the control has a wrong shape.
        """
        substeps = positive_int(substeps, "substeps")
        if ctrl is not None:
            write_controls(ctrl, self.ctrl)
        target, rows = self._ctrl_to
        target[rows] = self.ctrl
        for k in range(substeps):
            is_last = k == substeps - 1
            if is_last and not self.fresh:
                self._shown.assign(self.newton_state)
            self._access.tick(
                self.newton_state, self.newton_control, self._access.wanted if is_last and not self.fresh else None
            )
        self.tick += substeps
        self.lag = 0 if self.fresh else 1
        self._is_current = False

    def _observe(self) -> None:
        """Compute accelerations, contacts and forces of the current state."""
        target, rows = self._ctrl_to
        target[rows] = self.ctrl
        self._access.observe(self.newton_state, self.newton_control)

    def _keep_shown(self) -> None:
        if self._shown is not self.newton_state:
            self._shown.assign(self.newton_state)

    @launches
    def refresh(self) -> None:
        """Bring derived arrays up to the current tick (minus `lag`); no effect where they are up to date."""
        if self._is_current:
            return
        if self.lag == 0:
            if JOINT_STATE in self.prepared and not self._access.is_reduced and self.model.joint_count:
                newton().eval_ik(self.model, self.newton_state, self.newton_state.joint_q, self.newton_state.joint_qd)
            self._keep_shown()
            if self._access.wanted is not None:
                self._observe()
        self._derived.fill()
        self._is_current = True

    @launches
    def forward(self) -> None:
        """Recompute derived state after `joint_q` and `joint_qd` were edited (other solvers: `newton_state.body_q`)."""
        if self._access.is_reduced:
            state = self.newton_state
            newton().eval_fk(self.model, state.joint_q, state.joint_qd, state)
        self.lag = 0
        self._is_current = False
        self.refresh()

    # State ------------------------------------------------------------------------------------------------------------

    @property
    def nu(self) -> int:
        """Number of controls."""
        return int(self.ctrl.shape[1])

    @property
    def ctrl_range(self) -> torch.Tensor:
        """Lower and upper limits of the controls `[nu, 2]`, infinite where the joints have none."""
        model, rows = self.model, self._layout.joint_qd[0]
        low = np.full(self.nu, -np.inf)
        high = -low
        if self._control == "joint_target_q" and len(rows):
            low, high = model.joint_limit_lower.numpy()[rows], model.joint_limit_upper.numpy()[rows]
        elif self._control == "joint_f" and len(rows):
            high = model.joint_effort_limit.numpy()[rows]
            low = -high
        span = torch.from_numpy(np.stack([low, high], axis=1).astype(np.float64))
        return torch.where(span.abs() >= 1e6, span * math.inf, span)

    def hold(self) -> None:
        """Set position targets to the current joint positions, also as controls that `reset` restores.

        Raises:
            ArgumentError: the controls are no position targets.
        """
        if self._control != "joint_target_q":
            raise ArgumentError(f"hold: got control={self._control!r}, expected 'joint_target_q'.")
        places = torch.from_numpy(self._layout.joint_q.copy()).to(self.device)
        self.ctrl.copy_(wp.to_torch(self.newton_state.joint_q)[places])
        self._start["ctrl"] = self.ctrl.clone()

    @property
    def joint_q(self) -> torch.Tensor:
        """Joint coordinates `[env, coordinate]`, Newton's memory; quaternions xyzw."""
        return self._flat(self.newton_state.joint_q)

    @property
    def joint_qd(self) -> torch.Tensor:
        """Joint velocities `[env, degree of freedom]`, Newton's memory."""
        return self._flat(self.newton_state.joint_qd)

    def _flat(self, array: Any) -> torch.Tensor:
        """Return an array that is flat over the worlds as `[env, ...]`."""
        values: torch.Tensor = wp.to_torch(array)
        return values.view(self.num_envs, -1)

    def _rows(self) -> dict[str, torch.Tensor]:
        """Return the state of each environment `[env, ...]`, live."""
        state = self.newton_state
        rows = {"body_q": self._layout.of_bodies(state.body_q), "body_qd": self._layout.of_bodies(state.body_qd)}
        rows["body_f"] = self._layout.of_bodies(state.body_f)
        if state.joint_q is not None and state.joint_q.size:
            rows |= {"joint_q": self.joint_q, "joint_qd": self.joint_qd}
        return rows | {"ctrl": self.ctrl}

    @launches
    def reset(self, env_ids: Any, state: Mapping[str, Any] | None = None) -> None:
        """Reset environments to the model's state, write `state` into them, and compute their derived state.

        Args:
            env_ids: None for all, integers, or a bool mask `[env]`.
            state: values for `joint_q` and `joint_qd` (quaternions xyzw), `body_q` and `body_qd` (for solvers whose
                state is the poses of bodies) and `ctrl`, each `[n, ...]` for the n environments, or values that
                broadcast to it. Quantities of the model are kept.

        Raises:
            ArgumentError: env ids or values do not fit.
            UnknownNameError: a key is not a quantity of the state.
        """
        ids = (env_rows if state else env_selection)(env_ids, self.num_envs, self.device)
        if ids is not None and len(ids) == 0:
            return
        targets = self._rows()
        values = row_values(state or {}, targets, self.num_envs if ids is None else len(ids), "state")
        if self._access.is_reduced and (lost := sorted(values.keys() & {"body_q", "body_qd"})):
            raise ArgumentError(
                f"state: got {listed(lost)}, but {self._access.name} computes bodies from joints: give joint_q and "
                "joint_qd."
            )
        if "body_q" in values:
            check_quat(values["body_q"][..., 3:], "body_q")
        if "joint_q" in values:
            for column in self._layout.quats:
                check_quat(values["joint_q"][:, column : column + 4], "joint_q")
        if not self.fresh and ids is not None:
            self.refresh()  # the last tick of the other envs, which the reset would otherwise lose
        for name, start in self._start.items():
            put(targets[name], start, ids)
        for name, given in values.items():
            targets[name][slice(None) if ids is None else ids] = given
        mark(self._world_mask[: self.num_envs], ids)
        self._world_mask[-1] = self._is_implicit
        self.solver.reset(self.newton_state, wp.from_torch(self._world_mask), flags=0)
        if self._access.is_reduced or values.keys() & {"joint_q", "joint_qd"}:
            model, now = self.model, self.newton_state
            if model.articulation_count:
                mask = self._world_mask[wp.to_torch(model.articulation_world).long()]  # world -1 is the last entry
                newton().eval_fk(model, now.joint_q, now.joint_qd, now, mask=wp.from_torch(mask))
            for name in values.keys() & {"body_q", "body_qd"}:
                targets[name][slice(None) if ids is None else ids] = values[name]
        self._show_reset(ids)

    def _show_reset(self, ids: torch.Tensor | None) -> None:
        """Compute the derived state of environments after a reset."""
        if self.fresh or ids is None:
            self.lag = 0
            self._is_current = False
            self.refresh()
            return
        shown = {name: self._layout.of_bodies(getattr(self._shown, name)) for name in ("body_q", "body_qd")}
        for name in ("joint_q", "joint_qd"):
            if getattr(self._shown, name) is not None:
                shown[name] = self._flat(getattr(self._shown, name))
        rows = self._rows()
        for name, target in shown.items():
            put(target, rows[name], ids)
        self.lag = 0
        if self._access.wanted is not None:
            kinds = [kind for kind in self._access.wanted.kinds if kind != CONTACTS]
            old = {kind: wp.to_torch(getattr(self._access.wanted, kind)).clone() for kind in kinds}
            self._observe()
            for kind, values in old.items():
                now = self._flat(getattr(self._access.wanted, kind))
                new = now.clone()
                now.copy_(values.view(self.num_envs, -1))
                put(now, new, ids)
        self._derived.fill(ids)
        self._is_current = True

    def _saved(self) -> dict[str, torch.Tensor]:
        """Return all tensors that a step starts from, by name, live."""
        saved = {f"state.{name}": array for name, array in _arrays_of(self.newton_state)}
        saved |= {f"control.{name}": array for name, array in _arrays_of(self.newton_control)}
        saved |= {f"solver.{name}": wp.to_torch(array) for name, array in self._access.internals()}
        return saved | {"ctrl": self.ctrl}

    def state(self) -> dict[str, Any]:
        """Return everything needed to resume: the states of Newton and of its solver, the derived arrays, the tick."""
        return super().state() | {
            "rows": copies(self._saved()),
            "arrays": copies(self._derived.arrays),
            "lag": self.lag,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state`, in an engine with the same model and solver.

        Raises:
            ArgumentError: the state belongs to another model or number of environments.
        """
        restore(self._saved(), state["rows"])
        super().load_state(state)
        self.lag = int(state["lag"])
        self._keep_shown()
        self._is_current = False
        if self.lag:
            restore(self._derived.arrays, state["arrays"])
            self._is_current = True


def _arrays_of(owner: Any, prefix: str = "") -> list[tuple[str, torch.Tensor]]:
    """Return the arrays of a State or Control of Newton by name, with those in its namespaces."""
    found = []
    for name, value in vars(owner).items():
        if isinstance(value, wp.array) and value.size:
            found.append((f"{prefix}{name}", wp.to_torch(value)))
        elif type(value).__name__ == "AttributeNamespace":
            found += _arrays_of(value, f"{name}.")
    return found

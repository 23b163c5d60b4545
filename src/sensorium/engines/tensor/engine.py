"""An engine of tensors written by the user, or functions of time, for tests and as a bridge to other simulators."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Unpack

import torch

from sensorium.compute import Compute, check_envs
from sensorium.compute.devices import keeps_current, resolve_device
from sensorium.engines.base import NATIVE_ARRAY, Engine, FrameOnBody, NameKind, NativeSensor, array_sizes
from sensorium.engines.body_state import AT_COM, BodyState, QuatOrder
from sensorium.engines.contacts import ContactList, ContactReducer, contact_fault, contact_shape, is_contact
from sensorium.engines.envs import (
    as_rows,
    as_tensor,
    check_quat,
    copies,
    env_rows,
    env_selection,
    positive_int,
    restore,
    row_values,
    shared_tensor,
    time_step,
)
from sensorium.engines.tensor.model import WORD, WORDS, Parts, Provides, TensorModel, check_names, mapping_of, providing
from sensorium.errors import ArgumentError, UnknownNameError, listed, shown
from sensorium.geometry.appearance import Lighting, Varied
from sensorium.geometry.shapes import Shape
from sensorium.spec import SHAPES, Requirement, contact_array, contact_columns

_COM_NAMES = {name: name.replace("body_", "body_com_") for name in AT_COM}
"""Names under which arrays are written that are given at the centre of mass."""
_NEEDED_AT_COM = {"pose": (), "velocity": (), "acceleration": ("velocity",), "joint_wrench": ()}
"""Words of `at_com`, and further arrays that their conversion to the frame origin needs besides the pose."""
_ATTRIBUTES = ("num_envs", "dt", "device", "tick", "lag", "prepared", "provides", "native", "contacts", "motion")


class Array:
    """An array of a `TensorEngine`; an assignment copies into the tensor."""

    def __init__(self, doc: str) -> None:
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, engine: TensorEngine | None, owner: type) -> torch.Tensor:
        return self if engine is None else engine._get(self._name)  # type: ignore[return-value]

    def __set__(self, engine: TensorEngine, value: Any) -> None:
        engine._assign(self._name, value)


class NativeArrays(Mapping[str, torch.Tensor]):
    """Outputs of native sensors by sensor name, float32 `[env, dim]`; an assignment copies into the tensor."""

    def __init__(self, engine: TensorEngine) -> None:
        self._engine = engine

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self._names:
            fix = "Declare it in TensorEngine(..., native={name: dim})."
            raise UnknownNameError("native sensor", name, self._names, fix)
        return self._engine._get(f"{NATIVE_ARRAY}{name}")

    def __setitem__(self, name: str, value: Any) -> None:
        self[name]
        self._engine._assign(f"{NATIVE_ARRAY}{name}", value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(sensor.name for sensor in self._engine.native_sensors())


class ContactArrays(Mapping[Requirement, torch.Tensor]):
    """Contact reports: CONTACT_REPORT to its tensor `[env, primary, slot, column]`, float32.

    A report that a sensor requires, or that is first looked up here, gets a tensor of zeros (no contact) at a fixed
    address; `CONTACT_REPORT` defines its columns. An assignment copies into the tensor. Once it exists, the name of the
    array, `contact_array(report)`, is accepted as a key as well.
    """

    def __init__(self, engine: TensorEngine) -> None:
        self._engine = engine
        self._reports: dict[str, Requirement] = {}

    def __getitem__(self, report: Requirement | str) -> torch.Tensor:
        return self._engine._get(self._name(report))

    def __setitem__(self, report: Requirement | str, value: Any) -> None:
        self._engine._assign(self._name(report), value)

    def __iter__(self) -> Iterator[Requirement]:
        return iter(self._reports.values())

    def __len__(self) -> int:
        return len(self._reports)

    def field(self, report: Requirement | str, name: str) -> torch.Tensor:
        """Return one field of a report as a writable view of its tensor.

        Args:
            report: a CONTACT_REPORT, or the name of its array.
            name: name of the field.

        Returns:
            `[env, primary, slot, 1 or 3]`.

        Raises:
            UnknownNameError: there is no such report, or it has no such field.
        """
        array = self[report]
        columns = contact_columns(self._reports[self._name(report)])
        if name not in columns:
            raise UnknownNameError("field of the contact report", name, columns)
        return array[..., columns[name]]

    def _name(self, report: Requirement | str) -> str:
        if isinstance(report, str):
            if report not in self._reports:
                fix = "Use its requirement, CONTACT_REPORT(...), which creates the report."
                raise UnknownNameError("contact report", report, self._reports, fix)
            return report
        if not is_contact(report):
            raise UnknownNameError("contact report", str(report), self._reports, "Use a CONTACT_REPORT(...) as key.")
        name = contact_array(report)
        if name not in self._reports:
            if (reason := self._engine.supports(report)) is not None:
                raise ArgumentError(f"{report}: {reason}")
            self._engine._add(report)
            self._reports[name] = report
        return name


class TensorEngine(Engine):
    """An engine whose state is tensors: written in place by the user (or assigned, which copies), or by `motion`.

    All tensors are float32 on `device`, in the world frame, at fixed addresses. Time advances in one of two ways: by
    the scene's `step`, or by a loop of the user that writes the tensors and calls `scene.update()` after each tick.

    Contacts are written by report: `engine.contacts` has a tensor for each CONTACT_REPORT that a sensor requires::

        engine = TensorEngine(bodies=("left", "right"), provides=("pose", "contact"))
        report = CONTACT_REPORT(("body", ("left", "right")), None, ("found", "force"), "netforce")
        engine.contacts[report][0, 0, 0] = torch.tensor([1.0, 0.0, 0.0, 50.0])  # env 0, left, slot 0: found, force
        engine.contacts.field(report, "force")[0, 0, 0, 2] = 60.0  # the same by the name of a field
        engine.contacts[report] = 0.0  # no contact; motion, reset and state take contact_array(report) as the key

    Args:
        num_envs: number of environments.
        dt: time step, s.
        bodies: names of the bodies, in the order of the tensors' body axis.
        sites: names of further frames, each mapped to a body's name, `(body, pos)`, `(body, pos, quat wxyz)` or a
            `FrameOnBody`; the body `"world"` is the world.
        joints: names of scalar joints, in the order of the tensors' joint axis, or a mapping from names to frames as
            for `sites` (None: no frame), so that sensors can be mounted on a joint.
        geoms: names of collision shapes and their frames as for `sites`, so that contacts can be selected by geom.
        shapes: shapes that rays can hit, a mapping from names to shapes that overrides their own names, or a sequence
            of shapes for each environment. If these differ, sensors that need shapes are rejected. A shape's `body` is
            a row or a name of `bodies`; -1 and `"world"` are the world. Only cameras see those of another `element`
            than a geom. An empty sequence means an empty world; None means that the shapes are unknown.
        world: path of a file with further shapes, which do not move, and with lights and a sky: a mesh (OBJ, STL, PLY,
            GLB, glTF), or an MJCF or URDF file without joints. The `looks` of its shapes precede those of `shapes`.
        lighting: lights, sky and fog for images, and textures to choose from; by default those of `world`, or a
            headlight.
        looks: values of quantities of shapes and lights that differ between environments or change, by name:
            ``"rgba"``, ``"emission"``, ``"specular"``, ``"shininess"``, ``"mirror"``, ``"texture"`` (a row of the
            lighting's textures, -1 for none), ``"light_pos"``, ``"light_direction"``, ``"light_ambient"``,
            ``"light_diffuse"``, ``"light_specular"`` and ``"light_is_active"``. Values are `[1 or env, shape or light,
            ...]`. They are read when the scene is built and at each reset.
        slides: names of the joints that slide, in m, m/s and N; all others turn, in rad, rad/s and N m.
        native: sensors of the underlying simulator, whose output the user writes to `engine.native["name"]`: name to
            the number of values, or to a `NativeSensor` that describes it.
        parents: parent of each body, by name or row, in the order of `bodies` (also an array of rows) or as a mapping;
            ``"world"`` or -1 is the world. None means that the tree is unknown, so that subtrees cannot be selected.
        com: centres of mass in the frames of the bodies, `[body, 3]` or `[env, body, 3]`, m.
        at_com: quantities that are given at the centre of mass: any of pose (positions only), velocity, acceleration,
            joint_wrench (torques). They are written to `body_com_pos_w`, `body_com_lin_vel_w`, `body_com_lin_acc_w` or
            `body_com_parent_torque_w`, and converted.
        bound: arrays of the simulator that are used without a copy, by the names under which they are written: torch
            tensors, Warp arrays, or those of any other owner that supports DLPack, float32, at fixed addresses.
        contact_list: the simulator's list of contacts, from which contact reports are reduced; without it, reports are
            written.
        device: torch device.
        provides: quantities that the user writes: any of pose, velocity, acceleration, gravity, magnetic, joint_state,
            joint_effort, joint_torque, joint_wrench, tendon_paths, contact. A sensor that requires any other is
            rejected, so that unwritten values are never read as zero.
        quat_order: order of the quaternions written to `body_quat`; `body_quat_w` is always wxyz.
        gravity: initial gravity, m/s^2.
        magnetic: initial magnetic flux, any unit (the default is MuJoCo's); None without a magnetic field.
        motion: function of the time (s) that returns array name to values that broadcast to the array. It is called on
            creation, after each tick and on `forward()`, with the time since the start, which a reset does not set
            back. The key of a contact report is its requirement or the name of its array.

    Raises:
        ArgumentError: an argument is invalid.
        ModelError: a site, joint, geom or shape is on an unknown body, two shapes have the same name, or a shape moves
            with a body whose pose is not provided. The file of the world is missing or invalid.
        MissingDependencyError: `world` is a mesh file, and trimesh or Pillow is not installed.
    """

    name = "tensor"
    owns_time = False

    @keeps_current
    def __init__(
        self,
        num_envs: int = 1,
        dt: float = 0.01,
        *,
        bodies: Sequence[str] = ("body",),
        device: str = "cpu",
        provides: Sequence[Provides] = ("pose", "velocity", "gravity"),
        quat_order: QuatOrder = "wxyz",
        gravity: Any = (0.0, 0.0, -9.81),
        magnetic: Any = (0.0, -0.5, 0.0),
        motion: Callable[[float], Mapping[Any, Any]] | None = None,
        **parts: Unpack[Parts],
    ) -> None:
        if unknown := sorted(parts.keys() - Parts.__annotations__):
            raise TypeError(f"TensorEngine() got an unexpected keyword argument {unknown[0]!r}")
        self.num_envs = positive_int(num_envs, "num_envs")
        words = (provides,) if isinstance(provides, str) else provides
        check_names(words, "provides")
        if motion is not None and not callable(motion):
            raise ArgumentError(f"motion: got {shown(motion)}, expected a function of the time, s.")
        if not isinstance(quat_order, str) or quat_order not in ("wxyz", "xyzw"):
            raise ArgumentError(f"quat_order: got {shown(quat_order)}, expected 'wxyz' or 'xyzw'.")
        for word in words:
            if word not in WORDS:
                raise ArgumentError(f"provides: got {shown(word)}, expected any of {listed(WORDS)}.")
        self.dt = time_step(dt, "dt")
        self.device = resolve_device(device)
        self.tick = 0
        self.lag = 0
        self.prepared: frozenset[Requirement] = frozenset()
        self.provides = frozenset(words) | ({"magnetic"} if magnetic is not None else set())
        if parts.get("contact_list") is not None:
            self.provides |= {"contact"}
        self._model = TensorModel(self.num_envs, bodies, self.provides, parts)
        self.native = NativeArrays(self)
        self.contacts = ContactArrays(self)
        self.motion = motion
        self._make_arrays(quat_order, parts)
        bound = mapping_of(parts, "bound")
        for name, value in (("gravity_w", gravity), ("magnetic_w", magnetic)):
            if name in self._open and name not in bound and value is not None:
                self._assign(name, value)
        self._move()
        self.refresh()

    def _make_arrays(self, quat_order: QuatOrder, parts: Parts) -> None:
        model = self._model
        segments = [shape for shape in model.shapes or () if shape.element == "tendon"]
        counts = {"body": len(model.bodies), "joint": len(model.joints), "segment": len(segments)}
        sizes = {
            name: size
            for requirement, word in WORD.items()
            if word in self.provides
            for name, size in array_sizes(requirement, self.num_envs, counts).items()
        }
        sizes |= {f"{NATIVE_ARRAY}{sensor.name}": (self.num_envs, sensor.dim) for sensor in model.native}
        per_env = 4 * sum(math.prod(size[1:]) for size in sizes.values())
        check_envs("TensorEngine", self.num_envs, per_env, self.device)
        bound = dict(mapping_of(parts, "bound"))
        if quat_order == "wxyz" and "body_quat" in bound:
            bound["body_quat_w"] = bound.pop("body_quat")  # both names are of one array
        words = parts.get("at_com", ())
        com = self._masses(parts.get("com"), words)
        at_com = [name for word in words for name in _COM_NAMES if name in WORDS[word]]
        self._given = {name: _COM_NAMES[name] for name in at_com}
        if quat_order == "xyzw" and "pose" in self.provides:
            self._given["body_quat_w"] = "body_quat"
        self._open: dict[str, torch.Tensor] = {}
        for name, size in sizes.items():
            mine = self._given.get(name, name)
            if mine in bound:
                self._open[mine] = self._bound(mine, bound[mine], size)
                continue
            self._open[mine] = torch.zeros(size, dtype=torch.float32, device=self.device)
            if name == "body_quat_w":
                self._open[mine][..., quat_order.index("w")] = 1.0
        for name in bound:
            if name not in self._open:
                raise UnknownNameError("bound array", str(name), self._open)
        self._arrays = {name: self._open[self._given.get(name, name)] for name in sizes}
        self._state: BodyState | None = None
        contact_list = parts.get("contact_list")
        if not isinstance(contact_list, ContactList | None):
            raise ArgumentError(f"contact_list: got {shown(contact_list)}, expected a ContactList.")
        self._compute = compute = Compute(self.device, self.num_envs)
        if self._given:
            bodies = {name: array for name, array in self._arrays.items() if name.startswith("body_")}
            self._state = BodyState(compute, bodies, quat_order=quat_order, at_com=at_com, com=com)
            self._arrays |= self._state.arrays
        self._reducer: ContactReducer | None = None
        if contact_list is not None:
            self._reducer = ContactReducer(self, contact_list, compute)
        if "pose" in self.provides:
            self._open["body_quat"] = self._open[self._given.get("body_quat_w", "body_quat_w")]

    def _masses(self, com: Any, at_com: Sequence[str]) -> torch.Tensor | None:
        """Return the centres of mass `[1 or env, body, 3]`; None if nothing is given there."""
        check_names(at_com, "at_com")
        for word in at_com:
            if word not in _NEEDED_AT_COM:
                raise ArgumentError(f"at_com: got {shown(word)}, expected any of {listed(_NEEDED_AT_COM)}.")
            for need in (word, "pose", *_NEEDED_AT_COM[word]):
                if need not in self.provides:
                    raise ArgumentError(f"at_com: {word!r} needs {need!r}: give {providing(self.provides, need)}.")
        if not at_com and com is None:
            return None
        if com is None or not at_com:
            raise ArgumentError("com and at_com: got only one of them, expected both, or neither.")
        tensor = as_tensor(com, "com").to(device=self.device, dtype=torch.float32)
        shape = (1, *tensor.shape) if tensor.dim() == 2 else tuple(tensor.shape)
        count = len(self._model.bodies)
        if len(shape) != 3 or shape[0] not in (1, self.num_envs) or shape[1:] != (count, 3):
            raise ArgumentError(
                f"com: got values of shape {tuple(tensor.shape)}, expected ({count}, 3) (body, xyz) or "
                f"({self.num_envs}, {count}, 3) (env, body, xyz)."
            )
        if not bool(tensor.isfinite().all()):
            raise ArgumentError("com: got values that are not finite, expected centres of mass, m.")
        return tensor.view(shape)

    def _bound(self, name: str, given: Any, size: tuple[int, ...]) -> torch.Tensor:
        """Return an array of the simulator as a tensor on the same memory."""
        tensor, what = shared_tensor(given, f"bound[{name!r}]")
        is_here = tensor.device == torch.empty(0, device=self.device).device
        if not is_here or tensor.dtype != torch.float32 or tuple(tensor.shape) != size or tensor.stride(-1) != 1:
            raise ArgumentError(
                f"bound[{name!r}]: got {what} of shape {tuple(tensor.shape)} and strides {tensor.stride()} on "
                f"{tensor.device}, expected writable float32 of shape {size} on {self.device} with a contiguous last "
                f"axis. Copy other arrays after each tick: engine.{name} = values."
            )
        return tensor

    def __repr__(self) -> str:
        return (
            f"TensorEngine(num_envs={self.num_envs}, dt={self.dt:g} s, bodies={list(self._model.bodies)}, "
            f"provides={sorted(self.provides)}, device={self.device!r}, tick={self.tick})"
        )

    def __setattr__(self, name: str, value: Any) -> None:
        """Assign an attribute; an unknown public name raises, because it may be a mistyped array."""
        if type(self) is TensorEngine and not (
            name.startswith("_") or name in _ATTRIBUTES or hasattr(type(self), name)
        ):
            raise UnknownNameError("array", name, self._open if "_open" in self.__dict__ else _ATTRIBUTES)
        super().__setattr__(name, value)

    # Tensors -----------------------------------------------------------------------------------------------------

    def _get(self, name: str) -> torch.Tensor:
        array = self._arrays.get(name, self._open.get(name))
        if array is None and name in _COM_NAMES.values():
            raise AttributeError(f"this TensorEngine has no {name}: add its quantity to at_com, and give com.")
        if array is None:
            word = next((word for word, names in WORDS.items() if name in names), "pose")
            raise AttributeError(f"this TensorEngine has no {name}: add {word!r} to provides={sorted(self.provides)}.")
        return array

    def _add(self, report: Requirement) -> None:
        name = contact_array(report)
        if self._reducer is not None:
            self._arrays[name] = self._reducer.add(report)
            self._reducer.run()
            return
        shape = (self.num_envs, *contact_shape(report))
        self._arrays[name] = self._open[name] = torch.zeros(shape, dtype=torch.float32, device=self.device)

    def _assign(self, name: str, value: Any) -> None:
        array = self._get(name)
        if name not in self._open:
            source = self._given.get(name, "the arrays of contact_list")
            raise AttributeError(f"{name} is computed from {source} here: write {source}.")
        tensor = as_tensor(value, name)
        if name.startswith("body_quat"):
            check_quat(tensor, name)
        array.copy_(as_rows(tensor.to(device=array.device, dtype=array.dtype), tuple(array.shape), name))

    body_pos_w = Array("Positions of the bodies `[env, body, 3]`, m.")
    body_quat_w = Array(
        "Unit quaternions of the bodies `[env, body, 4]`, wxyz; written from `body_quat` where quat_order is xyzw."
    )
    body_quat = Array("Unit quaternions of the bodies `[env, body, 4]`, in `quat_order`; written by the user.")
    body_lin_vel_w = Array("Linear velocities at the body frame origins `[env, body, 3]`, m/s.")
    body_ang_vel_w = Array("Angular velocities of the bodies `[env, body, 3]`, rad/s, world axes.")
    body_lin_acc_w = Array("Coordinate accelerations at the body frame origins (0 at rest) `[env, body, 3]`, m/s^2.")
    body_ang_acc_w = Array("Angular accelerations of the bodies `[env, body, 3]`, rad/s^2, world axes.")
    gravity_w = Array("Gravity `[env, 3]`, m/s^2.")
    magnetic_w = Array("Magnetic flux `[env, 3]`, in a unit of the user's choice.")
    body_com_pos_w = Array("Positions of the centres of mass `[env, body, 3]`, m, where `at_com` has pose.")
    body_com_lin_vel_w = Array("Velocities at the centres of mass `[env, body, 3]`, m/s, where `at_com` has velocity.")
    body_com_lin_acc_w = Array(
        "Accelerations at the centres of mass `[env, body, 3]`, m/s^2, where `at_com` has acceleration."
    )
    body_com_parent_torque_w = Array(
        "Torques of the parents about the centres of mass `[env, body, 3]`, N m, where `at_com` has joint_wrench."
    )
    joint_pos = Array("Positions of the joints `[env, joint]`, rad (slide: m).")
    joint_vel = Array("Velocities of the joints `[env, joint]`, rad/s (slide: m/s).")
    joint_effort = Array("Torque that the actuators exert at the joints `[env, joint]`, N m (slide: N).")
    joint_torque = Array("Torque that the drives transmit at the gearbox outputs `[env, joint]`, N m (slide: N).")
    body_parent_force_w = Array(
        "Forces that the parents exert on the bodies through their joints `[env, body, 3]`, N, world axes."
    )
    body_parent_torque_w = Array(
        "Torques of the parents on the bodies about the body frame origins `[env, body, 3]`, N m, world axes."
    )

    tendon_segments_w = Array("Ends of the segments of the tendons' paths `[env, segment, 2, 3]`, m, world.")
    tendon_radii = Array("Radii of these segments `[env, segment]`, m; 0 where the path has no such segment.")

    # Engine ------------------------------------------------------------------------------------------------------

    def names(self, kind: NameKind) -> tuple[str, ...]:
        """Return the names of the bodies, sites, geoms or joints, which are all scalar; other kinds have no names."""
        return self._model.names(kind)

    def native_sensors(self) -> tuple[NativeSensor, ...]:
        """Return the declared native sensors, in order."""
        return self._model.native

    def frame(self, kind: NameKind, name: str) -> FrameOnBody:
        """Return the body of a body, site, geom or joint, with its fixed pose on it; body `"world"` is -1.

        Raises:
            UnknownNameError: there is no such body, site, geom or joint.
            ModelError: the joint has no frame.
        """
        return self._model.frame(kind, name)

    def parent_body(self, body: int) -> int | None:
        """Return the index of a body's parent, -1 for the world; None without `parents`."""
        return self._model.parent(body)

    def slide_joints(self) -> tuple[str, ...]:
        """Return the names of the sliding joints."""
        return self._model.slides

    def shapes(self) -> tuple[Shape, ...]:
        """Return the given geoms in order, with rows of bodies; empty if none were given."""
        return tuple(shape for shape in self._model.shapes or () if shape.element == "geom")

    def decorations(self) -> tuple[Shape, ...]:
        """Return the other given shapes: tendons, sites, skins."""
        given = self._model.shapes or ()
        return tuple(shape for element in ("tendon", "site", "skin") for shape in given if shape.element == element)

    def lighting(self) -> Lighting:
        """Return the given lights, sky, fog and textures."""
        return self._model.lighting

    def camera_notice(self) -> str:
        """Return a warning about lights or visual shapes of the file of the world that are lost, or an empty text."""
        return "" if self._model.world is None else self._model.world.notice

    def looks(self) -> Varied:
        """Return the given values of quantities of shapes and lights."""
        return self._model.looks

    def supports(self, requirement: Requirement) -> str | None:
        """Return None if `provides` or `native` contains the requirement, otherwise the reason and the fix."""
        if requirement.kind == "NATIVE_SENSOR":
            return self._supports_native(*requirement.args[:2])
        if requirement.kind == "CONTACT_REPORT":
            return self._supports_contacts(requirement)
        if requirement == SHAPES:
            if self._model.shapes is not None:
                return self._model.shape_fault or None
            return (
                "the shapes of its world are unknown. Give TensorEngine(..., shapes=[Shape('plane', 'ground'), ...]), "
                "or shapes=[] for an empty world."
            )
        word = WORD.get(requirement)
        if word is None:
            return "a TensorEngine does not support it yet."
        if word in self.provides:
            return None
        arrays = " and ".join(f"engine.{name}" for name in WORDS[word])
        return f"it is not declared as provided. Give {providing(self.provides, word)} and write {arrays}."

    def grants_late(self, requirement: Requirement) -> bool:
        """Whether a requirement may be prepared late; everything in `provides` exists from the start."""
        return requirement in WORD or super().grants_late(requirement)

    def _supports_native(self, name: str, type: str) -> str | None:
        sensor = next((sensor for sensor in self._model.native if sensor.name == name), None)
        if sensor is None:
            known = listed(self.native)
            return (
                f"it is not declared as provided (native sensors here: {known}). Give TensorEngine(..., "
                f"native={{{name!r}: dim}}) and write engine.native[{name!r}]."
            )
        if type and sensor.type and type != sensor.type:
            return f"the native sensor {name!r} of this engine is of type {sensor.type!r}."
        return None

    def _supports_contacts(self, report: Requirement) -> str | None:
        if "contact" not in self.provides:
            return (
                f"it is not declared as provided. Give {providing(self.provides, 'contact')} and write "
                "engine.contacts[requirement]."
            )
        return contact_fault(self, report) if self._reducer is None else self._reducer.fault(report)

    def _apply(self, requirements: frozenset[Requirement]) -> None:
        for report in sorted(filter(is_contact, requirements), key=contact_array):
            self.contacts[report]

    def array(self, name: str) -> torch.Tensor:
        """Return an array by name, float32, fixed address.

        Raises:
            UnknownNameError: no such array is provided (a KeyError).
        """
        if name not in self._arrays:
            fix = f"This engine provides {listed(sorted(self.provides))}."
            raise UnknownNameError("array", name, self._arrays, fix)
        return self._arrays[name]

    def step(self, ctrl: Any = None, substeps: int = 1) -> None:
        """Advance time by `substeps` ticks; `motion` is evaluated at the last one.

        Raises:
            ArgumentError: a control was given; this engine has no actuators.
        """
        if ctrl is not None:
            raise ArgumentError(f"ctrl: got {shown(ctrl)}, but a TensorEngine has no actuators: write its tensors.")
        self.count_ticks(positive_int(substeps, "substeps"))

    def count_ticks(self, ticks: int) -> None:
        """Register `ticks` steps; `motion` is evaluated at the new time."""
        super().count_ticks(ticks)
        if ticks:
            self._move()

    def _move(self) -> None:
        if self.motion is None:
            return
        values = self.motion(float(self.tick * self.dt_exact))
        if not isinstance(values, Mapping):
            raise ArgumentError(f"motion: returned {shown(values)}, expected a mapping from names of arrays to values.")
        for key, value in values.items():
            name = self.contacts._name(key) if isinstance(key, Requirement) else key
            if name not in self._open:
                raise UnknownNameError("array returned by motion", name, self._open)
            self._assign(name, value)

    def capture(self, on: bool) -> None:
        """Replay the engine's own kernels as captured graphs, or launch each separately."""
        self._compute.capture = on

    def refresh(self) -> None:
        """Convert arrays that are given in another convention, and reduce `contact_list`; others are always current.

        A scene calls this once per tick.
        """
        if self._state is not None:
            self._state.run()
        if self._reducer is not None:
            self._reducer.run()

    def forward(self) -> None:
        """Evaluate `motion` again at the current time."""
        self._move()
        self.refresh()

    def reset(self, env_ids: Any, state: Mapping[str, Any] | None = None) -> None:
        """Write `state` into the rows of environments; arrays that are not in it keep their values.

        Args:
            env_ids: None for all, integers, or a bool mask `[env]`.
            state: array name to values `[n, ...]` for the n environments in the order given, or values that broadcast
                to it.

        Raises:
            ArgumentError: env ids or values do not fit.
            UnknownNameError: a key is not the name of an array.
        """
        if not state:
            env_selection(env_ids, self.num_envs, self.device)  # raises where env_ids is invalid
            self.refresh()
            return
        ids = env_rows(env_ids, self.num_envs)
        values = row_values(state, self._open, self.num_envs if ids is None else len(ids), "state")
        for name in values.keys() & {"body_quat", "body_quat_w"}:
            check_quat(values[name], name)
        for name, value in values.items():
            self._open[name][slice(None) if ids is None else ids.to(self.device)] = value
        self.refresh()

    def state(self) -> dict[str, Any]:
        """Return the tick and all arrays."""
        return {"tick": self.tick, "arrays": copies({**self._open, **self._arrays})}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state`.

        Raises:
            ArgumentError: the state belongs to other bodies or another number of environments.
        """
        restore({**self._open, **self._arrays}, state["arrays"])
        self.tick = int(state["tick"])

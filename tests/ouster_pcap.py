"""Reader of recorded UDP packets of Ouster lidars, firmware 2.x, for tests.

Layouts follow the public "Lidar data packet format" of Ouster's sensor documentation: columns of pixels, with ranges in
mm (profile LEGACY, RNG19_RFL8_SIG16_NIR16) or in units of 8 mm (RNG15_RFL8_NIR8).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sensorium.fitting import Samples

LAYOUTS: dict[str, tuple[int, int, Any]] = {
    "LEGACY": (0, 16, np.dtype({
        "names": ["range", "reflectivity", "signal"], "formats": ["<u4", "<u2", "<u2"], "offsets": [0, 4, 6],
        "itemsize": 12})),
    "RNG19_RFL8_SIG16_NIR16": (32, 12, np.dtype({
        "names": ["range", "reflectivity", "signal"], "formats": ["<u4", "u1", "<u2"], "offsets": [0, 4, 6],
        "itemsize": 12})),
    "RNG15_RFL8_NIR8": (32, 12, np.dtype({
        "names": ["range", "reflectivity"], "formats": ["<u2", "u1"], "offsets": [0, 2], "itemsize": 4})),
}  # fmt: skip
"""Profile -> bytes before the first column, bytes before the pixels of a column, type of a pixel."""
RANGES = {"LEGACY": (0xFFFFF, 1), "RNG19_RFL8_SIG16_NIR16": (0x7FFFF, 1), "RNG15_RFL8_NIR8": (0x7FFF, 8)}
"""Profile -> mask of a range, and its unit in mm."""


def payloads(path: Path, port: int) -> Iterator[bytes]:
    """Yield the payloads of UDP packets to a port, of a pcap file with whole Ethernet frames over IPv4."""
    data = path.read_bytes()
    at = 24
    while at < len(data):
        size = struct.unpack_from("<I", data, at + 8)[0]
        frame = data[at + 16 : at + 16 + size]
        at += 16 + size
        udp = 14 + 4 * (frame[14] & 15)
        if struct.unpack_from(">H", frame, udp + 2)[0] == port:
            yield frame[udp + 8 :]


def read_ouster(pcap: Path, metadata: Path) -> Samples:
    """Return the rays of all scans of a file; `ring` counts from the top, and misses are NaN."""
    about = json.loads(metadata.read_text())
    form = about.get("data_format", {})
    profile = form.get("udp_profile_lidar", "LEGACY")
    altitude = np.radians(about["beam_altitude_angles"])
    azimuth = np.radians(about["beam_azimuth_angles"])
    rows, columns = len(altitude), form.get("columns_per_frame", int(about["lidar_mode"].partition("x")[0]))
    before, header, pixel = LAYOUTS[profile]
    mask, unit = RANGES[profile]
    tail = 4 if profile == "LEGACY" else 0
    column = np.dtype([("header", f"V{header}"), ("pixels", pixel, (rows,)), ("tail", f"V{tail}")])
    offset = about.get("lidar_origin_to_beam_origin_mm", 0.0) / 1000.0
    scans: dict[int, list[tuple[Any, Any, Any]]] = {}
    for payload in payloads(pcap, about.get("udp_port_lidar") or 7502):
        found = np.frombuffer(payload, column, form.get("columns_per_packet", 16), before)
        heads = np.frombuffer(found["header"].tobytes(), np.uint8).reshape(-1, header)
        number = heads[:, 8:10].copy().view("<u2")[:, 0].astype(int)
        if profile == "LEGACY":
            frame = int(heads[0, 10:12].copy().view("<u2")[0])
            valid = np.array([each.tobytes() == b"\xff" * 4 for each in found["tail"]])
        else:
            frame = struct.unpack_from("<H", payload, 2)[0]
            valid = (heads[:, 10] & 1) > 0
        pixels = found["pixels"][valid]
        distance = (pixels["range"] & mask).astype(float) * unit / 1000.0
        light = pixels["signal" if "signal" in (pixel.names or ()) else "reflectivity"].astype(float)
        scans.setdefault(frame, []).append((number[valid], distance, light))
    time, points, ranges, intensity, rings = [], [], [], [], []
    for index, scan in enumerate(scans.values()):
        number, distance, light = (np.concatenate(part) for part in zip(*scan, strict=True))
        order = np.argsort(number)
        number, distance, light = number[order], distance[order].T, light[order].T  # [row, column]
        distance = np.where(distance > 0.0, distance, np.nan)
        encoder = 2.0 * np.pi * (1.0 - number / columns)
        theta = encoder - azimuth[:, None]
        along = distance - offset
        xyz = np.stack([
            along * np.cos(theta) * np.cos(altitude)[:, None] + offset * np.cos(encoder),
            along * np.sin(theta) * np.cos(altitude)[:, None] + offset * np.sin(encoder),
            along * np.sin(altitude)[:, None],
        ], axis=-1)  # fmt: skip
        time.append(np.full(distance.size, 0.1 * index))
        points.append(xyz.reshape(-1, 3))
        ranges.append(distance.reshape(-1, 1))
        intensity.append(light.reshape(-1, 1))
        rings.append(np.repeat(np.arange(float(rows)), len(number))[:, None])
    names = ("points_b", "distances", "intensity", "ring")
    values = dict(zip(names, map(np.concatenate, (points, ranges, intensity, rings)), strict=True))
    return Samples(np.concatenate(time), values, {"points_b": "m", "distances": "m"}, pcap.name)

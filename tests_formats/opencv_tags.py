"""Writes the codes of the AprilTags of `sn.targets` from OpenCV's dictionary: python tests_formats/opencv_tags.py."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

FILE = Path(__file__).parents[1] / "src/sensorium/targets/tag36h11.npy"


def codes() -> np.ndarray:
    """Return the 36 bits of each tag of the family tag36h11, row by row from the upper left, as uint64 `[tag]`.

    OpenCV's tags are upside down.
    """
    dictionary = cv2.aruco.getPredefinedDictionary(cv2.aruco.DICT_APRILTAG_36h11)
    images = [cv2.aruco.generateImageMarker(dictionary, k, 8)[1:7, 1:7] for k in range(len(dictionary.bytesList))]
    bits = np.array([np.rot90(image, 2).reshape(36) > 0 for image in images])
    return bits @ (np.uint64(1) << np.arange(36, dtype=np.uint64)[::-1])


if __name__ == "__main__":
    np.save(FILE, codes())

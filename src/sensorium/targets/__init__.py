"""Boards for the calibration of cameras."""

from sensorium.targets.boards import Board, aprilgrid, apriltag, chessboard

__all__ = ["Board", "aprilgrid", "apriltag", "chessboard"]

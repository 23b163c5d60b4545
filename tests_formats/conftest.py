"""Operators that the tested packages import and do not use in these tests."""

import torch

if torch.version.cuda is None:  # the wheels of torchvision need CUDA for these operators, which images do not use
    OPERATORS = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        OPERATORS.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

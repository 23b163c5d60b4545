"""Live view: a page in the browser with the robot, the readings of its sensors, plots and controls.

The loop's process has a `SceneFeed`, which publishes readings and runs the page's commands between two steps. A
separate process serves the page, so that drawing does not slow the loop down. It sees readings, specs and descriptions
only, so a live scene, a recording and a remote simulation are shown by the same code.
"""

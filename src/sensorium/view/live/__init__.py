"""Live view: a page in the browser with the robot, the readings of its sensors, plots and controls.

The page is a client of a server, like any other: of the server that `LiveView` creates for a scene or a recording, or
of one in another process. A separate process serves it, so that drawing does not slow the loop down.
"""

"""Data sets: the robot, its sensors and its motion by name or by file, as the command line and jobs take them."""

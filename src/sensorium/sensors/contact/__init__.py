"""Contact sensors: switches, net forces, contact reports, collision events."""

"""What server and client say to each other, and in which form: light, and the same on both sides."""

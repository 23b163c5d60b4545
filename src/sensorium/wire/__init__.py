"""Messages between server and client, and their formats: lightweight, and identical on both sides."""

"""One part of an attempt on this machine: its folder, its supervisor, its processes."""

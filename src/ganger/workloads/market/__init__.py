"""What nodes cost over time, and when they can be had: published series of clouds."""

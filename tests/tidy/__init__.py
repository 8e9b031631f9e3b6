"""Tests over the source tree itself."""

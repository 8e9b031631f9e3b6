"""The worked examples of a scheduling lecture."""

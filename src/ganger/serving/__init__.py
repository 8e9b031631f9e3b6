"""Real inference: models behind the Open Inference Protocol, on lanes that a router drives."""

"""Commands for simulations."""

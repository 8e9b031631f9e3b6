"""What runs cost: energy, carbon and money, by which jobs held what and computed when."""

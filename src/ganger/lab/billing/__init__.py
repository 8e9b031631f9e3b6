"""What runs cost: energy, carbon and money, by who held what and computed when."""

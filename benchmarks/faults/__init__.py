"""What goes wrong around a training, done to the product's own command on real data."""

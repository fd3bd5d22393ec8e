"""What Shunter knows of the loss before it imports it."""

from shunter.registry import Entry

SMOOTHED = Entry(target="smoothed_loss_function:smoothed_losses")

"""Learning which accelerator and which settings to take, replayed on recorded trainings."""

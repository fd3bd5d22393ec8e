"""The page that compares schedules."""

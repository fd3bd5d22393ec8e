"""Less work for the same answer: what each way to spare arithmetic gains, each beside what it replaces."""

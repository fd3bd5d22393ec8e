"""Arrays become batches: data sets, loaders, reading ahead."""

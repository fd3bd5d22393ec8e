"""The times of the embedding kernel: real, of every width, and without a trace in the process."""

import torch

from shunter.engine.probes.embedding_rates import LOOKUPS, ROW_BYTES, time_embeddings


def test_lookup_and_update_are_timed_for_each_width() -> None:
    times = time_embeddings(torch.device("cpu"), thread_count=1, table_bytes=2**20, seconds_each=0.001)
    assert [one.row_bytes for one in times] == list(ROW_BYTES)
    for one in times:
        assert one.payload_bytes == LOOKUPS * one.row_bytes
        for durations in (one.lookup_seconds, one.update_seconds):
            assert len(durations) >= 3
            assert min(durations) > 0


def test_the_random_state_and_the_threads_are_given_back() -> None:
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    time_embeddings(torch.device("cpu"), thread_count=threads + 1, table_bytes=2**18, seconds_each=0.001)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads

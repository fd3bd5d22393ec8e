"""The compiled kernel: the same bits with any number of threads, and no memory touched by ids that have no row."""

import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from shutil import which

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from shunter.models.embeddings.kinds import build_tables
from shunter.models.embeddings.native_kernel import NativeKernel
from shunter.models.embeddings.request import Kernel, TableRequest
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.native import library as native_library
from shunter.models.spec import TableShape

SOURCE = Path(native_library.__file__).with_name("kernels.cpp")
RATE = 0.1
# One id a bag, as most fields have it, of a table with most of the lookups and two small ones.
SAMPLES, ROWS, TABLE_OF = 600, (40_000, 3, 50), (0,) * 20 + (1, 2)
IDS = torch.int32, torch.int64
pytestmark = pytest.mark.skipif(native_library.library() is None, reason="the kernels were not compiled here")


def batch(seed: int, lengths: Tensor, kind: torch.dtype = torch.int32) -> tuple[Tensor, Tensor]:
    """Random ids of bags of these lengths."""
    random = torch.Generator().manual_seed(seed)
    ends = lengths.cumsum(0)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), ends])
    ids = torch.cat(
        [
            torch.randint(ROWS[table], (int(lengths[bag * SAMPLES : (bag + 1) * SAMPLES].sum()),), generator=random)
            for bag, table in enumerate(TABLE_OF)
        ]
    )
    return ids.to(kind), offsets.to(kind)


def kernel_after_steps(threads: int, width: int, lengths: Tensor, weigh: bool) -> tuple[NativeKernel, Tensor]:
    """A kernel that has learned two batches, and what it looked up last."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        kernel = NativeKernel(ROWS, [width] * 3, width, RATE, TABLE_OF)
        random = torch.Generator().manual_seed(1)
        kernel.weight.copy_(torch.randn(kernel.weight.shape, generator=random))
        kernel.set_decay(0.01, (1,))
        pooled = torch.zeros(0)
        for seed in range(2):
            ids, offsets = batch(seed, lengths)
            pooled = kernel(ids, offsets, torch.rand(len(ids), generator=random) if weigh else None)
            pooled.backward(torch.randn(pooled.shape, generator=random))
        return kernel, pooled.detach()
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("width", [4, 12, 16, 64])
@pytest.mark.parametrize("weigh", [False, True], ids=["plain", "weighted"])
def test_steps_give_the_same_bits_with_any_number_of_threads(width: int, weigh: bool) -> None:
    lengths = torch.randint(0, 3, (len(TABLE_OF) * SAMPLES,), generator=torch.Generator().manual_seed(5))
    alone, looked_up = kernel_after_steps(1, width, lengths, weigh)
    for threads in (2, 5):
        kernel, pooled = kernel_after_steps(threads, width, lengths, weigh)
        assert torch.equal(pooled, looked_up)
        assert torch.equal(kernel.weight, alone.weight)
        assert torch.equal(kernel.adagrad_sum, alone.adagrad_sum)


@pytest.mark.parametrize("kind", IDS)
def test_wide_ids_and_gradients_with_gaps_learn_the_same(kind: torch.dtype) -> None:
    lengths = torch.ones(len(TABLE_OF) * SAMPLES, dtype=torch.int64)
    ids, offsets = batch(0, lengths, kind)
    width = len(TABLE_OF) * 4
    gradient = torch.randn(SAMPLES, width + 8, generator=torch.Generator().manual_seed(3))[:, 3 : 3 + width]
    found = []
    for given_gradient in (gradient, gradient.contiguous(), gradient.t().contiguous().t()):
        kernel = NativeKernel(ROWS, [4] * 3, 4, RATE, TABLE_OF)
        kernel(ids, offsets).backward(given_gradient)
        found.append(kernel.weight)
    assert found[0].any()
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@st.composite
def weighted_batches(draw: st.DrawFn) -> tuple[list[int], list[list[int]], int]:
    rows = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    samples = draw(st.integers(1, 4))
    bags = [draw(st.lists(st.integers(0, size - 1), max_size=3)) for size in rows for _ in range(samples)]
    return rows, bags, samples


@settings(max_examples=20, deadline=None)
@given(drawn=weighted_batches(), seed=st.integers(0, 50))
def test_weights_of_ids_and_mixed_widths_learn_as_with_torch(
    drawn: tuple[list[int], list[list[int]], int], seed: int
) -> None:
    rows, bags, samples = drawn
    random = torch.Generator().manual_seed(seed)
    values = torch.tensor([one for bag in bags for one in bag], dtype=torch.int32)
    offsets = torch.tensor([0, *(len(bag) for bag in bags)]).cumsum(0).int()
    weights = torch.rand(len(values), generator=random)
    gradient = torch.randn(samples, len(rows), 8, generator=random)
    shapes = tuple(TableShape(ids=one, rows=one, width=4 + 4 * (place % 2)) for place, one in enumerate(rows))

    def learned(kernel: Kernel) -> tuple[EmbeddingTables, Tensor]:
        tables = build_tables(
            TableRequest(
                shapes=shapes,
                dim=8,
                table_of=tuple(range(len(rows))),
                learning_rate=RATE,
                device=torch.device("cpu"),
                kernel=kernel,
                is_mixed=True,
            )
        )
        tables.initialise(torch.Generator().manual_seed(2))
        pooled = tables(values, offsets, weights)
        pooled.backward(gradient)
        return tables, pooled.detach()

    (native, looked_up), (plain, expected) = learned("native"), learned("torch")
    torch.testing.assert_close(looked_up, expected)
    torch.testing.assert_close(native.weight, plain.weight, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(native.adagrad_sum, plain.adagrad_sum)


def two_tables() -> NativeKernel:
    return NativeKernel((5, 3), (4, 4), 4, RATE, (0, 1))


WRONG: dict[str, tuple[type[Exception], Callable[[], tuple[Tensor, ...]]]] = {
    "an id above": (IndexError, lambda: (torch.tensor([0, 4, 0, 3]), torch.arange(5))),
    "an id below": (IndexError, lambda: (torch.tensor([0, -1, 0, 2]), torch.arange(5))),
    "descending offsets": (ValueError, lambda: (torch.tensor([0, 4, 0, 2]), torch.tensor([0, 3, 2, 3, 4]))),
    "offsets beyond the ids": (ValueError, lambda: (torch.tensor([0, 4, 0, 2]), torch.tensor([0, 1, 2, 3, 9]))),
    "a bag too few": (ValueError, lambda: (torch.tensor([0, 4, 0]), torch.arange(4))),
    "no offsets": (ValueError, lambda: (torch.tensor([], dtype=torch.int32), torch.tensor([], dtype=torch.int32))),
    "broken ids": (ValueError, lambda: (torch.tensor([0.5, 4, 0, 2]), torch.arange(5))),
    "weights too few": (ValueError, lambda: (torch.tensor([0, 4, 0, 2]), torch.arange(5), torch.ones(3))),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_batch_is_refused(what: str) -> None:
    error, wrong = WRONG[what]
    with pytest.raises(error):
        two_tables()(*wrong())


def test_tensors_that_repeat_or_skip_memory_are_refused_by_the_bare_lookup() -> None:
    ids, offsets = torch.tensor([0]).expand(4), torch.arange(5)
    with pytest.raises(ValueError, match="contiguous"):
        two_tables().look_up(ids, offsets, None)
    with pytest.raises(ValueError, match="weights"):
        two_tables().look_up(ids.contiguous(), offsets, torch.ones(4, dtype=torch.float64))


def test_a_gradient_of_another_shape_is_refused() -> None:
    ids, offsets = torch.tensor([0, 4, 0, 2]), torch.arange(5)
    with pytest.raises(ValueError, match="gradient"):
        two_tables().update(torch.zeros(2, 7), ids, offsets, None)


def test_a_library_that_does_not_load_is_told_and_not_fatal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    name = native_library.LIBRARY + sysconfig.get_config_var("EXT_SUFFIX")
    (tmp_path / name).write_bytes(b"no library")
    monkeypatch.setattr(native_library, "__file__", str(tmp_path / "library.py"))
    assert native_library.library.__wrapped__() is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    (tmp_path / name).unlink()
    assert native_library.library.__wrapped__() is None
    assert len(caplog.records) == 1


FUZZ = r"""
#include "%s"
#include <cstdio>
#include <random>
#include <vector>
int main() {
  std::mt19937 random(7);
  auto below = [&](int64_t end) { return static_cast<int64_t>(random() %% static_cast<uint64_t>(end)); };
  int64_t refused = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    const int64_t tables = 1 + below(3), samples = below(5), dim = 4 * (1 + below(5));
    std::vector<int64_t> rows, widths, numbers, starts, bags{0};
    int64_t all = 0, of_rows = 0;
    for (int64_t table = 0; table < tables; ++table) {
      rows.push_back(1 + below(40));
      widths.push_back(4 * (1 + below(dim / 4)));
      numbers.push_back(all);
      starts.push_back(of_rows);
      all += rows.back() * widths.back();
      of_rows += rows.back();
      bags.push_back(bags.back() + 1 + below(2));
    }
    std::vector<float> weight(all), sums(of_rows), l2(tables, .1f);
    std::vector<int32_t> offsets{0};
    for (int64_t place = 0; place < bags.back() * samples; ++place) offsets.push_back(offsets.back() + below(4));
    const int64_t count = offsets.back();
    std::vector<int32_t> ids;
    for (int64_t bag = 0, table = 0; bag < bags.back(); ++bag) {
      while (bags[table + 1] <= bag) ++table;
      const int64_t end = offsets[(bag + 1) * samples];
      while (static_cast<int64_t>(ids.size()) < end) ids.push_back(below(rows[table]));
    }
    std::vector<float> by(count, .5f), out(samples * bags.back() * dim), gradient(out.size(), 1.f);
    if (below(3) == 0 && count) ids[below(count)] = static_cast<int32_t>(random());
    if (below(3) == 0) offsets[below(offsets.size())] = static_cast<int32_t>(random());
    const Batch batch{ids.data(), offsets.data(), below(2) ? by.data() : nullptr, count, samples, 0, 0};
    const Tables all_tables{weight.data(), sums.data(), rows.data(), widths.data(), numbers.data(), starts.data(),
                            bags.data(), l2.data(), tables, dim};
    refused += shunter_look_up(&batch, &all_tables, out.data(), 1 + below(3)) != DONE;
    const int64_t apart = bags.back() * dim;
    refused += shunter_update(&batch, &all_tables, gradient.data(), apart, .1f, 1e-8f, 1 + below(3)) != DONE;
  }
  printf("%%ld\n", static_cast<long>(refused));
}
"""


@pytest.mark.skipif(which("g++") is None, reason="needs g++")
def test_random_and_broken_batches_touch_no_foreign_memory(tmp_path: Path) -> None:
    program, source = tmp_path / "fuzz", tmp_path / "fuzz.cpp"
    source.write_text(FUZZ % SOURCE)
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DPLAIN", "-O1", "-std=c++17"]
    subprocess.run(["g++", *checks, "-Wno-unknown-pragmas", str(source), "-o", str(program)], check=True)
    ended = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 100

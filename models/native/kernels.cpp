// Kernels for processors: pooled lookup in all embedding tables of a model and their exact row-wise Adagrad, and the
// dot products of each pair of a sample's vectors.
//
// Numbers are summed in one order, whatever the number of threads and the width of the vector instructions, so a step
// repeats bit by bit: the gradients of a row in the order of the batch. Threads take whole tables; a table with many
// lookups is divided by rows. They are those of the OpenMP that torch has loaded: a second team would compete with it
// for the cores.
//
// A batch holds its ids bag by bag, and sample by sample within a bag. Every id and offset is checked before memory is
// touched by it. Functions return `DONE`, or what was wrong.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__) && !defined(PLAIN)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif
#define INLINE static inline __attribute__((always_inline))

namespace {

constexpr int64_t DONE = -1, BAD_OFFSETS = -2, NO_MEMORY = -3;  // or the place of an id without a row
constexpr int64_t ROWS_AHEAD = 8;                               // are fetched while one is worked on
constexpr int64_t LOOKUPS_OF_A_THREAD = 4096;                   // fewer are not worth waking another thread
constexpr int64_t SAMPLES_AT_ONCE = 256;
constexpr int64_t PAIRED_OF_A_THREAD = 64;  // samples, likewise
constexpr int64_t LANES = 16;               // columns of a block of a product, numbers of the widest register
constexpr int64_t BLOCK_ROWS = 4;

}  // namespace

extern "C" {

// A batch; see `EmbeddingTables.forward` for the order of ids and offsets.
struct Batch {
  const void* ids;          // [count], int32 or int64
  const void* offsets;      // [bags * samples + 1], int32 or int64
  const float* id_weights;  // [count]; null is 1
  int64_t count, samples;
  int32_t wide_ids, wide_offsets;  // whether they are int64
};

// The tables, one behind the other in memory.
struct Tables {
  float* weight;
  float* sums;                  // the optimizer's state, one number a row
  const int64_t* rows;          // [tables]
  const int64_t* widths;        // [tables], multiples of 4
  const int64_t* first_number;  // [tables], of the table's rows in `weight`
  const int64_t* first_row;     // [tables], in `sums`
  const int64_t* first_bag;     // [tables + 1], the bags that look up in each table
  const float* l2;              // [tables], weight decay of a row that a step touches
  int64_t tables;
  int64_t dim;  // columns of a bag in outputs and gradients: those beyond the width of its table are zeros
};

}  // extern "C"

namespace {

INLINE int64_t number(const void* array, int32_t is_wide, int64_t place) {
  return is_wide ? static_cast<const int64_t*>(array)[place] : static_cast<const int32_t*>(array)[place];
}

bool offsets_are_sound(const Batch& batch, int64_t bags) {
  const int64_t end = bags * batch.samples;
  int64_t last = number(batch.offsets, batch.wide_offsets, 0);
  if (last != 0) return false;
  bool is_sound = true;
  for (int64_t place = 1; place <= end; ++place) {
    const int64_t next = number(batch.offsets, batch.wide_offsets, place);
    is_sound &= next >= last;
    last = next;
  }
  return is_sound && last == batch.count;
}

// Memory of one thread, kept for its next call.
struct Scratch {
  void* memory = nullptr;
  size_t bytes = 0;
  ~Scratch() { free(memory); }
  void* of(size_t wanted) {
    if (wanted > bytes) {
      free(memory);
      memory = nullptr;
      bytes = 0;
      if (posix_memalign(&memory, 64, wanted)) return memory = nullptr;
      bytes = wanted;
    }
    return memory;
  }
};

template <int64_t W>
INLINE void look_up_bag(const Batch& batch, const float* table, int64_t rows, int64_t width_now, int64_t bag,
                        int64_t first_sample, int64_t end_sample, float* out, int64_t out_stride, int64_t dim,
                        int64_t* wrong) {
  const int64_t width = W ? W : width_now;
  int64_t begin = number(batch.offsets, batch.wide_offsets, bag * batch.samples + first_sample);
  for (int64_t sample = first_sample; sample < end_sample; ++sample) {
    const int64_t end = number(batch.offsets, batch.wide_offsets, bag * batch.samples + sample + 1);
    float* __restrict__ vector = out + sample * out_stride;
    if (begin == end) memset(vector, 0, width * sizeof(float));
    for (int64_t place = begin; place < end; ++place) {
      if (place + ROWS_AHEAD < batch.count) {
        const char* ahead =
            reinterpret_cast<const char*>(table) + number(batch.ids, batch.wide_ids, place + ROWS_AHEAD) * width * 4;
        for (int64_t line = 0; line < width * 4; line += 64) __builtin_prefetch(ahead + line);
      }
      const int64_t id = number(batch.ids, batch.wide_ids, place);
      if (id < 0 || id >= rows) {
        *wrong = place;
        return;
      }
      const float* __restrict__ row = table + id * width;
      if (batch.id_weights) {
        const float by = batch.id_weights[place];
        if (place == begin)
          for (int64_t column = 0; column < width; ++column) vector[column] = by * row[column];
        else
          for (int64_t column = 0; column < width; ++column) vector[column] += by * row[column];
      } else if (place == begin) {
        for (int64_t column = 0; column < width; ++column) vector[column] = row[column];
      } else {
        for (int64_t column = 0; column < width; ++column) vector[column] += row[column];
      }
    }
    for (int64_t column = width; column < dim; ++column) vector[column] = 0;
    begin = end;
  }
}

FOR_EACH_PROCESSOR void look_up_some(const Batch& batch, const float* table, int64_t rows, int64_t width, int64_t bag,
                                     int64_t first_sample, int64_t end_sample, float* out, int64_t out_stride,
                                     int64_t dim, int64_t* wrong) {
#define LOOK_UP(W) look_up_bag<W>(batch, table, rows, width, bag, first_sample, end_sample, out, out_stride, dim, wrong)
  switch (width) {
    case 4: return LOOK_UP(4);
    case 8: return LOOK_UP(8);
    case 16: return LOOK_UP(16);
    case 32: return LOOK_UP(32);
    case 64: return LOOK_UP(64);
    case 128: return LOOK_UP(128);
    default: return LOOK_UP(0);
  }
#undef LOOK_UP
}

// The sum of squares in one order for every width of vector instructions.
template <int64_t W>
INLINE float sum_of_squares(const float* __restrict__ values, int64_t width_now) {
  const int64_t width = W ? W : width_now;
  constexpr int64_t SUMS = W == 0 || W == 4 ? 4 : (W == 8 ? 8 : 16);
  float lanes[SUMS] = {};
  for (int64_t column = 0; column < width; column += SUMS)
    for (int64_t lane = 0; lane < SUMS; ++lane) lanes[lane] += values[column + lane] * values[column + lane];
  for (int64_t half = SUMS / 2; half; half /= 2)
    for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

// The rows of one table, or of one of several parts of it by row, that a batch looks up.
struct Part {
  int64_t table, part, parts;
};

INLINE uint64_t scattered(int64_t row) { return static_cast<uint64_t>(row) * 0x9E3779B97F4A7C15ull; }

template <int64_t W>
INLINE int64_t update_rows(const Batch& batch, const Tables& tables, const Part& mine, const float* gradient,
                           int64_t gradient_stride, float rate, float epsilon, Scratch& scratch) {
  const int64_t table = mine.table, width = W ? W : tables.widths[table], rows = tables.rows[table];
  const int64_t first_bag = tables.first_bag[table], end_bag = tables.first_bag[table + 1];
  const int64_t first = number(batch.offsets, batch.wide_offsets, first_bag * batch.samples);
  const int64_t end = number(batch.offsets, batch.wide_offsets, end_bag * batch.samples);
  const int64_t count = end - first;
  if (!count) return DONE;
  int64_t digits = 4;
  while ((int64_t(1) << digits) < 2 * count) ++digits;
  const int64_t places = int64_t(1) << digits;
  const bool is_direct = rows <= places;  // each row has a place of its own
  const size_t of_sums = ((count * width * 4 + 63) / 64) * 64, of_rows = ((count * 8 + 63) / 64) * 64;
  const size_t of_slots = ((count * 4 + 63) / 64) * 64;
  char* memory = static_cast<char*>(scratch.of(of_sums + of_rows + of_slots + places * 4));
  if (!memory) return NO_MEMORY;
  float* __restrict__ summed = reinterpret_cast<float*>(memory);                           // by slot
  int64_t* __restrict__ row_of = reinterpret_cast<int64_t*>(memory + of_sums);             // by slot
  int32_t* __restrict__ slot_of = reinterpret_cast<int32_t*>(memory + of_sums + of_rows);  // by lookup; -1 is another's
  int32_t* __restrict__ slot_at = reinterpret_cast<int32_t*>(memory + of_sums + of_rows + of_slots);  // by hash
  memset(slot_at, -1, places * 4);
  int32_t slots = 0;
  for (int64_t lookup = 0; lookup < count; ++lookup) {  // distinct rows, in the order of their first lookup
    const int64_t row = number(batch.ids, batch.wide_ids, first + lookup);
    if (row < 0 || row >= rows) return first + lookup;
    const uint64_t hash = scattered(row);
    if (mine.parts > 1 && static_cast<int64_t>((hash >> 32) % mine.parts) != mine.part) {
      slot_of[lookup] = -1;
      continue;
    }
    int64_t place = is_direct ? row : static_cast<int64_t>(hash >> (64 - digits));
    int32_t slot;
    while ((slot = slot_at[place]) >= 0 && row_of[slot] != row) place = (place + 1) & (places - 1);
    if (slot < 0) {
      slot = slot_at[place] = slots;
      row_of[slots++] = row;
    }
    slot_of[lookup] = slot;
  }
  int32_t seen = 0;
  int64_t lookup = 0;
  for (int64_t bag = first_bag; bag < end_bag; ++bag) {  // their gradients
    for (int64_t sample = 0; sample < batch.samples; ++sample) {
      const int64_t bag_end = number(batch.offsets, batch.wide_offsets, bag * batch.samples + sample + 1) - first;
      const float* __restrict__ of_bag = gradient + sample * gradient_stride + bag * tables.dim;
      __builtin_prefetch(of_bag + ROWS_AHEAD * gradient_stride);
      for (; lookup < bag_end; ++lookup) {
        const int32_t slot = slot_of[lookup];
        if (slot < 0) continue;
        float* __restrict__ sum = summed + slot * width;
        const float by = batch.id_weights ? batch.id_weights[first + lookup] : 1.0f;
        if (slot == seen) {
          ++seen;
          for (int64_t column = 0; column < width; ++column) sum[column] = by * of_bag[column];
        } else {
          for (int64_t column = 0; column < width; ++column) sum[column] += by * of_bag[column];
        }
      }
    }
  }
  float* __restrict__ weight = tables.weight + tables.first_number[table];
  float* __restrict__ sums = tables.sums + tables.first_row[table];
  const float l2 = tables.l2[table];
  for (int32_t slot = 0; slot < slots; ++slot) {  // each distinct row once
    if (slot + ROWS_AHEAD < slots) {
      const int64_t ahead = row_of[slot + ROWS_AHEAD];
      for (int64_t column = 0; column < width; column += 16) __builtin_prefetch(weight + ahead * width + column, 1);
      __builtin_prefetch(sums + ahead, 1);
    }
    float* __restrict__ row = weight + row_of[slot] * width;
    float* __restrict__ sum = summed + slot * width;
    if (l2 != 0)
      for (int64_t column = 0; column < width; ++column) sum[column] += l2 * row[column];
    const float state = sums[row_of[slot]] += sum_of_squares<W>(sum, width) / static_cast<float>(width);
    const float scale = rate / (std::sqrt(state) + epsilon);
    for (int64_t column = 0; column < width; ++column) row[column] -= scale * sum[column];
  }
  return DONE;
}

FOR_EACH_PROCESSOR int64_t update_part(const Batch& batch, const Tables& tables, const Part& mine,
                                       const float* gradient, int64_t gradient_stride, float rate, float epsilon,
                                       Scratch& scratch) {
#define UPDATE(W) update_rows<W>(batch, tables, mine, gradient, gradient_stride, rate, epsilon, scratch)
  switch (tables.widths[mine.table]) {
    case 4: return UPDATE(4);
    case 8: return UPDATE(8);
    case 16: return UPDATE(16);
    case 32: return UPDATE(32);
    case 64: return UPDATE(64);
    case 128: return UPDATE(128);
    default: return UPDATE(0);
  }
#undef UPDATE
}

// `c` = `a` `b`, of few rows and columns: [m, k] and [k, n], n a multiple of W.
template <int64_t W, int64_t R>
INLINE void multiply_block(const float* __restrict__ a, int64_t a_stride, const float* __restrict__ b, int64_t b_stride,
                           float* __restrict__ c, int64_t c_stride, int64_t k) {
  typedef float Numbers __attribute__((vector_size(W * sizeof(float)), aligned(sizeof(float))));
  Numbers sums[R] = {};
  for (int64_t inner = 0; inner < k; ++inner) {
    const Numbers of_b = *reinterpret_cast<const Numbers*>(b + inner * b_stride);
#pragma GCC unroll 8
    for (int64_t row = 0; row < R; ++row) sums[row] += a[row * a_stride + inner] * of_b;
  }
#pragma GCC unroll 8
  for (int64_t row = 0; row < R; ++row) *reinterpret_cast<Numbers*>(c + row * c_stride) = sums[row];
}

// With `LOWER` only blocks that hold numbers below the diagonal of a square `c`.
template <int64_t W, bool LOWER = false>
INLINE void multiply(const float* a, int64_t a_stride, const float* b, int64_t b_stride, float* c, int64_t c_stride,
                     int64_t m, int64_t n, int64_t k) {
  for (int64_t column = 0; column < n; column += W) {
    int64_t row = LOWER ? column : 0;
    for (; row + BLOCK_ROWS <= m; row += BLOCK_ROWS)
      multiply_block<W, BLOCK_ROWS>(a + row * a_stride, a_stride, b + column, b_stride, c + row * c_stride + column,
                                    c_stride, k);
    for (; row < m; ++row)
      multiply_block<W, 1>(a + row * a_stride, a_stride, b + column, b_stride, c + row * c_stride + column, c_stride,
                           k);
  }
}

INLINE int64_t padded(int64_t vectors) { return (vectors + LANES - 1) / LANES * LANES; }

FOR_EACH_PROCESSOR void pair_some(const float* vectors, int64_t count, int64_t dim, float* products, int64_t first,
                                  int64_t end, float* scratch) {
  const int64_t columns = padded(count), pairs = count * (count - 1) / 2;
  float *transposed = scratch, *all = scratch + dim * columns;
  memset(transposed, 0, dim * columns * sizeof(float));
  for (int64_t sample = first; sample < end; ++sample) {
    const float* of_sample = vectors + sample * count * dim;
    for (int64_t vector = 0; vector < count; ++vector)
      for (int64_t number = 0; number < dim; ++number)
        transposed[number * columns + vector] = of_sample[vector * dim + number];
    multiply<LANES, true>(of_sample, dim, transposed, columns, all, columns, count, columns, dim);
    float* out = products + sample * pairs;
    for (int64_t vector = 1; vector < count; out += vector++)
      memcpy(out, all + vector * columns, vector * sizeof(float));
  }
}

FOR_EACH_PROCESSOR void pair_some_backward(const float* vectors, int64_t count, int64_t dim, const float* gradient,
                                           int64_t gradient_stride, float* out, int64_t first, int64_t end,
                                           float* symmetric) {
  memset(symmetric, 0, count * count * sizeof(float));
  for (int64_t sample = first; sample < end; ++sample) {
    const float* of_pair = gradient + sample * gradient_stride;
    for (int64_t vector = 1; vector < count; ++vector)
      for (int64_t other = 0; other < vector; ++other)
        symmetric[vector * count + other] = symmetric[other * count + vector] = *of_pair++;
    const float* of_sample = vectors + sample * count * dim;
    float* result = out + sample * count * dim;
    if (dim % LANES == 0)
      multiply<LANES>(symmetric, count, of_sample, dim, result, dim, count, dim, count);
    else if (dim % 4 == 0)
      multiply<4>(symmetric, count, of_sample, dim, result, dim, count, dim, count);
    else
      multiply<1>(symmetric, count, of_sample, dim, result, dim, count, dim, count);
  }
}

int64_t worth_threads(int64_t work, int64_t of_a_thread, int64_t threads) {
  const int64_t worth = work / of_a_thread + 1;
  return worth < threads ? worth : threads;
}

}  // namespace

extern "C" {

// Sum the rows of each bag: `out` is [samples, bags * dim].
int64_t shunter_look_up(const Batch* batch, const Tables* tables, float* out, int64_t threads) {
  const int64_t bags = tables->first_bag[tables->tables], dim = tables->dim, samples = batch->samples;
  if (!offsets_are_sound(*batch, bags)) return BAD_OFFSETS;
  const int64_t blocks = (samples + SAMPLES_AT_ONCE - 1) / SAMPLES_AT_ONCE;
  int64_t wrong = DONE;
#pragma omp parallel for schedule(dynamic, 4) num_threads(worth_threads(bags * samples, LOOKUPS_OF_A_THREAD, threads))
  for (int64_t unit = 0; unit < bags * blocks; ++unit) {
    const int64_t bag = unit / blocks, first = unit % blocks * SAMPLES_AT_ONCE;
    const int64_t end = first + SAMPLES_AT_ONCE < samples ? first + SAMPLES_AT_ONCE : samples;
    int64_t table = 0;
    while (tables->first_bag[table + 1] <= bag) ++table;
    int64_t wrong_here = DONE;
    look_up_some(*batch, tables->weight + tables->first_number[table], tables->rows[table], tables->widths[table], bag,
                 first, end, out + bag * dim, bags * dim, dim, &wrong_here);
    if (wrong_here != DONE) {
#pragma omp atomic write
      wrong = wrong_here;
    }
  }
  return wrong;
}

// Sum the gradients of each distinct row, and update it once: `gradient` is [samples, bags * dim], samples so many
// numbers apart.
int64_t shunter_update(const Batch* batch, const Tables* tables, const float* gradient, int64_t gradient_stride,
                       float rate, float epsilon, int64_t threads) {
  const int64_t bags = tables->first_bag[tables->tables];
  if (!offsets_are_sound(*batch, bags)) return BAD_OFFSETS;
  const int64_t count = batch->count, at_once = worth_threads(count, LOOKUPS_OF_A_THREAD, threads);
  if (!count) return DONE;
  int64_t parts = 0;
  Part* all = static_cast<Part*>(malloc(sizeof(Part) * (tables->tables + at_once)));
  if (!all) return NO_MEMORY;
  for (int64_t table = 0; table < tables->tables; ++table) {
    const int64_t lookups = number(batch->offsets, batch->wide_offsets, tables->first_bag[table + 1] * batch->samples) -
                            number(batch->offsets, batch->wide_offsets, tables->first_bag[table] * batch->samples);
    const int64_t divided = lookups * at_once / count + (lookups * at_once % count != 0);
    for (int64_t part = 0; part < divided; ++part) all[parts++] = {table, part, divided};
  }
  int64_t wrong = DONE;
#pragma omp parallel for schedule(dynamic, 1) num_threads(at_once)
  for (int64_t unit = 0; unit < parts; ++unit) {
    static thread_local Scratch scratch;
    const int64_t found =
        update_part(*batch, *tables, all[unit], gradient, gradient_stride, rate, epsilon, scratch);
    if (found != DONE) {
#pragma omp atomic write
      wrong = found;
    }
  }
  free(all);
  return wrong;
}

// The dot product of each pair (i, j), i > j, of a sample's vectors, row by row of the lower triangle: `vectors` is
// [samples, count, dim], `products` [samples, count * (count - 1) / 2].
int64_t shunter_pair(const float* vectors, int64_t samples, int64_t count, int64_t dim, float* products,
                     int64_t threads) {
  const int64_t at_once = worth_threads(samples, PAIRED_OF_A_THREAD, threads);
  int64_t result = DONE;
#pragma omp parallel for schedule(static) num_threads(at_once)
  for (int64_t part = 0; part < at_once; ++part) {
    static thread_local Scratch scratch;
    float* memory = static_cast<float*>(scratch.of((dim + count) * padded(count) * sizeof(float)));
    if (memory)
      pair_some(vectors, count, dim, products, samples * part / at_once, samples * (part + 1) / at_once, memory);
    else
#pragma omp atomic write
      result = NO_MEMORY;
  }
  return result;
}

// The gradient of the vectors: `gradient` is that of `products`, samples so many numbers apart.
int64_t shunter_pair_backward(const float* vectors, int64_t samples, int64_t count, int64_t dim, const float* gradient,
                              int64_t gradient_stride, float* out, int64_t threads) {
  const int64_t at_once = worth_threads(samples, PAIRED_OF_A_THREAD, threads);
  int64_t result = DONE;
#pragma omp parallel for schedule(static) num_threads(at_once)
  for (int64_t part = 0; part < at_once; ++part) {
    static thread_local Scratch scratch;
    float* memory = static_cast<float*>(scratch.of(count * count * sizeof(float)));
    if (memory)
      pair_some_backward(vectors, count, dim, gradient, gradient_stride, out, samples * part / at_once,
                         samples * (part + 1) / at_once, memory);
    else
#pragma omp atomic write
      result = NO_MEMORY;
  }
  return result;
}

}  // extern "C"

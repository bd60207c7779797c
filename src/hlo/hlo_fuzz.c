// Bytes drive calls of the builder: whatever they say, nothing may crash, and a module either prints or has an error.
//
// With libFuzzer: clang -fsanitize=fuzzer,address hlo/hlo_fuzz.c hlo/*.c base/*.c
// Without: -DTT_FUZZ_MAIN gives a main() that runs files (`hlo_fuzz FILE...`), random inputs (`hlo_fuzz COUNT`), or
// prints the modules of random inputs (`hlo_fuzz --print COUNT`), to be given to a compiler.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hlo/hlo.h"
#include "support/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_VALUES = 48, MAX_OPS = 40 };

typedef struct fuzz {
  const uint8_t *data;
  size_t size;
  tt_hlo_builder *b, *other;
  tt_hlo values[MAX_VALUES];
  int count, depth;
} fuzz;

// ---- choices ----
static unsigned byte(fuzz *f) {
  if (!f->size) {
    return 0;
  }
  f->size--;
  return *f->data++;
}

static unsigned pick(fuzz *f, unsigned n) { return byte(f) % n; }
static bool rarely(fuzz *f) { return byte(f) >= 254; }

static int64_t number(fuzz *f) {
  static const int64_t odd[] = {-1,        -3,        7,         64,        1 << 20, INT32_MAX, (int64_t)1 << 40,
                                1LL << 62, INT64_MAX, INT64_MIN, 1000000007};
  return rarely(f) ? odd[pick(f, sizeof odd / sizeof *odd)] : (int64_t)pick(f, 5);
}

static int32_t dim_of(fuzz *f, int32_t rank) {
  return rarely(f) ? (int32_t)number(f) : rank > 0 ? (int32_t)pick(f, (unsigned)rank) : 0;
}

static void numbers(fuzz *f, int64_t *values, int count) {
  for (int i = 0; i < count; i++) {
    values[i] = number(f);
  }
}

static void some_dims(fuzz *f, int32_t *dims, int32_t rank, int32_t *out_count) {
  unsigned mask = byte(f);
  *out_count = 0;
  for (int32_t i = 0; i < rank && i < 8; i++) {
    if (mask >> i & 1) {
      dims[(*out_count)++] = rarely(f) ? dim_of(f, rank) : i;
    }
  }
}

static tt_dtype dtype(fuzz *f) {
  static const tt_dtype common[] = {TT_F32, TT_F32, TT_F32, TT_S32, TT_S64, TT_PRED, TT_BF16, TT_C64};
  return pick(f, 4) ? common[pick(f, 8)] : (tt_dtype)pick(f, TT_DTYPE_COUNT + 1);
}

static tt_hlo value(fuzz *f) {
  if (rarely(f)) {
    return NULL;
  }
  return f->count ? f->values[pick(f, (unsigned)f->count)] : NULL;
}

// A value of the type of x, mostly.
static tt_hlo like(fuzz *f, tt_hlo x) {
  unsigned start = byte(f);
  for (int i = 0; x && i < f->count && !rarely(f); i++) {
    tt_hlo y = f->values[(start + (unsigned)i) % (unsigned)f->count];
    if (y && y->dtype == x->dtype && tt_hlo_same_dims(x, y)) {
      return y;
    }
  }
  return value(f);
}

static void keep(fuzz *f, tt_hlo x) {
  if (x) {
    f->values[f->count < MAX_VALUES ? f->count++ : (int)pick(f, MAX_VALUES)] = x;
  }
}

// ---- operations ----
static void step(fuzz *f);

static void leaf(fuzz *f) {
  int64_t dims[TT_MAX_RANK + 2];
  int32_t rank = rarely(f) ? (int32_t)pick(f, TT_MAX_RANK + 2) : (int32_t)pick(f, 4);
  numbers(f, dims, rank);
  double values[3] = {(double)number(f), 0.1, (double)number(f) / 3};
  switch (pick(f, 7)) {
    case 0:
      keep(f, tt_hlo_const(f->b, dtype(f), values[2], dims, rank));
      break;
    case 1:
      keep(f, tt_hlo_const_int(f->b, dtype(f), number(f), dims, rank));
      break;
    case 2:
      keep(f, tt_hlo_const_floats(f->b, dtype(f), values, (int64_t)pick(f, 4)));
      break;
    case 3:
      keep(f, tt_hlo_iota(f->b, dtype(f), dims, rank, dim_of(f, rank)));
      break;
    case 4:
      keep(f, tt_hlo_const_ints(f->b, dtype(f), dims, rank));
      break;
    default:
      keep(f, tt_hlo_parameter(f->b, dtype(f), dims, rank));
  }
}

static void elementwise(fuzz *f) {
  tt_hlo x = value(f);
  tt_hlo y = like(f, x);
  switch (pick(f, 10)) {
    case 0:
    case 1:
      keep(f, tt_hlo_unary((tt_hlo_unary_kind)pick(f, TT_UNARY_COUNT + 1), x));
      break;
    case 2:
    case 3:
      keep(f, tt_hlo_binary((tt_hlo_binary_kind)pick(f, TT_BINARY_COUNT + 1), x, y));
      break;
    case 4:
      keep(f, tt_hlo_compare((tt_hlo_compare_kind)pick(f, 7), x, y));
      break;
    case 5:
      keep(f, tt_hlo_select(tt_hlo_compare(TT_EQ, x, y), x, like(f, x)));
      break;
    case 6:
      keep(f, tt_hlo_clamp(x, y, like(f, x)));
      break;
    case 7:
      keep(f, tt_hlo_convert(x, dtype(f)));
      break;
    case 8:
      keep(f, tt_hlo_bitcast_convert(x, dtype(f)));
      break;
    default:
      keep(f, pick(f, 2) ? tt_hlo_complex(x, y) : tt_hlo_reduce_precision(x, (int32_t)number(f), (int32_t)number(f)));
  }
}

static void shape(fuzz *f) {
  tt_hlo x = value(f);
  int32_t rank = x ? x->rank : 2, list[TT_MAX_RANK] = {0}, count;
  int64_t a[TT_MAX_RANK + 1], c[TT_MAX_RANK + 1], d[TT_MAX_RANK + 1];
  for (int32_t i = 0; i < rank; i++) {
    list[i] = rarely(f) ? dim_of(f, rank) : rank - 1 - i;
    a[i] = rarely(f) ? number(f) : 0;
    c[i] = x && !rarely(f) ? x->dims[i] : number(f);
    d[i] = 1 + (int64_t)pick(f, 2);
  }
  switch (pick(f, 8)) {
    case 0:
      a[0] = tt_hlo_numel(x);
      a[1] = 1;
      keep(f, tt_hlo_reshape(x, a, 1 + (int32_t)pick(f, 2)));
      break;
    case 1:
      keep(f, tt_hlo_transpose(x, list));
      break;
    case 2:
      keep(f, tt_hlo_broadcast_to(x, c, rank));
      break;
    case 3:
      keep(f, tt_hlo_slice(x, a, c, d));
      break;
    case 4:
      keep(f, tt_hlo_pad(x, x ? tt_hlo_scalar(f->b, x->dtype, 1) : NULL, a, d, pick(f, 2) ? NULL : d));
      break;
    case 5:
      keep(f, tt_hlo_concatenate((tt_hlo[]){x, like(f, x), x}, 1 + (int32_t)pick(f, 3), dim_of(f, rank)));
      break;
    case 6:
      some_dims(f, list, rank, &count);
      keep(f, tt_hlo_reverse(x, list, count));
      break;
    default: {
      tt_hlo starts[TT_MAX_RANK];
      for (int32_t i = 0; i < rank; i++) {
        starts[i] = tt_hlo_scalar(f->b, TT_S32, (double)pick(f, 4));
        c[i] = rarely(f) ? number(f) : c[i] / 2;
      }
      keep(f, tt_hlo_dynamic_slice(x, starts, c));
      keep(f, tt_hlo_dynamic_update_slice(x, like(f, x), starts));
    }
  }
}

// A body of random operations.
static void reduce_body(void *context, tt_hlo_builder *b, const tt_hlo *left, const tt_hlo *right, tt_hlo *out) {
  fuzz *f = context;
  (void)b;
  int saved = f->count;
  keep(f, left[0]);
  keep(f, right[0]);
  if (pick(f, 4) == 0) {
    step(f);
  }
  f->count = f->count < saved ? f->count : saved;
  out[0] = tt_hlo_binary(TT_ADD, left[0], right[0]);
}

static tt_hlo loop_cond(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  fuzz *f = context;
  return rarely(f) ? value(f) : tt_hlo_compare(TT_LT, state[0], tt_hlo_scalar(b, TT_S32, 3));
}

static void loop_body(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  fuzz *f = context;
  tt_hlo values[MAX_VALUES];
  int saved = f->count;
  memcpy(values, f->values, sizeof values);
  keep(f, state[1]);
  f->depth++;
  for (unsigned n = pick(f, 4); n && f->depth < 80; n--) {
    step(f);
  }
  f->depth--;
  out[0] = tt_hlo_binary(TT_ADD, state[0], tt_hlo_scalar(b, TT_S32, 1));
  out[1] = like(f, state[1]);
  memcpy(f->values, values, sizeof values);
  f->count = saved;
}

static void regions(fuzz *f) {
  tt_hlo x = value(f), out[3] = {0};
  int32_t rank = x ? x->rank : 1, dims[TT_MAX_RANK], count;
  some_dims(f, dims, rank, &count);
  int64_t sizes[TT_MAX_RANK], strides[TT_MAX_RANK], pads[TT_MAX_RANK];
  for (int32_t i = 0; i < rank; i++) {
    sizes[i] = rarely(f) ? number(f) : 1 + (int64_t)pick(f, 2);
    strides[i] = 1 + (int64_t)pick(f, 2);
    pads[i] = rarely(f) ? number(f) : (int64_t)pick(f, 2);
  }
  tt_hlo_window window = {.sizes = sizes,
                          .strides = pick(f, 2) ? strides : NULL,
                          .pad_low = pick(f, 2) ? pads : NULL,
                          .dilation = rarely(f) ? strides : NULL,
                          .base_dilation = rarely(f) ? strides : NULL};
  switch (pick(f, 7)) {
    case 0:
      keep(f, tt_hlo_reduce((tt_hlo_reducer)pick(f, 7), x, dims, count));
      break;
    case 1:
      keep(f, tt_hlo_reduce_window((tt_hlo_reducer)pick(f, 7), x, &window));
      break;
    case 2: {
      tt_hlo init = x ? tt_hlo_scalar(f->b, x->dtype, 0) : NULL;
      tt_hlo_reduce_multi(&x, &init, 1, dims, count, reduce_body, f, out);
      break;
    }
    case 3: {
      tt_hlo init = x ? tt_hlo_scalar(f->b, x->dtype, 0) : NULL;
      tt_hlo windows = tt_hlo_reduce_window(TT_MAX, x, &window);
      keep(f, tt_hlo_select_and_scatter(x, windows, init, &window));
      break;
    }
    case 4: {
      tt_hlo state[2] = {tt_hlo_scalar(f->b, TT_S32, 0), x};
      tt_hlo_while(state, 2, loop_cond, loop_body, f, out);
      break;
    }
    case 5:
      tt_hlo_top_k(x, number(f), &out[0], &out[1]);
      break;
    default: {
      tt_hlo xs[3] = {x, like(f, x), x};
      tt_hlo_sort(xs, 1 + (int32_t)pick(f, 3), dim_of(f, rank), pick(f, 2), pick(f, 2), pick(f, 4) == 0, out);
    }
  }
  for (int i = 0; i < 3; i++) {
    keep(f, out[i]);
  }
}

static void dot(fuzz *f) {
  tt_hlo x = value(f), y = like(f, x);
  int32_t batch[TT_MAX_RANK], contract[TT_MAX_RANK], batch_count = 0, contract_count = 0;
  for (int32_t i = 0; x && i < x->rank; i++) {
    unsigned use = pick(f, 3);
    if (use == 1) {
      batch[batch_count++] = dim_of(f, x->rank);
    } else if (use == 2) {
      contract[contract_count++] = i;
    }
  }
  tt_hlo_dot_dims dims = {batch, batch, contract, contract, batch_count, contract_count};
  keep(f, tt_hlo_dot_general(x, y, &dims, (tt_hlo_precision)pick(f, 3), rarely(f) ? dtype(f) : TT_DTYPE_INVALID));
}

static void convolution(fuzz *f) {
  int32_t spatial[] = {2, 3, 4, 5, 6};
  int64_t low[5], high[5], ones[5];
  int32_t rank = (int32_t)pick(f, 3);
  for (int i = 0; i < 5; i++) {
    low[i] = rarely(f) ? number(f) : (int64_t)pick(f, 3);
    high[i] = rarely(f) ? number(f) : (int64_t)pick(f, 3) - 1;
    ones[i] = rarely(f) ? number(f) : 1 + (int64_t)pick(f, 2);
  }
  tt_hlo_conv_dims dims = {.spatial_rank = rank,
                           .lhs_batch = dim_of(f, 1),
                           .lhs_feature = 1,
                           .rhs_in_feature = 1,
                           .rhs_out_feature = 0,
                           .out_batch = 0,
                           .out_feature = 1,
                           .lhs_spatial = spatial,
                           .rhs_spatial = spatial,
                           .out_spatial = spatial,
                           .pad_low = pick(f, 2) ? low : NULL,
                           .pad_high = pick(f, 2) ? high : NULL,
                           .strides = pick(f, 2) ? ones : NULL,
                           .lhs_dilation = pick(f, 2) ? ones : NULL,
                           .rhs_dilation = pick(f, 2) ? ones : NULL,
                           .feature_groups = pick(f, 3),
                           .batch_groups = pick(f, 3)};
  int64_t sizes[5] = {2, 2, 4, 3, 3}, kernel[5] = {4, dims.feature_groups == 2 ? 1 : 2, 2, number(f), 3};
  tt_dtype type = dtype(f);
  tt_hlo x = rarely(f) ? value(f) : tt_hlo_parameter(f->b, type, sizes, rank + 2);
  tt_hlo y = rarely(f) ? value(f) : tt_hlo_parameter(f->b, type, kernel, rank + 2);
  keep(f, tt_hlo_convolution(x, y, &dims, TT_PRECISION_HIGHEST));
}

// Indexes dim 0 of x with a vector of indices, give or take.
static void indexing(fuzz *f) {
  tt_hlo x = value(f);
  int32_t rank = x ? x->rank : 1, window[TT_MAX_RANK], zero = rarely(f) ? dim_of(f, rank) : 0;
  int64_t n = (int64_t)pick(f, 4), sizes[TT_MAX_RANK], dims[TT_MAX_RANK] = {n};
  for (int32_t i = 0; i < rank; i++) {
    window[i] = i + 1;
    sizes[i] = x && i ? x->dims[i] : 1;
    dims[i] = i ? sizes[i] : n;
    sizes[i] = rarely(f) ? number(f) : sizes[i];
  }
  tt_hlo indices = rarely(f) ? value(f) : tt_hlo_parameter(f->b, pick(f, 2) ? TT_S64 : TT_S32, &n, 1);
  if (pick(f, 2)) {
    tt_hlo_gather_dims g = {window, &zero, NULL, NULL, &zero, rank - 1, 1, 0, 1, rarely(f) ? dim_of(f, 3) : 1};
    keep(f, tt_hlo_gather(x, indices, &g, sizes, pick(f, 2)));
  } else {
    tt_hlo_scatter_dims s = {window, &zero, NULL, NULL, &zero, rank - 1, 1, 0, 1, rarely(f) ? dim_of(f, 3) : 1};
    tt_hlo updates = x ? tt_hlo_parameter(f->b, x->dtype, dims, rank) : NULL;
    keep(f, tt_hlo_scatter((tt_hlo_scatter_kind)pick(f, 6), x, indices, updates, &s, pick(f, 2), false));
  }
}

static void other(fuzz *f) {
  tt_hlo x = value(f);
  int64_t lengths[3] = {number(f), number(f), number(f)};
  int32_t count = (int32_t)pick(f, 4);
  for (int32_t i = 0; x && i < count && count <= x->rank && !rarely(f); i++) {
    lengths[i] = x->dims[x->rank - count + i];
  }
  switch (pick(f, 5)) {
    case 0:
      keep(f, tt_hlo_fft((tt_hlo_fft_kind)pick(f, 5), x, lengths, count));
      break;
    case 1:
      keep(f, tt_hlo_cholesky(x, pick(f, 2)));
      break;
    case 2:
      keep(f, tt_hlo_triangular_solve(x, like(f, x), pick(f, 2), pick(f, 2), pick(f, 2), pick(f, 2), pick(f, 2)));
      break;
    case 3: {
      int64_t two = 2;
      tt_hlo state = tt_hlo_parameter(f->b, TT_U64, &two, 1);
      keep(f, tt_hlo_random_bits(rarely(f) ? x : state, pick(f, 2) ? TT_U32 : dtype(f), lengths, count));
      break;
    }
    default:
      if (rarely(f)) {
        keep(f, tt_hlo_unary(TT_NEGATE, tt_hlo_parameter(f->other, TT_F32, NULL, 0)));
      }
      tt_hlo_set_location(f->b, pick(f, 2) ? "aten::fuzz" : NULL);
  }
}

static void step(fuzz *f) {
  static void (*const steps[])(fuzz *) = {leaf,  leaf,    elementwise, elementwise, elementwise, shape,    shape,
                                          shape, regions, regions,     dot,         convolution, indexing, other};
  steps[pick(f, sizeof steps / sizeof *steps)](f);
}

// The module that the bytes describe, or NULL if they describe none; the caller frees it.
static char *build(const uint8_t *data, size_t size) {
  fuzz f = {.data = data, .size = size};
  tt_status_free(tt_hlo_builder_create("fuzz", &f.b));
  tt_status_free(tt_hlo_builder_create("other", &f.other));
  char *text = NULL;
  if (f.b && f.other) {
    for (int i = 0; i < MAX_OPS && f.size && !tt_hlo_status(f.b); i++) {
      step(&f);
    }
    int32_t count = f.count < 4 ? f.count : 4;
    if (f.count && rarely(&f)) {
      tt_hlo_alias(f.b, value(&f), (int32_t)number(&f));
    }
    bool failed = tt_hlo_status(f.b) != NULL;
    tt_status *status = tt_hlo_finish(f.b, f.values + f.count - count, count, &text);
    bool empty = text && !*text;
    if ((failed && !status) || !status != !!text || empty) {
      abort();  // an error must stay, and a good module have a text
    }
    tt_status_free(status);
  }
  tt_hlo_builder_free(f.b);
  tt_hlo_builder_free(f.other);
  return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  free(build(data, size));
  return 0;
}

#ifdef TT_FUZZ_MAIN
static size_t random_bytes(uint8_t *bytes, size_t size, uint64_t seed) {
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (size_t i = 0; i < size; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    bytes[i] = (uint8_t)(state >> 24);
  }
  return size ? 16 + seed * 7 % (size - 16) : 0;
}

int main(int argc, char **argv) {
  bool print = argc > 2 && !strcmp(argv[1], "--print");
  char *end = NULL;
  unsigned long count = argc > 1 ? strtoul(argv[print ? 2 : 1], &end, 10) : 100000;
  if (end && *end) {
    return fuzz_files(argv + 1, argc - 1, LLVMFuzzerTestOneInput);
  }
  unsigned long good = 0;
  for (unsigned long seed = 0; seed < count; seed++) {
    uint8_t bytes[400];
    size_t size = random_bytes(bytes, sizeof bytes, seed);
    char *text = build(bytes, size);
    good += text != NULL;
    if (print && text) {
      printf("// seed %lu\n%s\n", seed, text);
    }
    free(text);
  }
  fprintf(stderr, "%lu inputs, %lu modules\n", count, good);
  return 0;
}
#endif

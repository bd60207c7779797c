// Views: which kind serves which, and a property test on XLA: random views of random storages read and written on the
// device against strided loops on the host.
#include "aten/view.h"

#include "support/eager.h"

// ---- classification ----
static tt_view_kind kind_of(int32_t rank, const int64_t *dims, const tensor *t) {
  tt_shape shape = {rank, dims, 1};
  for (int32_t i = 0; i < rank; i++) {
    shape.numel *= dims[i];
  }
  tt_view view = {t->ndim, t->sizes, t->strides, t->offset};
  return tt_view_classify(&shape, &view);
}

#define VIEW(rank, at, ...) ((tensor){.ndim = (rank), .offset = (at), __VA_ARGS__})

static void test_kinds(void) {
  static const struct {
    const char *what;
    int64_t dims[3];
    tensor view;
    tt_view_kind want;
  } cases[] = {
      {"x", {4, 6, 8}, VIEW(3, 0, .sizes = {4, 6, 8}, .strides = {48, 8, 1}), TT_VIEW_FULL},
      {"x.view(-1)", {4, 6, 8}, VIEW(1, 0, .sizes = {192}, .strides = {1}), TT_VIEW_FULL},
      {"x.permute(2, 0, 1)", {4, 6, 8}, VIEW(3, 0, .sizes = {8, 4, 6}, .strides = {1, 48, 8}), TT_VIEW_FULL},
      {"x.expand(5, ...)", {4, 6, 8}, VIEW(4, 0, .sizes = {5, 4, 6, 8}, .strides = {0, 48, 8, 1}), TT_VIEW_FULL},
      {"an empty view", {4, 6, 8}, VIEW(2, 7, .sizes = {0, 5}, .strides = {3, 9}), TT_VIEW_FULL},
      {"x[2]", {4, 6, 8}, VIEW(2, 96, .sizes = {6, 8}, .strides = {8, 1}), TT_VIEW_BOX},
      {"x[2, 3, 4]", {4, 6, 8}, VIEW(0, 124, .sizes = {0}), TT_VIEW_BOX},
      {"x[:, 2]", {4, 6, 8}, VIEW(2, 16, .sizes = {4, 8}, .strides = {48, 1}), TT_VIEW_BOX},
      {"x[:, :, 3]", {4, 6, 8}, VIEW(2, 3, .sizes = {4, 6}, .strides = {48, 8}), TT_VIEW_BOX},
      {"x[1:3, 2:5, 1:4]", {4, 6, 8}, VIEW(3, 65, .sizes = {2, 3, 3}, .strides = {48, 8, 1}), TT_VIEW_BOX},
      {"x[1:3].permute(2, 1, 0)", {4, 6, 8}, VIEW(3, 48, .sizes = {8, 6, 2}, .strides = {1, 8, 48}), TT_VIEW_BOX},
      {"x[::2]", {4, 6, 8}, VIEW(3, 0, .sizes = {2, 6, 8}, .strides = {96, 8, 1}), TT_VIEW_BOX},
      {"x[:, 1::5]", {4, 6, 8}, VIEW(3, 8, .sizes = {4, 1, 8}, .strides = {48, 40, 1}), TT_VIEW_BOX},
      {"x[:, ::4]", {4, 6, 8}, VIEW(3, 0, .sizes = {4, 2, 8}, .strides = {48, 32, 1}), TT_VIEW_STEP},
      {"x[1:, 1::4, ::3]", {4, 6, 8}, VIEW(3, 56, .sizes = {3, 2, 3}, .strides = {48, 32, 3}), TT_VIEW_STEP},
      {"x.unfold", {4, 6, 8}, VIEW(2, 0, .sizes = {95, 4}, .strides = {2, 1}), TT_VIEW_GATHER},
      {"x[0].diagonal()", {4, 6, 8}, VIEW(1, 0, .sizes = {6}, .strides = {9}), TT_VIEW_GATHER},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tt_view_kind got = kind_of(3, cases[i].dims, &cases[i].view);
    if (got != cases[i].want) {
      tt_test_fail(__FILE__, __LINE__, "%s is of kind %d, wanted %d", cases[i].what, got, cases[i].want);
    }
  }
}

static void test_memory_order(void) {
  int32_t order[TT_MAX_RANK];
  tt_view_memory_order(&(tt_view){3, (int64_t[]){2, 3, 4}, (int64_t[]){1, 8, 2}, 0}, order);
  CHECK(order[0] == 1 && order[1] == 2 && order[2] == 0);
  tt_view_memory_order(&(tt_view){3, (int64_t[]){1, 1, 1}, (int64_t[]){1, 1, 1}, 0}, order);
  CHECK(order[0] == 0 && order[1] == 1 && order[2] == 2);
}

// ---- random views ----
enum { MAX_NUMEL = 600, MAX_BYTES = MAX_NUMEL * 16 };
static uint64_t random_state = 0x2545f4914f6cdd1du;
static int64_t below(int64_t bound) { return (int64_t)(next_random(&random_state) % (uint64_t)bound); }

static void permute(tensor *t) {
  for (int32_t i = t->ndim - 1; i > 0; i--) {
    int32_t j = (int32_t)below(i + 1);
    int64_t size = t->sizes[i], stride = t->strides[i];
    t->sizes[i] = t->sizes[j], t->strides[i] = t->strides[j];
    t->sizes[j] = size, t->strides[j] = stride;
  }
}

// x[start : stop : step] along a dim.
static void slice(tensor *t) {
  if (t->ndim == 0) {
    return;
  }
  int32_t dim = (int32_t)below(t->ndim);
  int64_t size = t->sizes[dim], start = below(size), step = 1 + below(2) * below(3),
          left = (size - start + step - 1) / step;
  t->offset += start * t->strides[dim];
  t->sizes[dim] = 1 + below(left);
  t->strides[dim] *= step;
}

static void remove_dim(tensor *t, int32_t dim) {
  t->ndim--;
  for (int32_t i = dim; i < t->ndim; i++) {
    t->sizes[i] = t->sizes[i + 1], t->strides[i] = t->strides[i + 1];
  }
}

static void select_one(tensor *t) {
  if (t->ndim > 0) {
    int32_t dim = (int32_t)below(t->ndim);
    t->offset += below(t->sizes[dim]) * t->strides[dim];
    remove_dim(t, dim);
  }
}

static void expand(tensor *t) {
  if (t->ndim < 5) {
    t->sizes[t->ndim] = 1 + below(3);
    t->strides[t->ndim++] = 0;
    permute(t);
  }
}

static void unsqueeze(tensor *t) {
  if (t->ndim < 6) {
    t->sizes[t->ndim] = 1;
    t->strides[t->ndim++] = 1 + below(50);  // any stride will do
    permute(t);
  }
}

static void split_dim(tensor *t) {
  for (int32_t dim = 0; dim < t->ndim && t->ndim < 6; dim++) {
    for (int64_t part = 2; part <= 4; part++) {
      if (t->sizes[dim] % part == 0 && t->sizes[dim] > part) {
        t->sizes[t->ndim] = part;
        t->strides[t->ndim++] = t->strides[dim];
        t->sizes[dim] /= part;
        t->strides[dim] *= part;
        return;
      }
    }
  }
}

static void diagonal(tensor *t) {
  if (t->ndim >= 2) {
    t->sizes[0] = t->sizes[0] < t->sizes[1] ? t->sizes[0] : t->sizes[1];
    t->strides[0] += t->strides[1];
    remove_dim(t, 1);
  }
}

// Anything that stays within the storage.
static void as_strided(tensor *t, int64_t numel) {
  t->ndim = (int32_t)below(4);
  t->offset = below(numel);
  int64_t left = numel - 1 - t->offset;
  for (int32_t i = 0; i < t->ndim; i++) {
    t->strides[i] = below(8);
    int64_t most = t->strides[i] ? left / t->strides[i] + 1 : 4;
    t->sizes[i] = 1 + below(most < 6 ? most : 6);
    left -= (t->sizes[i] - 1) * t->strides[i];
  }
}

static tensor random_view(const tensor *base) {
  tensor t = *base;
  if (base->offset == 0 && numel_of(base) * (int64_t)tt_dtype_size(t.dtype) == (int64_t)tt_storage_nbytes(t.storage) &&
      below(6) == 0) {
    as_strided(&t, numel_of(base));
    return t;
  }
  void (*const steps[])(tensor *) = {permute, slice, slice, select_one, expand, unsqueeze, split_dim, diagonal};
  for (int64_t i = below(5); i >= 0; i--) {
    steps[below(8)](&t);
  }
  return t;
}

static tensor random_base(tt_dtype dtype) {
  int64_t sizes[4], numel = 1;
  int32_t ndim = (int32_t)below(5);
  for (int32_t i = 0; i < ndim; i++) {
    sizes[i] = 1 + below(7);
    sizes[i] = numel * sizes[i] > MAX_NUMEL ? 1 : sizes[i];
    numel *= sizes[i];
  }
  return make(dtype, ndim, sizes);
}

// ---- the host's side ----
// Position in the storage of element `index` of the view, row-major.
static int64_t position(const tensor *t, int64_t index) {
  int64_t at = t->offset;
  for (int32_t i = t->ndim - 1; i >= 0; i--) {
    at += index % t->sizes[i] * t->strides[i];
    index /= t->sizes[i];
  }
  return at;
}

static bool overlaps(const tensor *t) {
  bool seen[MAX_NUMEL] = {false};
  for (int64_t i = 0; i < numel_of(t); i++) {
    bool *one = &seen[position(t, i)];
    if (*one) {
      return true;
    }
    *one = true;
  }
  return false;
}

static void fill(unsigned char *bytes, int64_t numel, tt_dtype dtype) {
  for (size_t i = 0; i < (size_t)numel * tt_dtype_size(dtype); i++) {
    bytes[i] = (unsigned char)(dtype == TT_PRED ? below(2) : below(100));  // no NaN in any type
  }
}

static void describe(const char *what, const tensor *base, const tensor *t, const char *problem) {
  char text[512];
  int at = snprintf(text, sizeof text, "%s of %s[", what, tt_dtype_torch_name(t->dtype));
  for (int32_t i = 0; i < base->ndim; i++) {
    at += snprintf(text + at, sizeof text - (size_t)at, " %lld", (long long)base->sizes[i]);
  }
  at += snprintf(text + at, sizeof text - (size_t)at, " ], view");
  for (int32_t i = 0; i < t->ndim; i++) {
    at += snprintf(text + at, sizeof text - (size_t)at, " %lld:%lld", (long long)t->sizes[i], (long long)t->strides[i]);
  }
  tt_test_fail(__FILE__, __LINE__, "%s at %lld (kind %d): %s", text, (long long)t->offset,
               kind_of(base->ndim, base->sizes, t), problem);
}

static void check_read(const tensor *base, const tensor *t, const unsigned char *model) {
  static unsigned char got[MAX_BYTES * 64];
  size_t size = tt_dtype_size(t->dtype);
  if ((size_t)numel_of(t) * size > sizeof got) {
    return;  // expanded again and again
  }
  tt_tensor view = ref(t);
  tt_status *status = tt_copy_to_host(&view, got);
  if (status) {
    describe("read", base, t, tt_status_message(status));
    tt_status_free(status);
    return;
  }
  for (int64_t i = 0; i < numel_of(t); i++) {
    if (memcmp(got + (size_t)i * size, model + (size_t)position(t, i) * size, size)) {
      describe("read", base, t, "wrong element");
      return;
    }
  }
}

static void check_write(const tensor *base, const tensor *t, unsigned char *model) {
  static unsigned char data[MAX_BYTES];
  size_t size = tt_dtype_size(t->dtype);
  fill(data, numel_of(t), t->dtype);
  tt_tensor view = ref(t);
  tt_status *status = tt_copy_from_host(&view, data);
  if (status) {
    describe("write", base, t, tt_status_message(status));
    tt_status_free(status);
    return;
  }
  for (int64_t i = 0; i < numel_of(t); i++) {
    memcpy(model + (size_t)position(t, i) * size, data + (size_t)i * size, size);
  }
}

// ---- the property ----
static void start(void) {
  const char *plugin = getenv("TT_TEST_XLA_PLUGIN");
  if (!plugin) {
    SKIP("TT_TEST_XLA_PLUGIN is not set");
  }
  setenv("TORCH_TPU_PJRT_PLUGIN", plugin, 1);
  setenv("TORCH_TPU_CACHE", "0", 1);
  setenv("TORCH_TPU_FAST_COMPILE", "1", 1);
  REQUIRE_OK(tt_init());
}

static void one_storage(tt_dtype dtype) {
  static unsigned char model[MAX_BYTES];
  tensor base = random_base(dtype);
  fill(model, numel_of(&base), dtype);
  tt_tensor whole = ref(&base);
  CHECK_OK(tt_copy_from_host(&whole, model));
  for (int i = 0; i < 6; i++) {
    tensor t = random_view(&base);
    check_read(&base, &t, model);
    if (!overlaps(&t)) {
      check_write(&base, &t, model);
    } else if (below(2)) {
      t = random_view(&t);  // a view of a view
      check_read(&base, &t, model);
    }
  }
  check_read(&base, &base, model);
  drop(&base);
}

static void test_random_views(void) {
  start();
  static const tt_dtype dtypes[] = {TT_S32, TT_F32, TT_S32, TT_PRED, TT_U8, TT_BF16, TT_C64, TT_F64, TT_S16};
  for (int i = 0; i < 30; i++) {
    one_storage(dtypes[i % 9]);
  }
}

// Views of another type than the value's.
static void test_random_retypes(void) {
  start();
  static const tt_dtype dtypes[] = {TT_U8, TT_S32, TT_F32, TT_S16, TT_C64, TT_S64, TT_PRED, TT_F16, TT_F64};
  for (int i = 0; i < 8; i++) {
    static unsigned char model[MAX_BYTES];
    int64_t words = 1 + below(12), sizes[] = {words, 16};
    tensor base = make(TT_U8, 2, sizes);
    fill(model, 16 * words, TT_PRED);  // ones and zeros are good bools too
    tt_tensor whole = ref(&base);
    CHECK_OK(tt_copy_from_host(&whole, model));
    for (int j = 0; j < 4; j++) {
      tt_dtype dtype = dtypes[below(9)];
      int64_t count[] = {words, 16 / (int64_t)tt_dtype_size(dtype)};
      tensor other = tensor_over(base.storage, dtype, 2, count, 0), t = random_view(&other);
      check_read(&other, &t, model);
      if (!overlaps(&t)) {
        fill(model, 0, TT_U8);
        static unsigned char data[MAX_BYTES];
        size_t size = tt_dtype_size(dtype);
        fill(data, numel_of(&t) * (int64_t)size, TT_PRED);
        tt_tensor view = ref(&t);
        CHECK_OK(tt_copy_from_host(&view, data));
        for (int64_t k = 0; k < numel_of(&t); k++) {
          memcpy(model + (size_t)position(&t, k) * size, data + (size_t)k * size, size);
        }
      }
    }
    check_read(&base, &base, model);
    drop(&base);
  }
}

// Device to device through two views of equal sizes, possibly of one storage.
static void test_random_copies(void) {
  start();
  for (int i = 0; i < 20; i++) {
    static unsigned char model[MAX_BYTES], values[MAX_BYTES];
    tensor base = random_base(TT_S32), source = make(TT_S32, base.ndim, base.sizes);
    fill(model, numel_of(&base), TT_S32);
    fill(values, numel_of(&base), TT_S32);
    tt_tensor whole = ref(&base), other = ref(&source);
    CHECK_OK(tt_copy_from_host(&whole, model));
    CHECK_OK(tt_copy_from_host(&other, values));
    tensor to = random_view(&base), from = to;
    from.storage = source.storage;
    if (!overlaps(&to)) {
      tt_tensor destination = ref(&to), origin = ref(&from);
      CHECK_OK(tt_copy(&destination, &origin));
      for (int64_t k = 0; k < numel_of(&to); k++) {
        memcpy(model + 4 * position(&to, k), values + 4 * position(&from, k), 4);
      }
      check_read(&base, &to, model);
      // Rows swapped within one storage: what is read is what was there before.
      if (to.ndim && to.sizes[0] == 2) {
        tensor first = select_row(&to, 0), second = select_row(&to, 1);
        destination = ref(&first), origin = ref(&second);
        CHECK_OK(tt_copy(&destination, &origin));
        for (int64_t k = 0; k < numel_of(&first); k++) {
          memcpy(model + 4 * position(&first, k), model + 4 * position(&second, k), 4);
        }
      }
    }
    check_read(&base, &base, model);
    drop(&base);
    drop(&source);
  }
}

TEST_MAIN(TEST(test_kinds), TEST(test_memory_order), TEST(test_random_views), TEST(test_random_retypes),
          TEST(test_random_copies))

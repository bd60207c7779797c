// What the handlers make of calls, right and wrong: by frames made here, and by XLA:CPU (TT_TEST_XLA_PLUGIN).
#include "kernels/handlers.h"

#include "base/test.h"
#include "kernels/ffi.h"

// ---- a frame ----
typedef struct fake_error {
  int32_t code;
  char message[200];
} fake_error;
static void *create_error(tt_ffi_error_args *args) {
  fake_error *error = malloc(sizeof *error);
  if (error) {
    error->code = args->code;
    snprintf(error->message, sizeof error->message, "%s", args->message);
  }
  return error;
}
static void destroy_error(tt_ffi_destroy_args *args) { free(args->error); }
static void *schedule(tt_ffi_schedule_args *args) {
  args->task(args->data);
  return NULL;
}
static void *refuse_schedule(tt_ffi_schedule_args *args) {
  (void)args;
  return create_error(&(tt_ffi_error_args){.message = "no pool", .code = 12});
}
static void *count_threads(tt_ffi_threads_args *args) {
  *args->count = 2;
  return NULL;
}

enum { MOST = 16 };
typedef struct fake_call {
  tt_ffi_api api;
  tt_ffi_frame frame;
  tt_ffi_buffer buffers[2 * MOST];
  int64_t dims[2 * MOST];
  int32_t kinds[MOST];
  void *arguments[MOST], *results[MOST], *attributes[1];
  tt_ffi_name name, *names[1];
  tt_ffi_array numbers;
  int64_t values[64];
} fake_call;

static void init(fake_call *c, const int64_t *values, size_t count) {
  memset(c, 0, sizeof *c);
  c->api = (tt_ffi_api){.struct_size = sizeof c->api,
                        .version = {.struct_size = sizeof c->api.version, .minor = 3},
                        .create_error = create_error,
                        .destroy_error = destroy_error,
                        .schedule = schedule,
                        .count_threads = count_threads};
  memcpy(c->values, values, sizeof *values * count);
  c->numbers = (tt_ffi_array){TT_FFI_S64, count, c->values};
  c->name = (tt_ffi_name){"numbers", 7};
  c->names[0] = &c->name;
  c->attributes[0] = &c->numbers;
  for (int32_t i = 0; i < MOST; i++) {
    c->kinds[i] = TT_FFI_BUFFER;
  }
  tt_ffi_frame *f = &c->frame;
  *f = (tt_ffi_frame){.struct_size = sizeof *f, .api = &c->api, .stage = TT_FFI_EXECUTE};
  f->arguments = (tt_ffi_list){.struct_size = sizeof f->arguments, .kinds = c->kinds, .items = c->arguments};
  f->results = (tt_ffi_list){.struct_size = sizeof f->results, .kinds = c->kinds, .items = c->results};
  f->attributes = (tt_ffi_attributes){
      .struct_size = sizeof f->attributes, .count = 1, .kinds = c->kinds, .names = c->names, .items = c->attributes};
}

static void add_buffer(fake_call *c, bool is_result, int32_t dtype, void *data, int64_t count) {
  tt_ffi_list *list = is_result ? &c->frame.results : &c->frame.arguments;
  const int64_t at = (is_result ? MOST : 0) + list->count;
  c->dims[at] = count;
  c->buffers[at] = (tt_ffi_buffer){
      .struct_size = sizeof c->buffers[at], .dtype = dtype, .data = data, .rank = count >= 0, .dims = &c->dims[at]};
  (is_result ? c->results : c->arguments)[list->count++] = &c->buffers[at];
}

// One batch of two products, [2, 2] x [2, 2].
static const int64_t product[] = {2, 2, 2, 2, 4, 2, 1, 4, 2, 1};
static float left[8] = {1, 2, 3, 4, 5, 6, 7, 8}, right[9] = {0, 1, 0, 0, 1, 2, 0, 0, 2}, out[8];
static int32_t at_zero = 0;
static int64_t at_one = 1;

static void init_product(fake_call *c) {
  init(c, product, TT_HOST_PRODUCT_COUNT);
  add_buffer(c, false, TT_FFI_F32, left, 8);
  add_buffer(c, false, TT_FFI_S32, &at_zero, -1);
  add_buffer(c, false, TT_FFI_F32, right, 9);
  add_buffer(c, false, TT_FFI_S64, &at_one, -1);
  add_buffer(c, true, TT_FFI_F32, out, 8);
}

// The handler's answer: a code, 0 for success.
static int32_t code_of(void *(*handler)(tt_ffi_frame *frame), fake_call *c) {
  fake_error *error = handler(&c->frame);
  const int32_t code = error ? error->code : 0;
  free(error);
  return code;
}

static void test_product(void) {
  for (int32_t i = 0; i < 2; i++) {
    fake_call c;
    init_product(&c);
    c.api.schedule = i ? refuse_schedule : schedule;
    CHECK_INT(code_of(tt_handle_product, &c), 0);
    const float want[] = {1, 2, 3, 4, 10, 12, 14, 16};
    for (int32_t k = 0; k < 8; k++) {
      CHECK_NEAR(out[k], want[k], 0);
    }
  }
}

static void test_metadata(void) {
  fake_call c;
  init_product(&c);
  tt_ffi_metadata metadata = {.struct_size = sizeof metadata};
  tt_ffi_metadata_extension extension = {{sizeof extension, TT_FFI_METADATA, NULL}, &metadata};
  c.frame.extensions = &extension.base;
  out[0] = -1;
  CHECK_INT(code_of(tt_handle_product, &c), 0);
  CHECK(out[0] == -1 && metadata.version.minor == 3 && metadata.version.struct_size > 0);
  metadata = (tt_ffi_metadata){.struct_size = sizeof metadata};
  c.api.version.major = 1;
  CHECK_INT(code_of(tt_handle_product, &c), 0);
  CHECK(metadata.version.struct_size == 0);  // XLA refuses it then
}

static void test_other_stages_do_nothing(void) {
  fake_call c;
  init_product(&c);
  c.frame.stage = TT_FFI_EXECUTE - 1;
  out[0] = -1;
  CHECK_INT(code_of(tt_handle_product, &c), 0);
  CHECK(out[0] == -1);
}

// Each of these would read or write outside of what there is.
static void test_wrong_products(void) {
  for (int32_t wrong = 0; wrong < 16; wrong++) {
    fake_call c;
    init_product(&c);
    int64_t far = INT64_MAX, *n = c.values;
    switch (wrong) {
      case 0:
        n[0] = 3;
        break;
      case 1:
        n[1] = INT64_MAX;
        break;
      case 2:
        n[2] = 0;
        break;
      case 3:
        n[3] = -1;
        break;
      case 4:
        n[4] = 5;
        break;
      case 5:
        n[5] = INT64_MAX / 2;
        break;
      case 6:
        n[9] = -1;
        break;
      case 7:
        c.dims[0] = 7;
        break;
      case 8:
        c.dims[MOST] = 7;
        break;
      case 9:
        c.buffers[3].data = &far;
        break;
      case 10:
        c.buffers[2].dtype = TT_FFI_S32;
        break;
      case 11:
        c.buffers[1].dtype = TT_FFI_F32;
        break;
      case 12:
        c.frame.arguments.count = 3;
        break;
      case 13:
        c.frame.arguments.count = 5;
        c.arguments[4] = &c.buffers[0];
        break;
      case 14:
        c.numbers.count = 9;
        break;
      default:
        c.name.length = 6;
        break;
    }
    CHECK_INT(code_of(tt_handle_product, &c), TT_FFI_INVALID_ARGUMENT);
  }
}

static void test_wrong_frames(void) {
  fake_call c;
  init_product(&c);
  c.frame.struct_size = 8;
  CHECK_INT(code_of(tt_handle_product, &c), TT_FFI_INTERNAL);
  CHECK_INT(code_of(tt_handle_attention, &c), TT_FFI_INTERNAL);
  init_product(&c);
  CHECK_INT(code_of(tt_handle_attention, &c), TT_FFI_INVALID_ARGUMENT);
  CHECK_INT(code_of(tt_handle_attention_backward, &c), TT_FFI_INVALID_ARGUMENT);
}

// Query, key and value in one buffer; any number may be wrong, any buffer small: no memory but theirs is touched.
static void test_random_attention(void) {
  uint64_t seed = 1;
  int32_t fine = 0;
  for (int32_t i = 0; i < 3000; i++) {
    const bool backward = i % 2, bias = i % 3 == 0;
    int64_t n[TT_HOST_BACKWARD_COUNT] = {2, 2, 1, 3, 4, 2, 2, i % 5 == 0, bias};
    const int64_t q[] = {12, 6, 2, 1}, k[] = {8, 8, 2, 1}, b[] = {24, 12, 4, 1};
    const int64_t *layouts[] = {q, k, k, q, backward ? q : b, k, k, q, b};
    for (int32_t x = 0; x < (backward ? 9 : 5); x++) {
      memcpy(n + TT_HOST_ATTENTION + 4 * x, layouts[x], sizeof q);
    }
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    if (i % 4) {
      const int64_t values[] = {0, 1, 2, 3, 5, 100, -1, INT64_MAX};
      n[(seed >> 33) % (backward ? TT_HOST_BACKWARD_COUNT : TT_HOST_FORWARD_COUNT)] = values[seed >> 60 & 7];
    }
    fake_call c;
    init(&c, n, backward ? TT_HOST_BACKWARD_COUNT : TT_HOST_FORWARD_COUNT);
    const int64_t counts[] = {24, 16, 16, 24, 24, 48};
    float *taken[12] = {NULL}, scale = 1;
    int32_t used = 0;
    for (int32_t x = 0; x < (backward ? 5 : 3) + bias; x++) {
      const int64_t count = bias && x == (backward ? 5 : 3) ? 48 : counts[x];
      add_buffer(&c, false, TT_FFI_F32, taken[used++] = calloc((size_t)count, 4), count);
      add_buffer(&c, false, TT_FFI_S32, &at_zero, -1);
    }
    if (backward) {
      add_buffer(&c, false, TT_FFI_F32, taken[used++] = calloc(12, 4), 12);
    }
    add_buffer(&c, false, TT_FFI_F32, &scale, -1);
    const int64_t grads[] = {24, 16, 16}, outs[] = {24, 12};
    for (int32_t x = 0; x < (backward ? 3 : 2); x++) {
      const int64_t count = backward ? grads[x] : outs[x];
      add_buffer(&c, true, TT_FFI_F32, taken[used++] = calloc((size_t)count, 4), count);
    }
    fine += code_of(backward ? tt_handle_attention_backward : tt_handle_attention, &c) == 0;
    for (int32_t x = 0; x < used; x++) {
      free(taken[x]);
    }
  }
  CHECK(fine > 500 && fine < 2500);
}

// Strides of zero, by which a little memory is a view of any size: no size is taken for what memory holds.
static void test_sizes_without_memory(void) {
  static const int64_t cases[][4] = {{1, 1, 1, (int64_t)1 << 60},                       // scratch memory
                                     {(int64_t)1 << 62, 4, 1, 1},                       // 2^64 sums
                                     {((int64_t)1 << 62) + 1, 4, 1, 1},                 // 2^64 + 4
                                     {(int64_t)1 << 33, 1, ((int64_t)1 << 31) + 1, 1},  // 2^64 + 2^33
                                     {1, 1, 1, INT64_MAX}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (int32_t backward = 0; backward < 2; backward++) {
      const int64_t *z = cases[i];
      const int64_t n[TT_HOST_BACKWARD_COUNT] = {z[0], z[1], z[1], z[2], 1, z[3], 1};
      float one[4] = {1}, made[4][4];
      fake_call c;
      init(&c, n, backward ? TT_HOST_BACKWARD_COUNT : TT_HOST_FORWARD_COUNT);
      for (int32_t x = 0; x < (backward ? 5 : 3); x++) {
        add_buffer(&c, false, TT_FFI_F32, one, 1);
        add_buffer(&c, false, TT_FFI_S32, &at_zero, -1);
      }
      const int64_t sums = (int64_t)((uint64_t)z[0] * (uint64_t)z[1] * (uint64_t)z[2]);
      if (backward) {
        add_buffer(&c, false, TT_FFI_F32, one, sums);
      }
      add_buffer(&c, false, TT_FFI_F32, one, -1);
      for (int32_t x = 0; x < (backward ? 3 : 2); x++) {
        add_buffer(&c, true, TT_FFI_F32, made[x], backward || x == 0 ? 1 : sums);
      }
      CHECK_INT(code_of(backward ? tt_handle_attention_backward : tt_handle_attention, &c), TT_FFI_INVALID_ARGUMENT);
    }
  }
}

// ---- on a plugin ----
static tt_pjrt_client *client;

static const char module[] =
    "module @m {\n  func.func public @main(%%a: tensor<8xf32>, %%b: tensor<8xf32>) -> tensor<2x2x2xf32> {\n"
    "    %%c = stablehlo.constant dense<0> : tensor<i32>\n"
    "    %%0 = stablehlo.custom_call @" TT_HOST_PRODUCT
    "(%%a, %%c, %%b, %%c) {api_version = 4 : i32, backend_config = {numbers = array<i64: %d, 2, 2, 2, 4, 2, 1, 4, 2, "
    "1>}, "
    "operand_layouts = [dense<0> : tensor<1xindex>, dense<> : tensor<0xindex>, dense<0> : tensor<1xindex>, "
    "dense<> : tensor<0xindex>], result_layouts = [dense<[2, 1, 0]> : tensor<3xindex>]} : "
    "(tensor<8xf32>, tensor<i32>, tensor<8xf32>, tensor<i32>) -> tensor<2x2x2xf32>\n"
    "    return %%0 : tensor<2x2x2xf32>\n  }\n}\n";

static tt_status *run(tt_pjrt_executable *executable, float *results) {
  const int64_t eight = 8;
  tt_pjrt_buffer *arguments[2] = {NULL}, *result = NULL;
  for (int32_t i = 0; i < 2; i++) {
    CHECK_OK(tt_pjrt_buffer_from_host(client, 0, i ? right + 1 : left, TT_F32, &eight, 1, &arguments[i]));
  }
  tt_status *status = tt_pjrt_execute(client, executable, 0, arguments, NULL, 2, &result, NULL);
  if (!status) {
    status = tt_pjrt_buffer_to_host(client, result, results, 32);
  }
  tt_pjrt_buffer_free(client, result);
  tt_pjrt_buffer_free(client, arguments[0]);
  tt_pjrt_buffer_free(client, arguments[1]);
  return status;
}

static void test_on_xla(void) {
  const char *path = getenv("TT_TEST_XLA_PLUGIN");
  if (!path) {
    SKIP("TT_TEST_XLA_PLUGIN is not set");
  }
  tt_pjrt_plugin *plugin;
  REQUIRE_OK(tt_pjrt_plugin_load(path, &plugin));
  REQUIRE_OK(tt_pjrt_client_create(plugin, NULL, &client));
  tt_pjrt_plugin_free(plugin);
  REQUIRE(tt_kernels_register(client));
  CHECK(tt_kernels_register(client));  // again, as after a start that failed
  for (int32_t wrong = 0; wrong < 2; wrong++) {
    char text[2000];
    snprintf(text, sizeof text, module, wrong ? 3 : 2);
    tt_pjrt_executable *executable, *loaded;
    REQUIRE_OK(tt_pjrt_compile(client, text, strlen(text), NULL, 0, &executable));
    void *data;
    size_t size;
    REQUIRE_OK(tt_pjrt_executable_serialize(client, executable, &data, &size));
    REQUIRE_OK(tt_pjrt_executable_deserialize(client, data, size, &loaded));
    free(data);
    float results[8] = {0};
    if (wrong) {
      CHECK_ERROR(run(executable, results), TT_ERR_RUNTIME, "a view that leaves its array");
    } else {
      CHECK_OK(run(executable, results));
      CHECK_OK(run(loaded, results));
      CHECK_NEAR(results[7], 16, 0);
    }
    tt_pjrt_executable_free(client, loaded);
    tt_pjrt_executable_free(client, executable);
  }
  setenv("TORCH_TPU_HOST_KERNELS", "0", 1);
  CHECK(!tt_kernels_register(client));
  unsetenv("TORCH_TPU_HOST_KERNELS");
  tt_pjrt_client_free(client);
}

// A plugin that knows nothing of it.
static void test_on_fake(void) {
  const char *path = getenv("TT_TEST_FAKE_PLUGIN");
  if (!path) {
    SKIP("TT_TEST_FAKE_PLUGIN is not set");
  }
  tt_pjrt_plugin *plugin;
  tt_pjrt_client *fake;
  REQUIRE_OK(tt_pjrt_plugin_load(path, &plugin));
  REQUIRE_OK(tt_pjrt_client_create(plugin, NULL, &fake));
  CHECK(!tt_kernels_register(fake));
  CHECK_ERROR(tt_pjrt_register_handler(fake, "x", tt_handle_product), TT_ERR_NOT_IMPLEMENTED, "can't call functions");
  tt_pjrt_client_free(fake);
  tt_pjrt_plugin_free(plugin);
}

// Two rows of three.
static const int64_t norm[TT_HOST_NORM_COUNT] = {2, 3, 3, 7};
static float rows_in[6] = {1, 2, 3, -1, 0, 1}, ones[3] = {1, 1, 1}, zeros[3], rows_out[6], stats[2][2], grads[2][3];

static void init_norm(fake_call *c, bool backward) {
  static float eps = 0;
  init(c, norm, TT_HOST_NORM_COUNT);
  add_buffer(c, false, TT_FFI_F32, rows_in, 6);
  if (backward) {
    add_buffer(c, false, TT_FFI_F32, rows_in, 6);
    add_buffer(c, false, TT_FFI_F32, stats[0], 2);
    add_buffer(c, false, TT_FFI_F32, stats[1], 2);
  }
  add_buffer(c, false, TT_FFI_F32, ones, 3);
  if (!backward) {
    add_buffer(c, false, TT_FFI_F32, zeros, 3);
    add_buffer(c, false, TT_FFI_F32, &eps, -1);
  }
  add_buffer(c, true, TT_FFI_F32, rows_out, 6);
  add_buffer(c, true, TT_FFI_F32, backward ? grads[0] : stats[0], backward ? 3 : 2);
  add_buffer(c, true, TT_FFI_F32, backward ? grads[1] : stats[1], backward ? 3 : 2);
}

static void test_norms(void) {
  fake_call c;
  init_norm(&c, false);
  CHECK_INT(code_of(tt_handle_norm, &c), 0);
  CHECK_NEAR(rows_out[0], -1.2247449, 1e-6);
  CHECK_NEAR(stats[0][0], 2, 0);
  init_norm(&c, true);
  CHECK_INT(code_of(tt_handle_norm_backward, &c), 0);
  CHECK_NEAR(rows_out[0], 0, 1e-6);  // along x itself nothing changes
  CHECK_NEAR(grads[1][2], 4, 0);
  grads[1][2] = 9;
  init_norm(&c, true);
  c.values[TT_HOST_NORM_WANT] = 3;
  CHECK_INT(code_of(tt_handle_norm_backward, &c), 0);
  CHECK_NEAR(grads[1][2], 9, 0);  // not wanted
}

static void test_wrong_norms(void) {
  for (int32_t backward = 0; backward < 2; backward++) {
    void *(*handler)(tt_ffi_frame *) = backward ? tt_handle_norm_backward : tt_handle_norm;
    fake_call c;
    for (int32_t wrong = 0; wrong < 8; wrong++) {
      init_norm(&c, backward);
      int64_t *n = c.values;
      n[TT_HOST_NORM_ROWS] = wrong == 0 ? 0 : wrong == 1 ? INT64_MAX : 2;
      n[TT_HOST_NORM_COLUMNS] = wrong == 2 ? -3 : wrong == 3 ? 4 : 3;
      n[TT_HOST_NORM_HAS] = wrong == 4 ? 0 : norm[TT_HOST_NORM_HAS];
      c.dims[MOST + 1] -= wrong == 5;
      c.frame.results.count -= wrong == 6;
      c.buffers[0].dtype = wrong == 7 ? TT_FFI_S32 : TT_FFI_F32;
      CHECK_INT(code_of(handler, &c), TT_FFI_INVALID_ARGUMENT);
    }
  }
}

TEST_MAIN(TEST(test_product), TEST(test_metadata), TEST(test_other_stages_do_nothing), TEST(test_wrong_products),
          TEST(test_wrong_frames), TEST(test_random_attention), TEST(test_sizes_without_memory), TEST(test_norms),
          TEST(test_wrong_norms), TEST(test_on_xla), TEST(test_on_fake))

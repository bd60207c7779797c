// Calls on the fake plugin: what compiles and what doesn't, what results look like, in-place and out= forms, lists.
#include "support/eager.h"

static fake_control fake;
static void start(void) { fake = eager_start(2); }

static void test_results(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(4, 8)), y = make_filled(TT_S32, DIMS(8)), z;
  CHECK_OK(add(&x, &y, &z));
  CHECK_INT(z.dtype, TT_F32);
  CHECK_INT(z.ndim, 2);
  CHECK_INT(z.sizes[0], 4);
  CHECK_INT(z.sizes[1], 8);
  CHECK_INT(z.strides[0], 8);
  CHECK_INT(z.strides[1], 1);
  CHECK_INT(tt_storage_device(z.storage), 0);
  CHECK(tt_storage_address(z.storage) != tt_storage_address(x.storage));
  drop(&z);
  // Layout follows the operands: a transposed sum is transposed.
  tensor t = x;
  t.sizes[0] = 8, t.sizes[1] = 4, t.strides[0] = 1, t.strides[1] = 8;
  CHECK_OK(add(&t, &t, &z));
  CHECK_INT(z.strides[0], 1);
  CHECK_INT(z.strides[1], 8);
  drop(&z);
  tt_results results;
  CHECK_OK(tt_call(op_of(OP_MAX_DIM), ARGS(arg_tensor(&x), arg_int(1), arg_int(0)), 0, &results));
  CHECK_INT(results.count, 2);
  CHECK_INT(results.results[0].dtype, TT_F32);
  CHECK_INT(results.results[1].dtype, TT_S64);
  CHECK_INT(results.results[1].position, 1);
  CHECK_INT(results.results[1].ndim, 1);
  CHECK_INT(results.results[1].sizes[0], 4);
  tt_storage_free(results.storages[0]);
  tt_storage_free(results.storages[1]);
  // Specs outlive the cache until they are released.
  CHECK_OK(tt_clear_compile_cache());
  CHECK_INT(results.results[1].sizes[0], 4);
  tt_results_release(&results);
  drop(&x);
  drop(&y);
  eager_check_empty(&fake);
}

static void test_cache(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(4, 8)), z;
  tt_counters before, after;
  CHECK_COMPILES(add(&x, &x, &z), 1);
  drop(&z);
  CHECK_OK(tt_synchronize(0));
  tt_get_counters(&before);
  for (int i = 0; i < 10; i++) {
    CHECK_COMPILES(add(&x, &x, &z), 0);
    drop(&z);
  }
  tt_get_counters(&after);
  CHECK_INT(after.cache_hits - before.cache_hits, 10);
  CHECK_INT(after.cache_misses - before.cache_misses, 0);
  CHECK_OK(tt_synchronize(0));
  tt_get_counters(&after);
  CHECK_INT(after.executions - before.executions, 10);
  // Other operands of the same kind share the program; another dtype, rank, shape, layout or aliasing does not.
  tensor y = make_filled(TT_F32, DIMS(4, 8)), half = make_filled(TT_F16, DIMS(4, 8)),
         flat = make_filled(TT_F32, DIMS(8));
  CHECK_COMPILES(add(&x, &y, &z), 1);
  drop(&z);
  CHECK_COMPILES(add(&y, &x, &z), 0);
  drop(&z);
  CHECK_COMPILES(add(&y, &y, &z), 0);
  drop(&z);
  CHECK_COMPILES(add(&x, &half, &z), 1);
  drop(&z);
  CHECK_COMPILES(add(&x, &flat, &z), 1);
  drop(&z);
  // A setting that rules look at is in the key as well.
  tt_set_matmul_precision(1);
  CHECK_INT(tt_get_matmul_precision(), 1);
  CHECK_COMPILES(add(&x, &y, &z), 1);
  drop(&z);
  tt_set_matmul_precision(2);
  tt_set_matmul_precision(77);
  CHECK_INT(tt_get_matmul_precision(), 2);
  CHECK_OK(tt_clear_compile_cache());
  CHECK_COMPILES(add(&x, &y, &z), 1);
  drop(&z);
  drop(&x);
  drop(&y);
  drop(&half);
  drop(&flat);
  eager_check_empty(&fake);
}

static void test_scalars_are_operands(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(16)), z;
  int64_t before = compiles();
  for (int i = 0; i < 20; i++) {
    CHECK_OK(call_new(OP_ADD, ARGS(arg_tensor(&x), arg_tensor(&x), arg_double(2.5 + i)), &z));
    drop(&z);
  }
  CHECK_INT(compiles() - before, 1);
  // The default value and another type are keys of their own.
  CHECK_COMPILES(call_new(OP_ADD, ARGS(arg_tensor(&x), arg_tensor(&x), arg_double(1)), &z), 1);
  drop(&z);
  CHECK_COMPILES(call_new(OP_ADD, ARGS(arg_tensor(&x), arg_tensor(&x), arg_long(7)), &z), 1);
  drop(&z);
  // Wrapped numbers.
  before = compiles();
  for (int i = 0; i < 20; i++) {
    CHECK_OK(call_new(OP_MUL, ARGS(arg_tensor(&x), arg_wrapped(2.5 + i)), &z));
    CHECK_INT(z.dtype, TT_F32);
    drop(&z);
  }
  CHECK_INT(compiles() - before, 1);
  drop(&x);
  // An integer that its type can't hold.
  tensor small = make_filled(TT_S8, DIMS(4));
  CHECK_ERROR(call_new(OP_ADD, ARGS(arg_tensor(&small), arg_tensor(&small), arg_long(1000)), &z), TT_ERR_RUNTIME,
              "overflow");
  drop(&small);
  eager_check_empty(&fake);
}

static void test_offsets_are_operands(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(16, 4, 6)), z;
  tensor row = select_row(&x, 0);
  CHECK_COMPILES(add(&row, &row, &z), 1);
  drop(&z);
  for (int64_t i = 1; i < 16; i++) {
    row = select_row(&x, i);
    CHECK_COMPILES(add(&row, &row, &z), 0);
    drop(&z);
    CHECK_COMPILES(add_in_place(&row, &row), i == 1);
  }
  // A view that is all of the storage is not the same kind as one that is a part.
  CHECK_COMPILES(add(&x, &x, &z), 1);
  drop(&z);
  // Stepped, permuted, broadcast and overlapping views.
  tensor view = x;
  view.sizes[0] = 8, view.strides[0] = 48;
  CHECK_COMPILES(add(&view, &view, &z), 1);
  drop(&z);
  view.offset = 24;
  CHECK_COMPILES(add(&view, &view, &z), 0);
  CHECK_INT(z.strides[0], 24);
  drop(&z);
  view = (tensor){.storage = x.storage, .ndim = 2, .sizes = {5, 7}, .strides = {0, 1}, .offset = 3, .dtype = TT_F32};
  CHECK_OK(add(&view, &view, &z));
  drop(&z);
  view = (tensor){.storage = x.storage, .ndim = 2, .sizes = {5, 7}, .strides = {2, 3}, .offset = 3, .dtype = TT_F32};
  CHECK_OK(add(&view, &view, &z));
  drop(&z);
  view = (tensor){.storage = x.storage, .ndim = 0, .offset = 383, .dtype = TT_F32};
  CHECK_OK(add(&view, &view, &z));
  CHECK_INT(tt_storage_nbytes(z.storage), 4);
  drop(&z);
  view = (tensor){.storage = x.storage, .ndim = 2, .sizes = {0, 3}, .strides = {3, 1}, .offset = 383, .dtype = TT_F32};
  CHECK_OK(add(&view, &view, &z));
  CHECK_INT(tt_storage_nbytes(z.storage), 0);
  drop(&z);
  drop(&x);
  eager_check_empty(&fake);
}

static void test_in_place_donates(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(64, 64)), y = make_filled(TT_F32, DIMS(64, 64));
  CHECK_OK(tt_synchronize(0));
  int64_t donations = fake.get("donations"), buffers = fake.get("buffers");
  void *address = tt_storage_address(x.storage);
  tt_memory_stats stats;
  CHECK_OK(tt_get_memory_stats(0, &stats));
  int64_t reserved = stats.reserved;
  tt_results results;
  CHECK_OK(tt_call(op_of(OP_ADD_IN_PLACE), ARGS(arg_tensor(&x), arg_tensor(&y)), 0, &results));
  CHECK_INT(results.count, 1);
  CHECK_INT(results.results[0].kind, TT_RESULT_ALIAS);
  CHECK_INT(results.results[0].alias, 0);
  CHECK(results.storages[0] == NULL);
  tt_results_release(&results);
  for (int i = 0; i < 9; i++) {
    CHECK_OK(add_in_place(&x, &y));
  }
  CHECK_OK(tt_synchronize(0));
  CHECK_INT(fake.get("donations") - donations, 10);
  CHECK_INT(fake.get("buffers"), buffers);
  CHECK(tt_storage_address(x.storage) == address);
  CHECK_OK(tt_get_memory_stats(0, &stats));
  CHECK_INT(stats.reserved, reserved);
  // y shares the value of x: neither may be overwritten in place.
  tt_tensor to = ref(&y), from = ref(&x);
  CHECK_OK(tt_copy(&to, &from));
  donations = fake.get("donations");
  CHECK_OK(add_in_place(&x, &x));
  CHECK_OK(tt_synchronize(0));
  CHECK_INT(fake.get("donations") - donations, 0);
  // From now on x has a value of its own.
  CHECK_OK(add_in_place(&x, &y));
  CHECK_OK(tt_synchronize(0));
  CHECK_INT(fake.get("donations") - donations, 1);
  // A queued reader of the old value does not stop a donation: the queue is in order.
  fake.set("execute_delay_us", 2000);
  tensor z;
  donations = fake.get("donations");
  CHECK_OK(add(&x, &y, &z));
  CHECK_OK(add_in_place(&x, &y));
  CHECK_OK(tt_synchronize(0));
  CHECK_INT(fake.get("donations") - donations, 1);
  fake.set("execute_delay_us", 0);
  drop(&x);
  drop(&y);
  drop(&z);
  eager_check_empty(&fake);
}

static void test_undefined_reads_as_zeros(void) {
  start();
  tensor x = make(TT_F32, DIMS(3, 3)), z;
  float data[9];
  memset(data, 1, sizeof data);
  tt_tensor whole = ref(&x);
  CHECK_OK(tt_copy_to_host(&whole, data));
  for (int i = 0; i < 9; i++) {
    CHECK(data[i] == 0);
  }
  CHECK_OK(add(&x, &x, &z));
  // Copying it makes zeros as well, whatever was there.
  tensor y = make_filled(TT_F32, DIMS(3, 3));
  tt_tensor to = ref(&y);
  CHECK_OK(tt_copy(&to, &whole));
  memset(data, 1, sizeof data);
  CHECK_OK(tt_copy_to_host(&to, data));
  CHECK(data[8] == 0);
  // Writing a part defines it all.
  tensor row = select_row(&x, 1);
  CHECK_OK(add_in_place(&row, &row));
  drop(&x);
  drop(&y);
  drop(&z);
  eager_check_empty(&fake);
}

static void test_out(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(4, 8)), out = make(TT_F32, DIMS(4, 8)), wrong = make(TT_F32, DIMS(0)),
         ints = make(TT_S32, DIMS(4, 8));
  tt_results results;
  CHECK_OK(
      tt_call(op_of(OP_ADD_OUT), ARGS(arg_tensor(&x), arg_tensor(&x), arg_long(1), arg_tensor(&out)), 0, &results));
  CHECK_INT(results.count, 1);
  CHECK_INT(results.results[0].kind, TT_RESULT_ALIAS);
  CHECK_INT(results.results[0].alias, 3);
  tt_results_release(&results);
  // Another size: to be resized, then called again.
  CHECK_OK(
      tt_call(op_of(OP_ADD_OUT), ARGS(arg_tensor(&x), arg_tensor(&x), arg_long(1), arg_tensor(&wrong)), 0, &results));
  CHECK_INT(results.count, 0);
  CHECK_INT(results.resize_arg, 3);
  REQUIRE(results.resize_ndim == 2);
  CHECK_INT(results.resize_sizes[0], 4);
  CHECK_INT(results.resize_sizes[1], 8);
  CHECK_OK(tt_storage_resize(wrong.storage, 4 * 8 * 4));
  wrong = tensor_over(wrong.storage, TT_F32, results.resize_ndim, results.resize_sizes, 0);
  tt_results_release(&results);
  CHECK_OK(
      tt_call(op_of(OP_ADD_OUT), ARGS(arg_tensor(&x), arg_tensor(&x), arg_long(1), arg_tensor(&wrong)), 0, &results));
  CHECK_INT(results.resize_arg, -1);
  CHECK_INT(results.count, 1);
  tt_results_release(&results);
  CHECK_ERROR(
      tt_call(op_of(OP_ADD_OUT), ARGS(arg_tensor(&x), arg_tensor(&x), arg_long(1), arg_tensor(&ints)), 0, &results),
      TT_ERR_RUNTIME, "can't be cast");
  CHECK_INT(results.count, 0);
  drop(&x);
  drop(&out);
  drop(&wrong);
  drop(&ints);
  eager_check_empty(&fake);
}

static void test_lists(void) {
  start();
  enum { COUNT = 100 };  // more than fits the call's own arrays
  tensor xs[COUNT], ys[COUNT];
  tt_tensor x_refs[COUNT], y_refs[COUNT];
  for (int i = 0; i < COUNT; i++) {
    xs[i] = make_filled(TT_F32, DIMS(i + 1));
    ys[i] = make_filled(TT_F32, DIMS(i + 1));
    x_refs[i] = ref(&xs[i]);
    y_refs[i] = ref(&ys[i]);
  }
  tt_arg args[] = {{.tag = TT_ARG_TENSORS, .count = COUNT, .u.tensors = x_refs},
                   {.tag = TT_ARG_TENSORS, .count = COUNT, .u.tensors = y_refs},
                   arg_long(1)};
  tt_results results;
  CHECK_COMPILES(tt_call(op_of(OP_FOREACH_ADD), args, 3, 0, &results), 1);
  CHECK_INT(results.count, COUNT);
  for (int i = 0; i < results.count; i++) {
    CHECK(results.results[i].in_list && results.results[i].ndim == 1 && results.results[i].sizes[0] == i + 1);
    tt_storage_free(results.storages[i]);
  }
  tt_results_release(&results);
  CHECK_OK(tt_synchronize(0));
  int64_t donations = fake.get("donations");
  CHECK_COMPILES(call_only(OP_FOREACH_ADD_IN_PLACE, args, 3), 1);
  CHECK_COMPILES(call_only(OP_FOREACH_ADD_IN_PLACE, args, 3), 0);
  CHECK_OK(tt_synchronize(0));
  CHECK_INT(fake.get("donations") - donations, 2 * COUNT);
  args[1].count = COUNT - 1;
  CHECK_ERROR(call_only(OP_FOREACH_ADD, args, 3), TT_ERR_RUNTIME, "");
  for (int i = 0; i < COUNT; i++) {
    drop(&xs[i]);
    drop(&ys[i]);
  }
  eager_check_empty(&fake);
}

static void test_wrong_calls(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(4)), there = make_on(1, TT_F32, DIMS(4)), five = make_filled(TT_F32, DIMS(5)), z;
  CHECK(tt_op_register("aten::no_such_rule", &(tt_op_schema){.name = "aten::no_such_rule", .mutated_list = -1}) ==
        NULL);
  CHECK(tt_op_arg_is_operand(op_of(OP_ADD), 2));
  CHECK(!tt_op_arg_is_operand(op_of(OP_ADD), 0));
  CHECK(!tt_op_arg_is_operand(op_of(OP_ADD), -1));
  CHECK(!tt_op_arg_is_operand(op_of(OP_ADD), 3));
  CHECK_ERROR(add(&x, &there, &z), TT_ERR_RUNTIME, "same device");
  CHECK_ERROR(add(&x, &five, &z), TT_ERR_RUNTIME, "must match");
  tensor element = select_row(&x, 0);
  CHECK_ERROR(add_in_place(&element, &x), TT_ERR_RUNTIME, "doesn't match");
  tt_results results;
  CHECK_ERROR(tt_call(op_of(OP_ADD), ARGS(arg_tensor(&x), arg_tensor(&x)), 99, &results), TT_ERR_RUNTIME,
              "does not exist");
  CHECK_ERROR(tt_call(op_of(OP_MM), ARGS(arg_tensor(&x), arg_tensor(&x), arg_none()), 0, &results), TT_ERR_INTERNAL,
              "3 arguments");
  CHECK_ERROR(call_only(OP_ADD, ARGS(arg_tensor(&x), arg_none())), TT_ERR_RUNTIME, "other");
  CHECK_ERROR(call_only(OP_ADD, ARGS(arg_tensor(&x), {.tag = 200})), TT_ERR_INTERNAL, "tag");
  tensor odd = x;
  odd.dtype = TT_DTYPE_INVALID;
  CHECK_ERROR(add(&odd, &x, &z), TT_ERR_TYPE, "dtype");
  odd.dtype = TT_DTYPE_COUNT;
  CHECK_ERROR(add(&odd, &x, &z), TT_ERR_TYPE, "dtype");
  int64_t many[40] = {0};
  tt_arg deep = arg_tensor(&x);
  deep.u.tensor.sizes = deep.u.tensor.strides = many;
  deep.u.tensor.ndim = 40;
  CHECK_ERROR(call_only(OP_ADD, ARGS(deep, arg_tensor(&x))), TT_ERR_RUNTIME, "40 dimensions");
  // Failed calls leave no trace in the hit count.
  tt_counters before, after;
  tt_get_counters(&before);
  CHECK_ERROR(add(&x, &five, &z), TT_ERR_RUNTIME, "must match");
  tt_get_counters(&after);
  CHECK_INT(after.cache_hits, before.cache_hits);
  CHECK_INT(after.cache_misses, before.cache_misses + 1);
  drop(&x);
  drop(&there);
  drop(&five);
  eager_check_empty(&fake);
}

// Views outside of their storage, which resizing a storage can make.
static void test_out_of_bounds_views(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(4, 4)), z, view = x;
  view.offset = 1;
  CHECK_ERROR(add(&view, &view, &z), TT_ERR_RUNTIME, "outside of its storage");
  view.offset = -1;
  CHECK_ERROR(add(&view, &view, &z), TT_ERR_RUNTIME, "outside of its storage");
  view.offset = 0, view.strides[0] = INT64_MAX;
  CHECK_ERROR(add(&view, &view, &z), TT_ERR_RUNTIME, "outside of its storage");
  view.strides[0] = -1;
  CHECK_ERROR(add_in_place(&view, &view), TT_ERR_RUNTIME, "outside of its storage");
  CHECK_OK(tt_storage_resize(x.storage, 0));
  CHECK_ERROR(add(&x, &x, &z), TT_ERR_RUNTIME, "outside of its storage");
  view = select_row(&x, 2);
  CHECK_ERROR(add(&view, &view, &z), TT_ERR_RUNTIME, "outside of its storage");
  CHECK_OK(tt_storage_resize(x.storage, 4 * 4 * 4));
  CHECK_OK(add(&x, &x, &z));
  drop(&z);
  // Several elements of a written view in one place.
  view = x;
  view.strides[0] = 0;
  CHECK_ERROR(add_in_place(&view, &x), TT_ERR_RUNTIME, "single memory location");
  drop(&x);
  eager_check_empty(&fake);
}

TEST_MAIN(TEST(test_results), TEST(test_cache), TEST(test_scalars_are_operands), TEST(test_offsets_are_operands),
          TEST(test_in_place_donates), TEST(test_undefined_reads_as_zeros), TEST(test_out), TEST(test_lists),
          TEST(test_wrong_calls), TEST(test_out_of_bounds_views))

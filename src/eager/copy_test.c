// Copies between host and device and between devices, retyping, resizing, and the accounts of memory.
#include "support/eager.h"

static fake_control fake;
static void start(void) { fake = eager_start(2); }

static int64_t executes(void) {
  CHECK_OK(tt_synchronize(-1));
  return fake.get("executes");
}

static void test_host_round_trip(void) {
  start();
  static const tt_dtype dtypes[] = {TT_PRED, TT_S8, TT_S64, TT_U16, TT_F16, TT_BF16, TT_F32, TT_C128, TT_F8E5M2};
  for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
    tensor x = make(dtypes[d], DIMS(3, 5, 2));
    size_t nbytes = tt_storage_nbytes(x.storage);
    unsigned char in[30 * 16], out[30 * 16] = {0};
    for (size_t i = 0; i < nbytes; i++) {
      in[i] = (unsigned char)(i % 2);
    }
    tt_tensor whole = ref(&x);
    int64_t before = executes();
    CHECK_OK(tt_copy_from_host(&whole, in));
    unsigned char kept[sizeof in];
    memcpy(kept, in, nbytes);
    memset(in, 0xff, nbytes);  // the host memory is free to change
    CHECK_OK(tt_copy_to_host(&whole, out));
    CHECK(!memcmp(kept, out, nbytes));
    CHECK_INT(executes() - before, 0);  // no program for a whole storage
    // Through a view: programs, which the fake makes zeros of.
    tensor row = select_row(&x, 1);
    whole = ref(&row);
    CHECK_OK(tt_copy_from_host(&whole, kept));
    CHECK_INT(executes() - before, 1);
    CHECK_OK(tt_copy_to_host(&whole, out));
    CHECK_INT(executes() - before, 2);
    drop(&x);
  }
  eager_check_empty(&fake);
}

static void test_counters(void) {
  start();
  tensor x = make(TT_F32, DIMS(10));
  float data[10] = {0};
  tt_tensor whole = ref(&x);
  tt_counters before, after;
  tt_get_counters(&before);
  CHECK_OK(tt_copy_from_host(&whole, data));
  CHECK_OK(tt_copy_to_host(&whole, data));
  tt_count_fallback();
  tt_get_counters(&after);
  CHECK_INT(after.host_to_device - before.host_to_device, 1);
  CHECK_INT(after.device_to_host - before.device_to_host, 1);
  CHECK_INT(after.host_to_device_bytes - before.host_to_device_bytes, 40);
  CHECK_INT(after.device_to_host_bytes - before.device_to_host_bytes, 40);
  CHECK_INT(after.fallbacks - before.fallbacks, 1);
  CHECK_INT(fake.get("h2d_bytes"), 40);
  drop(&x);
  eager_check_empty(&fake);
}

static void test_device_copies(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(4, 4)), y = make(TT_F32, DIMS(4, 4)), half = make(TT_F16, DIMS(4, 4)),
         row = make_filled(TT_F32, DIMS(4)), cube = make(TT_F32, DIMS(2, 4, 4));
  tt_tensor to = ref(&y), from = ref(&x);
  int64_t before = executes(), buffers = fake.get("buffers");
  CHECK_OK(tt_copy(&to, &from));  // shares the value
  CHECK_INT(executes() - before, 0);
  CHECK_INT(fake.get("buffers"), buffers);
  float data[16], same[16];
  CHECK_OK(tt_copy_to_host(&from, data));
  CHECK_OK(tt_copy_to_host(&to, same));
  CHECK(!memcmp(data, same, sizeof data));
  CHECK_OK(add_in_place(&y, &y));
  CHECK_OK(tt_copy_to_host(&from, same));
  CHECK(!memcmp(data, same, sizeof data));  // x keeps its own
  CHECK_OK(tt_copy(&to, &to));              // onto itself
  // With conversion, broadcasting, into and from views.
  before = executes();
  to = ref(&half);
  CHECK_OK(tt_copy(&to, &from));
  from = ref(&row);
  CHECK_OK(tt_copy(&to, &from));
  to = ref(&cube);
  from = ref(&x);
  CHECK_OK(tt_copy(&to, &from));
  tensor slice = select_row(&cube, 1);
  to = ref(&slice);
  CHECK_OK(tt_copy(&to, &from));
  CHECK_INT(executes() - before, 4);
  // Transposed storage to transposed storage still shares.
  tensor tx = x, ty = y;
  tx.strides[0] = ty.strides[0] = 1;
  tx.strides[1] = ty.strides[1] = 4;
  to = ref(&ty), from = ref(&tx);
  before = executes();
  CHECK_OK(tt_copy(&to, &from));
  CHECK_INT(executes() - before, 0);
  // What can't be.
  to = ref(&row), from = ref(&x);
  CHECK_ERROR(tt_copy(&to, &from), TT_ERR_RUNTIME, "");
  from.storage = NULL;
  CHECK_ERROR(tt_copy(&to, &from), TT_ERR_INTERNAL, "not on tpu");
  CHECK_ERROR(tt_copy_to_host(&from, data), TT_ERR_INTERNAL, "not on tpu");
  from = ref(&x), from.dtype = TT_DTYPE_INVALID;
  CHECK_ERROR(tt_copy(&to, &from), TT_ERR_TYPE, "dtype");
  drop(&x);
  drop(&y);
  drop(&half);
  drop(&row);
  drop(&cube);
  eager_check_empty(&fake);
}

static void test_between_devices(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(4, 4)), there = make_on(1, TT_F32, DIMS(4, 4)),
         wide = make_on(1, TT_F64, DIMS(2, 4, 4)), empty = make_on(1, TT_F32, DIMS(0, 4)),
         fresh = make(TT_F32, DIMS(4, 4));
  CHECK_INT(tt_storage_device(there.storage), 1);
  tt_tensor from = ref(&x), to = ref(&there);
  CHECK_OK(tt_copy(&to, &from));
  to = ref(&wide);
  CHECK_OK(tt_copy(&to, &from));
  tensor row = select_row(&x, 2), target = select_row(&there, 0);
  from = ref(&row), to = ref(&target);
  CHECK_OK(tt_copy(&to, &from));
  CHECK_OK(tt_copy(&from, &to));  // and back
  from = ref(&fresh), to = ref(&there);
  CHECK_OK(tt_copy(&to, &from));  // undefined
  to = ref(&empty);
  CHECK_OK(tt_copy(&to, &from));
  tt_results results;
  CHECK_OK(tt_call(op_of(OP_ADD), ARGS(arg_tensor(&there), arg_tensor(&there)), 1, &results));
  CHECK_INT(tt_storage_device(results.storages[0]), 1);
  tt_storage_free(results.storages[0]);
  tt_results_release(&results);
  CHECK_OK(tt_synchronize(-1));
  // A failed source fails the copy, and a failed transfer too.
  fake.set("fail:PJRT_Buffer_CopyToDevice", 1);
  from = ref(&x), to = ref(&there);
  CHECK_ERROR(tt_copy(&to, &from), TT_ERR_RUNTIME, "injected");
  CHECK_OK(tt_copy(&to, &from));
  CHECK_OK(tt_synchronize(-1));
  drop(&x);
  drop(&there);
  drop(&wide);
  drop(&empty);
  drop(&fresh);
  eager_check_empty(&fake);
}

static void test_retype(void) {
  start();
  tensor bytes = make_filled(TT_U8, DIMS(64)), floats = tensor_over(bytes.storage, TT_F32, DIMS(16), 0),
         part = tensor_over(bytes.storage, TT_F32, DIMS(4), 8), z;
  int64_t before = executes();
  CHECK_OK(add(&floats, &floats, &z));
  CHECK_INT(executes() - before, 2);  // retyped once
  drop(&z);
  CHECK_OK(add(&floats, &floats, &z));
  CHECK_INT(executes() - before, 3);
  drop(&z);
  CHECK_OK(add(&part, &part, &z));
  CHECK_INT(executes() - before, 4);
  drop(&z);
  // Two types of one storage in one call.
  tensor quarter = tensor_over(bytes.storage, TT_U8, DIMS(16), 3);
  CHECK_OK(add(&floats, &quarter, &z));
  CHECK_INT(z.dtype, TT_F32);
  drop(&z);
  tensor complex = tensor_over(bytes.storage, TT_C64, DIMS(8), 0),
         bools = tensor_over(bytes.storage, TT_PRED, DIMS(64), 0);
  CHECK_OK(add(&complex, &complex, &z));
  drop(&z);
  CHECK_OK(add(&bools, &bools, &z));
  drop(&z);
  // Undefined storages take the type that is asked for.
  tensor fresh = make(TT_F32, DIMS(8)), words = tensor_over(fresh.storage, TT_S32, DIMS(8), 0);
  CHECK_OK(add(&fresh, &words, &z));
  drop(&z);
  CHECK_OK(add_in_place(&words, &words));
  // A whole write takes any type at once.
  before = executes();
  tt_tensor to = ref(&bytes);
  unsigned char data[64] = {1};
  CHECK_OK(tt_copy_from_host(&to, data));
  CHECK_INT(executes() - before, 0);
  CHECK_OK(tt_copy_to_host(&to, data));
  CHECK_INT(data[0], 1);
  drop(&bytes);
  drop(&fresh);
  // Bytes that make no whole element are out of reach, loudly.
  tensor odd = make_filled(TT_U8, DIMS(11)), pair = tensor_over(odd.storage, TT_F32, DIMS(2), 0);
  CHECK_OK(add(&pair, &pair, &z));
  drop(&z);
  pair = tensor_over(odd.storage, TT_F32, DIMS(3), 0);
  CHECK_ERROR(add(&pair, &pair, &z), TT_ERR_RUNTIME, "outside of its storage");
  // They are there when the type is the old one again.
  to = ref(&odd);
  CHECK_OK(tt_copy_to_host(&to, data));
  CHECK_OK(add(&odd, &odd, &z));
  drop(&z);
  drop(&odd);
  eager_check_empty(&fake);
}

static void test_resize(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(16)), z;
  tt_memory_stats before, after;
  CHECK_OK(tt_get_memory_stats(0, &before));
  void *address = tt_storage_address(x.storage);
  CHECK_OK(tt_storage_resize(x.storage, 1024));
  CHECK_INT(tt_storage_nbytes(x.storage), 1024);
  CHECK(tt_storage_address(x.storage) != address);
  CHECK_OK(tt_get_memory_stats(0, &after));
  CHECK_INT(after.allocated - before.allocated, 1024 - 64);
  tensor longer = tensor_over(x.storage, TT_F32, DIMS(256), 0);
  CHECK_OK(add(&longer, &longer, &z));
  drop(&z);
  CHECK_OK(tt_storage_resize(x.storage, 8));
  tensor two = tensor_over(x.storage, TT_F32, DIMS(2), 0);
  CHECK_OK(add(&two, &two, &z));
  drop(&z);
  CHECK_ERROR(add(&x, &x, &z), TT_ERR_RUNTIME, "outside of its storage");
  CHECK_OK(tt_storage_resize(x.storage, 0));
  CHECK_OK(tt_storage_resize(x.storage, 0));
  CHECK_OK(tt_storage_resize(x.storage, 64));
  CHECK_OK(add(&x, &x, &z));
  drop(&z);
  CHECK_OK(tt_storage_resize(x.storage, 67));  // no whole number of elements
  CHECK_OK(add(&x, &x, &z));
  drop(&z);
  CHECK_ERROR(tt_storage_resize(x.storage, (size_t)1 << 60), TT_ERR_OUT_OF_MEMORY, "memory");
  CHECK_INT(tt_storage_nbytes(x.storage), 67);
  drop(&x);
  eager_check_empty(&fake);
}

static void test_memory_stats(void) {
  start();
  CHECK_OK(tt_reset_peak_memory(0));
  tt_memory_stats before, after;
  CHECK_OK(tt_get_memory_stats(0, &before));
  CHECK(before.limit > 0);
  tensor x = make_filled(TT_F32, DIMS(1000)), y = make(TT_F32, DIMS(500));
  CHECK_OK(tt_get_memory_stats(0, &after));
  CHECK_INT(after.allocated - before.allocated, 6000);
  CHECK_INT(after.reserved - before.reserved, 4000);
  CHECK_INT(after.active - before.active, 2);
  drop(&x);
  drop(&y);
  CHECK_OK(tt_get_memory_stats(0, &after));
  CHECK_INT(after.allocated, before.allocated);
  CHECK_INT(after.allocated_peak - before.allocated, 6000);
  CHECK_INT(after.reserved_peak - before.reserved, 4000);
  CHECK_INT(after.allocated_total - before.allocated_total, 6000);
  CHECK_INT(after.free_count - before.free_count, 2);
  CHECK_OK(tt_reset_peak_memory(0));
  CHECK_OK(tt_get_memory_stats(0, &after));
  CHECK_INT(after.allocated_peak, after.allocated);
  CHECK_ERROR(tt_get_memory_stats(7, &after), TT_ERR_RUNTIME, "does not exist");
  CHECK_ERROR(tt_reset_peak_memory(7), TT_ERR_RUNTIME, "does not exist");
  tt_storage *storage;
  CHECK_ERROR(tt_storage_create(0, SIZE_MAX, &storage), TT_ERR_OUT_OF_MEMORY, "out of memory");
  CHECK_ERROR(tt_storage_create(2, 8, &storage), TT_ERR_RUNTIME, "does not exist");
  CHECK(storage == NULL);
  tt_storage_free(NULL);
  eager_check_empty(&fake);
}

TEST_MAIN(TEST(test_host_round_trip), TEST(test_counters), TEST(test_device_copies), TEST(test_between_devices),
          TEST(test_retype), TEST(test_resize), TEST(test_memory_stats))

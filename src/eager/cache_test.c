// The caches (interned scalars, compiled operators), random generators and the address ranges of storages.
#include "eager/internal.h"
#include "support/eager.h"

static fake_control fake;
static void start(void) { fake = eager_start(2); }

static void test_scalars_are_interned(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(4)), z;
  const tt_arg args[] = {arg_tensor(&x), arg_tensor(&x), arg_double(2.5)};
  CHECK_OK(call_new(OP_ADD, args, 3, &z));
  drop(&z);
  tt_counters before, after;
  tt_get_counters(&before);
  for (int i = 0; i < 50; i++) {
    CHECK_OK(call_new(OP_ADD, args, 3, &z));
    drop(&z);
  }
  tt_get_counters(&after);
  CHECK_INT(after.host_to_device, before.host_to_device);
  CHECK_OK(tt_empty_cache());
  CHECK_OK(call_new(OP_ADD, args, 3, &z));
  drop(&z);
  tt_get_counters(&after);
  CHECK_INT(after.host_to_device, before.host_to_device + 1);
  // -0.0 and 0.0 are two numbers.
  CHECK_OK(call_new(OP_ADD, ARGS(arg_tensor(&x), arg_tensor(&x), arg_double(0.0)), &z));
  drop(&z);
  CHECK_OK(call_new(OP_ADD, ARGS(arg_tensor(&x), arg_tensor(&x), arg_double(-0.0)), &z));
  drop(&z);
  tt_get_counters(&after);
  CHECK_INT(after.host_to_device, before.host_to_device + 3);
  drop(&x);
  eager_check_empty(&fake);
}

static void test_ever_new_scalars(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(4)), z;
  CHECK_OK(tt_synchronize(0));
  int64_t buffers = fake.get("buffers");
  fake.set("execute_delay_us", 20);
  int64_t before = compiles();
  for (int i = 0; i < 2 * TT_SCALAR_LIMIT + 500; i++) {
    CHECK_OK(call_new(OP_ADD, ARGS(arg_tensor(&x), arg_tensor(&x), arg_double(10.5 + i)), &z));
    drop(&z);
    if (i % 500 == 0) {
      CHECK(fake.get("buffers") - buffers <= TT_SCALAR_LIMIT + 2 * TT_QUEUE_LENGTH + 64);
    }
  }
  CHECK_INT(compiles() - before, 1);
  CHECK_OK(tt_synchronize(0));
  CHECK(fake.get("buffers") - buffers <= TT_SCALAR_LIMIT);
  CHECK_OK(tt_empty_cache());
  CHECK_INT(fake.get("buffers"), buffers);
  fake.set("execute_delay_us", 0);
  drop(&x);
  eager_check_empty(&fake);
}

static void test_many_operators(void) {
  start();
  enum { COUNT = 2500 };  // the table grows twice
  tt_storage *storage;
  REQUIRE_OK(tt_storage_create(0, COUNT * sizeof(float), &storage));
  tensor x = tensor_over(storage, TT_F32, DIMS(COUNT), 0), z;
  int64_t before = compiles();
  for (int round = 0; round < 2; round++) {
    for (int64_t i = 1; i <= COUNT; i++) {
      x.sizes[0] = i;
      CHECK_OK(add(&x, &x, &z));
      drop(&z);
    }
    CHECK_INT(compiles() - before, COUNT);
  }
  CHECK_INT(fake.get("loaded_executables"), COUNT);
  // Forgotten while queued programs still need them.
  fake.set("execute_delay_us", 200);
  for (int64_t i = 1; i <= 100; i++) {
    x.sizes[0] = i;
    CHECK_OK(add(&x, &x, &z));
    drop(&z);
  }
  CHECK_OK(tt_clear_compile_cache());
  x.sizes[0] = 1;
  CHECK_COMPILES(add(&x, &x, &z), 1);
  drop(&z);
  CHECK_OK(tt_synchronize(0));
  CHECK_INT(fake.get("loaded_executables"), 1);
  fake.set("execute_delay_us", 0);
  drop(&x);
  eager_check_empty(&fake);
}

static void test_ever_new_operators(void) {
  start();
  enum { COUNT = 3 * TT_OP_CACHE_LIMIT };
  tt_storage *storage;
  REQUIRE_OK(tt_storage_create(0, COUNT * sizeof(float), &storage));
  tensor x = tensor_over(storage, TT_F32, DIMS(COUNT), 0), z;
  int64_t most = 0;
  for (int64_t i = 1; i <= COUNT; i++) {
    x.sizes[0] = i;
    CHECK_OK(add(&x, &x, &z));
    drop(&z);
    int64_t alive = fake.get("loaded_executables");
    most = alive > most ? alive : most;
  }
  CHECK_OK(tt_synchronize(0));
  // What is queued or in flight is alive beside what the cache holds.
  CHECK(most <= TT_OP_CACHE_LIMIT + TT_QUEUE_LENGTH + TT_INFLIGHT + 1);
  drop(&x);
  CHECK_OK(tt_clear_compile_cache());
  eager_check_empty(&fake);
}

// ---- generators ----
static uint64_t offset_of(tt_generator *generator) {
  uint64_t seed, offset;
  tt_generator_get(generator, &seed, &offset);
  return offset;
}

static tt_status *uniform(const tensor *x, tt_generator *generator, double to) {
  return call_only(OP_UNIFORM_IN_PLACE, ARGS(arg_tensor(x), arg_double(0), arg_double(to),
                                             {.tag = TT_ARG_GENERATOR, .u.generator = generator}));
}

static void test_generators(void) {
  start();
  tt_generator *mine, *standard = tt_default_generator(0);
  uint64_t seed, offset;
  REQUIRE_OK(tt_generator_create(0, &mine));
  CHECK(standard && standard == tt_default_generator(0) && standard != tt_default_generator(1));
  CHECK(tt_default_generator(2) == NULL);
  CHECK(tt_default_generator(-1) == standard);
  tt_generator_set(mine, 42, 1000);
  tt_generator_get(mine, &seed, &offset);
  CHECK_INT(seed, 42);
  CHECK_INT(offset, 1000);
  tt_generator_set(mine, UINT64_MAX, 0);
  tt_generator_get(mine, &seed, &offset);
  CHECK(seed == UINT64_MAX);
  // What an operator takes depends on its sizes alone, and another seed, offset or bound compiles nothing.
  tensor x = make(TT_F32, DIMS(100)), y = make(TT_F32, DIMS(1000)), part = x;
  part.sizes[0] = 50;
  uint64_t before = offset_of(standard);
  CHECK_COMPILES(uniform(&x, mine, 1), 1);
  uint64_t step = offset_of(mine);
  CHECK(step >= 25 && step <= 200);
  CHECK_COMPILES(uniform(&x, mine, 2), 1);  // the storage is defined now
  int64_t now = compiles();
  for (uint64_t i = 3; i < 20; i++) {
    CHECK_OK(uniform(&x, mine, (double)i));
    CHECK_INT(offset_of(mine), i * step);
  }
  CHECK_INT(compiles() - now, 0);
  CHECK_OK(uniform(&y, mine, 1));
  CHECK_INT(offset_of(mine), 29 * step);
  CHECK_INT(offset_of(standard), before);
  CHECK_OK(uniform(&x, NULL, 1));  // None: the device's own
  CHECK_INT(offset_of(standard), before + step);
  CHECK_OK(uniform(&part, NULL, 1));
  CHECK(offset_of(standard) > before + step && offset_of(standard) <= before + 2 * step);
  CHECK_ERROR(uniform(&x, mine, -1), TT_ERR_RUNTIME, "from=0 > to=-1");
  CHECK_INT(offset_of(mine), 29 * step);
  CHECK_OK(tt_synchronize(0));
  tt_generator_free(mine);
  tt_generator_free(NULL);
  drop(&x);
  drop(&y);
  eager_check_empty(&fake);
}

// ---- addresses ----
typedef struct range {
  char *address;
  size_t nbytes;
} range;

static int by_address(const void *a, const void *b) {
  const char *x = ((const range *)a)->address, *y = ((const range *)b)->address;
  return x < y ? -1 : x > y;
}

static void check_apart(const range *ranges, int count) {
  range sorted[512];
  int n = 0;
  for (int i = 0; i < count; i++) {
    if (ranges[i].address) {
      sorted[n++] = ranges[i];
    }
  }
  qsort(sorted, (size_t)n, sizeof *sorted, by_address);
  for (int i = 1; i < n; i++) {
    size_t size = sorted[i - 1].nbytes ? sorted[i - 1].nbytes : 1;  // empty ones are apart too
    CHECK(sorted[i - 1].address + size <= sorted[i].address);
  }
}

static void test_addresses(void) {
  enum { COUNT = 512 };
  static range ranges[COUNT];
  uint64_t random = 88172645463325252u;
  for (int step = 0; step < 20000; step++) {
    range *one = &ranges[next_random(&random) % COUNT];
    if (one->address) {
      tt_vspace_free(one->address, one->nbytes);
      *one = (range){0};
      continue;
    }
    one->nbytes = (size_t)(next_random(&random) >> (40 + next_random(&random) % 24));  // up to 16 MiB
    one->address = tt_vspace_alloc(one->nbytes);
    REQUIRE(one->address != NULL);
    CHECK((uintptr_t)one->address % 512 == 0);
    if (step % 500 == 0) {
      check_apart(ranges, COUNT);
    }
  }
  check_apart(ranges, COUNT);
  for (int i = 0; i < COUNT; i++) {
    if (ranges[i].address) {
      tt_vspace_free(ranges[i].address, ranges[i].nbytes);
    }
  }
  // A loop takes no new addresses.
  void *first = tt_vspace_alloc(5000);
  tt_vspace_free(first, 5000);
  for (int i = 0; i < 1000; i++) {
    void *again = tt_vspace_alloc(5000);
    CHECK(again == first);
    tt_vspace_free(again, 5000);
  }
  CHECK(tt_vspace_alloc((size_t)1 << 50) == NULL);
  CHECK(tt_vspace_alloc(SIZE_MAX) == NULL);
}

static void test_storages_have_addresses(void) {
  start();
  tt_storage *a, *b, *empty, *other;
  REQUIRE_OK(tt_storage_create(0, 100, &a));
  REQUIRE_OK(tt_storage_create(0, 100, &b));
  REQUIRE_OK(tt_storage_create(0, 0, &empty));
  REQUIRE_OK(tt_storage_create(1, 100, &other));
  const range ranges[] = {{tt_storage_address(a), 100},
                          {tt_storage_address(b), 100},
                          {tt_storage_address(empty), 0},
                          {tt_storage_address(other), 100}};
  check_apart(ranges, 4);
  tt_storage_free(a);
  tt_storage_free(b);
  tt_storage_free(empty);
  tt_storage_free(other);
  eager_check_empty(&fake);
}

// 512 bytes, and from there in steps that double after every fourth.
static void test_size_classes(void) {
  size_t size = 512, step = 512;
  CHECK_INT(tt_vspace_class(0), 0);
  for (int32_t class = 0; class < TT_VSPACE_CLASSES - 1; class++) {
    CHECK_INT(tt_vspace_class(size), class);
    CHECK_INT(tt_vspace_class(size + 1), class + 1);
    step = class % 4 == 0 && class ? 2 * step : step;
    size += step;
  }
  CHECK_INT(tt_vspace_class(SIZE_MAX), TT_VSPACE_CLASSES - 1);
}

// A storage that was freed makes another one of its class.
static void test_spare_storages(void) {
  enum { COUNT = 64 };
  start();
  tt_storage *storages[COUNT] = {NULL};
  range ranges[COUNT] = {{0}};
  uint64_t random = 5;
  tt_memory_stats before, after;
  CHECK_OK(tt_get_memory_stats(0, &before));
  int64_t allocated = 0;
  for (int i = 0; i < 20000; i++) {
    int k = (int)(next_random(&random) % COUNT);
    if (storages[k] && next_random(&random) % 4 == 0) {
      size_t nbytes = (size_t)(next_random(&random) % 9000);
      CHECK_OK(tt_storage_resize(storages[k], nbytes));
      allocated += (int64_t)nbytes - (int64_t)ranges[k].nbytes;
      ranges[k] = (range){tt_storage_address(storages[k]), nbytes};
    } else if (storages[k]) {
      tt_storage_free(storages[k]);
      storages[k] = NULL;
      allocated -= (int64_t)ranges[k].nbytes;
      ranges[k] = (range){0};
    } else {
      ranges[k].nbytes = (size_t)(next_random(&random) % 9000);
      allocated += (int64_t)ranges[k].nbytes;
      REQUIRE_OK(tt_storage_create(0, ranges[k].nbytes, &storages[k]));
      ranges[k].address = tt_storage_address(storages[k]);
      CHECK_INT(tt_storage_nbytes(storages[k]), ranges[k].nbytes);
    }
    if (i % 200 == 0) {
      check_apart(ranges, COUNT);
    }
  }
  CHECK_OK(tt_get_memory_stats(0, &after));
  CHECK_INT(after.allocated - before.allocated, allocated);
  for (int k = 0; k < COUNT; k++) {
    tt_storage_free(storages[k]);
  }
  tt_storage *first, *again;
  REQUIRE_OK(tt_storage_create(0, 5000, &first));
  void *address = tt_storage_address(first);
  tt_storage_free(first);
  REQUIRE_OK(tt_storage_create(0, 5001, &again));
  CHECK((int)TT_SPARE_LIMIT < (int)COUNT || tt_storage_address(again) == address);
  tt_storage_free(again);
  CHECK_OK(tt_get_memory_stats(0, &after));
  CHECK_INT(after.allocated, before.allocated);
  CHECK_INT(after.active, before.active);
  eager_check_empty(&fake);
}

// What an operator was called with last is not remembered beyond its record.
static void test_the_last_record_goes_with_the_cache(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(4)), y = make_filled(TT_F32, DIMS(2, 3)), z;
  for (int turn = 0; turn < 3; turn++) {
    for (int i = 0; i < 4; i++) {
      const tensor *operand = i % 2 ? &x : &y;
      CHECK_COMPILES(add(operand, operand, &z), i < 2);
      CHECK_INT(z.ndim, operand->ndim);
      drop(&z);
    }
    CHECK_OK(tt_clear_compile_cache());
  }
  drop(&x);
  drop(&y);
  eager_check_empty(&fake);
}

TEST_MAIN(TEST(test_scalars_are_interned), TEST(test_ever_new_scalars), TEST(test_many_operators),
          TEST(test_ever_new_operators), TEST(test_generators), TEST(test_addresses),
          TEST(test_storages_have_addresses), TEST(test_size_classes), TEST(test_spare_storages),
          TEST(test_the_last_record_goes_with_the_cache))

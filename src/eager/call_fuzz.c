// Bytes choose an operator, operands and arguments, which go through tt_call() to the fake plugin. That one compares
// the types of arguments with the program's at each launch, so keys, parameters, donations and results of every rule
// are checked: whatever the operator says of its operands, nothing crashes or leaks, and no launch is refused.
//
//   eager_call_fuzz [ITERATIONS [SEED [PART OF A RULE'S NAME]]]
#include "eager/key_part.h"
#include "support/fuzz_call.h"

static int64_t succeeded, refused;
static tt_storage *storages[MAX_TENSORS];

static void fail(const char *what, tt_status *status) {
  fprintf(stderr, "call_fuzz: %s: %s: %s\n", fuzz_current, what, tt_status_message(status));
  abort();
}

static void succeed(const char *what, tt_status *status) {
  if (status) {
    fail(what, status);
  }
}

// ---- operands ----
static void fill_storage(const tt_slot *slot, tt_storage *storage) {
  int64_t strides[MAX_NDIM], stride = 1;
  for (int32_t i = slot->shape.rank - 1; i >= 0; i--) {
    strides[i] = stride;
    stride *= slot->shape.dims[i] > 1 ? slot->shape.dims[i] : 1;
  }
  tt_tensor whole = {.storage = storage,
                     .sizes = slot->shape.dims,
                     .strides = strides,
                     .ndim = slot->shape.rank,
                     .dtype = (uint8_t)slot->dtype};
  void *zeros = calloc(tt_storage_nbytes(storage) + 1, 1);
  succeed("filling", tt_copy_from_host(&whole, zeros));
  free(zeros);
}

static void make_storages(call *c) {
  for (int32_t i = 0; i < c->slot_count; i++) {
    const tt_slot *slot = &c->slots[i];
    size_t nbytes = (size_t)slot->shape.numel * tt_dtype_size(slot->dtype);
    succeed("a storage", tt_storage_create(0, nbytes, &storages[i]));
    if (slot->defined) {
      fill_storage(slot, storages[i]);
    }
  }
  for (int32_t i = 0; i < c->tensor_count; i++) {
    int32_t slot = c->call_tensors[i].slot;
    c->tensors[i].storage = slot >= 0 ? storages[slot] : NULL;
  }
  for (int32_t i = 0; i < TT_MAX_ARGS; i++) {
    if (c->args[i].tag == TT_ARG_TENSOR) {
      c->args[i].u.tensor = c->tensors[c->first_tensor[i]];
    }
  }
}

// ---- one input ----
// Launches that the plugin refuses carry the operator's full name; asserts, which the fake's zeros set off, don't.
static void check_launch(tt_status *status) {
  if (status && (!strncmp(tt_status_message(status), "aten::", 6) || !strncmp(tt_status_message(status), "tt::", 4))) {
    fail("launching", status);
  }
  tt_status_free(status);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static call c;
  source in = {data, data + size};
  const form *form = make_call(&c, &in);
  if (!form) {
    return 0;
  }
  make_storages(&c);
  alarm(FUZZ_SECONDS);
  for (int again = 0; again < 2; again++) {  // once from the cache
    tt_results results;
    tt_status *status = tt_call(form->op, c.args, form->count, 0, &results);
    if (status) {
      if (strstr(tt_status_message(status), "compiling ")) {
        fail("compiling", status);
      }
      tt_status_free(status);
      refused++;
      continue;
    }
    succeeded++;
    for (int32_t i = 0; i < results.count; i++) {
      tt_storage_free(results.storages[i]);
    }
    tt_results_release(&results);
  }
  check_launch(tt_synchronize(0));
  alarm(0);
  for (int32_t i = 0; i < c.slot_count; i++) {
    tt_storage_free(storages[i]);
  }
  return 0;
}

#ifdef TT_FUZZ_MAIN
// Every key that was made can be read back.
static long unreadable_keys(void) {
  long count = 0;
  const tt_op_cache *cache = &tt_the_runtime.engines[0].cache;
  for (size_t i = 0; i < cache->bucket_count; i++) {
    for (const tt_record *record = cache->buckets[i]; record; record = record->next) {
      tt_key_part *parts = malloc(sizeof *parts * (size_t)record->key_words);
      if (!parts || !tt_key_parts(record->op, record->key, record->key_words, parts)) {
        printf("a key of %s can't be read\n", record->op->name);
        count++;
      }
      free(parts);
    }
  }
  return count;
}

int main(int argc, char **argv) {
  const char *path = getenv("TT_TEST_FAKE_PLUGIN");
  if (!path) {
    printf("skipped: TT_TEST_FAKE_PLUGIN is not set\n");
    return 0;
  }
  setenv("TORCH_TPU_PJRT_PLUGIN", path, 1);
  setenv("TORCH_TPU_CACHE", "0", 1);
  setenv("TORCH_TPU_MEMORY_FRACTION", "0.002", 1);  // results of absurd sizes are refused
  succeed("initialising", tt_init());
  long iterations = fuzz_run(argc, argv);
  long unreadable = unreadable_keys();
  succeed("clearing", tt_empty_cache());
  succeed("clearing", tt_clear_compile_cache());
  tt_memory_stats stats;
  succeed("counting", tt_get_memory_stats(0, &stats));
  printf("%ld iterations: %lld calls, %lld refusals; %lld storages and %lld bytes are left\n", iterations,
         (long long)succeeded, (long long)refused, (long long)stats.active, (long long)stats.reserved);
  return stats.active || stats.reserved || unreadable;
}
#endif

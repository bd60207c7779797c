// Values and storages, and the address ranges that storages pretend to occupy.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "eager/capture.h"
#include "eager/explain.h"

// ---- values ----
enum { SPARE_RANK = 5 };  // a value has room for as many sizes at least, so that most fit where another one was

static tt_value *init_value(tt_value *value, tt_engine *engine, tt_dtype dtype, const int64_t *dims, int32_t rank,
                            bool phantom) {
  if (!value) {
    return NULL;
  }
  int64_t numel = 1;
  for (int32_t i = 0; i < rank; i++) {
    value->dims[i] = dims[i];
    numel *= dims[i];
  }
  atomic_init(&value->counts, TT_VALUE_REF + TT_VALUE_WEAK);
  atomic_init(&value->donated, phantom);
  value->owners = 0;
  value->device = engine->device;
  value->dtype = dtype;
  value->shape = (tt_shape){rank, value->dims, numel};
  value->nbytes = (size_t)numel * tt_dtype_size(dtype);
  value->sequence = value->stretch = value->died = 0;
  value->buffer = NULL;
  value->error = NULL;
  if (!phantom) {
    tt_memory_add(&engine->reserved, &engine->reserved_peak, (int64_t)value->nbytes);
  }
  return value;
}

static tt_value *allocate_value(int32_t rank) {
  return malloc(sizeof(tt_value) + sizeof(int64_t) * (size_t)(rank > SPARE_RANK ? rank : SPARE_RANK));
}

tt_value *tt_value_create(int32_t device, tt_dtype dtype, const int64_t *dims, int32_t rank) {
  return init_value(allocate_value(rank), &tt_the_runtime.engines[device], dtype, dims, rank, false);
}

tt_value *tt_value_create_phantom(int32_t device, tt_dtype dtype, const int64_t *dims, int32_t rank,
                                  const tt_status *error) {
  tt_value *value = init_value(allocate_value(rank), &tt_the_runtime.engines[device], dtype, dims, rank, true);
  if (value) {
    value->error = tt_status_clone(error);
  }
  return value;
}

tt_value *tt_value_create_locked(tt_engine *engine, tt_dtype dtype, const int64_t *dims, int32_t rank) {
  tt_value *spare = rank <= SPARE_RANK ? engine->spare_values : NULL;
  if (spare) {
    engine->spare_values = spare->next;
    engine->spare_value_count--;
  }
  return init_value(spare ? spare : allocate_value(rank), engine, dtype, dims, rank, false);
}

// Nobody needs the array any more.
static void release_array(tt_value *value) {
  if (value->buffer && !atomic_load(&tt_the_runtime.stopped)) {
    tt_pjrt_buffer_free(tt_the_runtime.client, value->buffer);
  }
  tt_status_free(value->error);
  if (!atomic_load_explicit(&value->donated, memory_order_relaxed)) {
    tt_engine *engine = &tt_the_runtime.engines[value->device];
    tt_memory_add(&engine->reserved, NULL, -(int64_t)value->nbytes);
  }
}

// Whether nothing needs the value's memory any more.
static inline bool drop(tt_value *value, uint64_t counts) {
  uint64_t left = atomic_fetch_sub_explicit(&value->counts, counts, memory_order_acq_rel) - counts;
  if ((uint32_t)counts && !(uint32_t)left) {
    release_array(value);
    if (left != TT_VALUE_WEAK) {
      left = atomic_fetch_sub_explicit(&value->counts, TT_VALUE_WEAK, memory_order_acq_rel);
    }
    left -= TT_VALUE_WEAK;
  }
  return !left;
}

void tt_value_drop(tt_value *value, uint64_t counts) {
  if (drop(value, counts)) {
    free(value);
  }
}

void tt_value_drop_locked(tt_engine *engine, tt_value *value, uint64_t counts) {
  if (!drop(value, counts)) {
    return;
  }
  if (engine->spare_value_count >= TT_SPARE_LIMIT) {
    free(value);
    return;
  }
  value->next = engine->spare_values;
  engine->spare_values = value;
  engine->spare_value_count++;
}

void tt_value_give_away(tt_value *value) {
  if (!atomic_load_explicit(&value->donated, memory_order_relaxed)) {
    atomic_store_explicit(&value->donated, true, memory_order_relaxed);
    tt_memory_add(&tt_the_runtime.engines[value->device].reserved, NULL, -(int64_t)value->nbytes);
  }
}

void tt_memory_add(atomic_int_fast64_t *now, atomic_int_fast64_t *peak, int64_t bytes) {
  int64_t total = atomic_fetch_add_explicit(now, bytes, memory_order_relaxed) + bytes;
  if (!peak || bytes <= 0) {
    return;
  }
  int64_t high = atomic_load_explicit(peak, memory_order_relaxed);
  while (total > high &&
         !atomic_compare_exchange_weak_explicit(peak, &high, total, memory_order_relaxed, memory_order_relaxed)) {
  }
}

void tt_allocated_add(tt_engine *engine, int64_t bytes) {
  int64_t now = tt_count_locked(&engine->allocated, bytes);
  if (now > atomic_load_explicit(&engine->allocated_peak, memory_order_relaxed)) {
    atomic_store_explicit(&engine->allocated_peak, now, memory_order_relaxed);
  }
}

// ---- address ranges ----
// Classes of 512 bytes times a power of two, with quarter steps, taken from one reserved range that no page backs.
// A freed range is reused before a new one is cut.
static const size_t VSPACE_SIZE = (size_t)1 << 44;

typedef struct free_range {
  struct free_range *next;
  void *address;
} free_range;

static struct {
  pthread_mutex_t lock;
  char *base, *next, *end;
  free_range *free[TT_VSPACE_CLASSES], *spare;
} vspace = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int32_t size_class(size_t nbytes, size_t *out_size) {
  // Class 4 k + i has 512 ((4 + i) 2^k - 3) bytes, i from 1 to 4, and class 0 has 512.
  const size_t steps = nbytes > 512 ? (nbytes - 513) / 512 + 1 : 0;
  if (!steps) {
    *out_size = 512;
    return 0;
  }
  int32_t k = 63 - __builtin_clzll((steps + 3) / 4);
  size_t i = (steps - 4 * (((size_t)1 << k) - 1) + ((size_t)1 << k) - 1) >> k;
  if (4 * k + (int32_t)i >= TT_VSPACE_CLASSES) {
    k = (TT_VSPACE_CLASSES - 2) / 4;
    i = (TT_VSPACE_CLASSES - 1) - 4 * (size_t)k;
  }
  *out_size = 512 * (((4 + i) << k) - 3);
  return 4 * k + (int32_t)i;
}

int32_t tt_vspace_class(size_t nbytes) {
  size_t size;
  return size_class(nbytes, &size);
}

static bool reserve_space(void) {
  if (vspace.base) {
    return true;
  }
  for (size_t size = VSPACE_SIZE; size >= (size_t)1 << 30; size /= 4) {
    void *base = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base != MAP_FAILED) {
      vspace.base = vspace.next = base;
      vspace.end = vspace.base + size;
      return true;
    }
  }
  return false;
}

void *tt_vspace_alloc(size_t nbytes) {
  size_t size;
  int32_t class = size_class(nbytes, &size);
  void *address = NULL;
  pthread_mutex_lock(&vspace.lock);
  free_range *range = vspace.free[class];
  if (range) {
    vspace.free[class] = range->next;
    address = range->address;
    range->next = vspace.spare;
    vspace.spare = range;
  } else if (size >= nbytes && reserve_space() && (size_t)(vspace.end - vspace.next) >= size) {
    address = vspace.next;
    vspace.next += size;
  }
  pthread_mutex_unlock(&vspace.lock);
  return address;
}

void tt_vspace_free(void *address, size_t nbytes) {
  size_t size;
  int32_t class = size_class(nbytes, &size);
  pthread_mutex_lock(&vspace.lock);
  free_range *range = vspace.spare;
  if (range) {
    vspace.spare = range->next;
  } else {
    range = malloc(sizeof *range);
  }
  if (range) {  // else the addresses are lost, not the memory: there is none behind them
    *range = (free_range){vspace.free[class], address};
    vspace.free[class] = range;
  }
  pthread_mutex_unlock(&vspace.lock);
}

// ---- storages ----
static void disown(tt_value *value) {
  if (--value->owners == 0) {
    value->died = tt_the_runtime.engines[value->device].tape.recorded;
  }
}

void tt_value_own(tt_value *value) {
  tt_engine *engine = &tt_the_runtime.engines[value->device];
  pthread_mutex_lock(&engine->lock);
  tt_value_ref(value);
  value->owners++;
  pthread_mutex_unlock(&engine->lock);
}

void tt_value_disown(tt_value *value) {
  if (value) {
    tt_engine *engine = &tt_the_runtime.engines[value->device];
    pthread_mutex_lock(&engine->lock);
    disown(value);
    pthread_mutex_unlock(&engine->lock);
    tt_value_unref(value);
  }
}

void tt_storage_set_value(tt_storage *storage, tt_value *value) {
  tt_value *old = storage->value;
  if (value) {
    value->owners++;
  }
  storage->value = value;
  if (old) {
    disown(old);
    tt_value_unref(old);
  }
}

tt_status *tt_allocation_check(tt_engine *engine, size_t nbytes) {
  int64_t allocated = atomic_load_explicit(&engine->allocated, memory_order_relaxed);
  if (nbytes <= (size_t)engine->limit && (int64_t)nbytes <= engine->limit - allocated) {
    return NULL;
  }
  tt_count(&engine->oom_count, 1);
  return tt_error(TT_ERR_OUT_OF_MEMORY,
                  "tpu:%d out of memory: tried to allocate %.2f MiB; the budget is %.2f MiB, of which %.2f MiB are "
                  "allocated. Free tensors, use a smaller batch, or raise TORCH_TPU_MEMORY_FRACTION",
                  engine->device, (double)nbytes / 1048576, (double)engine->limit / 1048576,
                  (double)allocated / 1048576);
}

static tt_storage *make_storage(size_t nbytes) {
  tt_storage *storage = malloc(sizeof *storage);
  void *address = storage ? tt_vspace_alloc(nbytes) : NULL;
  if (!address) {
    free(storage);
    return NULL;
  }
  storage->address = address;
  return storage;
}

tt_status *tt_storage_create_locked(tt_engine *engine, size_t nbytes, tt_storage **out_storage) {
  *out_storage = NULL;
  const bool phantom = tt_capturing != NULL;
  if (!phantom) {
    TT_TRY(tt_allocation_check(engine, nbytes));
  }
  size_t size;
  int32_t class = size_class(nbytes, &size);
  tt_storage *storage = engine->spare[class];
  if (storage && size >= nbytes) {
    engine->spare[class] = storage->next;
    engine->spare_count--;
  } else if (!(storage = make_storage(nbytes))) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "no address space for %zu bytes on tpu:%d", nbytes, engine->device);
  }
  *storage = (tt_storage){
      .device = engine->device, .size_class = class, .nbytes = nbytes, .address = storage->address, .phantom = phantom};
  if (!phantom) {
    tt_allocated_add(engine, (int64_t)nbytes);
    tt_count_locked(&engine->allocated_total, (int64_t)nbytes);
    tt_count_locked(&engine->allocation_count, 1);
  }
  *out_storage = storage;
  return NULL;
}

tt_status *tt_storage_create(int32_t device, size_t nbytes, tt_storage **out_storage) {
  *out_storage = NULL;
  tt_engine *engine;
  TT_TRY(tt_engine_of(device, &engine));
  pthread_mutex_lock(&engine->lock);
  tt_status *status = tt_storage_create_locked(engine, nbytes, out_storage);
  pthread_mutex_unlock(&engine->lock);
  return status;
}

void tt_storage_free(tt_storage *storage) {
  if (!storage || atomic_load_explicit(&tt_the_runtime.forked, memory_order_relaxed)) {
    return;  // a child of fork() has copies of the parent's locks in any state: it leaks
  }
  tt_engine *engine = &tt_the_runtime.engines[storage->device];
  pthread_mutex_lock(&engine->lock);
  tt_value *value = storage->value;
  if (value) {
    disown(value);
    tt_tape_disowned(engine);
  }
  if (!storage->phantom) {
    tt_allocated_add(engine, -(int64_t)storage->nbytes);
    tt_count_locked(&engine->free_count, 1);
  }
  bool spare = engine->spare_count < TT_SPARE_LIMIT;
  if (spare) {
    storage->next = engine->spare[storage->size_class];
    engine->spare[storage->size_class] = storage;
    engine->spare_count++;
  }
  pthread_mutex_unlock(&engine->lock);
  tt_explain_place();
  tt_value_unref(value);
  if (!spare) {
    tt_vspace_free(storage->address, storage->nbytes);
    free(storage);
  }
}

void *tt_storage_address(const tt_storage *storage) { return storage->address; }
size_t tt_storage_nbytes(const tt_storage *storage) { return storage->nbytes; }
int32_t tt_storage_device(const tt_storage *storage) { return storage->device; }

bool tt_storage_is_deferred(const tt_storage *storage) {
  tt_engine *engine = &tt_the_runtime.engines[storage->device];
  pthread_mutex_lock(&engine->lock);
  bool deferred = storage->value && storage->value->sequence == TT_HELD;
  pthread_mutex_unlock(&engine->lock);
  return deferred;
}

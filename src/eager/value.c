// Values and storages, and the address ranges that storages pretend to occupy.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "eager/capture.h"
#include "eager/explain.h"

// ---- values ----
static tt_value *create_value(int32_t device, tt_dtype dtype, const int64_t *dims, int32_t rank, bool phantom) {
  tt_value *value = malloc(sizeof *value + sizeof(int64_t) * (size_t)(rank ? rank : 1));
  if (!value) {
    return NULL;
  }
  int64_t numel = 1;
  for (int32_t i = 0; i < rank; i++) {
    value->dims[i] = dims[i];
    numel *= dims[i];
  }
  atomic_init(&value->refs, 1);
  atomic_init(&value->weak, 1);
  atomic_init(&value->owners, 0);
  atomic_init(&value->donated, phantom);
  value->device = device;
  value->dtype = dtype;
  value->shape = (tt_shape){rank, value->dims, numel};
  value->nbytes = (size_t)numel * tt_dtype_size(dtype);
  value->sequence = value->stretch = value->died = 0;
  value->buffer = NULL;
  value->error = NULL;
  if (!phantom) {
    tt_engine *engine = &tt_the_runtime.engines[device];
    tt_memory_add(&engine->reserved, &engine->reserved_peak, (int64_t)value->nbytes);
  }
  return value;
}

tt_value *tt_value_create(int32_t device, tt_dtype dtype, const int64_t *dims, int32_t rank) {
  return create_value(device, dtype, dims, rank, false);
}

tt_value *tt_value_create_phantom(int32_t device, tt_dtype dtype, const int64_t *dims, int32_t rank,
                                  const tt_status *error) {
  tt_value *value = create_value(device, dtype, dims, rank, true);
  if (value) {
    value->error = tt_status_clone(error);
  }
  return value;
}

void tt_value_ref(tt_value *value) { atomic_fetch_add_explicit(&value->refs, 1, memory_order_relaxed); }

void tt_value_unref(tt_value *value) {
  if (!value || atomic_fetch_sub_explicit(&value->refs, 1, memory_order_acq_rel) != 1) {
    return;
  }
  if (value->buffer && !atomic_load(&tt_the_runtime.stopped)) {
    tt_pjrt_buffer_free(tt_the_runtime.client, value->buffer);
  }
  tt_status_free(value->error);
  if (!atomic_load(&value->donated)) {
    tt_engine *engine = &tt_the_runtime.engines[value->device];
    tt_memory_add(&engine->reserved, NULL, -(int64_t)value->nbytes);
  }
  tt_value_drop_weak(value);
}

void tt_value_give_away(tt_value *value) {
  if (!atomic_exchange(&value->donated, true)) {
    tt_memory_add(&tt_the_runtime.engines[value->device].reserved, NULL, -(int64_t)value->nbytes);
  }
}

void tt_value_drop_weak(tt_value *value) {
  if (atomic_fetch_sub_explicit(&value->weak, 1, memory_order_acq_rel) == 1) {
    free(value);
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

// ---- address ranges ----
// Classes of 512 bytes times a power of two, with quarter steps, taken from one reserved range that no page backs.
// A freed range is reused before a new one is cut.
enum { VSPACE_CLASSES = 160 };
static const size_t VSPACE_SIZE = (size_t)1 << 44;

typedef struct free_range {
  struct free_range *next;
  void *address;
} free_range;

static struct {
  pthread_mutex_t lock;
  char *base, *next, *end;
  free_range *free[VSPACE_CLASSES], *spare;
} vspace = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int32_t size_class(size_t nbytes, size_t *out_size) {
  size_t step = 512;
  int32_t class = 0;
  size_t size = 512;
  while (size < nbytes && class < VSPACE_CLASSES - 1) {
    step = class % 4 == 0 && class ? step * 2 : step;
    size += step;
    class++;
  }
  *out_size = size;
  return class;
}

static bool reserve_space(void) {
  if (vspace.base) {
    return true;
  }
  for (size_t size = VSPACE_SIZE; size >= (size_t)1 << 36; size /= 4) {
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
  if (atomic_fetch_sub_explicit(&value->owners, 1, memory_order_relaxed) == 1) {
    value->died = tt_the_runtime.engines[value->device].tape.recorded;
  }
}

void tt_storage_set_value(tt_storage *storage, tt_value *value) {
  tt_value *old = storage->value;
  if (value) {
    atomic_fetch_add_explicit(&value->owners, 1, memory_order_relaxed);
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

tt_status *tt_storage_create(int32_t device, size_t nbytes, tt_storage **out_storage) {
  *out_storage = NULL;
  tt_engine *engine;
  TT_TRY(tt_engine_of(device, &engine));
  const bool phantom = tt_capturing != NULL;
  if (!phantom) {
    TT_TRY(tt_allocation_check(engine, nbytes));
  }
  tt_storage *storage = malloc(sizeof *storage);
  void *address = tt_vspace_alloc(nbytes);
  if (!storage || !address) {
    free(storage);
    if (address) {
      tt_vspace_free(address, nbytes);
    }
    return tt_error(TT_ERR_OUT_OF_MEMORY, "no address space for %zu bytes on tpu:%d", nbytes, device);
  }
  *storage = (tt_storage){.device = engine->device, .nbytes = nbytes, .address = address, .phantom = phantom};
  if (!phantom) {
    tt_memory_add(&engine->allocated, &engine->allocated_peak, (int64_t)nbytes);
    tt_count(&engine->allocated_total, (int64_t)nbytes);
    tt_count(&engine->allocation_count, 1);
  }
  *out_storage = storage;
  return NULL;
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
  pthread_mutex_unlock(&engine->lock);
  tt_explain_place();
  tt_value_unref(value);
  if (!storage->phantom) {
    tt_memory_add(&engine->allocated, NULL, -(int64_t)storage->nbytes);
    tt_count(&engine->free_count, 1);
  }
  tt_vspace_free(storage->address, storage->nbytes);
  free(storage);
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

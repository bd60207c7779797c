// Random generators: a seed and an offset, kept on the host. An operator takes a run of counters when it is
// enqueued; how many depends on the operator and its sizes alone.
#include <stdlib.h>

#include "eager/internal.h"

static const uint64_t DEFAULT_SEED = 67280421310721u;

struct tt_generator {
  pthread_mutex_t lock;
  int32_t device;
  uint64_t seed, offset;
};

tt_status *tt_generator_create(int32_t device, tt_generator **out_generator) {
  tt_generator *generator = calloc(1, sizeof *generator);
  *out_generator = generator;
  if (!generator) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  pthread_mutex_init(&generator->lock, NULL);
  generator->device = device;
  generator->seed = DEFAULT_SEED;
  return NULL;
}

void tt_generator_free(tt_generator *generator) {
  if (generator) {
    pthread_mutex_destroy(&generator->lock);
    free(generator);
  }
}

tt_generator *tt_default_generator(int32_t device) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static tt_generator *defaults[TT_MAX_DEVICES];
  if (device < 0) {
    device = tt_current_device();
  }
  int32_t count = tt_device_count();
  if (device >= TT_MAX_DEVICES || device >= (count ? count : 1)) {
    return NULL;
  }
  pthread_mutex_lock(&lock);
  if (!defaults[device]) {
    tt_status_free(tt_generator_create(device, &defaults[device]));
  }
  pthread_mutex_unlock(&lock);
  return defaults[device];
}

void tt_generator_set(tt_generator *generator, uint64_t seed, uint64_t offset) {
  pthread_mutex_lock(&generator->lock);
  generator->seed = seed;
  generator->offset = offset;
  pthread_mutex_unlock(&generator->lock);
}

void tt_generator_get(tt_generator *generator, uint64_t *out_seed, uint64_t *out_offset) {
  pthread_mutex_lock(&generator->lock);
  *out_seed = generator->seed;
  *out_offset = generator->offset;
  pthread_mutex_unlock(&generator->lock);
}

int32_t tt_generator_device(const tt_generator *generator) { return generator->device; }

void tt_generator_take(tt_generator *generator, uint64_t count, uint64_t out_state[2]) {
  pthread_mutex_lock(&generator->lock);
  out_state[0] = generator->seed;
  out_state[1] = generator->offset;
  generator->offset += count;
  pthread_mutex_unlock(&generator->lock);
}

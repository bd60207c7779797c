#include "eager/capture.h"

#include <stdlib.h>
#include <string.h>

_Thread_local tt_capture *tt_capturing;

static tt_status *no_memory(void) { return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory"); }

tt_status *tt_capture_begin(tt_engine *engine, tt_capture **out_capture) {
  *out_capture = NULL;
  if (tt_capturing) {
    return tt_error(TT_ERR_RUNTIME, "a graph is being captured by this thread already");
  }
  tt_capture *capture = calloc(1, sizeof *capture);
  if (!capture) {
    return no_memory();
  }
  capture->engine = engine;
  capture->no_data =
      tt_error(TT_ERR_RUNTIME, "a tensor was read while the graph that computes it is captured: it has no data yet");
  tt_generator_get(tt_default_generator(engine->device), &capture->seed, &capture->offset);
  *out_capture = tt_capturing = capture;
  return NULL;
}

void tt_capture_stop(void) {
  tt_capture *capture = tt_capturing;
  if (capture) {
    tt_generator *generator = tt_default_generator(capture->engine->device);
    uint64_t seed, offset;
    tt_generator_get(generator, &seed, &offset);
    capture->taken = offset - capture->offset;
    tt_generator_set(generator, capture->seed, capture->offset);
    tt_capturing = NULL;
  }
}

static void free_step(tt_step *step) {
  for (int32_t i = 0; i < step->input_count; i++) {
    tt_value_unref(step->inputs[i]);
  }
  for (int32_t i = 0; i < step->output_count; i++) {
    tt_value_unref(step->outputs[i]);
  }
  tt_record_unref(step->record);
}

void tt_capture_free(tt_capture *capture) {
  if (!capture) {
    return;
  }
  for (int32_t i = 0; i < capture->count; i++) {
    free_step(capture->steps[i]);
  }
  tt_op_cache_clear(&capture->records);
  free(capture->records.buckets);
  free(capture->steps);
  tt_arena_free(&capture->arena);
  tt_status_free(capture->no_data);
  free(capture);
}

tt_status *tt_capture_storage(tt_capture *capture, size_t nbytes, tt_dtype dtype, const int64_t *dims, int32_t rank,
                              tt_storage **out_storage) {
  TT_TRY(tt_storage_create(capture->engine->device, nbytes, out_storage));
  if (rank < 0) {
    return NULL;
  }
  tt_value *value = tt_value_create_phantom(capture->engine->device, dtype, dims, rank, capture->no_data);
  if (!value) {
    tt_storage_free(*out_storage);
    *out_storage = NULL;
    return no_memory();
  }
  pthread_mutex_lock(&capture->engine->lock);
  tt_storage_set_value(*out_storage, value);
  pthread_mutex_unlock(&capture->engine->lock);
  return NULL;
}

tt_status *tt_capture_check_write(const tt_storage *storage) {
  if (!tt_capturing || storage->phantom) {
    return NULL;
  }
  return tt_error(TT_ERR_RUNTIME, "a graph that is captured writes to a tensor that is not among its inputs");
}

// ---- recording ----
static tt_step *add_step(tt_capture *capture, tt_record *record) {
  if (capture->count == capture->capacity) {
    int32_t capacity = capture->capacity ? 2 * capture->capacity : 256;
    tt_step **steps = realloc(capture->steps, sizeof(tt_step *) * (size_t)capacity);
    if (!steps) {
      return NULL;
    }
    capture->steps = steps;
    capture->capacity = capacity;
  }
  const size_t params = (size_t)record->lowered.param_count, outputs = (size_t)record->lowered.output_count;
  tt_arena *arena = &capture->arena;
  tt_step *step = tt_arena_alloc(arena, sizeof *step);
  tt_value **values = tt_arena_alloc(arena, sizeof(tt_value *) * (params + outputs + 1));
  tt_literal *literals = tt_arena_alloc(arena, sizeof *literals * (params + 1));
  int32_t *sources = tt_arena_alloc(arena, sizeof *sources * (params + 1));
  if (!step || !values || !literals || !sources) {
    return NULL;
  }
  *step = (tt_step){
      .record = record, .inputs = values, .outputs = values + params, .literals = literals, .sources = sources};
  atomic_fetch_add_explicit(&record->refs, 1, memory_order_relaxed);
  capture->steps[capture->count++] = step;
  return step;
}

static tt_status *add_literal(const tt_call_state *s, tt_step *step, const tt_param *param) {
  tt_literal *literal = &step->literals[step->literal_count++];
  if (param->kind != TT_PARAM_RANDOM) {
    return tt_call_literal(s, step->record, param, literal);
  }
  const tt_lowered *l = &step->record->lowered;
  if (l->generator_arg >= 0 && s->args[l->generator_arg].tag == TT_ARG_GENERATOR &&
      s->args[l->generator_arg].u.generator != tt_default_generator(s->engine->device)) {
    return tt_error(TT_ERR_NOT_IMPLEMENTED, "a graph can't be captured with a generator of its own");
  }
  // The generator is really used, so that what sets it back, to compute something twice, is recorded as that.
  uint64_t state[2];
  tt_generator_take(tt_default_generator(s->engine->device), l->random_elements, state);
  if (state[0] != tt_capturing->seed) {
    return tt_error(TT_ERR_NOT_IMPLEMENTED, "a graph that is captured can't seed the generator");
  }
  state[1] -= tt_capturing->offset;
  *literal = (tt_literal){.dtype = TT_U64, .random = true};
  memcpy(literal->bytes, &state[1], sizeof state[1]);
  return NULL;
}

static tt_status *fill(const tt_call_state *s, tt_step *step) {
  const tt_lowered *l = &step->record->lowered;
  for (int32_t i = 0; i < l->param_count; i++) {
    if (l->params[i].kind == TT_PARAM_SLOT) {
      tt_value *value = s->storages[l->params[i].index]->value;
      tt_value_ref(value);
      step->inputs[step->input_count++] = value;
    } else {
      TT_TRY(add_literal(s, step, &l->params[i]));
    }
  }
  for (int32_t i = 0; i < l->output_count; i++) {
    const tt_output *output = &l->outputs[i];
    tt_value *value = NULL;
    if (output->kind == TT_OUTPUT_SLOT) {
      TT_TRY(tt_capture_check_write(s->storages[output->index]));
    }
    if (output->kind != TT_OUTPUT_ASSERT) {
      value = tt_value_create_phantom(s->engine->device, (tt_dtype)output->dtype, output->dims, output->rank,
                                      tt_capturing->no_data);
      if (!value) {
        return no_memory();
      }
    }
    step->outputs[step->output_count++] = value;
  }
  return NULL;
}

tt_status *tt_capture_record(const tt_call_state *s, tt_record *record, tt_results *out) {
  tt_capture *capture = tt_capturing;
  if (s->engine != capture->engine) {
    return tt_error(TT_ERR_NOT_IMPLEMENTED, "%s(): a graph of tpu:%d runs an operator on tpu:%d", s->op->short_name,
                    capture->engine->device, s->engine->device);
  }
  tt_step *step = add_step(capture, record);
  if (!step) {
    return no_memory();
  }
  tt_status *status = fill(s, step);
  if (status) {
    free_step(step);
    capture->count--;
    return tt_status_prefix(status, "%s()", s->op->short_name);
  }
  tt_call_publish(s, record, step->outputs, out);
  return NULL;
}

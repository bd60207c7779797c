// Calling a graph: key, look-up, launch.
#include <stdlib.h>
#include <string.h>

#include "eager/explain.h"
#include "eager/number.h"
#include "graph/internal.h"

static tt_status *no_memory(void) { return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory"); }

// ---- the key ----
tt_status *tt_graph_state_init(tt_graph_state *s, const tt_graph_call *call) {
  *s = (tt_graph_state){.call = call};
  int32_t device = -1;
  size_t words = 8 + (size_t)call->number_count;
  for (int32_t i = 0; i < call->input_count; i++) {
    const tt_tensor *t = &call->inputs[i];
    if (t->ndim > TT_MAX_RANK) {
      return tt_error(TT_ERR_RUNTIME, "a graph has an input of %d dimensions; at most %d are supported on tpu", t->ndim,
                      TT_MAX_RANK);
    }
    if (tt_dtype_size((tt_dtype)t->dtype) == 0) {
      return tt_error(TT_ERR_TYPE, "an input of a graph has a dtype that is not supported on tpu");
    }
    words += 4 + 2 * (size_t)t->ndim + TT_MAX_RANK;
    device = t->storage && device < 0 ? t->storage->device : device;
  }
  TT_TRY(tt_engine_of(device, &s->engine));
  size_t count = (size_t)call->input_count + 1;
  s->heap = malloc(count * (sizeof *s->slots + sizeof *s->first) + words * sizeof *s->words);
  if (!s->heap) {
    return no_memory();
  }
  s->words = s->heap;
  s->slots = (tt_storage **)(s->words + words);
  s->first = (int32_t *)(s->slots + count);
  return NULL;
}

void tt_graph_state_free(tt_graph_state *s) { free(s->heap); }

static inline void put(tt_graph_state *s, uint64_t word) { s->words[s->word_count++] = word; }

static void put_all(tt_graph_state *s, const int64_t *values, int32_t count) {
  if (count) {
    memcpy(s->words + s->word_count, values, sizeof *values * (size_t)count);
    s->word_count += count;
  }
}

static tt_status *put_input(tt_graph_state *s, int32_t i) {
  const tt_tensor *t = &s->call->inputs[i];
  const uint64_t head = (uint64_t)t->dtype | (uint64_t)t->ndim << 8;
  if (!t->storage) {
    s->first[s->slot_count] = i;
    s->slots[s->slot_count++] = NULL;
    put(s, head | 1u << 16);
    return NULL;
  }
  if (t->storage->device != s->engine->device) {
    return tt_error(TT_ERR_NOT_IMPLEMENTED, "a graph has inputs on tpu:%d and tpu:%d", s->engine->device,
                    t->storage->device);
  }
  const bool known = t->storage->call == s->engine->calls;
  if (!known) {
    t->storage->call = s->engine->calls;
    t->storage->slot = s->slot_count;
    s->first[s->slot_count] = i;
    s->slots[s->slot_count++] = t->storage;
  }
  put(s, head | (uint64_t)known << 17 | (uint64_t)t->storage->slot << 32);
  put(s, (uint64_t)t->offset);
  put_all(s, t->sizes, t->ndim);
  put_all(s, t->strides, t->ndim);
  if (known) {
    return NULL;
  }
  const tt_value *value = t->storage->value;
  put(s, (uint64_t)t->storage->nbytes);
  put(s, value ? 1u | (uint64_t)value->dtype << 8 | (uint64_t)value->shape.rank << 16 : 0);
  if (value) {
    put_all(s, value->dims, value->shape.rank);
  }
  return NULL;
}

tt_status *tt_graph_state_key(tt_graph_state *s) {
  const tt_runtime *rt = &tt_the_runtime;
  s->engine->calls++;
  put(s, (uint64_t)s->engine->device | (uint64_t)atomic_load_explicit(&rt->default_dtype, memory_order_relaxed) << 16 |
             (uint64_t)atomic_load_explicit(&rt->precision, memory_order_relaxed) << 24);
  put(s, (uint64_t)s->call->number_count);
  put_all(s, s->call->numbers, s->call->number_count);
  for (int32_t i = 0; i < s->call->input_count; i++) {
    TT_TRY(put_input(s, i));
  }
  return NULL;
}

// The variant, moved to the front of the list.
static tt_program *find_program(tt_graph *graph, const tt_graph_state *s) {
  for (tt_program **at = &graph->first; *at; at = &(*at)->next) {
    tt_program *program = *at;
    if (program->key_words == s->word_count &&
        !memcmp(program->key, s->words, sizeof *s->words * (size_t)s->word_count)) {
      *at = program->next;
      program->next = graph->first;
      return graph->first = program;
    }
  }
  return NULL;
}

// ---- launching ----
static tt_status *slot_value(const tt_graph_state *s, int32_t slot, tt_dtype dtype, tt_value **out_value) {
  if (s->slots[slot]) {
    tt_value_ref(*out_value = s->slots[slot]->value);
    return NULL;
  }
  tt_literal literal = {.dtype = dtype};
  if (!tt_number_to_bytes(&s->call->inputs[s->first[slot]].host, dtype, false, literal.bytes)) {
    return tt_scalar_overflow(dtype);
  }
  return tt_literal_value(s->engine, &literal, out_value);
}

// Seeds and offsets: those that the random operators would take one by one.
static tt_status *random_value(const tt_graph_state *s, const tt_program *program, tt_value **out_value) {
  uint64_t *words = malloc(sizeof *words * 2 * (size_t)program->random_count);
  if (!words) {
    return no_memory();
  }
  uint64_t state[2];
  tt_generator_take(tt_default_generator(s->engine->device), program->taken, state);
  for (int32_t i = 0; i < program->random_count; i++) {
    words[2 * i] = state[0];
    words[2 * i + 1] = state[1] + program->random[i];
  }
  tt_status *status =
      tt_value_from_host(s->engine, words, TT_U64, (int64_t[]){2 * program->random_count}, 1, out_value);
  free(words);
  return status;
}

static tt_status *fill_inputs(const tt_graph_state *s, const tt_program *program, tt_task *task) {
  const tt_lowered *l = &program->record->lowered;
  for (int32_t i = 0; i < l->param_count; i++) {
    const tt_source *source = &program->sources[i];
    task->donate[i] = false;
    if (source->kind == TT_SOURCE_SLOT) {
      TT_TRY(slot_value(s, source->index, (tt_dtype)l->params[i].dtype, &task->inputs[i]));
    } else if (source->kind == TT_SOURCE_CONSTANT) {
      tt_value_ref(task->inputs[i] = source->constant);
    } else {
      TT_TRY(random_value(s, program, &task->inputs[i]));
    }
    task->input_count++;
  }
  return NULL;
}

// Memory that nobody but the storage written to, or a dying one, will read.
static bool may_donate(const tt_graph_state *s, const tt_program *program, int32_t i) {
  const tt_source *source = &program->sources[i];
  return program->record->lowered.params[i].aliased && source->kind == TT_SOURCE_SLOT && s->slots[source->index] &&
         s->slots[source->index]->value->owners == 1;
}

static tt_status *fill_outputs(const tt_graph_state *s, const tt_program *program, tt_task *task) {
  const tt_lowered *l = &program->record->lowered;
  for (int32_t i = 0; i < l->param_count; i++) {
    if (may_donate(s, program, i)) {
      task->donate[i] = true;
      tt_value_give_away(task->inputs[i]);
    }
  }
  for (int32_t i = 0; i < l->output_count; i++) {
    const tt_output *output = &l->outputs[i];
    task->outputs[i] = NULL;
    if (output->kind != TT_OUTPUT_ASSERT) {
      task->outputs[i] = tt_value_create(s->engine->device, (tt_dtype)output->dtype, output->dims, output->rank);
      if (!task->outputs[i]) {
        return no_memory();
      }
    }
    task->output_count++;
  }
  return NULL;
}

static tt_status *check_memory(const tt_graph_state *s, const tt_program *program) {
  const tt_record *record = program->record;
  size_t bytes = record->new_bytes + (size_t)record->temp_bytes, given = 0;
  for (int32_t i = 0; i < record->lowered.param_count; i++) {
    given += may_donate(s, program, i) ? s->slots[program->sources[i].index]->value->nbytes : 0;
  }
  return tt_memory_check(s->engine, bytes > given ? bytes - given : 0, record->title);
}

static tt_status *make_storages(const tt_graph_state *s, const tt_program *program, tt_graph_results *out) {
  if (program->new_count > TT_INLINE_GRAPH_STORAGES) {
    out->storages = calloc((size_t)program->new_count, sizeof *out->storages);
    if (!out->storages) {
      out->storages = out->inline_storages;
      return no_memory();
    }
  }
  for (int32_t i = 0; i < program->final_count; i++) {
    if (program->finals[i].slot < 0) {
      TT_TRY(tt_storage_create_locked(s->engine, program->finals[i].nbytes, &out->storages[out->storage_count]));
      out->storage_count++;
    }
  }
  return NULL;
}

// The values that the storages get: all are found before any is set.
static tt_status *publish(const tt_graph_state *s, const tt_program *program, const tt_task *task,
                          tt_graph_results *out) {
  tt_value **values = malloc(sizeof *values * (size_t)(program->final_count + 1));
  if (!values) {
    return no_memory();
  }
  for (int32_t i = 0; i < program->final_count; i++) {
    const tt_source *source = &program->finals[i].value;
    values[i] = source->kind == TT_SOURCE_OUTPUT     ? task->outputs[source->index]
                : source->kind == TT_SOURCE_SLOT     ? s->slots[source->index]->value
                : source->kind == TT_SOURCE_CONSTANT ? source->constant
                                                     : NULL;
    if (values[i]) {
      tt_value_ref(values[i]);
    }
  }
  int32_t next = 0;
  for (int32_t i = 0; i < program->final_count; i++) {
    const int32_t slot = program->finals[i].slot;
    tt_storage_set_value(slot < 0 ? out->storages[next++] : s->slots[slot], values[i]);
  }
  free(values);
  return NULL;
}

// What died is not there any more, should anybody look.
static void bury(const tt_graph_state *s, const tt_program *program, const tt_task *task) {
  for (int32_t i = 0; i < task->input_count; i++) {
    if (task->donate[i] && program->dies[i]) {
      const tt_value *old = task->inputs[i];
      tt_storage_set_value(s->slots[program->sources[i].index],
                           tt_value_create_phantom(old->device, old->dtype, old->dims, old->shape.rank, program->gone));
    }
  }
}

static tt_status *launch(const tt_graph_state *s, const tt_program *program, tt_graph_results *out) {
  TT_TRY(make_storages(s, program, out));
  tt_tape_cut(s->engine, TT_CUT_GRAPH);
  if (!program->record) {
    return publish(s, program, NULL, out);
  }
  TT_TRY(check_memory(s, program));
  tt_task *task = tt_queue_reserve(s->engine);
  const tt_lowered *l = &program->record->lowered;
  TT_TRY(tt_task_reserve_values(task, l->param_count, l->output_count));
  tt_status *status = fill_inputs(s, program, task);
  status = status ? status : fill_outputs(s, program, task);
  status = status ? status : publish(s, program, task, out);
  if (status) {
    tt_task_release(task);
    return status;
  }
  bury(s, program, task);
  tt_queue_push_run(s->engine, task, program->record);
  return NULL;
}

static tt_status *run_locked(tt_graph *graph, tt_graph_state *s, tt_graph_results *out) {
  TT_TRY(tt_graph_state_key(s));
  pthread_mutex_lock(&graph->lock);
  const tt_program *program = find_program(graph, s);
  pthread_mutex_unlock(&graph->lock);
  if (!program) {
    return NULL;
  }
  out->found = true;
  out->count = program->result_count;
  out->results = program->results;
  return launch(s, program, out);
}

static tt_status *refuse_capture(void) {
  return tt_capturing ? tt_error(TT_ERR_NOT_IMPLEMENTED, "a compiled graph can't run while another is captured") : NULL;
}

tt_status *tt_graph_run(tt_graph *graph, const tt_graph_call *call, tt_graph_results *out) {
  out->found = false;
  out->count = out->storage_count = 0;
  out->storages = out->inline_storages;
  TT_TRY(refuse_capture());
  tt_graph_state s;
  TT_TRY(tt_graph_state_init(&s, call));
  pthread_mutex_lock(&s.engine->lock);
  tt_status *status = run_locked(graph, &s, out);
  pthread_mutex_unlock(&s.engine->lock);
  if (!status && out->found && tt_get_eager_mode() == TT_MODE_DEBUG) {
    tt_queue_drain(s.engine);
    status = tt_queue_take_error(s.engine);
  }
  tt_explain_place();
  tt_graph_state_free(&s);
  if (status) {
    for (int32_t i = 0; i < out->storage_count; i++) {
      tt_storage_free(out->storages[i]);
    }
    tt_graph_results_release(out);
  }
  return status;
}

void tt_graph_results_release(tt_graph_results *results) {
  if (results->storages != results->inline_storages) {
    free(results->storages);
  }
  results->storages = results->inline_storages;
  results->count = results->storage_count = 0;
}

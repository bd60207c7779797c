// Recording a variant: stand-ins for the inputs, and the end that makes a program of it.
#include <stdlib.h>
#include <string.h>

#include "graph/internal.h"

static _Thread_local tt_recording *recording;

static tt_status *no_memory(void) { return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory"); }

tt_status *tt_graph_create(const char *name, tt_graph **out_graph) {
  tt_graph *graph = *out_graph = calloc(1, sizeof *graph);
  if (!graph || !(graph->name = strdup(name))) {
    free(graph);
    *out_graph = NULL;
    return no_memory();
  }
  pthread_mutex_init(&graph->lock, NULL);
  return NULL;
}

static const char *const *copy_texts(tt_arena *arena, const char *const *texts, int32_t count) {
  const char **copies = tt_arena_alloc(arena, sizeof *copies * (size_t)(count + 1));
  for (int32_t i = 0; copies && i < count; i++) {
    copies[i] = tt_arena_copy(arena, texts[i], strlen(texts[i]) + 1);
    copies = copies[i] ? copies : NULL;
  }
  return copies;
}

tt_status *tt_graph_set_options(tt_graph *graph, const char *const *names, const char *const *values, int32_t count) {
  tt_pjrt_compile_options options = {.option_names = copy_texts(&graph->arena, names, count),
                                     .option_values = copy_texts(&graph->arena, values, count),
                                     .option_count = count};
  if (!options.option_names || !options.option_values) {
    return no_memory();
  }
  graph->options = options;
  return NULL;
}

tt_status *tt_graph_check_options(const char *const *names, const char *const *values, int32_t count) {
  tt_engine *engine;
  TT_TRY(tt_engine_of(0, &engine));
  return tt_options_check(&(tt_pjrt_compile_options){names, values, count, 0}, engine->device);
}

void tt_graph_free(tt_graph *graph) {
  if (!graph || atomic_load_explicit(&tt_the_runtime.forked, memory_order_relaxed)) {
    return;
  }
  for (tt_program *program = graph->first, *next; program; program = next) {
    next = program->next;
    tt_program_free(program);
  }
  pthread_mutex_destroy(&graph->lock);
  tt_arena_free(&graph->arena);
  free(graph->name);
  free(graph);
}

static void free_recording(tt_recording *r) {
  for (int32_t i = 0; i < r->slot_count; i++) {
    tt_value_unref(r->initial[i]);
  }
  tt_capture_free(r->capture);
  tt_arena_free(&r->arena);
  free(r->key);
  free(r);
}

void tt_graph_abort(void) {
  tt_recording *r = recording;
  if (r) {
    recording = NULL;
    tt_capture_stop();
    free_recording(r);
  }
}

bool tt_graph_is_capturing(void) { return tt_capturing != NULL; }

// ---- the beginning ----
// Sizes and strides of an input, which are the caller's.
static bool keep_geometry(tt_recording *r, tt_tensor *t) {
  t->sizes = tt_graph_copy_dims(&r->arena, t->sizes, t->ndim);
  t->strides = tt_graph_copy_dims(&r->arena, t->strides, t->ndim);
  return t->sizes && t->strides;
}

static tt_status *create_recording(tt_graph *graph, const tt_graph_state *s, tt_recording **out) {
  tt_recording *r = *out = calloc(1, sizeof *r);
  if (!r) {
    return no_memory();
  }
  const size_t slots = (size_t)s->slot_count + 1, inputs = (size_t)s->call->input_count + 1;
  r->graph = graph;
  r->key_words = s->word_count;
  r->key = malloc(sizeof *r->key * (size_t)s->word_count);
  r->stand_ins = tt_arena_alloc(&r->arena, sizeof *r->stand_ins * slots);
  r->initial = tt_arena_alloc(&r->arena, sizeof(tt_value *) * slots);
  r->first = tt_arena_alloc(&r->arena, sizeof *r->first * slots);
  r->scalar = tt_arena_alloc(&r->arena, sizeof *r->scalar * slots);
  r->dying = tt_arena_alloc(&r->arena, sizeof *r->dying * slots);
  r->inputs = tt_arena_alloc(&r->arena, sizeof *r->inputs * inputs);
  if (!r->key || !r->stand_ins || !r->initial || !r->first || !r->scalar || !r->dying || !r->inputs) {
    return no_memory();
  }
  memcpy(r->key, s->words, sizeof *r->key * (size_t)s->word_count);
  memcpy(r->first, s->first, sizeof *r->first * (size_t)s->slot_count);
  for (int32_t i = 0; i < s->slot_count; i++) {
    r->scalar[i] = !s->slots[i];
  }
  for (int32_t i = 0; i < s->call->input_count; i++) {
    r->inputs[i] = s->call->inputs[i];
    if (!keep_geometry(r, &r->inputs[i])) {
      return no_memory();
    }
  }
  r->input_count = s->call->input_count;
  return NULL;
}

// What a stand-in is to be; the dims are in the recording's arena.
typedef struct blank {
  size_t nbytes;
  tt_dtype dtype;
  int32_t rank;  // -1: undefined
  const int64_t *dims;
} blank;

// Reads what the inputs' storages hold; engine lock held.
static tt_status *read_slots(tt_graph *graph, tt_graph_state *s, tt_recording **out_r, blank **out_blanks,
                             int32_t *out_storage_of) {
  TT_TRY(tt_graph_state_key(s));
  TT_TRY(create_recording(graph, s, out_r));
  tt_recording *r = *out_r;
  blank *blanks = *out_blanks = tt_arena_alloc(&r->arena, sizeof *blanks * (size_t)(s->slot_count + 1));
  if (!blanks) {
    return no_memory();
  }
  for (int32_t k = 0, next = 0; k < s->call->input_count; k++) {
    const tt_tensor *t = &s->call->inputs[k];
    out_storage_of[k] = t->storage ? t->storage->slot : next;
    next = out_storage_of[k] >= next ? out_storage_of[k] + 1 : next;
  }
  for (int32_t i = 0; i < s->slot_count; i++) {
    const tt_tensor *t = &s->call->inputs[s->first[i]];
    const tt_value *value = s->slots[i] ? s->slots[i]->value : NULL;
    blanks[i] = (blank){.rank = -1};
    if (!s->slots[i]) {
      blanks[i] = (blank){tt_dtype_size((tt_dtype)t->dtype), (tt_dtype)t->dtype, 0, NULL};
    } else if (value) {
      const int64_t *dims = tt_graph_copy_dims(&r->arena, value->dims, value->shape.rank);
      if (!dims) {
        return no_memory();
      }
      blanks[i] = (blank){s->slots[i]->nbytes, value->dtype, value->shape.rank, dims};
    } else {
      blanks[i].nbytes = s->slots[i]->nbytes;
    }
  }
  return NULL;
}

static tt_status *make_stand_ins(tt_recording *r, const blank *blanks, int32_t count, const int32_t *storage_of) {
  for (int32_t i = 0; i < count; i++) {
    TT_TRY(tt_capture_storage(r->capture, blanks[i].nbytes, blanks[i].dtype, blanks[i].dims, blanks[i].rank,
                              &r->stand_ins[i]));
    r->initial[i] = r->stand_ins[i]->value;
    if (r->initial[i]) {
      tt_value_ref(r->initial[i]);
    }
    r->slot_count++;
  }
  for (int32_t i = 0; i < r->input_count; i++) {
    r->inputs[i].storage = r->stand_ins[storage_of[i]];
  }
  return NULL;
}

tt_status *tt_graph_begin(tt_graph *graph, const tt_graph_call *call, const bool *dying, tt_storage **out_storages,
                          int32_t *out_storage_count, int32_t *out_storage_of) {
  tt_graph_state s;
  tt_recording *r = NULL;
  blank *blanks = NULL;
  *out_storage_count = 0;
  TT_TRY(tt_graph_state_init(&s, call));
  pthread_mutex_lock(&s.engine->lock);
  tt_status *status = read_slots(graph, &s, &r, &blanks, out_storage_of);
  pthread_mutex_unlock(&s.engine->lock);
  if (!status) {
    status = tt_capture_begin(s.engine, &r->capture);
  }
  if (!status) {
    status = make_stand_ins(r, blanks, s.slot_count, out_storage_of);
    if (status) {
      tt_capture_stop();
    }
  }
  tt_graph_state_free(&s);
  if (status) {
    for (int32_t i = 0; r && i < r->slot_count; i++) {
      tt_storage_free(r->stand_ins[i]);
    }
    if (r) {
      free_recording(r);
    }
    return status;
  }
  for (int32_t i = 0; dying && i < r->input_count; i++) {
    r->dying[out_storage_of[i]] |= dying[i];
  }
  memcpy(out_storages, r->stand_ins, sizeof(tt_storage *) * (size_t)r->slot_count);
  *out_storage_count = r->slot_count;
  recording = r;
  return NULL;
}

// ---- the end ----
tt_status *tt_graph_end(const tt_tensor *results, int32_t count) {
  tt_recording *r = recording;
  if (!r) {
    return tt_error(TT_ERR_RUNTIME, "no graph is being captured by this thread");
  }
  tt_capture_stop();
  recording = NULL;
  tt_program *program;
  tt_status *status = tt_program_create(r, results, count, &program);
  if (!status) {
    pthread_mutex_lock(&r->graph->lock);
    program->next = r->graph->first;
    r->graph->first = program;
    pthread_mutex_unlock(&r->graph->lock);
  }
  free_recording(r);
  return status;
}

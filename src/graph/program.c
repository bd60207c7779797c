// A program of what was recorded: what it takes, what it gives, and where that goes.
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "graph/internal.h"

static const tt_rule_entry graph_rule = {.name = "tpu::graph"};
static const tt_op graph_op = {.rule = &graph_rule, .name = "tpu::graph", .short_name = "graph", .mutated_list = -1};

static tt_status *no_memory(void) { return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory"); }

typedef struct builder {
  tt_recording *r;
  tt_program *program;
  tt_arena arena;
  tt_map numbers;  // of values, from 1
  tt_value **values;
  int32_t value_count;
  int32_t *outside;  // by number: which of the values from outside; -1: a step's
  int32_t outside_count;
  int32_t *live, *live_of, *alias;  // live_of: by number, which live result; -1: none
  int32_t live_count;
} builder;

// ---- numbers of values, as compose.c has them ----
static int32_t number_of(const builder *b, const tt_value *value) {
  return (int32_t)(intptr_t)tt_map_get(&b->numbers, &value, sizeof value) - 1;
}

static bool add_value(builder *b, tt_value *value, bool outside) {
  b->outside[b->value_count] = outside ? b->outside_count++ : -1;
  b->live_of[b->value_count] = -1;
  b->values[b->value_count++] = value;
  return tt_map_set(&b->numbers, &value, sizeof value, (void *)(intptr_t)b->value_count, NULL);
}

static tt_status *number_values(builder *b) {
  const tt_capture *capture = b->r->capture;
  size_t most = 1;
  for (int32_t i = 0; i < capture->count; i++) {
    most += (size_t)(capture->steps[i]->input_count + capture->steps[i]->output_count);
  }
  b->values = tt_arena_alloc(&b->arena, sizeof *b->values * most);
  b->outside = tt_arena_alloc(&b->arena, sizeof *b->outside * most);
  b->live_of = tt_arena_alloc(&b->arena, sizeof *b->live_of * most);
  b->live = tt_arena_alloc(&b->arena, sizeof *b->live * most);
  b->alias = tt_arena_alloc(&b->arena, sizeof *b->alias * most);
  if (!b->values || !b->outside || !b->live_of || !b->live || !b->alias) {
    return no_memory();
  }
  for (int32_t i = 0; i < capture->count; i++) {
    tt_step *step = capture->steps[i];
    for (int32_t k = 0; k < step->input_count; k++) {
      if (number_of(b, step->inputs[k]) < 0 && !add_value(b, step->inputs[k], true)) {
        return no_memory();
      }
      step->sources[step->source_count++] = number_of(b, step->inputs[k]);
    }
    for (int32_t k = 0; k < step->output_count; k++) {
      if (step->outputs[k] && !add_value(b, step->outputs[k], false)) {
        return no_memory();
      }
    }
  }
  return NULL;
}

// ---- where values come from ----
static int32_t slot_of_value(const builder *b, const tt_value *value) {
  for (int32_t i = 0; i < b->r->slot_count; i++) {
    if (b->r->initial[i] == value) {
      return i;
    }
  }
  return -1;
}

static tt_status *find_source(builder *b, tt_value *value, tt_source *out) {
  *out = (tt_source){TT_SOURCE_NONE, -1, NULL};
  if (!value) {
    return NULL;
  }
  const int32_t slot = slot_of_value(b, value), number = number_of(b, value);
  if (slot >= 0) {
    *out = (tt_source){TT_SOURCE_SLOT, slot, NULL};
  } else if (number >= 0 && b->outside[number] < 0) {
    if (b->live_of[number] < 0) {
      b->alias[b->live_count] = -1;
      b->live[b->live_count] = number;
      b->live_of[number] = b->live_count++;
    }
    *out = (tt_source){TT_SOURCE_OUTPUT, b->live_of[number], NULL};
  } else if (value->error) {
    return tt_error(TT_ERR_RUNTIME,
                    "a graph uses a tensor that was made while another one was captured: it has no data");
  } else {
    *out = (tt_source){TT_SOURCE_CONSTANT, -1, value};
    tt_value_own(value);
  }
  return NULL;
}

static void drop_source(tt_source *source) {
  tt_value_disown(source->constant);
  source->constant = NULL;
}

static tt_status *add_final(builder *b, int32_t slot, size_t nbytes, tt_value *value) {
  tt_final *final = &b->program->finals[b->program->final_count];
  *final = (tt_final){.slot = slot, .nbytes = nbytes};
  TT_TRY(find_source(b, value, &final->value));
  b->program->final_count++;
  b->program->new_count += slot < 0;
  return NULL;
}

static int32_t slot_of_storage(const builder *b, const tt_storage *storage) {
  for (int32_t i = 0; i < b->r->slot_count; i++) {
    if (b->r->stand_ins[i] == storage) {
      return i;
    }
  }
  return -1;
}

static bool same_geometry(const tt_tensor *a, const tt_tensor *b) {
  const size_t size = sizeof(int64_t) * (size_t)a->ndim;
  return a->storage == b->storage && a->dtype == b->dtype && a->ndim == b->ndim && a->offset == b->offset &&
         !memcmp(a->sizes, b->sizes, size) && !memcmp(a->strides, b->strides, size);
}

static tt_status *describe_result(builder *b, const tt_tensor *t, tt_graph_result *out) {
  tt_arena *arena = &b->program->arena;
  *out = (tt_graph_result){.storage = -1, .input = -1, .dtype = t->dtype, .ndim = t->ndim, .offset = t->offset};
  out->sizes = tt_graph_copy_dims(arena, t->sizes, t->ndim);
  out->strides = tt_graph_copy_dims(arena, t->strides, t->ndim);
  if (!out->sizes || !out->strides) {
    return no_memory();
  }
  const int32_t slot = slot_of_storage(b, t->storage);
  if (slot >= 0) {
    out->input = b->r->first[slot];
    for (int32_t i = 0; i < b->r->input_count && !out->is_input; i++) {
      if (same_geometry(t, &b->r->inputs[i])) {
        out->input = i;
        out->is_input = true;
      }
    }
  }
  return NULL;
}

static tt_status *list_results(builder *b, const tt_tensor *results, int32_t count) {
  tt_program *program = b->program;
  const size_t most = (size_t)(count + b->r->slot_count + 1);
  program->finals = tt_arena_alloc(&program->arena, sizeof *program->finals * most);
  program->results = tt_arena_alloc(&program->arena, sizeof *program->results * (size_t)(count + 1));
  if (!program->finals || !program->results) {
    return no_memory();
  }
  for (int32_t i = 0; i < b->r->slot_count; i++) {
    if (b->r->stand_ins[i]->value != b->r->initial[i]) {
      if (!b->r->scalar[i]) {
        TT_TRY(add_final(b, i, b->r->stand_ins[i]->nbytes, b->r->stand_ins[i]->value));
      } else {
        return tt_error(TT_ERR_NOT_IMPLEMENTED, "a graph writes to a CPU tensor");
      }
    }
  }
  for (int32_t i = 0; i < count; i++) {
    tt_graph_result *result = &program->results[program->result_count++];
    TT_TRY(describe_result(b, &results[i], result));
    for (int32_t k = 0; k < i && result->input < 0 && result->storage < 0; k++) {
      result->storage = results[k].storage == results[i].storage ? program->results[k].storage : -1;
    }
    if (result->input < 0 && result->storage < 0) {
      result->storage = program->new_count;
      TT_TRY(add_final(b, -1, results[i].storage->nbytes, results[i].storage->value));
    }
  }
  return NULL;
}

// ---- memory that results may take ----
static bool same_type(const tt_value *a, const tt_value *b) {
  return a->dtype == b->dtype && a->shape.rank == b->shape.rank &&
         !memcmp(a->dims, b->dims, sizeof *a->dims * (size_t)a->shape.rank);
}

static bool is_kept(const tt_program *program, int32_t slot) {
  for (int32_t i = 0; i < program->final_count; i++) {
    if (program->finals[i].value.kind == TT_SOURCE_SLOT && program->finals[i].value.index == slot) {
      return true;
    }
  }
  return false;
}

// The new value of a written input takes the old one's memory.
static void find_aliases(builder *b) {
  for (int32_t i = 0; i < b->program->final_count; i++) {
    const tt_final *final = &b->program->finals[i];
    if (final->slot < 0 || final->value.kind != TT_SOURCE_OUTPUT || is_kept(b->program, final->slot)) {
      continue;
    }
    const tt_value *old = b->r->initial[final->slot];
    const int32_t number = old ? number_of(b, old) : -1, live = final->value.index;
    if (number >= 0 && b->alias[live] < 0 && same_type(old, b->values[b->live[live]])) {
      b->alias[live] = b->outside[number];
    }
  }
}

static bool is_written(const tt_program *program, int32_t slot) {
  for (int32_t i = 0; i < program->final_count; i++) {
    if (program->finals[i].slot == slot) {
      return true;
    }
  }
  return false;
}

// What is left of the results takes the memory of inputs that die.
static void give_dying(builder *b) {
  for (int32_t i = 0; i < b->r->slot_count; i++) {
    const tt_value *old = b->r->initial[i];
    const int32_t number = old && b->r->dying[i] ? number_of(b, old) : -1;
    if (number < 0 || is_written(b->program, i) || is_kept(b->program, i)) {
      continue;
    }
    for (int32_t live = 0; live < b->live_count; live++) {
      if (b->alias[live] < 0 && same_type(old, b->values[b->live[live]])) {
        b->alias[live] = b->outside[number];
        break;
      }
    }
  }
}

// ---- the program ----
static tt_status *make_stretch(builder *b, tt_stretch *stretch) {
  const tt_capture *capture = b->r->capture;
  const size_t count = (size_t)capture->count + 1;
  tt_record **records = tt_arena_alloc(&b->arena, sizeof *records * count);
  int32_t **sources = tt_arena_alloc(&b->arena, sizeof *sources * count);
  const tt_literal **literals = tt_arena_alloc(&b->arena, sizeof *literals * count);
  char **labels = tt_arena_alloc(&b->arena, sizeof *labels * count);
  if (!records || !sources || !literals || !labels) {
    return no_memory();
  }
  for (int32_t i = 0; i < capture->count; i++) {
    records[i] = capture->steps[i]->record;
    sources[i] = capture->steps[i]->sources;
    literals[i] = capture->steps[i]->literals;
    b->program->random_count += records[i]->lowered.random_elements > 0;
  }
  b->program->random = tt_arena_alloc(&b->program->arena, sizeof(uint64_t) * (size_t)(b->program->random_count + 1));
  if (!b->program->random) {
    return no_memory();
  }
  b->program->random_count = 0;
  b->program->taken = capture->taken;
  for (int32_t i = 0; i < capture->count; i++) {
    for (int32_t k = 0; k < capture->steps[i]->literal_count; k++) {
      if (literals[i][k].random) {
        memcpy(&b->program->random[b->program->random_count++], literals[i][k].bytes, sizeof(uint64_t));
      }
    }
  }
  *stretch = (tt_stretch){.count = capture->count,
                          .live_count = b->live_count,
                          .records = records,
                          .sources = sources,
                          .live = b->live,
                          .labels = labels,
                          .literals = literals,
                          .alias = b->alias};
  return NULL;
}

// A vector of zeros: the number that a graph's guards compare with.
static tt_status *zeros(tt_engine *engine, const tt_param *param, tt_source *out) {
  void *bytes = calloc((size_t)param->index, tt_dtype_size((tt_dtype)param->dtype));
  if (!bytes) {
    return no_memory();
  }
  tt_status *status =
      tt_value_from_host(engine, bytes, (tt_dtype)param->dtype, (int64_t[]){param->index}, 1, &out->constant);
  free(bytes);
  TT_TRY(status);
  tt_value_own(out->constant);
  tt_value_unref(out->constant);  // the reference that it was made with
  out->kind = TT_SOURCE_CONSTANT;
  return NULL;
}

static tt_status *list_sources(builder *b) {
  tt_program *program = b->program;
  tt_lowered *l = &program->record->lowered;
  program->sources = tt_arena_alloc(&program->arena, sizeof *program->sources * (size_t)(l->param_count + 1));
  program->dies = tt_arena_alloc(&program->arena, sizeof *program->dies * (size_t)(l->param_count + 1));
  if (!program->sources || !program->dies) {
    return no_memory();
  }
  program->gone =
      tt_error(TT_ERR_RUNTIME, "a tensor was read after a compiled graph had taken its memory for a result");
  for (int32_t i = 0; i < l->param_count; i++) {
    tt_param *param = &l->params[i];
    if (param->kind == TT_PARAM_SLOT) {
      param->dtype = (uint8_t)b->values[param->index]->dtype;
      TT_TRY(find_source(b, b->values[param->index], &program->sources[i]));
      program->dies[i] = param->aliased && program->sources[i].kind == TT_SOURCE_SLOT &&
                         !is_written(program, program->sources[i].index);
    } else if (param->dtype != TT_U64) {
      TT_TRY(zeros(b->r->capture->engine, param, &program->sources[i]));
    }
  }
  for (int32_t i = 0; i < l->output_count; i++) {
    tt_output *output = &l->outputs[i];
    if (output->kind == TT_OUTPUT_RESULT) {
      const tt_value *value = b->values[output->index];
      output->dtype = (uint8_t)value->dtype;
      output->rank = value->shape.rank;
      output->nbytes = value->nbytes;
      output->dims = tt_graph_copy_dims(&l->arena, value->dims, output->rank);
      if (!output->dims) {
        return no_memory();
      }
      program->record->new_bytes += value->nbytes;
    }
  }
  return NULL;
}

static tt_status *compile(builder *b) {
  tt_stretch stretch;
  TT_TRY(make_stretch(b, &stretch));
  tt_record *record = calloc(1, sizeof *record);
  if (!record) {
    return no_memory();
  }
  atomic_init(&record->refs, 1);
  record->op = &graph_op;
  record->title = strdup(b->r->graph->name);
  tt_status *status = tt_stretch_lower(&stretch, tt_the_runtime.is_cpu, &record->lowered);
  if (status || !record->lowered.text) {
    tt_record_unref(record);
    return status;
  }
  b->program->record = record;
  TT_TRY(list_sources(b));
  record->stretch = &stretch;
  record->options = &b->r->graph->options;
  status = tt_record_compile(record, b->r->capture->engine);
  record->stretch = NULL;
  record->options = NULL;
  free(record->lowered.text);
  record->lowered.text = NULL;
  return status;
}

void tt_program_free(tt_program *program) {
  for (int32_t i = 0; i < program->final_count; i++) {
    drop_source(&program->finals[i].value);
  }
  for (int32_t i = 0; program->record && program->sources && i < program->record->lowered.param_count; i++) {
    drop_source(&program->sources[i]);
  }
  tt_record_unref(program->record);
  tt_status_free(program->gone);
  tt_arena_free(&program->arena);
  free(program);
}

static tt_status *build(builder *b, const tt_tensor *results, int32_t count) {
  TT_TRY(number_values(b));
  TT_TRY(list_results(b, results, count));
  find_aliases(b);
  give_dying(b);
  TT_TRY(compile(b));
  uint64_t *key = tt_arena_copy(&b->program->arena, b->r->key, sizeof *key * (size_t)b->r->key_words);
  if (!key) {
    return no_memory();
  }
  b->program->key = key;
  b->program->key_words = b->r->key_words;
  return NULL;
}

tt_status *tt_program_create(tt_recording *recording, const tt_tensor *results, int32_t count,
                             tt_program **out_program) {
  builder b = {.r = recording, .program = calloc(1, sizeof *b.program)};
  *out_program = b.program;
  if (!b.program) {
    return no_memory();
  }
  tt_status *status = build(&b, results, count);
  if (status) {
    tt_program_free(b.program);
    *out_program = NULL;
  }
  tt_map_free(&b.numbers, NULL);
  tt_arena_free(&b.arena);
  return status;
}

// The tape of the fused engine: calls that were made, of which some are held.
#include <stdlib.h>
#include <string.h>

#include "eager/explain.h"
#include "eager/fused.h"
#include "eager/label.h"
#include "eager/recompile.h"

static tt_status *no_memory(void) { return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory"); }

// ---- steps ----
static tt_step *allocate_step(tt_tape *tape, tt_record *record) {
  size_t all = (size_t)record->lowered.param_count, inputs = (size_t)record->slot_params, literals = all - inputs;
  size_t outputs = (size_t)record->lowered.output_count;
  size_t size = sizeof(tt_step) + (all + outputs) * sizeof(tt_value *) + literals * sizeof(tt_literal) +
                inputs * sizeof(int32_t) + 2 * all * sizeof(bool);
  tt_step *step = size <= TT_STEP_SIZE ? tape->spare : NULL;
  if (step) {
    tape->spare = step->next;
    tape->spare_count--;
  } else if (!(step = malloc(size < TT_STEP_SIZE ? TT_STEP_SIZE : size))) {
    return NULL;
  }
  *step = (tt_step){.record = record, .held = true, .size = size, .label = tt_label_any() ? tt_label_copy() : NULL};
  step->inputs = (tt_value **)(step + 1);
  step->outputs = step->inputs + all;
  step->literals = (tt_literal *)(step->outputs + outputs);
  step->sources = (int32_t *)(step->literals + literals);
  step->donate = (bool *)(step->sources + inputs);
  step->counted = step->donate + all;
  return step;
}

static void drop_values(tt_engine *engine, tt_step *step, uint64_t counts) {
  for (int32_t i = 0; i < step->input_count; i++) {
    if (step->counted[i]) {
      tt_value_drop_locked(engine, step->inputs[i], counts);
    }
  }
  for (int32_t i = 0; i < step->output_count; i++) {
    if (step->outputs[i]) {
      tt_value_drop_locked(engine, step->outputs[i], counts);
    }
  }
}

// From here on no step relies on another one's references.
static void count_all(tt_tape *tape) {
  for (int32_t i = 0; i < tape->count; i++) {
    tt_step *step = tape->steps[i];
    for (int32_t k = 0; k < step->input_count; k++) {
      if (step->inputs[k] && !step->counted[k]) {
        tt_value_take(step->inputs[k], step->held ? TT_VALUE_REF + TT_VALUE_WEAK : TT_VALUE_WEAK);
        step->counted[k] = true;
      }
    }
  }
}

// What holds values lets go of them; the weak references stay.
static void drop_strong(tt_engine *engine, tt_step *step) {
  if (step->held) {
    drop_values(engine, step, TT_VALUE_REF);
  }
  step->held = false;
}

static void free_step(tt_engine *engine, tt_step *step) {
  tt_tape *tape = &engine->tape;
  drop_values(engine, step, step->held ? TT_VALUE_REF + TT_VALUE_WEAK : TT_VALUE_WEAK);
  free(step->label);
  if (step->size <= TT_STEP_SIZE && tape->spare_count < TT_SPARE_LIMIT) {
    step->next = tape->spare;
    tape->spare = step;
    tape->spare_count++;
  } else {
    free(step);
  }
}

static tt_status *fill_step(const tt_call_state *s, tt_record *record, tt_step *step) {
  const tt_tape *tape = &s->engine->tape;
  for (int32_t i = 0; i < record->lowered.param_count; i++) {
    const tt_param *param = &record->lowered.params[i];
    tt_value *value = NULL;
    step->donate[i] = step->counted[i] = false;
    if (param->kind == TT_PARAM_SLOT) {
      value = s->storages[param->index]->value;
      if (!tape->holding || value->stretch != tape->stretch) {
        tt_value_take(value, TT_VALUE_REF + TT_VALUE_WEAK);
        step->counted[i] = true;
      }
      if (param->aliased && value->owners == 1) {
        step->donate[i] = true;
        tt_value_give_away(value);
      }
    } else {
      tt_status *status = tt_call_literal(s, record, param, &step->literals[step->literal_count++]);
      if (status) {
        return tt_status_prefix(status, "%s()", s->op->short_name);
      }
    }
    step->inputs[step->input_count++] = value;
  }
  for (int32_t i = 0; i < record->lowered.output_count; i++) {
    const tt_output *output = &record->lowered.outputs[i];
    tt_value *value = NULL;
    if (output->kind != TT_OUTPUT_ASSERT) {
      value = tt_value_create_locked(s->engine, (tt_dtype)output->dtype, output->dims, output->rank);
      if (!value) {
        return no_memory();
      }
      value->sequence = TT_HELD;
      tt_value_take_new(value, TT_VALUE_WEAK);
    }
    step->outputs[step->output_count++] = value;
  }
  return NULL;
}

// ---- launching ----
// The results will never be: their readers hear why.
static void fail_values(tt_value **values, int32_t count, const tt_status *status) {
  for (int32_t i = 0; i < count; i++) {
    if (values[i] && values[i]->sequence == TT_HELD) {
      values[i]->error = tt_status_clone(status);
      values[i]->sequence = 0;
    }
  }
}

static tt_status *take_inputs(tt_engine *engine, const tt_step *step, tt_task *task) {
  const tt_literal *literal = step->literals;
  for (int32_t i = 0; i < step->input_count; i++) {
    if (step->inputs[i]) {
      tt_value_ref(task->inputs[i] = step->inputs[i]);
    } else {
      TT_TRY(tt_literal_value(engine, literal++, &task->inputs[i]));
    }
    task->donate[i] = step->donate[i];
    task->input_count++;
  }
  return NULL;
}

// Launches a held step by itself.
static void launch_step(tt_engine *engine, tt_step *step) {
  tt_task *task = tt_queue_reserve(engine);
  tt_status *status = tt_task_reserve_values(task, step->input_count, step->output_count);
  if (!status) {
    status = take_inputs(engine, step, task);
  }
  if (status) {
    tt_task_release(task);
    fail_values(step->outputs, step->output_count, status);
    tt_queue_set_error(&engine->queue, status);
  } else {
    for (int32_t i = 0; i < step->output_count; i++) {
      task->outputs[i] = step->outputs[i];
      if (step->outputs[i]) {
        tt_value_ref(step->outputs[i]);
      }
    }
    task->output_count = step->output_count;
    tt_queue_push_run(engine, task, step->record);
  }
  drop_strong(engine, step);
}

static void launch_held(tt_engine *engine) {
  tt_tape *tape = &engine->tape;
  if (tape->holding) {
    count_all(tape);
  }
  // What came before the last step was launched before, if anything was.
  for (int32_t i = tape->holding || !tape->count ? 0 : tape->count - 1; i < tape->count; i++) {
    if (tape->steps[i]->held) {
      launch_step(engine, tape->steps[i]);
    }
  }
  tape->held_bytes = 0;
  tape->holding = false;
}

// The numbers of one dtype, as a vector.
static tt_status *pack_value(tt_engine *engine, const tt_param *param, tt_value **out_value) {
  tt_dtype dtype = (tt_dtype)param->dtype;
  size_t size = tt_dtype_size(dtype), at = 0;
  unsigned char *bytes = malloc((size_t)param->index * size);
  if (!bytes) {
    return no_memory();
  }
  for (int32_t i = 0; i < engine->tape.count; i++) {
    const tt_step *step = engine->tape.steps[i];
    for (int32_t k = 0; k < step->literal_count; k++) {
      if (step->literals[k].dtype == dtype) {
        size_t width = step->literals[k].random ? 2 * size : size;
        memcpy(bytes + at, step->literals[k].bytes, width);
        at += width;
      }
    }
  }
  tt_status *status = tt_value_from_host(engine, bytes, dtype, (int64_t[]){param->index}, 1, out_value);
  free(bytes);
  return status;
}

static tt_status *take_program_inputs(tt_engine *engine, const tt_record *program, tt_task *task) {
  for (int32_t i = 0; i < program->lowered.param_count; i++) {
    const tt_param *param = &program->lowered.params[i];
    task->donate[i] = false;
    if (param->kind == TT_PARAM_SLOT) {
      tt_value *value = engine->tape.values[param->index];
      tt_value_ref(task->inputs[i] = value);
      task->donate[i] = param->aliased && value->owners == 0;
    } else {
      TT_TRY(pack_value(engine, param, &task->inputs[i]));
    }
    task->input_count++;
  }
  return NULL;
}

// Launches the whole tape as one program.
static void launch_program(tt_engine *engine, tt_record *program) {
  tt_tape *tape = &engine->tape;
  tt_task *task = program->executable ? tt_queue_reserve(engine) : NULL;
  tt_status *status = NULL;
  if (task) {
    status = tt_task_reserve_values(task, program->lowered.param_count, program->lowered.output_count);
    if (!status) {
      status = take_program_inputs(engine, program, task);
    }
  }
  if (task && status) {
    tt_task_release(task);
    fail_values(tape->values, tape->value_count, status);
    tt_queue_set_error(&engine->queue, status);
  } else if (task) {
    for (int32_t i = 0; i < program->lowered.output_count; i++) {
      const tt_output *output = &program->lowered.outputs[i];
      task->outputs[i] = output->kind == TT_OUTPUT_RESULT ? tape->values[output->index] : NULL;
      if (task->outputs[i]) {
        tt_value_ref(task->outputs[i]);
      }
    }
    task->output_count = program->lowered.output_count;
    tt_queue_push_run(engine, task, program);
  }
  tt_node *first = tt_trie_find(&tape->trie, NULL, tape->steps[0]);
  if (first) {
    first->unused_programs = 0;
  }
  tt_explain_note(TT_NOTE_STRETCH, "program", tape->count);
}

// ---- stretches ----
static void note_cut(tt_cut_reason reason) {
  static const char *const names[] = {[TT_CUT_EVENT] = "event",           [TT_CUT_SYNC] = "synchronize",
                                      [TT_CUT_CONTENT] = "content",       [TT_CUT_UNKNOWN] = "unknown continuation",
                                      [TT_CUT_LENGTH] = "bound on steps", [TT_CUT_MEMORY] = "bound on bytes",
                                      [TT_CUT_MODE] = "mode change",      [TT_CUT_SECTION] = "another section",
                                      [TT_CUT_GRAPH] = "compiled graph"};
  if (reason == TT_CUT_READ) {
    tt_explain_cut_by_read();
  } else {
    tt_explain_note(TT_NOTE_CUT, names[reason], 0);
  }
}

// The numbers of the results that were owned before step `at` of all steps; only results of the first `count` here.
static int32_t find_live(const tt_tape *tape, int32_t count, uint64_t at, int32_t *out) {
  int32_t live = 0;
  for (int32_t i = 0; i < count; i++) {
    for (int32_t k = 0; k < tape->steps[i]->output_count; k++) {
      const tt_value *value = tape->steps[i]->outputs[k];
      if (value && (value->owners > 0 || value->died > at)) {
        out[live++] = value->number;
      }
    }
  }
  return live;
}

static void note_wanted(tt_node *node) {
  while (node->parent) {
    node = node->parent;
  }
  tt_recompile_note_stretch(node);
}

static void request(tt_engine *engine, tt_node *node, tt_variant *variant) {
  tt_stretch *stretch;
  tt_status *status = tt_stretch_create(node, variant, &stretch);
  if (!status) {
    status = tt_compiler_request(engine, node, variant, stretch);
  }
  variant->state = status ? TT_VARIANT_FAILED : variant->seen < 2 ? TT_VARIANT_LOADING : TT_VARIANT_COMPILING;
  tt_status_free(status);
}

// Notes that the first `count` steps are a stretch. Has it compiled when it is met again, and looked for before.
static void note(tt_engine *engine, int32_t count, const int32_t *live, int32_t live_count, tt_cut_reason reason) {
  tt_tape *tape = &engine->tape;
  if (tape->trie.count > TT_TRIE_LIMIT || tape->trie.programs > TT_PROGRAM_LIMIT) {
    tt_trie_clear(&tape->trie);
  }
  tt_node *node = NULL;
  for (int32_t i = 0; i < count; i++) {
    node = tt_trie_add(&tape->trie, node, tape->steps[i]);
    if (!node) {
      return;
    }
  }
  node->ends = reason == TT_CUT_CONTENT || reason == TT_CUT_SECTION ? reason : node->ends;
  tt_variant *variant = tt_node_add(node, live, live_count);
  if (variant && count > 1) {
    variant->seen++;
    if (variant->state == TT_VARIANT_NEW && (variant->seen >= 2 || tt_compiler_looks())) {
      request(engine, node, variant);
    }
    if (variant->seen == 2 && variant->state != TT_VARIANT_READY) {
      note_wanted(node);
    }
  }
  tt_background_look();
}

// Gives the inputs and outputs of a step their numbers.
static bool number_step(tt_tape *tape, tt_step *step) {
  int32_t most = tape->value_count + step->input_count + step->output_count;
  if (most > tape->value_capacity) {
    tt_value **values = realloc(tape->values, sizeof *values * (size_t)(2 * most));
    if (!values) {
      return false;
    }
    tape->values = values;
    tape->value_capacity = 2 * most;
  }
  step->source_count = 0;
  for (int32_t i = 0; i < step->input_count + step->output_count; i++) {
    bool input = i < step->input_count;
    tt_value *value = input ? step->inputs[i] : step->outputs[i - step->input_count];
    if (!value) {
      continue;
    }
    if (!input || value->stretch != tape->stretch) {
      value->stretch = tape->stretch;
      value->number = tape->value_count;
      tape->values[tape->value_count++] = value;
    }
    if (input) {
      step->sources[step->source_count++] = value->number;
    }
  }
  return true;
}

// Forgets the first `count` steps; the others begin a new stretch.
static void restart(tt_engine *engine, int32_t count) {
  tt_tape *tape = &engine->tape;
  if (count < tape->count && tape->holding) {
    count_all(tape);
  }
  for (int32_t i = 0; i < count; i++) {
    free_step(engine, tape->steps[i]);
  }
  tape->count -= count;
  memmove(tape->steps, tape->steps + count, sizeof(tt_step *) * (size_t)tape->count);
  tape->value_count = 0;
  tape->stretch++;
  tape->node = NULL;
  tape->known = true;
  tape->holding = tape->count == 0;
  tape->held_bytes = 0;
  atomic_store_explicit(&tape->at_end, false, memory_order_relaxed);
  for (int32_t i = 0; i < tape->count; i++) {
    number_step(tape, tape->steps[i]);  // there is room: they had numbers before
  }
}

// Walks the trie along steps that were launched before their stretch began; gives how many of them are one whole.
static int32_t walk(tt_tape *tape) {
  for (int32_t i = 0; i < tape->count; i++) {
    tape->node = tt_trie_find(&tape->trie, tape->node, tape->steps[i]);
    if (!tape->node) {
      tape->known = false;
      return 0;
    }
    if (tape->node->ends != TT_CUT_NONE) {
      return i + 1;
    }
  }
  return 0;
}

static tt_record *ready_program(const tt_node *node, const int32_t *live, int32_t count) {
  const tt_variant *variant = tt_node_find(node, live, count);
  return variant && variant->state == TT_VARIANT_READY ? variant->program : NULL;
}

static void finish(tt_engine *engine, int32_t count, tt_cut_reason reason) {
  note_cut(reason);
  tt_tape *tape = &engine->tape;
  int32_t *live = malloc(sizeof *live * (size_t)(tape->value_count + 1));
  if (live) {
    int32_t live_count = find_live(tape, count, tape->recorded - (uint64_t)(tape->count - count), live);
    tt_record *program = tape->holding && tape->node ? ready_program(tape->node, live, live_count) : NULL;
    if (program) {
      launch_program(engine, program);
    } else {
      launch_held(engine);
      note(engine, count, live, live_count, reason);
    }
    free(live);
  } else {
    launch_held(engine);
  }
  restart(engine, count);
  count = walk(tape);
  if (count) {
    finish(engine, count, tape->node->ends);
  }
}

void tt_tape_cut(tt_engine *engine, tt_cut_reason reason) {
  tt_tape *tape = &engine->tape;
  if (tape->count) {
    finish(engine, tape->count, reason);
  }
}

// Launches a known stretch that is complete, if what is live is what a program of it gives: what the caller still has
// of the last call's operands would count as live, so this is tried whenever an owner lets go.
static void launch_complete(tt_engine *engine) {
  tt_tape *tape = &engine->tape;
  int32_t *live = malloc(sizeof *live * (size_t)(tape->value_count + 1));
  if (live) {
    int32_t count = find_live(tape, tape->count, tape->recorded, live);
    tt_record *program = ready_program(tape->node, live, count);
    if (program) {
      note_cut(tape->node->ends);
      launch_program(engine, program);
      restart(engine, tape->count);
    }
    free(live);
  }
}

static bool complete(const tt_tape *tape) {
  return atomic_load_explicit(&tape->at_end, memory_order_relaxed) && tape->holding && tape->count;
}

void tt_tape_disowned(tt_engine *engine) {
  if (complete(&engine->tape)) {
    launch_complete(engine);
  }
}

void tt_tape_poke(tt_engine *engine) {
  tt_tape *tape = &engine->tape;
  if (!atomic_load_explicit(&tape->at_end, memory_order_relaxed) || pthread_mutex_trylock(&engine->lock)) {
    return;
  }
  // Only what takes one place in the queue: its thread must not wait for itself.
  if (complete(tape) && atomic_load(&engine->queue.pushed) == atomic_load(&engine->queue.launched)) {
    launch_complete(engine);
  }
  pthread_mutex_unlock(&engine->lock);
  tt_explain_place();
}

// ---- recording ----
static bool append(tt_tape *tape, tt_step *step) {
  if (tape->count == tape->capacity) {
    int32_t capacity = tape->capacity ? 2 * tape->capacity : 256;
    tt_step **steps = realloc(tape->steps, sizeof(tt_step *) * (size_t)capacity);
    if (!steps) {
      return false;
    }
    tape->steps = steps;
    tape->capacity = capacity;
  }
  if (!number_step(tape, step)) {
    return false;
  }
  tape->steps[tape->count++] = step;
  return true;
}

// Follows the trie; launches the step, and what was held before it, where no program can be ahead.
static void advance(tt_engine *engine, const tt_step *step) {
  tt_tape *tape = &engine->tape;
  tt_node *node = tape->known ? tt_trie_find(&tape->trie, tape->node, step) : NULL;
  tape->node = node;
  tape->known = node != NULL;
  if (node && node->ends != TT_CUT_NONE) {
    atomic_store_explicit(&tape->at_end, true, memory_order_relaxed);
  }
  if (tape->holding && node && node->known) {
    tape->held_bytes += step->record->new_bytes;
  } else {
    if (tape->holding && tape->count > 1) {
      note_cut(TT_CUT_UNKNOWN);
    }
    launch_held(engine);
  }
}

static _Thread_local int this_section = -1;
void tt_set_section(int section) { this_section = section; }

// Where forward, backward and optimizer meet the host has much to do, and XLA:CPU can run what was recorded meanwhile.
// A TPU gains more from what it fuses across, such as the optimizer with the products that give the gradients.
static bool changes_section(const tt_tape *tape) {
  return tt_the_runtime.is_cpu && tape->count >= TT_SECTION_STEPS &&
         (tape->section != this_section || !pthread_equal(tape->thread, pthread_self()));
}

tt_status *tt_tape_record(const tt_call_state *s, tt_record *record, tt_results *out) {
  tt_engine *engine = s->engine;
  tt_tape *tape = &engine->tape;
  if (atomic_load_explicit(&tape->at_end, memory_order_relaxed)) {
    tt_tape_cut(engine, tape->node->ends);
  } else if (tape->count >= TT_STRETCH_LIMIT) {
    tt_tape_cut(engine, TT_CUT_LENGTH);
  } else if (changes_section(tape)) {
    tt_tape_cut(engine, TT_CUT_SECTION);
  }
  tape->thread = pthread_self();
  tape->section = this_section;
  if (!tape->stretch) {
    tape->stretch = 1;
    tape->holding = tape->known = true;
  }
  tt_step *step = allocate_step(tape, record);
  tt_status *status = step ? fill_step(s, record, step) : no_memory();
  if (!status && !append(tape, step)) {
    status = no_memory();
  }
  if (status) {
    if (step) {
      free_step(engine, step);
    }
    return status;
  }
  tape->recorded++;
  tt_call_publish(s, record, step->outputs, out);
  advance(engine, step);
  if (tape->held_bytes > (size_t)engine->limit / 4) {
    tt_tape_cut(engine, TT_CUT_MEMORY);
  }
  bool begins = tt_cuts_push(&tape->cuts, record->content);
  // Not so near to the stretch's beginning that what came before had a part in the choice: `ends` is said of the steps
  // alone, and a chain would be cut wherever it has them.
  if (begins && !tape->holding && tape->count > TT_CUT_WINDOW + TT_CUT_RECORDS) {
    finish(engine, tape->count - TT_CUT_WINDOW - 1, TT_CUT_CONTENT);
  }
  tt_tape_disowned(engine);
  return NULL;
}

void tt_tape_clear(tt_engine *engine) {
  tt_tape_cut(engine, TT_CUT_MODE);
  tt_trie_clear(&engine->tape.trie);
}

void tt_tape_settle(tt_engine *engine) {
  pthread_mutex_lock(&engine->lock);
  tt_tape_cut(engine, TT_CUT_READ);
  pthread_mutex_unlock(&engine->lock);
}

// tt_call: find or build the record of a call, and launch it.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/trace.h"
#include "eager/capture.h"
#include "eager/explain.h"
#include "eager/fused.h"
#include "eager/key.h"
#include "eager/label.h"
#include "eager/number.h"
#include "eager/recompile.h"

// ---- building a record ----
// Through the cache; once more where an option turns out to be unknown.
static tt_status *compile_with(tt_record *record, int32_t device, const char *labelled, tt_arena *arena,
                               tt_cache_outcome *out_outcome) {
  for (;;) {
    tt_pjrt_compile_options options;
    TT_TRY(tt_options_with(record->options, arena, &options));
    tt_cache_module module = {record->lowered.text, strlen(record->lowered.text), labelled, &options, device};
    tt_status *status = tt_cache_compile(tt_the_runtime.cache, &module, &record->executable, out_outcome);
    if (!status || !tt_options_drop(&options, status)) {
      return status;
    }
    tt_status_free(status);
  }
}

static tt_status *compile(tt_record *record, int32_t device, const char *labelled, tt_cache_outcome *out_outcome) {
  tt_arena arena = {0};
  tt_status *status = compile_with(record, device, labelled, &arena, out_outcome);
  tt_arena_free(&arena);
  return status;
}

static tt_status *compile_in_turn(tt_record *record, int32_t device, const char *labelled,
                                  tt_cache_outcome *out_outcome) {
  if (record->stretch) {
    return compile(record, device, labelled, out_outcome);
  }
  tt_compile_scope scope;
  tt_foreground_begin(&scope);
  tt_status *status = compile(record, device, labelled, out_outcome);
  tt_foreground_end(&scope, !status && out_outcome->source == TT_CACHE_COMPILED);
  return status;
}

// Notes where the executable came from, and checks it.
static tt_status *accept(tt_record *record, const tt_cache_outcome *outcome) {
  tt_runtime *rt = &tt_the_runtime;
  record->compiled = outcome->source == TT_CACHE_COMPILED;
  if (record->compiled) {
    tt_count(&rt->counters.compiles, 1);
    tt_count(&rt->counters.compile_ns, outcome->compile_ns);
    tt_explain_note(TT_NOTE_COMPILE, record->op->name, outcome->compile_ns);
  }
  TT_LOG(DEBUG, "%s: %s in %.1f ms", record->op->name, tt_cache_source_name(outcome->source),
         (double)(outcome->compile_ns + outcome->load_ns) / 1e6);
  if (!record->executable) {
    return NULL;  // compiling failed
  }
  if (tt_pjrt_executable_result_count(record->executable) != record->lowered.output_count) {
    return tt_error(TT_ERR_INTERNAL, "%s: the compiled program has %d results where %d were built", record->op->name,
                    tt_pjrt_executable_result_count(record->executable), record->lowered.output_count);
  }
  record->temp_bytes = tt_pjrt_executable_temp_bytes(record->executable);
  return NULL;
}

tt_status *tt_record_compile(tt_record *record, const tt_engine *engine) {
  char *labelled = record->stretch ? tt_stretch_label_text(record->stretch, record->lowered.text)
                                   : tt_label_text(record->lowered.text, record->op->short_name);
  const char *text = labelled ? labelled : record->lowered.text;
  TT_LOG(DEBUG, "%s\n%s", record->op->name, text);
  tt_dump_module(record, text);
  int64_t profiled = tt_profile_now();
  tt_cache_outcome outcome = {0};
  tt_status *status = compile_in_turn(record, engine->device, labelled, &outcome);
  free(labelled);
  tt_profile_add(TT_ACTIVITY_COMPILE, record->title ? record->title : record->op->name, engine->device, profiled, 0);
  tt_status *fault = accept(record, &outcome);
  return status ? tt_status_prefix(status, "compiling %s", record->op->name) : fault;
}

tt_status *tt_record_load(tt_record *record, const tt_engine *engine, bool *out_loaded) {
  tt_pjrt_compile_options options = tt_options();
  tt_cache_module module = {record->lowered.text, strlen(record->lowered.text), NULL, &options, engine->device};
  tt_cache_outcome outcome;
  *out_loaded = tt_cache_load(tt_the_runtime.cache, &module, &record->executable, &outcome);
  if (!*out_loaded) {
    return NULL;
  }
  TT_LOG(DEBUG, "%s\n%s", record->op->name, record->lowered.text);
  tt_dump_module(record, record->lowered.text);
  return accept(record, &outcome);
}

static tt_status *fill_record(tt_record *record, const tt_call_state *s) {
  tt_call_info info = {.op = s->op,
                       .args = s->args,
                       .arg_count = s->arg_count,
                       .first_tensor = s->first_tensor,
                       .tensors = s->tensors,
                       .tensor_count = s->tensor_count,
                       .slots = s->slots,
                       .slot_count = s->slot_count,
                       .env = s->env};
  TT_TRY(tt_rule_run(&info, &record->lowered));
  for (int32_t i = 0; i < record->lowered.output_count; i++) {
    record->new_bytes += record->lowered.outputs[i].nbytes;
  }
  for (int32_t i = 0; i < record->lowered.param_count; i++) {
    const tt_param *param = &record->lowered.params[i];
    record->slot_params += param->kind == TT_PARAM_SLOT;
    record->aliases = record->aliases || param->aliased;
  }
  if (record->new_bytes > (size_t)s->engine->limit) {
    // Before the compiler sees it: XLA ends the process over some types of absurd size.
    TT_TRY(tt_memory_check(s->engine, record->new_bytes, s->op->short_name));
  }
  if (record->lowered.text && !tt_capturing) {
    TT_TRY(tt_record_compile(record, s->engine));  // the text stays: fused programs are made of it
  }
  return NULL;
}

static tt_status *build_record(const tt_call_state *s, tt_record **out_record) {
  tt_record *record = calloc(1, sizeof *record);
  size_t key_size = sizeof *record->key * (size_t)s->word_count;
  *out_record = record;
  if (record) {
    record->key = malloc(key_size);
  }
  if (!record || !record->key) {
    free(record);
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  atomic_init(&record->refs, 1);
  record->op = s->op;
  record->hash = s->hash;
  record->key_words = s->word_count;
  memcpy(record->key, s->words, key_size);
  // The first word is an address.
  record->content =
      tt_hash_bytes(s->words + 1, key_size - sizeof *s->words, tt_hash_bytes(s->op->name, strlen(s->op->name), 0));
  tt_status *status = fill_record(record, s);
  if (status) {
    tt_record_unref(record);
    *out_record = NULL;
  }
  return status;
}

// A capture has records of its own, which are not compiled.
static tt_op_cache *cache_of(tt_engine *engine) { return tt_capturing ? &tt_capturing->records : &engine->cache; }

// Builds without the lock: the slots' values are kept alive, so that their shapes stay readable. On success the cache
// has a record for the key (ours or another thread's).
static tt_status *build_missing(tt_call_state *s) {
  tt_engine *engine = s->engine;
  tt_value **held = malloc(sizeof *held * (size_t)(s->slot_count + 1));
  if (!held) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  for (int32_t i = 0; i < s->slot_count; i++) {
    held[i] = s->storages[i]->value;
    if (held[i]) {
      tt_value_ref(held[i]);
    }
  }
  pthread_mutex_unlock(&engine->lock);
  tt_record *record = NULL;
  tt_status *status = build_record(s, &record);
  for (int32_t i = 0; i < s->slot_count; i++) {
    tt_value_unref(held[i]);
  }
  free(held);
  tt_compile_site site;
  if (record && record->compiled) {
    tt_recompile_locate(&site);
  }
  pthread_mutex_lock(&engine->lock);
  if (status) {
    return status;
  }
  if (tt_op_cache_find(cache_of(engine), record->key, record->key_words, record->hash)) {
    tt_record_unref(record);
    return NULL;
  }
  if (!tt_capturing && engine->cache.count >= TT_OP_CACHE_LIMIT) {
    tt_tape_clear(engine);  // fused programs hold records too
  }
  if (record->compiled) {
    tt_recompile_note(engine, record, &site);
  }
  return tt_op_cache_insert(cache_of(engine), record);
}

// ---- launching ----
tt_status *tt_memory_check(tt_engine *engine, size_t bytes, const char *what) {
  for (int attempt = 0;; attempt++) {
    int64_t reserved = atomic_load_explicit(&engine->reserved, memory_order_relaxed);
    if (bytes <= (size_t)engine->limit && (int64_t)bytes <= engine->limit - reserved) {
      return NULL;
    }
    if (attempt == 1) {
      tt_count(&engine->oom_count, 1);
      return tt_error(
          TT_ERR_OUT_OF_MEMORY,
          "tpu:%d out of memory: %s needs %.2f MiB for results and temporaries; the budget is %.2f MiB, of "
          "which %.2f MiB are in use. Free tensors, use a smaller batch, or raise TORCH_TPU_MEMORY_FRACTION",
          engine->device, what, (double)bytes / 1048576, (double)engine->limit / 1048576, (double)reserved / 1048576);
    }
    tt_tape_cut(engine, TT_CUT_MEMORY);
    tt_queue_wait(engine, atomic_load(&engine->queue.pushed));  // what is queued may free some
  }
}

// A number that the call hands over, as the record's parameter has it.
static tt_status *number_literal(const tt_number *number, bool checked, tt_literal *out) {
  return tt_number_to_bytes(number, out->dtype, checked, out->bytes) ? NULL : tt_scalar_overflow(out->dtype);
}

tt_status *tt_call_literal(const tt_call_state *s, const tt_record *record, const tt_param *param, tt_literal *out) {
  out->dtype = (tt_dtype)param->dtype;
  out->random = false;
  switch ((tt_param_kind)param->kind) {
    case TT_PARAM_OFFSET: {
      tt_number offset = {.type = TT_S64, .u.i = s->tensors[param->index].tensor->offset};
      return number_literal(&offset, false, out);
    }
    case TT_PARAM_HOST:
      return number_literal(&s->tensors[param->index].tensor->host, false, out);
    case TT_PARAM_NUMBER: {
      const tt_arg *arg = &s->args[param->arg];
      const tt_number *number = arg->tag == TT_ARG_NUMBERS ? &arg->u.numbers[param->index] : &arg->u.number;
      bool checked = s->op->args[param->arg].kind != TT_KIND_FLOAT;  // PyTorch converts C++ doubles unchecked
      return number_literal(number, checked, out);
    }
    case TT_PARAM_RANDOM: {
      int32_t arg = record->lowered.generator_arg;
      tt_generator *generator = arg >= 0 && s->args[arg].tag == TT_ARG_GENERATOR && s->args[arg].u.generator
                                    ? s->args[arg].u.generator
                                    : tt_default_generator(s->engine->device);
      if (tt_generator_device(generator) != s->engine->device) {
        return tt_error(TT_ERR_RUNTIME, "Expected a generator of tpu:%d but found one of tpu:%d", s->engine->device,
                        tt_generator_device(generator));
      }
      uint64_t state[2];
      tt_generator_take(generator, record->lowered.random_elements, state);
      memcpy(out->bytes, state, sizeof state);
      out->dtype = TT_U64;
      out->random = true;
      return NULL;
    }
    case TT_PARAM_SLOT:
      break;
  }
  return tt_error(TT_ERR_INTERNAL, "unknown parameter kind %d", param->kind);
}

tt_status *tt_literal_value(tt_engine *engine, const tt_literal *literal, tt_value **out_value) {
  return literal->random ? tt_value_from_host(engine, literal->bytes, TT_U64, (int64_t[]){2}, 1, out_value)
                         : tt_scalar_intern(engine, literal->bytes, literal->dtype, out_value);
}

static tt_status *param_value(const tt_call_state *s, const tt_record *record, const tt_param *param,
                              tt_value **out_value) {
  if (param->kind == TT_PARAM_SLOT) {
    *out_value = s->storages[param->index]->value;
    tt_value_ref(*out_value);
    return NULL;
  }
  tt_literal literal;
  TT_TRY(tt_call_literal(s, record, param, &literal));
  return tt_literal_value(s->engine, &literal, out_value);
}

static tt_status *fill_inputs(const tt_call_state *s, const tt_record *record, tt_task *task) {
  for (int32_t i = 0; i < record->lowered.param_count; i++) {
    const tt_param *param = &record->lowered.params[i];
    tt_status *status = param_value(s, record, param, &task->inputs[i]);
    if (status) {
      return tt_status_prefix(status, "%s()", s->op->short_name);
    }
    task->donate[i] = false;
    task->input_count++;
  }
  return NULL;
}

static tt_status *fill_outputs(const tt_call_state *s, const tt_record *record, tt_task *task) {
  for (int32_t i = 0; i < record->lowered.output_count; i++) {
    const tt_output *output = &record->lowered.outputs[i];
    task->outputs[i] = NULL;
    if (output->kind != TT_OUTPUT_ASSERT) {
      task->outputs[i] = tt_value_create_locked(s->engine, (tt_dtype)output->dtype, output->dims, output->rank);
      if (!task->outputs[i]) {
        return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
      }
    }
    task->output_count++;
  }
  return NULL;
}

// Bytes of parameters that mark_donations() will give to the program.
static size_t donated_bytes(const tt_call_state *s, const tt_record *record) {
  size_t bytes = 0;
  for (int32_t i = 0; i < record->lowered.param_count; i++) {
    const tt_param *param = &record->lowered.params[i];
    if (param->aliased && param->kind == TT_PARAM_SLOT) {
      const tt_value *value = s->storages[param->index]->value;
      bytes += value->owners == 1 ? value->nbytes : 0;
    }
  }
  return bytes;
}

// Parameters whose memory the program may take: nobody but their storage will read them after it.
static void mark_donations(const tt_record *record, tt_task *task) {
  for (int32_t i = 0; record->aliases && i < task->input_count; i++) {
    tt_value *value = task->inputs[i];
    if (record->lowered.params[i].aliased && value->owners == 1) {
      task->donate[i] = true;
      tt_value_give_away(value);
    }
  }
}

static tt_status *make_storages(const tt_call_state *s, tt_results *out) {
  for (int32_t i = 0; i < out->count; i++) {
    if (out->results[i].kind == TT_RESULT_NEW) {
      TT_TRY(tt_storage_create_locked(s->engine, out->results[i].nbytes, &out->storages[i]));
    }
  }
  return NULL;
}

static void free_storages(tt_results *out) {
  for (int32_t i = 0; i < out->count; i++) {
    tt_storage_free(out->storages[i]);
    out->storages[i] = NULL;
  }
}

void tt_call_publish(const tt_call_state *s, const tt_record *record, tt_value *const *values, tt_results *out) {
  for (int32_t i = 0; i < record->lowered.output_count; i++) {
    const tt_output *output = &record->lowered.outputs[i];
    if (values[i]) {
      tt_value_take_new(values[i], TT_VALUE_REF);
      tt_storage_set_value(output->kind == TT_OUTPUT_RESULT ? out->storages[output->index] : s->storages[output->index],
                           values[i]);
    }
  }
}

static tt_status *launch(const tt_call_state *s, tt_record *record, tt_results *out) {
  tt_engine *engine = s->engine;
  size_t bytes = record->new_bytes + (size_t)record->temp_bytes;
  size_t given = record->aliases ? donated_bytes(s, record) : 0;
  TT_TRY(tt_memory_check(engine, bytes > given ? bytes - given : 0, s->op->short_name));
  if (tt_get_eager_mode() == TT_MODE_FUSED) {
    return tt_tape_record(s, record, out);
  }
  tt_tape_cut(engine, TT_CUT_MODE);
  tt_task *task = tt_queue_reserve(engine);
  TT_TRY(tt_task_reserve_values(task, record->lowered.param_count, record->lowered.output_count));
  tt_status *status = fill_inputs(s, record, task);
  if (!status) {
    mark_donations(record, task);  // first: memory that changes hands is not counted twice
    status = fill_outputs(s, record, task);
  }
  if (status) {
    tt_task_release(task);
    return status;
  }
  tt_call_publish(s, record, task->outputs, out);
  tt_queue_push_run(engine, task, record);
  return NULL;
}

// ---- debug mode ----
static bool has_nan(const unsigned char *bytes, tt_dtype dtype, int64_t numel) {
  for (int64_t i = 0; i < numel; i++) {
    uint16_t half;
    float f;
    double d;
    switch (dtype) {
      case TT_F32:
        memcpy(&f, bytes + 4 * i, 4);
        if (isnan(f)) {
          return true;
        }
        break;
      case TT_F64:
        memcpy(&d, bytes + 8 * i, 8);
        if (isnan(d)) {
          return true;
        }
        break;
      case TT_BF16:
      case TT_F16:
        memcpy(&half, bytes + 2 * i, 2);
        if ((half & 0x7fff) > (dtype == TT_BF16 ? 0x7f80 : 0x7c00)) {
          return true;
        }
        break;
      default:
        return false;
    }
  }
  return false;
}

static tt_status *check_tensor(const tt_tensor *t, const char *op, int32_t i) {
  bool complex = tt_dtype_is_complex((tt_dtype)t->dtype);
  if (!complex && !tt_dtype_is_float((tt_dtype)t->dtype)) {
    return NULL;
  }
  int64_t numel = 1;
  for (int32_t d = 0; d < t->ndim; d++) {
    numel *= t->sizes[d];
  }
  size_t nbytes = (size_t)numel * tt_dtype_size((tt_dtype)t->dtype);
  unsigned char *bytes = malloc(nbytes ? nbytes : 1);
  if (!bytes) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  tt_status *status = tt_copy_to_host(t, bytes);
  bool found = !status && has_nan(bytes, tt_dtype_real((tt_dtype)t->dtype), complex ? 2 * numel : numel);
  free(bytes);
  TT_TRY(status);
  return found ? tt_error(TT_ERR_RUNTIME, "%s(): result %d has a NaN", op, i) : NULL;
}

static tt_status *check_nan(const tt_call_state *s, const tt_results *out) {
  for (int32_t i = 0; i < out->count; i++) {
    const tt_result *result = &out->results[i];
    tt_tensor t = {.storage = out->storages[i],
                   .sizes = result->sizes,
                   .strides = result->strides,
                   .ndim = result->ndim,
                   .dtype = result->dtype};
    if (result->kind == TT_RESULT_ALIAS && result->alias >= 0 && s->args[result->alias].tag == TT_ARG_TENSOR) {
      t = s->args[result->alias].u.tensor;
    }
    if (t.storage) {
      TT_TRY(check_tensor(&t, s->op->short_name, i));
    }
  }
  return NULL;
}

static tt_status *wait_and_check(const tt_call_state *s, const tt_results *out) {
  tt_queue_drain(s->engine);
  TT_TRY(tt_queue_take_error(s->engine));
  bool internal = !strncmp(s->op->name, "tt::", 4);  // moves numbers, for the reading of a result among others
  return atomic_load(&tt_the_runtime.check_nan) && !internal ? check_nan(s, out) : NULL;
}

// ---- the call ----
static tt_status *prepare_results(tt_record *record, tt_results *out) {
  const tt_lowered *lowered = &record->lowered;
  out->count = lowered->result_count;
  out->results = lowered->results;
  out->resize_arg = lowered->resize_arg;
  out->resize_ndim = lowered->resize_ndim;
  out->resize_sizes = lowered->resize_sizes;
  out->resize_strides = lowered->resize_strides;
  for (int32_t i = 0; i < out->count && i < TT_INLINE_RESULTS; i++) {
    out->inline_storages[i] = NULL;
  }
  if (out->count > TT_INLINE_RESULTS) {
    out->storages = calloc((size_t)out->count, sizeof *out->storages);
    if (!out->storages) {
      out->count = 0;
      return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
    }
  }
  out->pin = record;
  atomic_fetch_add_explicit(&record->refs, 1, memory_order_relaxed);
  return NULL;
}

static tt_status *retype(tt_call_state *s) {
  if (!s->retype_copy) {
    return tt_storage_retype(s->retype, NULL);
  }
  if (s->copy_count == TT_MAX_COPIES) {
    return tt_error(TT_ERR_RUNTIME, "%s(): too many operands share a storage with another dtype: clone them",
                    s->op->short_name);
  }
  TT_TRY(tt_storage_retype(s->retype, &s->copies[s->copy_count]));
  s->copied[s->copy_count++] = s->retype;
  return NULL;
}

// Engine lock held; released and taken again while something is built.
static tt_status *find_record(tt_call_state *s, tt_record **out_record) {
  for (bool missed = false;;) {
    TT_TRY(tt_call_state_key(s));
    if (s->retype) {
      pthread_mutex_unlock(&s->engine->lock);
      tt_status *status = retype(s);
      pthread_mutex_lock(&s->engine->lock);
      TT_TRY(status);
      continue;
    }
    *out_record = tt_op_cache_recent(cache_of(s->engine), s->op, s->words, s->word_count);
    if (!*out_record) {
      s->hash = tt_call_state_hash(s);
      *out_record = tt_op_cache_find(cache_of(s->engine), s->words, s->word_count, s->hash);
    }
    if (*out_record) {
      tt_op_cache_note(cache_of(s->engine), *out_record);
      tt_count_locked(&s->engine->hits, !missed);
      return NULL;
    }
    missed = true;
    tt_count(&tt_the_runtime.counters.misses, 1);
    TT_TRY(build_missing(s));
  }
}

static tt_status *call_locked(tt_call_state *s, tt_results *out) {
  tt_record *record;
  TT_TRY(find_record(s, &record));
  TT_TRY(prepare_results(record, out));
  if (out->resize_arg >= 0) {
    return NULL;
  }
  TT_TRY(make_storages(s, out));
  if (tt_capturing && record->lowered.text) {
    return tt_capture_record(s, record, out);
  }
  return record->executable ? launch(s, record, out) : NULL;
}

tt_status *tt_call(tt_op *op, const tt_arg *args, int32_t count, int32_t device, tt_results *out) {
  out->count = 0;
  out->pin = NULL;
  out->results = NULL;
  out->storages = out->inline_storages;
  out->resize_arg = -1;
  tt_engine *engine;
  TT_TRY(tt_engine_of(device, &engine));
  if (count > op->arg_count) {
    return tt_error(TT_ERR_INTERNAL, "%s: %d arguments where %d are declared", op->name, count, op->arg_count);
  }
  tt_call_state state;
  TT_TRY(tt_call_state_init(&state, op, args, count, engine));
  pthread_mutex_lock(&engine->lock);
  tt_status *status = call_locked(&state, out);
  pthread_mutex_unlock(&engine->lock);
  if (!status && tt_get_eager_mode() == TT_MODE_DEBUG && out->resize_arg < 0 && !tt_capturing) {
    status = wait_and_check(&state, out);
  }
  tt_explain_place();
  tt_recompile_warn();
  tt_call_state_free(&state);
  if (status) {
    free_storages(out);
    tt_results_release(out);
  }
  return status;
}

void tt_results_release(tt_results *results) {
  if (results->storages != results->inline_storages) {
    free(results->storages);
  }
  results->storages = results->inline_storages;
  results->count = 0;
  tt_record_unref(results->pin);
  results->pin = NULL;
}

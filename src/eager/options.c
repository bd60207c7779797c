// The compile options: what we need of XLA, and what the user asks for.
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "eager/internal.h"

static const char min_max[] = "xla_cpu_enable_fast_min_max";

static const char *setting(const char *name) {
  const char *value = getenv(name);
  return value && *value ? value : NULL;
}

static tt_status *add(char *name, char *value) {
  tt_runtime *rt = &tt_the_runtime;
  size_t size = sizeof(char *) * (size_t)(rt->option_count + 1);
  const char **names = realloc(rt->option_names, size);
  rt->option_names = names ? names : rt->option_names;
  const char **values = realloc(rt->option_values, size);
  rt->option_values = values ? values : rt->option_values;
  if (!names || !values || !name || !value) {
    free(name);
    free(value);
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  names[rt->option_count] = name;
  values[rt->option_count++] = value;
  return NULL;
}

static tt_status *add_own(const char *name, const char *value) {
  TT_TRY(add(strdup(name), strdup(value)));
  tt_the_runtime.own_options++;
  return NULL;
}

// What the user sets is his: an error of it is told.
static void skip_own(const char *name) {
  for (int32_t i = 0; i < tt_the_runtime.own_options; i++) {
    if (!strcmp(tt_the_runtime.option_names[i], name)) {
      atomic_fetch_or(&tt_the_runtime.skipped_options, 1u << i);
    }
  }
}

tt_status *tt_options_read(void) {
  tt_runtime *rt = &tt_the_runtime;
  if (rt->is_cpu) {
    // Else a NaN in the second operand of a maximum or minimum is lost, in reductions too.
    TT_TRY(add_own(min_max, "false"));
  }
  const char *fast = setting("TORCH_TPU_FAST_COMPILE");
  if (fast && strcmp(fast, "0") && rt->is_cpu) {
    TT_TRY(add_own("xla_backend_optimization_level", "0"));
    TT_TRY(add_own("xla_cpu_use_fusion_emitters", "false"));
  }
  const char *list = setting("TORCH_TPU_XLA_OPTIONS");
  while (list && *list) {
    size_t length = strcspn(list, ",");
    const char *equals = memchr(list, '=', length);
    if (!equals || equals == list) {
      return tt_error(TT_ERR_VALUE, "TORCH_TPU_XLA_OPTIONS must be name=value,...: \"%.*s\" is not", (int)length, list);
    }
    TT_TRY(add(strndup(list, (size_t)(equals - list)), strndup(equals + 1, length - (size_t)(equals + 1 - list))));
    skip_own(rt->option_names[rt->option_count - 1]);
    list += length + (list[length] == ',');
  }
  return NULL;
}

void tt_options_free(void) {
  tt_runtime *rt = &tt_the_runtime;
  for (; rt->option_count > 0; rt->option_count--) {
    free((char *)rt->option_names[rt->option_count - 1]);
    free((char *)rt->option_values[rt->option_count - 1]);
  }
  rt->own_options = 0;
  atomic_store(&rt->skipped_options, 0);
}

tt_pjrt_compile_options tt_options(void) {
  tt_runtime *rt = &tt_the_runtime;
  return (tt_pjrt_compile_options){rt->option_names, rt->option_values, rt->option_count,
                                   atomic_load(&rt->skipped_options)};
}

static bool has_option(const tt_pjrt_compile_options *options, const char *name) {
  for (int32_t i = 0; i < options->option_count; i++) {
    if (!strcmp(options->option_names[i], name)) {
      return true;
    }
  }
  return false;
}

tt_status *tt_options_with(const tt_pjrt_compile_options *more, tt_arena *arena, tt_pjrt_compile_options *out_options) {
  const tt_pjrt_compile_options base = *out_options = tt_options();
  if (!more || !more->option_count) {
    return NULL;
  }
  const size_t most = (size_t)base.option_count + (size_t)more->option_count;
  const char **names = tt_arena_alloc(arena, sizeof *names * most);
  const char **values = tt_arena_alloc(arena, sizeof *values * most);
  if (!names || !values) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  int32_t count = 0;
  for (int32_t i = 0; i < base.option_count; i++) {
    const bool beaten = has_option(more, base.option_names[i]);
    if (i < tt_the_runtime.own_options) {  // they stay where their bits say
      out_options->skipped |= beaten ? 1u << i : 0;
    } else if (beaten) {
      continue;
    }
    names[count] = base.option_names[i];
    values[count++] = base.option_values[i];
  }
  for (int32_t i = 0; i < more->option_count; i++) {
    names[count] = more->option_names[i];
    values[count++] = more->option_values[i];
  }
  out_options->option_names = names;
  out_options->option_values = values;
  out_options->option_count = count;
  return NULL;
}

tt_status *tt_options_check(const tt_pjrt_compile_options *options, int32_t device) {
  static const char text[] =
      "module @options { func.func public @main(%arg0: tensor<i32>) -> tensor<i32> { return %arg0 : tensor<i32> } }";
  tt_pjrt_executable *executable;
  tt_status *status = tt_pjrt_compile(tt_the_runtime.client, text, strlen(text), options, device, &executable);
  if (!status) {
    tt_pjrt_executable_free(tt_the_runtime.client, executable);
    return NULL;
  }
  if (tt_status_code(status) == TT_ERR_OUT_OF_MEMORY) {
    return status;
  }
  tt_status *refusal = tt_error(TT_ERR_VALUE, "XLA options are refused: %s", tt_status_message(status));
  tt_status_free(status);
  return refusal;
}

// Whether a message names the option: not another one that begins or ends like it.
static bool names_option(const char *message, const char *name) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  for (const char *at = strstr(message, name); at; at = strstr(at + 1, name)) {
    const char after = at[strlen(name)];
    if ((at == message || !strchr(letters, at[-1])) && (!after || !strchr(letters, after))) {
      return true;
    }
  }
  return false;
}

// Plugins differ in the options that they know, and say so at the first compile only.
bool tt_options_drop(const tt_pjrt_compile_options *used, const tt_status *status) {
  for (int32_t i = 0; i < tt_the_runtime.own_options; i++) {
    const char *name = used->option_names[i];
    if (used->skipped >> i & 1 || !names_option(tt_status_message(status), name)) {
      continue;
    }
    bool first = !(atomic_fetch_or(&tt_the_runtime.skipped_options, 1u << i) >> i & 1);
    if (first && !strcmp(name, min_max)) {
      TT_LOG(WARN, "the PJRT plugin has no option %s: maxima and minima may lose a NaN", name);
    } else if (first) {
      TT_LOG(DEBUG, "compiling without the option %s: %s", name, tt_status_message(status));
    }
    return true;
  }
  return false;
}

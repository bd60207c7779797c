// Bytes choose a rule, its operands and arguments, and go straight into tt_rule_run(): no input may crash, hang or
// leak, and what a rule leaves behind must be consistent.
//
//   aten_rule_fuzz [ITERATIONS [SEED [PART OF A RULE'S NAME]]]
//
// With TT_FUZZ_COMPILE=/path/to/plugin.so every program is compiled as well; that takes a hundred times as long.
#include "kernels/handlers.h"
#include "pjrt/pjrt.h"
#include "support/fuzz_call.h"

// ---- what comes out ----
static void demand(bool holds, const char *what) {
  if (!holds) {
    fprintf(stderr, "rule_fuzz: %s: %s\n", fuzz_current, what);
    abort();
  }
}

static void check_outputs(const call *c, const tt_lowered *out) {
  demand(!out->text == !out->output_count, "a program without results, or results without a program");
  for (int32_t i = 0; i < out->param_count; i++) {
    const tt_param *param = &out->params[i];
    int32_t bound = param->kind == TT_PARAM_SLOT     ? c->slot_count
                    : param->kind == TT_PARAM_NUMBER ? MAX_LIST
                                                     : c->tensor_count;
    demand(param->kind == TT_PARAM_RANDOM || (param->index >= 0 && param->index < bound), "a parameter of nothing");
  }
  for (int32_t i = 0; i < out->output_count; i++) {
    const tt_output *output = &out->outputs[i];
    if (output->kind == TT_OUTPUT_SLOT) {
      const tt_slot *slot = &c->slots[output->index];
      demand(output->index < c->slot_count, "a write to no storage");
      demand(output->dtype == slot->dtype && output->nbytes == (size_t)slot->shape.numel * tt_dtype_size(slot->dtype),
             "a storage's new value has another size or type");
    } else if (output->kind == TT_OUTPUT_RESULT) {
      demand(output->index < out->result_count && out->results[output->index].kind == TT_RESULT_NEW &&
                 out->results[output->index].nbytes == output->nbytes,
             "a result that is none");
    } else {
      demand(output->rank == 0 && output->dtype == TT_PRED, "an assert that is no flag");
    }
  }
}

static void check_results(const tt_lowered *out) {
  for (int32_t i = 0; i < out->result_count; i++) {
    const tt_result *result = &out->results[i];
    if (result->kind != TT_RESULT_NEW) {
      continue;
    }
    size_t numel = 1, last = 0;
    for (int32_t dim = 0; dim < result->ndim; dim++) {
      demand(result->sizes[dim] >= 0 && result->strides[dim] >= 0, "a negative size or stride");
      numel *= (size_t)result->sizes[dim];
      last += (size_t)(result->sizes[dim] - 1) * (size_t)result->strides[dim];
    }
    demand(result->nbytes == numel * tt_dtype_size((tt_dtype)result->dtype), "a result of another size than its sizes");
    demand(!numel || last + 1 == numel, "a result that does not fill its storage");
  }
}

// A rule that returns without one of its results should have said why. Only counted: some leave out what isn't wanted.
static int64_t incomplete;

static void check_complete(const form *form, const tt_lowered *out) {
  for (int32_t i = 0; i < form->op->return_count && out->resize_arg < 0; i++) {
    bool found = form->op->return_is_list[i] || form->op->return_alias[i] >= 0;  // may be empty, or unchanged
    for (int32_t j = 0; j < out->result_count; j++) {
      found = found || out->results[j].position == i;
    }
    incomplete += !found;
    if (!found && getenv("TT_FUZZ_VERBOSE")) {
      printf("%s: no result %d\n", fuzz_current, i);
    }
  }
}

// ---- compiling ----
static tt_pjrt_plugin *plugin;
static tt_pjrt_client *client;
static int64_t rejected;

static bool has_kernels = true;

static tt_status *open_compiler(const char *path) {
  TT_TRY(tt_pjrt_plugin_load(path, &plugin));
  TT_TRY(tt_pjrt_client_create(plugin, &(tt_pjrt_client_options){0}, &client));
  has_kernels = tt_kernels_register(client);
  return NULL;
}

static void compile(const char *text) {
  static const char *names[] = {"xla_backend_optimization_level", "xla_cpu_use_fusion_emitters"};
  static const char *values[] = {"0", "false"};
  tt_pjrt_executable *executable = NULL;
  tt_status *status =
      tt_pjrt_compile(client, text, strlen(text), &(tt_pjrt_compile_options){names, values, 2, 0}, 0, &executable);
  if (status) {
    printf("rejected: %s: %s\n", fuzz_current, tt_status_message(status));
    rejected++;
    tt_status_free(status);
    return;
  }
  tt_pjrt_executable_free(client, executable);
}

// ---- one input ----
static int64_t succeeded, refused, internal;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static call c;
  source in = {data, data + size};
  const form *form = make_call(&c, &in);
  if (!form) {
    return 0;
  }
  tt_call_info info = {.op = form->op,
                       .args = c.args,
                       .arg_count = form->count,
                       .first_tensor = c.first_tensor,
                       .tensors = c.call_tensors,
                       .tensor_count = c.tensor_count,
                       .slots = c.slots,
                       .slot_count = c.slot_count,
                       .env = {.default_dtype = TT_F32,
                               .precision = TT_PRECISION_HIGHEST,
                               .is_cpu = one_in(&in, 2),
                               .has_host_kernels = has_kernels && one_in(&in, 2)}};
  alarm(FUZZ_SECONDS);
  tt_lowered out;
  tt_status *status = tt_rule_run(&info, &out);
  alarm(0);
  if (!status) {
    succeeded++;
    check_outputs(&c, &out);
    check_results(&out);
    check_complete(form, &out);
    if (client && out.text) {
      compile(out.text);
    }
    tt_lowered_free(&out);
    return 0;
  }
  refused++;
  internal += tt_status_code(status) == TT_ERR_INTERNAL;
  if (getenv("TT_FUZZ_VERBOSE")) {
    printf("%s: %s\n", fuzz_current, tt_status_message(status));
  }
  tt_status_free(status);
  return 0;
}

#ifdef TT_FUZZ_MAIN
int main(int argc, char **argv) {
  const char *compiler = getenv("TT_FUZZ_COMPILE");
  tt_status *status = compiler ? open_compiler(compiler) : NULL;
  if (status) {
    fprintf(stderr, "rule_fuzz: %s\n", tt_status_message(status));
    return 1;
  }
  setvbuf(stdout, NULL, _IOLBF, 0);
  long iterations = fuzz_run(argc, argv);
  printf("%ld iterations: %lld programs, %lld refusals, of which %lld internal errors; %lld results missing\n",
         iterations, (long long)succeeded, (long long)refused, (long long)internal, (long long)incomplete);
  tt_pjrt_client_free(client);
  tt_pjrt_plugin_free(plugin);
  return rejected > 0;
}
#endif

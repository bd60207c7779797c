// Graphs on the fake plugin: what is recorded, what runs, whose memory it takes, and what refuses.
#include "torchtpu/graph.h"
#include "support/eager.h"

static fake_control fake;
static void start(void) { fake = eager_start(2); }

static tt_graph *make_graph(void) {
  tt_graph *graph = NULL;
  CHECK_OK(tt_graph_create("test", &graph));
  return graph;
}

enum { MOST = 4 };
typedef struct inputs {
  tt_tensor tensors[MOST];
  tt_graph_call call;
} inputs;

static inputs *call_of(inputs *in, const tensor *x, const tensor *y) {
  in->tensors[0] = ref(x);
  in->tensors[1] = y ? ref(y) : (tt_tensor){.dtype = TT_F32, .host = {.type = TT_F64, .u.f = {2}}};
  in->call = (tt_graph_call){.inputs = in->tensors, .input_count = 2};
  return in;
}

// The stand-ins of a recording, as tensors of the inputs' geometry.
typedef struct stand_ins {
  tt_storage *storages[MOST];
  int32_t count, of[MOST];
  tensor x, y;
} stand_ins;

static bool dying[MOST];
static tt_status *begin(tt_graph *graph, const inputs *in, const tensor *x, const tensor *y, stand_ins *out) {
  *out = (stand_ins){0};
  TT_TRY(tt_graph_begin(graph, &in->call, dying, out->storages, &out->count, out->of));
  out->x = *x;
  out->y = y ? *y : (tensor){.dtype = TT_F32};
  out->x.storage = out->storages[out->of[0]];
  out->y.storage = out->storages[out->of[1]];
  return NULL;
}

static void drop_stand_ins(stand_ins *s) {
  for (int32_t i = 0; i < s->count; i++) {
    tt_storage_free(s->storages[i]);
  }
}

// x.add_(y); return x * y
static void record_update(tt_graph *graph, const inputs *in, const tensor *x, const tensor *y) {
  stand_ins s;
  tensor product;
  if (!CHECK_OK(begin(graph, in, x, y, &s))) {
    return;
  }
  CHECK(tt_graph_is_capturing());
  CHECK_OK(add_in_place(&s.x, &s.y));
  CHECK_OK(call_new(OP_MUL, ARGS(arg_tensor(&s.x), arg_tensor(&s.y)), &product));
  tt_tensor result = ref(&product);
  CHECK_OK(tt_graph_end(&result, 1));
  CHECK(!tt_graph_is_capturing());
  drop(&product);
  drop_stand_ins(&s);
}

static bool run(tt_graph *graph, const inputs *in, tt_storage **out) {
  tt_graph_results results;
  *out = NULL;
  if (!CHECK_OK(tt_graph_run(graph, &in->call, &results))) {
    return false;
  }
  if (results.found) {
    CHECK_INT(results.count, 1);
    CHECK_INT(results.storage_count, 1);
    CHECK_INT(results.results[0].storage, 0);
    CHECK_INT(results.results[0].input, -1);
    *out = results.storages[0];
  }
  tt_graph_results_release(&results);
  return results.found;
}

static int64_t executions(void) {
  tt_counters counters;
  CHECK_OK(tt_synchronize(-1));
  tt_get_counters(&counters);
  return counters.executions;
}

static void test_one_program(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(4, 8)), y = make_filled(TT_F32, DIMS(4, 8));
  tt_graph *graph = make_graph();
  inputs in;
  tt_storage *result;
  CHECK(!run(graph, call_of(&in, &x, &y), &result));
  int64_t before = compiles();
  record_update(graph, &in, &x, &y);
  CHECK_INT(compiles() - before, 1);  // the operators themselves are not compiled
  void *address = tt_storage_address(x.storage);
  for (int i = 0; i < 3; i++) {
    before = executions();
    CHECK(run(graph, call_of(&in, &x, &y), &result));
    CHECK_INT(executions() - before, 1);
    tt_storage_free(result);
  }
  CHECK(tt_storage_address(x.storage) == address);
  // Eager operators read what the graph wrote.
  tensor z;
  CHECK_OK(add(&x, &y, &z));
  drop(&z);
  // Another shape, layout or aliasing is another variant.
  tensor t = x;
  t.sizes[0] = 8, t.sizes[1] = 4, t.strides[0] = 1, t.strides[1] = 8;
  CHECK(!run(graph, call_of(&in, &t, &t), &result));
  CHECK(!run(graph, call_of(&in, &x, &x), &result));
  record_update(graph, &in, &x, &x);
  CHECK(run(graph, call_of(&in, &x, &x), &result));
  tt_storage_free(result);
  CHECK(run(graph, call_of(&in, &x, &y), &result));
  tt_storage_free(result);
  tt_graph_free(graph);
  drop(&x);
  drop(&y);
  eager_check_empty(&fake);
}

// The written input's memory is taken, unless somebody else has the value.
static void test_donation(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(64)), y = make_filled(TT_F32, DIMS(64)), copy = make(TT_F32, DIMS(64));
  tt_graph *graph = make_graph();
  inputs in;
  tt_storage *result;
  record_update(graph, call_of(&in, &x, &y), &x, &y);
  tt_memory_stats before, after;
  CHECK_OK(tt_get_memory_stats(0, &before));
  CHECK(run(graph, &in, &result));
  CHECK_OK(tt_synchronize(0));
  CHECK_OK(tt_get_memory_stats(0, &after));
  CHECK_INT(after.reserved - before.reserved, 256);
  tt_storage_free(result);
  tt_tensor to = ref(&copy), from = ref(&x);
  CHECK_OK(tt_copy(&to, &from));  // shares the value
  CHECK(run(graph, &in, &result));
  CHECK_OK(tt_synchronize(0));
  CHECK_OK(tt_get_memory_stats(0, &after));
  CHECK_INT(after.reserved - before.reserved, 512);
  unsigned char bytes[256];
  CHECK_OK(tt_copy_to_host(&to, bytes));
  tt_storage_free(result);
  tt_graph_free(graph);
  drop(&x);
  drop(&y);
  drop(&copy);
  eager_check_empty(&fake);
}

// A result takes the memory of an input that dies, which then has no value.
static void test_dying(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(64)), y = make_filled(TT_F32, DIMS(64)), product, copy = make(TT_F32, DIMS(64));
  tt_graph *graph = make_graph();
  inputs in;
  stand_ins s;
  call_of(&in, &x, &y);
  dying[1] = true;
  CHECK_OK(begin(graph, &in, &x, &y, &s));
  dying[1] = false;
  CHECK_OK(call_new(OP_MUL, ARGS(arg_tensor(&s.x), arg_tensor(&s.y)), &product));
  tt_tensor out = ref(&product), to = ref(&copy), from = ref(&y);
  CHECK_OK(tt_graph_end(&out, 1));
  drop(&product);
  drop_stand_ins(&s);
  tt_storage *result;
  unsigned char bytes[256];
  // Somebody else has the value: it stays.
  CHECK_OK(tt_copy(&to, &from));
  CHECK(run(graph, &in, &result));
  tt_storage_free(result);
  CHECK_OK(tt_copy_to_host(&from, bytes));
  drop(&copy);
  tt_memory_stats before, after;
  CHECK_OK(tt_synchronize(0));
  CHECK_OK(tt_get_memory_stats(0, &before));
  CHECK(run(graph, &in, &result));
  CHECK_OK(tt_synchronize(0));
  CHECK_OK(tt_get_memory_stats(0, &after));
  CHECK_INT(after.reserved, before.reserved);
  CHECK_ERROR(tt_copy_to_host(&from, bytes), TT_ERR_RUNTIME, "taken its memory");
  tt_storage_free(result);
  tt_graph_free(graph);
  drop(&x);
  drop(&y);
  eager_check_empty(&fake);
}

static void test_scalars_of_the_host(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(8));
  tt_graph *graph = make_graph();
  inputs in;
  tt_storage *result;
  stand_ins s;
  tensor product;
  call_of(&in, &x, NULL);
  CHECK_OK(begin(graph, &in, &x, NULL, &s));
  CHECK_INT(s.count, 2);
  CHECK_OK(call_new(OP_MUL, ARGS(arg_tensor(&s.x), arg_tensor(&s.y)), &product));
  tt_tensor out = ref(&product);
  CHECK_OK(tt_graph_end(&out, 1));
  drop(&product);
  drop_stand_ins(&s);
  for (int i = 0; i < 3; i++) {
    in.tensors[1].host.u.f[0] = i;
    CHECK(run(graph, &in, &result));
    tt_storage_free(result);
  }
  // One that is written to has nowhere to go.
  CHECK_OK(begin(graph, &in, &x, NULL, &s));
  CHECK_OK(add_in_place(&s.y, &s.y));
  out = ref(&s.x);
  CHECK_ERROR(tt_graph_end(&out, 1), TT_ERR_NOT_IMPLEMENTED, "CPU tensor");
  drop_stand_ins(&s);
  tt_graph_free(graph);
  drop(&x);
  eager_check_empty(&fake);
}

static void test_results_over_inputs(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(4, 8)), y = make_filled(TT_F32, DIMS(4));
  tt_graph *graph = make_graph();
  inputs in;
  stand_ins s;
  call_of(&in, &x, &y);
  CHECK_OK(begin(graph, &in, &x, &y, &s));
  tensor row = select_row(&s.x, 1), empty = make(TT_F32, DIMS(3));
  tt_tensor outs[] = {ref(&s.y), ref(&row), ref(&empty), ref(&empty)};
  CHECK_OK(tt_graph_end(outs, 4));
  drop(&empty);
  drop_stand_ins(&s);
  int64_t before = executions();
  tt_graph_results results;
  CHECK_OK(tt_graph_run(graph, &in.call, &results));
  CHECK(results.found);
  CHECK_INT(results.count, 4);
  CHECK(results.results[0].is_input);
  CHECK_INT(results.results[0].input, 1);
  CHECK(!results.results[1].is_input);
  CHECK_INT(results.results[1].input, 0);
  CHECK_INT(results.results[1].offset, 8);
  CHECK_INT(results.results[2].storage, 0);
  CHECK_INT(results.results[3].storage, 0);
  CHECK_INT(results.storage_count, 1);
  tt_storage_free(results.storages[0]);
  tt_graph_results_release(&results);
  CHECK_INT(executions(), before);  // there is nothing to run
  tt_graph_free(graph);
  drop(&x);
  drop(&y);
  eager_check_empty(&fake);
}

static void test_refusals(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(8)), y = make_filled(TT_F32, DIMS(8)), other = make_on(1, TT_F32, DIMS(8)), z;
  tt_graph *graph = make_graph();
  inputs in;
  stand_ins s, nested;
  unsigned char bytes[32];
  CHECK_ERROR(tt_graph_end(NULL, 0), TT_ERR_RUNTIME, "no graph");
  tt_graph_abort();
  call_of(&in, &x, &y);
  CHECK_OK(begin(graph, &in, &x, &y, &s));
  // What has no data can't be read; what isn't an input can't be written.
  tt_tensor stand_in = ref(&s.x), real = ref(&x);
  CHECK_ERROR(tt_copy_to_host(&stand_in, bytes), TT_ERR_RUNTIME, "captured");
  CHECK_ERROR(add_in_place(&x, &y), TT_ERR_RUNTIME, "not among its inputs");
  CHECK_ERROR(tt_copy_from_host(&real, bytes), TT_ERR_RUNTIME, "not among its inputs");
  CHECK_ERROR(tt_copy(&real, &stand_in), TT_ERR_RUNTIME, "not among its inputs");
  CHECK_ERROR(begin(graph, &in, &x, &y, &nested), TT_ERR_RUNTIME, "already");
  tt_graph_results results;
  CHECK_ERROR(tt_graph_run(graph, &in.call, &results), TT_ERR_NOT_IMPLEMENTED, "another is captured");
  CHECK_OK(add(&s.x, &y, &z));  // a tensor from outside is a constant
  tt_graph_abort();
  CHECK(!tt_graph_is_capturing());
  // What is left of a capture has no data and does no harm.
  tensor sum;
  CHECK_OK(add(&z, &y, &sum));
  tt_tensor rest = ref(&sum);
  CHECK_ERROR(tt_copy_to_host(&rest, bytes), TT_ERR_RUNTIME, "captured");
  drop(&sum);
  drop(&z);
  drop_stand_ins(&s);
  // Two devices.
  call_of(&in, &x, &other);
  CHECK_ERROR(tt_graph_run(graph, &in.call, &results), TT_ERR_NOT_IMPLEMENTED, "tpu:1");
  tt_graph_free(graph);
  drop(&x);
  drop(&y);
  drop(&other);
  eager_check_empty(&fake);
}

static void test_failures(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(8)), y = make_filled(TT_F32, DIMS(8));
  tt_graph *graph = make_graph();
  inputs in;
  stand_ins s;
  tensor product;
  tt_graph_results results;
  call_of(&in, &x, &y);
  CHECK_OK(begin(graph, &in, &x, &y, &s));
  CHECK_OK(call_new(OP_MUL, ARGS(arg_tensor(&s.x), arg_tensor(&s.y)), &product));
  tt_tensor out = ref(&product);
  fake.set("fail:PJRT_Client_Compile", 1);
  CHECK_ERROR(tt_graph_end(&out, 1), TT_ERR_RUNTIME, "compiling tpu::graph");
  drop(&product);
  drop_stand_ins(&s);
  CHECK_OK(tt_graph_run(graph, &in.call, &results));
  CHECK(!results.found);
  record_update(graph, &in, &x, &y);
  // A program that fails leaves its error in what it was to make.
  fake.set("fail:PJRT_LoadedExecutable_Execute", 1);
  tt_storage *result;
  CHECK(run(graph, &in, &result));
  tt_status *status = tt_synchronize(0);
  CHECK(status != NULL);
  tt_status_free(status);
  tt_storage_free(result);
  tt_graph_free(graph);
  drop(&x);
  drop(&y);
  eager_check_empty(&fake);
}

// A graph's options go with its own programs; what is wrong with them is told apart from a module's faults.
static void test_options(void) {
  start();
  static const char *const names[] = {"xla_one", "xla_cpu_enable_fast_min_max"}, *const values[] = {"1", "true"};
  tensor x = make_filled(TT_F32, DIMS(4)), y = make_filled(TT_F32, DIMS(4));
  tt_graph *plain = make_graph(), *graph = make_graph();
  CHECK_OK(tt_graph_set_options(graph, names, values, 2));
  inputs in;
  call_of(&in, &x, &y);
  record_update(plain, &in, &x, &y);
  const int64_t everybodys = fake.get("options");  // of the last compile
  record_update(graph, &in, &x, &y);
  CHECK_INT(fake.get("options"), everybodys + 1);  // one of them takes the place of ours
  CHECK_OK(tt_graph_check_options(names, values, 2));
  fake.set("unknown_options", 2);
  CHECK_ERROR(tt_graph_check_options(names, values, 2), TT_ERR_VALUE, "xla_one");
  CHECK_OK(tt_graph_check_options(names, values, 0));
  fake.set("unknown_options", 0);
  tt_graph_free(plain);
  tt_graph_free(graph);
  drop(&x);
  drop(&y);
  eager_check_empty(&fake);
}

TEST_MAIN(TEST(test_options), TEST(test_one_program), TEST(test_donation), TEST(test_dying),
          TEST(test_scalars_of_the_host), TEST(test_results_over_inputs), TEST(test_refusals), TEST(test_failures))

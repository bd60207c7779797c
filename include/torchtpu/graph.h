// Whole graphs: recorded once, run as one program each time.
//
// A graph has variants: what it was recorded for is the geometry of its inputs, which of them share a storage, and the
// numbers given with them. tt_graph_run() says when there is none yet; then between tt_graph_begin() and tt_graph_end()
// the calling thread's operators are recorded instead of run, on stand-ins for the inputs.
#ifndef TORCHTPU_GRAPH_H
#define TORCHTPU_GRAPH_H

#include "torchtpu/torchtpu.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct tt_graph tt_graph;
TT_MUST_USE tt_status *tt_graph_create(const char *name, tt_graph **out_graph);
// XLA options for the compiles of this graph's programs alone; of the same name, they win over all others. Before the
// first recording.
TT_MUST_USE tt_status *tt_graph_set_options(tt_graph *graph, const char *const *names, const char *const *values,
                                            int32_t count);
// Whether the plugin takes such options: compiles next to nothing with them. TT_ERR_VALUE where it doesn't.
// Initialises.
TT_MUST_USE tt_status *tt_graph_check_options(const char *const *names, const char *const *values, int32_t count);
void tt_graph_free(tt_graph *graph);  // no call to it is under way; NULL is allowed

// What a graph is called with. A tensor without a storage is a 0-d CPU tensor, whose value is an operand.
typedef struct tt_graph_call {
  const tt_tensor *inputs;
  int32_t input_count, number_count;
  const int64_t *numbers;
} tt_graph_call;

typedef struct tt_graph_result {
  int32_t storage;  // which of the new storages; or -1
  int32_t input;    // the input whose storage it has; or -1
  bool is_input;    // it is that input
  uint8_t dtype;
  int32_t ndim;
  int64_t offset;
  const int64_t *sizes, *strides;
} tt_graph_result;

enum { TT_INLINE_GRAPH_STORAGES = 32 };
typedef struct tt_graph_results {
  bool found;  // false: there is no such variant, and nothing was run
  int32_t count, storage_count;
  const tt_graph_result *results;  // the graph's
  tt_storage **storages;           // [storage_count]: the caller's
  tt_storage *inline_storages[TT_INLINE_GRAPH_STORAGES];
} tt_graph_results;
TT_MUST_USE tt_status *tt_graph_run(tt_graph *graph, const tt_graph_call *call, tt_graph_results *out_results);
void tt_graph_results_release(tt_graph_results *results);  // not the storages

// Begins to record a variant for such a call on the calling thread. Gives a storage to stand for each distinct one
// among the inputs, and for each CPU scalar (`out_storages` and `out_storage_of` have room for input_count). They are
// the caller's, and must live until the end. `dying` (NULL: none) marks inputs that nobody reads after a call, so that
// results may take their memory.
TT_MUST_USE tt_status *tt_graph_begin(tt_graph *graph, const tt_graph_call *call, const bool *dying,
                                      tt_storage **out_storages, int32_t *out_storage_count, int32_t *out_storage_of);
// Ends it and compiles: the results are these tensors. Also ends it when it fails.
TT_MUST_USE tt_status *tt_graph_end(const tt_tensor *results, int32_t count);
void tt_graph_abort(void);         // ends it without a variant; nothing if there is none
bool tt_graph_is_capturing(void);  // the calling thread

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif  // TORCHTPU_GRAPH_H

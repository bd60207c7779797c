// The hot path: no allocation for up to INLINE_COUNT arguments.
#include <stdlib.h>
#include <string.h>

#include "pjrt/internal.h"

enum { INLINE_COUNT = 64 };

static void drop_results(const PJRT_Api *api, tt_pjrt_buffer **results, int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    tt_pjrt_destroy_buffer(api, (PJRT_Buffer *)results[i]);
    results[i] = NULL;
  }
}

static tt_status *execute(tt_pjrt_client *client, tt_pjrt_executable *executable, tt_pjrt_buffer *const *arguments,
                          size_t count, const int64_t *kept, size_t kept_count, tt_pjrt_buffer **out_results,
                          tt_pjrt_event **out_done) {
  PJRT_ExecuteOptions options = {.struct_size = client->table->execute_options_size,
                                 .non_donatable_input_indices = kept,
                                 .num_non_donatable_input_indices = kept_count};
  PJRT_Buffer *const *argument_list = (PJRT_Buffer *const *)arguments;
  PJRT_Buffer **result_list = (PJRT_Buffer **)out_results;
  PJRT_Event *done = NULL;
  PJRT_LoadedExecutable_Execute_Args args = {.struct_size = PJRT_LoadedExecutable_Execute_Args_STRUCT_SIZE,
                                             .executable = executable->loaded,
                                             .options = &options,
                                             .argument_lists = &argument_list,
                                             .num_devices = 1,
                                             .num_args = count,
                                             .output_lists = &result_list,
                                             .device_complete_events = out_done ? &done : NULL};
  PJRT_Error *error = client->api->PJRT_LoadedExecutable_Execute(&args);
  if (__builtin_expect(error != NULL, 0)) {
    // "If Execute returns an error, device_complete_events will not be populated", nor are the results.
    for (int32_t i = 0; i < executable->result_count; i++) {
      out_results[i] = NULL;
    }
    return tt_pjrt_take_error(client->api, error, "execute");
  }
  bool whole = !out_done || done;
  for (int32_t i = 0; i < executable->result_count; i++) {
    whole = whole && out_results[i];
  }
  if (__builtin_expect(!whole, 0)) {
    drop_results(client->api, out_results, executable->result_count);
    tt_pjrt_destroy_event(client->api, done);
    return tt_error(TT_ERR_RUNTIME, "execute: the PJRT plugin left out a result or the completion event");
  }
  if (out_done) {
    *out_done = (tt_pjrt_event *)done;
  }
  return NULL;
}

tt_status *tt_pjrt_execute(tt_pjrt_client *client, tt_pjrt_executable *executable, int32_t device,
                           tt_pjrt_buffer *const *arguments, const bool *donate, int32_t count,
                           tt_pjrt_buffer **out_results, tt_pjrt_event **out_done) {
  if (out_done) {
    *out_done = NULL;
  }
  for (int32_t i = 0; i < executable->result_count; i++) {
    out_results[i] = NULL;
  }
  if (count < 0 || (count && !arguments)) {
    return tt_error(TT_ERR_INTERNAL, "execute: %d arguments", count);
  }
  if (device != executable->device) {
    return tt_error(TT_ERR_INTERNAL, "execute: the program was compiled for device %d, not for %d", executable->device,
                    device);
  }
  int64_t few[INLINE_COUNT], *kept = few;
  if (executable->may_donate && count > INLINE_COUNT && !(kept = malloc((size_t)count * sizeof *kept))) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  size_t kept_count = 0;
  for (int32_t i = 0; i < count; i++) {
    if (!arguments[i]) {  // XLA would crash
      if (kept != few) {
        free(kept);
      }
      return tt_error(TT_ERR_INTERNAL, "execute: argument %d is no buffer", i);
    }
    if (executable->may_donate && !(donate && donate[i])) {
      kept[kept_count++] = i;
    }
  }
  tt_status *status = execute(client, executable, arguments, (size_t)count, kept, kept_count, out_results, out_done);
  if (kept != few) {
    free(kept);
  }
  return status;
}

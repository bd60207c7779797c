// Capture: what a thread calls is recorded instead of run, to become one program.
//
// While a thread captures, the storages that it makes are phantoms and so are their values: they have a shape and no
// data. Records are built and not compiled. The capture keeps what it recorded until it is freed.
#ifndef TORCHTPU_EAGER_CAPTURE_H
#define TORCHTPU_EAGER_CAPTURE_H

#include "eager/key.h"

typedef struct tt_capture {
  tt_engine *engine;
  tt_arena arena;
  tt_op_cache records;
  tt_step **steps;  // their literals that are random hold how far from `offset` they begin, in the first 8 bytes
  int32_t count, capacity;
  tt_status *no_data;  // what readers of its values are told
  // The default generator's when it began, to which it goes back; and how far the recorded calls took it.
  uint64_t seed, offset, taken;
} tt_capture;

// The calling thread's, or NULL.
extern _Thread_local tt_capture *tt_capturing;

// Begins on the calling thread.
TT_MUST_USE tt_status *tt_capture_begin(tt_engine *engine, tt_capture **out_capture);
void tt_capture_stop(void);                 // the calling thread's calls run again; what was recorded stays
void tt_capture_free(tt_capture *capture);  // NULL is allowed; no lock held
// A storage whose value has this shape and no data (rank < 0: no value).
TT_MUST_USE tt_status *tt_capture_storage(tt_capture *capture, size_t nbytes, tt_dtype dtype, const int64_t *dims,
                                          int32_t rank, tt_storage **out_storage);
// Refuses, during a capture, a storage that the program would not find again.
TT_MUST_USE tt_status *tt_capture_check_write(const tt_storage *storage);
// Appends a call; engine lock held.
TT_MUST_USE tt_status *tt_capture_record(const tt_call_state *s, tt_record *record, tt_results *out);

#endif  // TORCHTPU_EAGER_CAPTURE_H

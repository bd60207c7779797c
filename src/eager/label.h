// What a thread calls what it does (record_function), and where that stands in a module.
#ifndef TORCHTPU_EAGER_LABEL_H
#define TORCHTPU_EAGER_LABEL_H

#include "base/strbuf.h"
#include "torchtpu/observe.h"

bool tt_label_any(void);  // whether the calling thread has one
// The calling thread's labels, the outermost first: "epoch 1/forward".
void tt_label_write(tt_strbuf *out);
char *tt_label_copy(void);  // the same, the caller's; NULL without memory
// " loc("label/op")"
void tt_label_put_location(tt_strbuf *out, const char *label, const char *op);
// The module's text with the thread's labels as the locations of its operations, "epoch 1/forward/add", which is what
// XLA's metadata and its profiles show. NULL if there are none; else the caller's. The record's own text, of which
// fused programs and keys are made, is never changed.
char *tt_label_text(const char *text, const char *op);

#endif  // TORCHTPU_EAGER_LABEL_H

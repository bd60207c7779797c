// A growing text buffer, always terminated.
#ifndef TORCHTPU_BASE_STRBUF_H
#define TORCHTPU_BASE_STRBUF_H

#include <stdbool.h>
#include <stddef.h>

typedef struct tt_strbuf {
  char *data;  // owned; NULL while empty
  size_t length, capacity;
  bool failed;  // memory ran out: the text is cut and further appends do nothing
} tt_strbuf;

// A buffer needs no initialisation beyond zeroing. What is appended must not lie in the buffer itself.
void tt_strbuf_append(tt_strbuf *buffer, const char *text, size_t length);
void tt_strbuf_puts(tt_strbuf *buffer, const char *text);
void tt_strbuf_printf(tt_strbuf *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *tt_strbuf_text(const tt_strbuf *buffer);  // "" while empty
void tt_strbuf_free(tt_strbuf *buffer);

#endif  // TORCHTPU_BASE_STRBUF_H
